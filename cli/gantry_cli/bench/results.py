"""Benchmark results: one line per figure, and the table that people get instead.

Pure. A line names what was measured, over how many runs and on how many processors; smallest,
median and largest are given, never an average, since a gap is judged by its worst case.
"""

from __future__ import annotations

import os
import statistics
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Line(msgspec.Struct, frozen=True):
    """One figure over all runs of one case."""

    bench: str
    case: str
    metric: str
    unit: str
    min: float
    median: float
    max: float
    runs: int
    cpus: int


def line(bench: str, case: str, metric: str, unit: str, values: Sequence[float]) -> Line:
    """Sum `values` up; there is at least one."""
    assert values, "a case without a run has no figures"
    return Line(
        bench=bench,
        case=case,
        metric=metric,
        unit=unit,
        min=round(min(values), 1),
        median=round(statistics.median(values), 1),
        max=round(max(values), 1),
        runs=len(values),
        cpus=os.cpu_count() or 1,
    )


def rows(lines: Sequence[Line]) -> list[tuple[object, ...]]:
    """The lines as rows of a table headed by `HEADINGS`."""
    return [
        (one.bench, one.case, one.metric, one.unit, one.min, one.median, one.max, one.runs)
        for one in lines
    ]


HEADINGS = ("BENCH", "CASE", "METRIC", "UNIT", "MIN", "MEDIAN", "MAX", "RUNS")
