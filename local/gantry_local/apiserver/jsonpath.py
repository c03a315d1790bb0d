"""The JSONPath of our printer columns: fields, and the item of a list that one field names."""

from __future__ import annotations

import re
from typing import Any

_STEP = re.compile(r"""\.(\w+)|\[\?\(@\.(\w+)==["'](\w+)["']\)\]""")


class JsonPathError(Exception):
    """The path uses something outside the subset."""


def parse(path: str) -> list[tuple[str, str, str]]:
    """Steps of a path such as ``.status.conditions[?(@.type=="Ready")].status``.

    Raises:
        JsonPathError: quoting the path.
    """
    if rest := _STEP.sub("", path):
        raise JsonPathError(f"JSONPath {path!r} is not supported at {rest!r}")
    return _STEP.findall(path)


def find(obj: Any, steps: list[tuple[str, str, str]]) -> Any:
    """The value the steps lead to; None when there is none."""
    for name, key, value in steps:
        if name:
            obj = obj.get(name) if isinstance(obj, dict) else None
        else:
            items = obj if isinstance(obj, list) else []
            obj = next((item for item in items if item.get(key) == value), None)
    return obj
