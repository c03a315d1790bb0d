"""What is to be reached by which figure, and where a page shows it."""

from __future__ import annotations

from typing import NamedTuple


class Goal(NamedTuple):
    """One row.

    Attributes:
        case: the case.
        metric: its figure.
        text: what it is, in the table.
        least: what the median must reach; None if there is no such bound.
        most: what it may not exceed.
        worst: what no run may exceed.
        times: how many times that of each other benchmark it must be.
    """

    case: str
    metric: str
    text: str
    least: float | None = None
    most: float | None = None
    worst: float | None = None
    times: float | None = None


class Layout(NamedTuple):
    """A table of a page, between two comments of its own.

    Attributes:
        bench: whose figures it shows.
        others: benchmarks that are shown beside it, where there are figures of them.
        goals: its rows.
        sentence: what shared the machine, in the last line.
    """

    bench: str
    others: tuple[str, ...]
    goals: tuple[Goal, ...]
    sentence: str

    @property
    def begin(self) -> str:
        """The comment before it."""
        return f"<!-- {self.bench} figures: begin -->"

    @property
    def end(self) -> str:
        """The comment after it."""
        return f"<!-- {self.bench} figures: end -->"
