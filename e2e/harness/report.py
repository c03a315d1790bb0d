"""What a run found: figures with their verdicts, as a Markdown table and as JSON.

Pure but for `write`. A figure beyond its limit is told in the table and does not fail a test: how
fast a shared machine is says little about correctness. Where others had the processors meanwhile, a
figure is shown and not judged at all. Lost messages, unexplained duplicates and two masters fail
the test they happen in, on any machine.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, NamedTuple

from harness.quiet import OTHERS_MAX, is_quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HEADINGS = ("What happens", "Measured", "Runs", "Min", "Median", "Max", "Limit", "Verdict")


class Account(NamedTuple):
    """What became of the messages sent during one scenario, over all clients."""

    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    explained: int = 0

    def plus(self, other: Account) -> Account:
        """Both together."""
        return Account(*(a + b for a, b in zip(self, other, strict=True)))


class Row(NamedTuple):
    """One figure over all runs of a scenario."""

    scenario: str
    measured: str
    unit: str
    values: tuple[float, ...]
    limit: float | None
    account: Account
    others: float | None = 0.0
    """Share of the processors that others had meanwhile, 0 to 1; None if nobody could tell."""

    @property
    def verdict(self) -> str:
        """`ok`, or how far the worst run is beyond the limit, if the machine was quiet."""
        if self.limit is None or max(self.values) <= self.limit:
            return "ok"
        if not is_quiet(self.others):
            return f"not judged ({_share(self.others)})"
        return f"over by {_figure(max(self.values) - self.limit, self.unit)}"


class Report:
    """Rows in the order in which they were measured.

    Args:
        lap: tells the share of the processors that others had since it was asked last.
    """

    def __init__(self, lap: Callable[[], float | None]) -> None:
        self.rows: list[Row] = []
        self._lap = lap

    def add(
        self,
        scenario: str,
        measured: str,
        values: Sequence[float],
        *,
        unit: str = "ms",
        limit: float | None = None,
        account: Account | None = None,
    ) -> Row:
        """Enter one figure; there is at least one value."""
        assert values, "a figure without a run is none"
        others = self._lap()
        if self.rows and self.rows[-1].scenario == scenario:
            # Figures of one scenario are entered together, after all of its runs.
            others = _busier(self.rows[-1].others, others)
        row = Row(scenario, measured, unit, tuple(values), limit, account or Account(), others)
        self.rows.append(row)
        return row

    def markdown(self) -> str:
        """The table, and below it the account of all messages and how quiet the machine was."""
        return f"{table(self.rows)}\n{summary(self.rows)}\n\n{quietness(self.rows)}\n"

    def write(self, folder: Path) -> Path:
        """Write `report.md` and `report.json`; the path of the first."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(
            json.dumps([row._asdict() | {"verdict": row.verdict} for row in self.rows], indent=1)
        )
        path = folder / "report.md"
        path.write_text(self.markdown())
        return path


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [f"| {' | '.join(HEADINGS)} |", "| --- " * len(HEADINGS) + "|"]
    for row in rows:
        middle = statistics.median(row.values)
        figures = [_figure(value, row.unit) for value in (min(row.values), middle, max(row.values))]
        limit = "" if row.limit is None else _figure(row.limit, row.unit)
        cells = (row.scenario, row.measured, len(row.values), *figures, limit, row.verdict)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """One sentence about all messages."""
    total = Account()
    for row in rows:
        total = total.plus(row.account)
    return (
        f"{total.acknowledged:,} messages acknowledged, {total.lost} of them lost, "
        f"{total.duplicated} stored twice ({total.explained} of these after a lost answer)."
    )


def quietness(rows: Sequence[Row]) -> str:
    """One sentence about the machine."""
    told = [row.others for row in rows if row.others is not None]
    busy = [row for row in rows if not is_quiet(row.others)]
    most = f"{100 * max(told, default=0):.0f} %"
    if not busy:
        return f"The machine was quiet: others had at most {most} of its processors."
    return (
        f"The machine was busy during {len(busy)} of {len(rows)} figures: others had up to {most} "
        f"of its processors, and limits are judged up to {100 * OTHERS_MAX:.0f} % only."
    )


def _busier(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _share(others: float | None) -> str:
    if others is None:
        return "nobody knows how busy the machine was"
    return f"others had {100 * others:.0f} % of the processors"


def _figure(value: float, unit: str) -> str:
    if unit == "ms" and value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
