"""Sending the log to replicas: first to those that producers wait for, then to those behind.

A replica that copies a log takes processor, disk and network from everybody else, and nobody waits
for it. So it gets its bytes after the members that ``confirm`` waits for got theirs and after the
sync was asked for, a share in each turn of the event loop, and at a bounded pace.

Rules protected: what differs from what was flushed is not sent (``log/checked``). The pace is no
reason never to come closer; it is above what the log grows. The window, the replica's disk and the
share of a turn bound a copy as well.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry_protocol.types import Offset

from gantry_broker.log.checked import DamagedError
from gantry_broker.queues import MessageStore
from gantry_broker.replica import ReplicaCore

if TYPE_CHECKING:
    from gantry_broker.ha.links import ReplicationLinks

FEED_BYTES = 256 * 1024  # in a turn, to one member or to all behind: about 0.5 ms of work
CATCH_UP_BYTES_PER_S = 120_000_000  # of a group; docs/adr/0038
BURST_BYTES = 2 * 1024 * 1024  # what the pace earns, and a log may grow, in a turn of 10 ms

_SHORTEST_WAIT_S = 0.001  # what the event loop can wait


class FeedRate:
    """A budget of bytes with which the other side gains at most so many in a second.

    Args:
        bytes_per_s: beyond what the log grows.
        burst_bytes: what is not used is kept up to this, and there at the beginning.
        now_s: the time.
        end: of the log.
    """

    def __init__(self, bytes_per_s: int, burst_bytes: int, now_s: float, end: Offset) -> None:
        """Begin."""
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._room = float(burst_bytes)
        self._seen_s = now_s
        self._seen_end = end

    def room(self, now_s: float, end: Offset) -> float:
        """Bytes that may be sent now, with the log's end where it is; none if not above zero."""
        earned = (now_s - self._seen_s) * self._bytes_per_s
        grown = max(end - self._seen_end, 0)
        self._room = min(self._room + earned + grown, self._burst_bytes)
        self._seen_s, self._seen_end = now_s, end
        return self._room

    def spend(self, size: int) -> None:
        """So many were sent; the last message may exceed what there was room for."""
        self._room -= size

    @property
    def wait_s(self) -> float:
        """Until there is room again."""
        return max(-self._room, 0) / self._bytes_per_s


class Feeder:
    """Sends the log of one group while its replica is the master.

    Args:
        core: knows what each link may get.
        store: has the log.
        again: asks for another turn.
    """

    def __init__(self, core: ReplicaCore, store: MessageStore, again: Callable[[], None]) -> None:
        """Nothing is sent before there are links."""
        self.links: ReplicationLinks | None = None
        self._core = core
        self._store = store
        self._again = again
        self._loop = asyncio.get_running_loop()
        self._behind: list[int] = []
        self._pace: FeedRate | None = None
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Ask for no more turns."""
        if self._timer is not None:
            self._timer.cancel()

    def keep_up(self) -> None:
        """Send to the members that ``confirm`` waits for; what exceeds a share follows soon."""
        self._behind = []
        if self.links is None or self._core.master is None:
            return
        waited_for, self._behind = self._core.master.links_by_need()
        for link in waited_for:
            self._send(self.links, link, FEED_BYTES)

    def fill(self) -> None:
        """Send to those that ``keep_up`` found behind, as far as the pace allows.

        The closest is first: the sooner it is in sync, the sooner a disk may be lost.
        """
        if self.links is None or not self._behind:
            self._pace = None
            return
        now_s, end = self._loop.time(), self._store.log.end
        if self._pace is None:
            self._pace = FeedRate(CATCH_UP_BYTES_PER_S, BURST_BYTES, now_s, end)
        room = self._pace.room(now_s, end)
        if room <= 0:
            self._wait(self._pace.wait_s)
            return
        share = min(room, FEED_BYTES)
        for link in self._behind:
            sent = self._send(self.links, link, share)
            self._pace.spend(sent)
            share -= sent

    def _send(self, links: "ReplicationLinks", link: int, share: float) -> int:
        """Send whole messages until ``share`` bytes are reached; returns how many it was."""
        sent = 0
        while not links.is_congested(link):
            batch = self._core.next_batch(link)
            if batch is None:
                break
            if sent >= share:
                self._again()
                break
            try:
                data = self._store.log.read_units(batch.offset, batch.size_hint, limit=batch.limit)
            except DamagedError:
                break  # the link lives on, and the replica gets what follows once it is repaired
            links.send(link, self._core.sent(link, batch, data))
            sent += len(data)
        return sent

    def _wait(self, wait_s: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(wait_s, _SHORTEST_WAIT_S), self._waited)

    def _waited(self) -> None:
        self._timer = None
        self._again()
