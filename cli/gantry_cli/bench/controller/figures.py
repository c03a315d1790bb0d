"""What is computed from what was seen: percentiles, shares of processors, lines over all runs."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NewType

from gantry_protocol.errors import GantryError

from gantry_cli.bench.results import Line, line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BENCH = "controller"
SAMPLES_MIN = 100  # fewer make no 99th percentile

Latencies = NewType("Latencies", list[float])
"""Seconds, ascending."""


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


UNITS = {
    "ops_per_s": ("1/s", 0),
    "p50_ms": ("ms", 2),
    "p99_ms": ("ms", 2),
    "gap_ms": ("ms", 0),
    "leader_cpu_us": ("us", 1),
    "followers_cpu_us": ("us", 1),
    "generator_cpu_percent": ("%", 0),
    "leader_cpu_percent": ("%", 1),
    "spared_percent": ("%", 1),
    "writes_kept_percent": ("%", 1),
    "seconds": ("s", 2),
    "rss_mb": ("MB", 0),
    "pause_p99_ms": ("ms", 2),
    "ratio": ("1", 2),
    "groups": ("1", 0),
    "time_limit_reached": ("1", 0),
}
"""Unit and decimal places by metric."""


def lines(
    case: str,
    runs: Sequence[Mapping[str, float]],
    *,
    bench: str = BENCH,
    units: Mapping[str, tuple[str, int]] = UNITS,
) -> list[Line]:
    """One line per metric over all runs; every run has the same metrics."""
    return [
        line(bench, case, metric, unit, [run[metric] for run in runs], digits=digits)
        for metric, (unit, digits) in units.items()
        if metric in runs[0]
    ]
