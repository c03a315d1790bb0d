"""The JSONPath of printer columns: fields, indexes and equality filters."""

from __future__ import annotations

import re
from typing import Any

_STEP = re.compile(
    r"\.([A-Za-z0-9_-]+)"
    r"|\[(\d+)\]"
    r"|\['([^']+)'\]"
    r"|\[\?\(@\.([A-Za-z0-9_.-]+)==[\"']([^\"']*)[\"']\)\]"
)


class JsonPathError(Exception):
    """The path uses something outside the subset."""


def parse(path: str) -> list[tuple[str, Any]]:
    """Steps of a path such as ``.status.conditions[?(@.type=="Ready")].status``.

    Raises:
        JsonPathError: quoting the path.
    """
    steps: list[tuple[str, Any]] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise JsonPathError(f"JSONPath {path!r} is not supported at {path[position:]!r}")
        name, index, quoted, field, value = match.groups()
        if field is not None:
            steps.append(("filter", (field.split("."), value)))
        elif index is not None:
            steps.append(("index", int(index)))
        else:
            steps.append(("field", name or quoted))
        position = match.end()
    return steps


def find(obj: Any, steps: list[tuple[str, Any]]) -> Any:
    """The first value the steps lead to; None when there is none."""
    for kind, what in steps:
        if kind == "field":
            obj = obj.get(what) if isinstance(obj, dict) else None
        elif kind == "index":
            obj = obj[what] if isinstance(obj, list) and what < len(obj) else None
        else:
            field, value = what
            items = obj if isinstance(obj, list) else []
            obj = next((item for item in items if _at(item, field) == value), None)
        if obj is None:
            return None
    return obj


def _at(obj: Any, path: list[str]) -> Any:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj
