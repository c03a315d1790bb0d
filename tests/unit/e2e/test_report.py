"""What an end-to-end run reports: a figure beyond its limit is told, messages are added up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.report import Account, Report, table
from readme import BEGIN, END, read, replaced


def report() -> Report:
    found = Report()
    found.add(
        "Master killed", "write gap", [120, 1600, 80], limit=1500, account=Account(10, 0, 2, 2)
    )
    found.add("Installed", "until Available", [8.25], unit="s", limit=60)
    found.add("Quorum deleted", "write gap", [40.0], account=Account(5, 1, 0, 0))
    return found


def test_figures_and_verdicts() -> None:
    lines = report().markdown().splitlines()
    assert lines[2] == (
        "| Master killed | write gap | 3 | 80 ms | 120 ms | 1.60 s | 1.50 s | over by 100 ms |"
    )
    assert lines[3] == "| Installed | until Available | 1 | 8.2 s | 8.2 s | 8.2 s | 60 s | ok |"
    assert lines[4] == "| Quorum deleted | write gap | 1 | 40 ms | 40 ms | 40 ms |  | ok |"
    assert lines[6] == (
        "15 messages acknowledged, 1 of them lost, 2 stored twice (2 of these after a lost answer)."
    )


def test_a_figure_needs_a_run() -> None:
    with pytest.raises(AssertionError):
        Report().add("nothing", "write gap", [])


def test_what_is_written_can_be_read_back(tmp_path: Path) -> None:
    found = report()
    assert found.write(tmp_path).read_text() == found.markdown()
    entries = json.loads((tmp_path / "report.json").read_text())
    assert [read(entry) for entry in entries] == found.rows


def test_the_readme_shows_what_has_a_limit() -> None:
    rows = report().rows
    text = replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", rows)
    assert text.startswith(f"before\n{BEGIN}\n{table(rows[:2])}")
    assert text.endswith(f"{END}\nafter\n")
    assert "Quorum deleted" not in text
    assert "15 messages" in text
    assert replaced(text, rows) == text
    with pytest.raises(ValueError, match="lacks"):
        replaced("no markers", rows)
