"""docs/failure-modes.md names a test for every bad input, and each of them is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "failure-modes.md"


def _rows() -> list[list[str]]:
    section = PAGE.read_text().split("\n## Bad input\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@cache
def _tests_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row[0][:40])
def test_the_test_of_a_row_exists(row: list[str]) -> None:
    bad, answer, test = row
    assert bad
    assert answer
    file, name = test.strip("`").split("::")
    assert name.startswith("test_")
    assert name in _tests_of(TESTS / file)


def test_the_page_has_its_rows() -> None:
    assert len(_rows()) > 30
