"""What an end-to-end run reports: a figure beyond its limit is told, messages are added up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.quiet import Used, Watch, others_share
from harness.report import Account, Report, table
from readme import BEGIN, END, read, replaced


def report() -> Report:
    found = Report(lambda: 0.0)
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
    assert lines[8] == "The machine was quiet: others had at most 0 % of its processors."


def laps(*shares: float | None) -> Report:
    """A report of figures that are all beyond their limits, but for the last one's."""
    told = iter(shares)
    found = Report(lambda: next(told))
    for number, _ in enumerate(shares[:-1]):
        found.add(f"case {number}", "write gap", [120], limit=100)
    found.add("kept", "write gap", [80], limit=100, account=Account(10, 1, 0, 0))
    return found


def test_limits_are_judged_on_a_quiet_machine_only() -> None:
    found = laps(0.1, 0.11, None, 0.9)
    assert [row.verdict for row in found.rows] == [
        "over by 20 ms",
        "not judged (others had 11 % of the processors)",
        "not judged (nobody knows how busy the machine was)",
        "ok",
    ]
    text = found.markdown()
    assert "busy during 3 of 4 figures: others had up to 90 % of its processors" in text
    assert "10 messages acknowledged, 1 of them lost" in text, "safety is told on any machine"


def test_figures_of_one_scenario_share_its_busiest_lap() -> None:
    told = iter([0.5, 0.0])
    found = Report(lambda: next(told))
    found.add("killed", "write gap", [1], limit=100)
    assert found.add("killed", "commit gap", [120], limit=100).others == 0.5


@pytest.mark.parametrize(
    ("busy_s", "stolen_s", "ours_s", "share"),
    [
        (12.0, 0.0, 12.0, 0.0),
        (20.0, 0.0, 10.0, 0.5),
        (5.0, 3.0, 5.0, 0.15),
        (11.9, 0.0, 12.0, 0.0),
        (20.0, 0.0, 0.0, 1.0),
    ],
    ids=["all ours", "half", "stolen", "rounding", "none ours"],
)
def test_the_share_of_others(busy_s: float, stolen_s: float, ours_s: float, share: float) -> None:
    before = Used(100.0, 7.0, 1.0, 3.0)
    after = Used(110.0, 7.0 + busy_s, 1.0 + stolen_s, 3.0 + ours_s)
    assert others_share(before, after, processors=2) == pytest.approx(share)


@pytest.mark.parametrize("version", [1, 2])
def test_the_kernel_is_read(tmp_path: Path, version: int) -> None:
    node = tmp_path / ("cpuacct/docker/a" if version == 1 else "system.slice/docker-a.scope")
    assert Watch(Path("/proc"), tmp_path).lap() is None, "no node, no answer"
    node.mkdir(parents=True)
    if version == 1:
        (node / "cpuacct.usage").write_text("5000000000\n")
    else:
        (node / "cpu.stat").write_text("usage_usec 5000000\nuser_usec 1\n")
    watch = Watch(Path("/proc"), tmp_path)
    used = watch.used()
    assert used is not None
    assert used.ours_s >= 5.0
    assert used.busy_s > 0
    share = watch.lap()
    assert share is not None
    assert 0.0 <= share <= 1.0


def test_a_figure_needs_a_run() -> None:
    with pytest.raises(AssertionError):
        Report(lambda: 0.0).add("nothing", "write gap", [])


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
