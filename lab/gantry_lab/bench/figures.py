"""What is computed from what was seen: percentiles, and lines over all runs of a case."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NewType

import msgspec
from gantry_protocol.errors import GantryError

from gantry_lab.bench.results import Line, line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLES_MIN = 100  # fewer make no 99th percentile

Latencies = NewType("Latencies", list[float])
"""Seconds, ascending."""

Runs = list[dict[str, float]]
"""The figures of each run, by metric; every run has the same metrics."""


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


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a load saw while it was counted.

    Attributes:
        operations: answered as they should be, within it.
        latencies_s: of those, ascending.
        generator_s: CPU time of the load generator.
    """

    operations: int
    seconds: float
    latencies_s: Latencies
    generator_s: float

    @property
    def per_second(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    def p_ms(self, share: float) -> float:
        """The latency that this share of the operations stayed below, in milliseconds."""
        return percentile(self.latencies_s, share) * 1000


UNITS = {
    "messages_per_s": ("1/s", 0),
    "flood_per_s": ("1/s", 0),
    "ops_per_s": ("1/s", 0),
    "mb_per_s": ("MB/s", 1),
    "p50_ms": ("ms", 2),
    "p99_ms": ("ms", 2),
    "gap_ms": ("ms", 0),
    "leader_cpu_us": ("us", 1),
    "followers_cpu_us": ("us", 1),
    "master_cpu_us": ("us", 1),
    "replicas_cpu_us": ("us", 1),
    "generator_cpu_us": ("us", 1),
    "generator_cpu_percent": ("%", 0),
    "leader_cpu_percent": ("%", 1),
    "spared_percent": ("%", 1),
    "writes_kept_percent": ("%", 1),
    "refused_percent": ("%", 2),
    "disk_read_percent": ("%", 0),
    "acknowledged": ("1", 0),
    "lost": ("1", 0),
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
that leads, of all others together, of the load generator."""


def lines(case: str, runs: Sequence[Mapping[str, float]], *, bench: str) -> list[Line]:
    """One line per metric over all runs; every run has the same metrics."""
    return [
        line(bench, case, metric, unit, [run[metric] for run in runs], digits=digits)
        for metric, (unit, digits) in UNITS.items()
        if metric in runs[0]
    ]
