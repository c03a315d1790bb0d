"""Decoders of processes with threads: made where modules are imported, by one thread.

msgspec (0.22) learns a class when it first decodes one, without a lock: where two threads do so at
once, the process ends by SIGSEGV. A broker of many groups reads all their volumes at its start.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "controller", "protocol", "proxy")
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("gantry_*/**/*.py"))


def test_modules_are_found() -> None:
    assert len(MODULES) > 400


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_is_learned_amid_a_call(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        if path.is_relative_to(ROOT / package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "decode"
        and any(keyword.arg == "type" for keyword in node.keywords)
    ]
    assert found == [], "make a decoder beside the class"
