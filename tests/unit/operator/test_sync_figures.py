"""Figures of two readings of a histogram, and pages that have none."""

from __future__ import annotations

import math

import pytest
from gantry_operator.support.sync_figures import (
    SYNCS_MIN,
    Buckets,
    SyncFigure,
    buckets_of,
    figure,
)
from gantry_protocol.process.sync_times import SyncTimes, sync_times
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

INF = math.inf
NAME = "gantry_broker_disk_sync_seconds"


def hist(low: int, mid: int, high: int) -> Buckets:
    """So many up to 1 ms, up to 10 ms, and above."""
    return Buckets(((0.001, low), (0.01, low + mid), (INF, low + mid + high)))


@pytest.mark.parametrize(
    ("buckets", "p99_s"),
    [
        (hist(0, 0, 0), None),
        (hist(1, 0, 0), 0.001),
        (hist(99, 1, 0), 0.001),
        (hist(98, 2, 0), 0.01),
        (hist(198, 0, 2), 0.001),
        (hist(197, 0, 3), INF),
        (Buckets(()), None),
    ],
)
def test_99_of_100_are_within_the_bound(buckets: Buckets, p99_s: float | None) -> None:
    assert buckets.p99_s() == p99_s


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # the slow ones were before the window
        (hist(0, 0, 50), hist(100, 0, 50), SyncFigure(0.001, 100, 100, is_of_window=True)),
        # too few to have a percentile: all of them count
        (hist(0, 0, 50), hist(99, 0, 50), SyncFigure(INF, 149, 99, is_of_window=False)),
        (hist(5, 0, 0), hist(5, 0, 0), SyncFigure(0.001, 5, 0, is_of_window=False)),
        (None, hist(500, 0, 0), SyncFigure(0.001, 500, 0, is_of_window=False)),
        (hist(0, 0, 0), hist(0, 0, 0), SyncFigure(None, 0, 0, is_of_window=False)),
        # a process that began anew has fewer than before, in one bucket or in all
        (hist(900, 0, 0), hist(0, 700, 0), SyncFigure(0.01, 700, 0, is_of_window=False)),
        (hist(300, 600, 0), hist(400, 300, 300), SyncFigure(INF, 1000, 0, is_of_window=False)),
        # another version has other bounds
        (
            Buckets(((0.5, 900), (INF, 900))),
            hist(950, 0, 0),
            SyncFigure(0.001, 950, 0, is_of_window=False),
        ),
    ],
)
def test_two_readings(first: Buckets | None, second: Buckets, expected: SyncFigure) -> None:
    assert SYNCS_MIN == 100
    assert figure(first, second) == expected


def test_a_page_as_processes_make_it() -> None:
    times = SyncTimes()
    for _ in range(98):
        times.note(0.0003)
    times.note(0.004)
    times.note(20.0)

    class Made(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            yield sync_times(NAME, "Text.", [times])
            yield sync_times(f"{NAME}_else", "Text.", [SyncTimes()])

    registry = CollectorRegistry()
    registry.register(Made())
    found = buckets_of(generate_latest(registry).decode(), NAME)
    assert found is not None
    assert (found.count, found.p99_s()) == (100, 0.005)


@pytest.mark.parametrize(
    "page",
    [
        "",
        "gantry_broker_disk_syncs_total 5\n",
        f'{NAME}_bucket{{le="0.1"}} 5\n',
        f'{NAME}_bucket{{le="0.1"}} 5\n{NAME}_bucket{{le="+Inf"}} 4\n',
        f'{NAME}_bucket{{le="0.2"}} 5\n{NAME}_bucket{{le="0.1"}} 5\n{NAME}_bucket{{le="+Inf"}} 5\n',
        f'{NAME}_bucket{{le="x"}} 5\n{NAME}_bucket{{le="+Inf"}} 5\n',
        f'{NAME}_bucket{{le="+Inf"}} 1e999\n',
        f'{NAME}_bucket{{le="+Inf"}} --\n',
    ],
)
def test_a_page_without_the_histogram_or_with_half_of_it_tells_nothing(page: str) -> None:
    assert buckets_of(page, NAME) is None
