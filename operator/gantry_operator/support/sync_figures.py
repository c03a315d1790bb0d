"""Syncs of a pod's disk: the time they take, read off the histogram in its metrics; pure.

The figure is the bound of a bucket: p99 is *at most* so much. It rests on what was synced between
two readings if that is enough, on everything since the process began otherwise, and says which.
Nothing is made of a histogram without syncs.
"""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

SYNCS_MIN: Final = 100
"""Fewer than these have no 99th percentile: one slow sync would be all there is to it."""
RANK: Final = 0.99
_BUCKET: Final = r'_bucket\{(?:[^}"]|"[^"]*")*\ble="([^"]+)"[^}]*\} ([0-9.eE+-]+)(?: |$)'


class Buckets(msgspec.Struct, frozen=True):
    """A histogram as Prometheus has it: for each bound, in s, how many were at most that."""

    upto: tuple[tuple[float, int], ...]

    @property
    def count(self) -> int:
        """All of them."""
        return self.upto[-1][1] if self.upto else 0

    def p99_s(self) -> float | None:
        """The bound that 99 of 100 are within, infinite above all bounds; None without any."""
        wanted = math.ceil(RANK * self.count)
        return (
            next((bound for bound, count in self.upto if count >= wanted), None) if wanted else None
        )


class SyncFigure(msgspec.Struct, frozen=True):
    """The knowledge of a disk.

    Attributes:
        p99_s: at most so much; None if nothing was synced; infinite above the last bound.
        syncs: that it rests on.
        within: those between the two readings.
        is_of_window: whether it rests on those alone.
    """

    p99_s: float | None
    syncs: int
    within: int
    is_of_window: bool


def buckets_of(metrics: str, name: str) -> Buckets | None:
    """The histogram of that name in a page of metrics; None if it has none, or a broken one."""
    found: list[tuple[float, int]] = []
    for match in re.finditer(f"^{re.escape(name)}{_BUCKET}", metrics, re.MULTILINE):
        try:
            bound, count = float(match[1].replace("+Inf", "inf")), int(float(match[2]))
        except (ValueError, OverflowError):
            return None
        found.append((bound, count))
    counts = [count for _, count in found]
    if not found or found != sorted(found) or counts != sorted(counts) or found[-1][0] != math.inf:
        return None
    return Buckets(tuple(found))


def figure(first: Buckets | None, second: Buckets) -> SyncFigure:
    """The figure of two readings.

    Args:
        first: None if there was no answer; of a process before it began anew it does not count.
        second: the later one.
    """
    window = None if first is None else _between(first, second)
    within = 0 if window is None else window.count
    if window is not None and within >= SYNCS_MIN:
        return SyncFigure(window.p99_s(), within, within, is_of_window=True)
    return SyncFigure(second.p99_s(), second.count, within, is_of_window=False)


def _between(first: Buckets, second: Buckets) -> Buckets | None:
    """The difference of two readings; None if the second reading is of another process."""
    if [bound for bound, _ in first.upto] != [bound for bound, _ in second.upto]:
        return None
    added = tuple(
        (bound, after - before)
        for (bound, before), (_, after) in zip(first.upto, second.upto, strict=True)
    )
    counts = [count for _, count in added]
    return Buckets(added) if counts[0] >= 0 and counts == sorted(counts) else None
