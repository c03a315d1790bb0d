"""What a run found: figures with their verdicts, as a Markdown table and as JSON.

Pure but for `write`. A figure beyond its limit is told in the table and does not fail a test: how
fast a shared machine is says little about correctness. Lost messages, unexplained duplicates and
two masters fail the test they happen in.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
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

    @property
    def verdict(self) -> str:
        """`ok`, or how far the worst run is beyond the limit."""
        if self.limit is None or max(self.values) <= self.limit:
            return "ok"
        return f"over by {_figure(max(self.values) - self.limit, self.unit)}"


class Report:
    """Rows in the order in which they were measured."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

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
        row = Row(scenario, measured, unit, tuple(values), limit, account or Account())
        self.rows.append(row)
        return row

    def markdown(self) -> str:
        """The table, and the account of all messages below it."""
        return table(self.rows) + "\n" + summary(self.rows) + "\n"

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


def _figure(value: float, unit: str) -> str:
    if unit == "ms" and value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
