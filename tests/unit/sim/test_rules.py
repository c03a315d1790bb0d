"""The simulator's page says of each rule which run and which test check it; all of that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sim.mutants.catalogue import MUTANTS
from sim.product.runs import RUNS

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
RULES = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([HT]\d+) \| (.+) \|$", re.MULTILINE)
CHECKS = {tag: cells.split(" | ") for tag, cells in ROW.findall(PAGE)}


def test_every_rule_has_a_row() -> None:
    assert CHECKS.keys() == dict(ROW.findall(RULES)).keys()


def test_every_kind_of_run_has_a_row() -> None:
    table = PAGE[: PAGE.index("What is looked at")]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == RUNS.keys()


@pytest.mark.parametrize("tag", CHECKS)
def test_what_a_row_names_exists(tag: str) -> None:
    runs, tests, mutants = CHECKS[tag]
    for file, names in re.findall(r"`(\w+\.py)`((?:,? `\w+`)*)", runs):
        code = (TESTS / "sim" / "product" / file).read_text(encoding="utf-8")
        assert [name for name in re.findall(r"\w+", names) if f"def {name}(" not in code] == []
    assert re.match(r"`(\w+)`", runs)[1] in RUNS  # type: ignore[index]  # it matches, or fails
    found = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
    assert found
    for path, name in found:
        assert f"def {name}(" in (TESTS / path).read_text(encoding="utf-8"), name
    assert set(re.findall(r"`([\w-]+)`", mutants)) <= {mutant.name for mutant in MUTANTS}
