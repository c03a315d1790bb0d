"""Logs that lose their old part without a tier: no sooner than they may, and no later for ever.

Whoever is looked at, a log keeps what its settings say: so many bytes below what is confirmed, or
all that was written within so many hours. At the end each comes to its bound, and nothing is left
in it that rotted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sim.kernel.world import SECOND, Violation
from sim.product.cluster import SEGMENT_BYTES

if TYPE_CHECKING:
    from sim.product.watch import Watch

SLACK_US = 2 * SECOND
OVER_BYTES = 4 * SEGMENT_BYTES  # files go as a whole, and a state stands behind the cut
OLD_US = 4 * SECOND  # at one look the state is written, at the next one the log is cut below it


class RetainWatch:
    """See the module.

    Args:
        watch: that looks.
        kept_bytes: how much is kept; None sets no bound.
        kept_us: how long it is kept; None for ever.
        gives_way: whether a full disk loses what is oldest before its time.
    """

    def __init__(
        self,
        watch: Watch,
        kept_bytes: int | None,
        kept_us: int | None,
        *,
        gives_way: bool = False,
    ) -> None:
        self._watch = watch
        self._kept_bytes = kept_bytes
        self._kept_us = kept_us
        self._gives_way = gives_way
        self._ends: deque[tuple[int, int]] = deque()  # when, how far any log went
        self._old_end = 0  # how far, so long ago that it may go
        self._clocks_agree = True
        self._bounded: set[str] = set()
        self._grown: deque[tuple[int, int]] = deque()  # when, how far any log went, lately
        watch.more.append(self._look)

    def _look(self) -> None:
        cluster = self._watch.cluster
        now_us = cluster.world.now_us
        self._clocks_agree = self._clocks_agree and cluster.clocks_agree
        groups = [(node, cluster.group_of(node)) for node in cluster.brokers]
        logs = [(node, group._store.log) for node, group in groups if group is not None]
        end = max((int(log.end) for _, log in logs), default=0)
        self._ends.append((now_us, end))
        self._grown.append((now_us, end))
        while self._grown[0][0] < now_us - OLD_US:
            self._grown.popleft()
        if self._kept_us is not None:
            drift = 1 + cluster.drift
            while self._ends and self._ends[0][0] < now_us - self._kept_us / drift + SLACK_US:
                self._old_end = max(self._old_end, self._ends.popleft()[1])
        allowed = self._old_end if self._kept_us is not None else 0
        if self._kept_bytes is not None:
            allowed = max(allowed, len(self._watch.confirmed) - self._kept_bytes)
        for node, log in logs:
            start = int(log.log_start)
            cluster.world.counters["log_start"] = max(
                cluster.world.counters.get("log_start", 0), start
            )
            is_known = not self._gives_way and (self._clocks_agree or self._kept_us is None)
            if is_known and start > max(allowed, 0):
                raise Violation(f"kept: the log of {node.name} begins at {start}, not by {allowed}")
            if start > len(self._watch.confirmed):
                raise Violation(f"kept: the log of {node.name} begins at {start}, not confirmed")

    @property
    def is_bounded(self) -> bool:
        """Whether each log was seen to keep not much more than it is to keep, since it was asked.

        Not all at once, and what was written lately is not counted: a log grows by a lot between
        two looks of its retention.
        """
        lately = self._grown[-1][1] - self._grown[0][1]
        cluster = self._watch.cluster
        for node in cluster.brokers:
            group = cluster.group_of(node)
            log = None if group is None else group._store.log
            most = OVER_BYTES + (self._kept_bytes or 0) + lately
            if log and (self._kept_bytes is None or log.end - log.log_start <= most):
                self._bounded.add(node.name)
        return len(self._bounded) == len(cluster.brokers)

    @property
    def is_sound(self) -> bool:
        """Whether the scrub has had everything mended that rotted and is still kept."""
        return is_mended(self._watch)


def is_mended(watch: Watch) -> bool:
    """Whether everything that rotted and is still kept reads as it was confirmed."""
    cluster, confirmed = watch.cluster, watch.confirmed
    for node in cluster.brokers:
        group, name = cluster.group_of(node), cluster.groups[0]
        for at in cluster.flipped.get(node.name, ()):
            if group is None or at < group._store.log.log_start:
                continue
            if cluster.logs.read(node, name, at, at + 1) != bytes(confirmed[at : at + 1]):
                return False
    return True
