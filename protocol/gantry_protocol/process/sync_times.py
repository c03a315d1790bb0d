"""A histogram of how long a disk took to make something durable, cheap enough for each sync.

One thread at a time notes into one; a process with several writers has several, and shows their
sum. The bounds are the same in every process, so that figures of brokers and controllers compare.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class SyncTimes:
    """The times of one writer's syncs.

    Attributes:
        counts: syncs by bound, each those up to it and above the one before; the last ones are
            above all bounds.
        total_s: of all of them.
    """

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        """No sync yet."""
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def note(self, took_s: float) -> None:
        """A sync has returned."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.total_s += took_s


def sync_times(name: str, text: str, writers: Sequence[SyncTimes]) -> Metric:
    """The metric of all writers of a process together."""
    counts = [sum(each) for each in zip(*(one.counts for one in writers), strict=True)]
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    return HistogramMetricFamily(
        name,
        text,
        buckets=list(zip(bounds, accumulate(counts or [0] * len(bounds)), strict=True)),
        sum_value=sum(one.total_s for one in writers),
    )
