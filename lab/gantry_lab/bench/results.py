"""Benchmark results: one line per figure, and the table that people get instead.

A line names what was measured, over how many runs and on how many processors; smallest, median and
largest are given, never an average, since a gap is judged by its worst case. ``machine`` says what
they were measured on, and what else it had to do then.
"""

from __future__ import annotations

import os
import platform
import statistics
from pathlib import Path
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


def line(
    bench: str, case: str, metric: str, unit: str, values: Sequence[float], *, digits: int = 1
) -> Line:
    """Sum `values` up, to so many decimal places; there is at least one."""
    assert values, "a case without a run has no figures"
    return Line(
        bench=bench,
        case=case,
        metric=metric,
        unit=unit,
        min=round(min(values), digits),
        median=round(statistics.median(values), digits),
        max=round(max(values), digits),
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


class Machine(msgspec.Struct, frozen=True):
    """What figures were measured on.

    Attributes:
        load: runnable processes over the last minute before the measurement; above 0 means that
            the machine did something else, too.
    """

    cpus: int
    processor: str
    memory_mib: int
    kernel: str
    python: str
    load: float


def machine() -> Machine:
    """This machine, as it is now."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        facts = ""
    names = [row.partition(":")[2].strip() for row in facts.splitlines() if "model name" in row]
    return Machine(
        cpus=os.cpu_count() or 1,
        processor=names[0] if names else platform.machine(),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        kernel=platform.release(),
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 2),
    )
