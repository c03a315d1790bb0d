"""Benchmark results: one line per figure, and the table that people get instead.

A line names what was measured, over how many runs and on how many processors; smallest, median and
largest are given, never an average, since a gap is judged by its worst case. ``machine`` says what
they were measured on, and what else it had to do then.
"""

from __future__ import annotations

import os
import platform
import statistics
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NewType

import click
import msgspec
from gantry_cli.output import print_table
from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLES_MIN = 100  # fewer make no 99th percentile

Latencies = NewType("Latencies", list[float])
"""Seconds, ascending."""

Runs = list[dict[str, float]]
"""The figures of each run, by metric; every run has the same metrics."""

UNITS = {
    "messages_per_s": ("1/s", 0),
    "flood_per_s": ("1/s", 0),
    "plain_per_s": ("1/s", 0),
    "off_per_s": ("1/s", 0),
    "ops_per_s": ("1/s", 0),
    "mb_per_s": ("MB/s", 1),
    "p50_ms": ("ms", 2),
    "p99_ms": ("ms", 2),
    "late_p99_ms": ("ms", 0),
    "late_max_ms": ("ms", 0),
    "gap_ms": ("ms", 0),
    "leader_cpu_us": ("us", 1),
    "followers_cpu_us": ("us", 1),
    "master_cpu_us": ("us", 1),
    "replicas_cpu_us": ("us", 1),
    "generator_cpu_us": ("us", 1),
    "plain_master_cpu_us": ("us", 1),
    "plain_generator_cpu_us": ("us", 1),
    "off_master_cpu_us": ("us", 1),
    "off_generator_cpu_us": ("us", 1),
    "generator_cpu_percent": ("%", 0),
    "leader_cpu_percent": ("%", 1),
    "spared_percent": ("%", 1),
    "writes_kept_percent": ("%", 1),
    "refused_percent": ("%", 2),
    "disk_read_percent": ("%", 0),
    "acknowledged": ("1", 0),
    "lost": ("1", 0),
    "lost_answers": ("1", 0),
    "duplicated": ("1", 0),
    "kills": ("1", 0),
    "created_s": ("s", 1),
    "restart_s": ("s", 1),
    "seconds": ("s", 2),
    "rss_mb": ("MB", 0),
    "pause_p99_ms": ("ms", 2),
    "p99_before_ms": ("ms", 2),
    "p99_during_ms": ("ms", 2),
    "ratio": ("1", 2),
    "groups": ("1", 0),
    "time_limit_reached": ("1", 0),
}
"""Unit and decimal places by metric. CPU in microseconds is per operation or message: of the one
that leads, of all others together, of the load generator. `plain_…` and `off_…`: of the way that
another one is compared with."""


class FigureLine(msgspec.Struct, frozen=True):
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
) -> FigureLine:
    """Sum `values` up, to so many decimal places; there is at least one."""
    assert values, "a case without a run has no figures"
    return FigureLine(
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


def lines(case: str, runs: Sequence[Mapping[str, float]], *, bench: str) -> list[FigureLine]:
    """One line per metric over all runs; every run has the same metrics."""
    return [
        line(bench, case, metric, unit, [run[metric] for run in runs], digits=digits)
        for metric, (unit, digits) in UNITS.items()
        if metric in runs[0]
    ]


def percentile(ascending: Latencies, share: float) -> float:
    """The smallest value that at least this share (0 to 1) of all values does not exceed.

    Raises:
        GantryError: there are too few to speak of one.
    """
    if len(ascending) < SAMPLES_MIN:
        raise GantryError(
            f"Only {len(ascending)} operations were answered; {SAMPLES_MIN} are needed. "
            "Measure longer with --seconds."
        )
    return ascending[max(ceil(len(ascending) * share), 1) - 1]


class Machine(msgspec.Struct, frozen=True):
    """The machine that figures were measured on.

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


def show(lines: Sequence[FigureLine], on: Machine) -> None:
    """The figures as a table, and what they were measured on."""
    headings = tuple(name.upper() for name in FigureLine.__struct_fields__[:-1])
    print_table(headings, [msgspec.structs.astuple(item)[:-1] for item in lines])
    click.echo(
        f"{on.cpus} processors ({on.processor}), {on.memory_mib} MiB, Linux {on.kernel}, "
        f"Python {on.python}; load before: {on.load:.2f}"
    )
