"""Long polling: pulls that wait for a record.

A parked pull wakes when its queue gets a confirmed record or its time is over, and is then answered
under its own opaque on its own connection. Upstream: ``PullRequestHoldService``, whose sweep every
5 s is not copied.
"""

import itertools
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.deadlines import Deadlines

from gantry_broker.queues.queue_set import QueueKey

KeyT = TypeVar("KeyT")

MAX_PARKED = 200_000  # the server's own bound on unanswered requests
MAX_WAIT_S = 25.0  # clients give a pull up after 30


class ParkedPull(msgspec.Struct, eq=False):
    """One waiting pull.

    Attributes:
        connection: where to answer.
        request: what to answer.
        key: topic and queue.
        offset: where to go on; rises when records were examined that the filter drops.
        asked_offset: where the client asked to begin.
        max_count: records wanted.
        codes: tag codes wanted; None wants all.
        number: its name while it is parked.
    """

    connection: Connection
    request: RemotingCommand
    key: QueueKey
    offset: int
    asked_offset: int
    max_count: int
    codes: frozenset[int] | None
    number: int = 0


class Parking:
    """All parked pulls of one master.

    Args:
        serve: called with a pull and whether its time is over; returns whether it is done with.
    """

    def __init__(self, serve: Callable[[ParkedPull, bool], bool]) -> None:
        self._serve = serve
        self._pulls: dict[int, ParkedPull] = {}
        self._by_queue: dict[QueueKey, set[int]] = {}
        self._by_connection: dict[int, set[int]] = {}
        self._deadlines = Deadlines(self._expired)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._pulls)

    @property
    def is_full(self) -> bool:
        """Whether no more pulls may wait."""
        return len(self._pulls) >= MAX_PARKED

    def park(self, pull: ParkedPull, wait_s: float) -> None:
        """Let ``pull`` wait for at most ``wait_s``."""
        number = pull.number = next(self._numbers)
        self._pulls[number] = pull
        self._by_queue.setdefault(pull.key, set()).add(number)
        self._by_connection.setdefault(pull.connection.id, set()).add(number)
        self._deadlines.add(number, min(wait_s, MAX_WAIT_S))

    def arrived(self, keys: Collection[QueueKey]) -> None:
        """Records were confirmed in these queues; who waited longest is served first."""
        if not self._pulls:
            return
        for key in keys:
            for number in sorted(self._by_queue.get(key, ())):
                pull = self._pulls.get(number)
                if pull is not None and self._serve(pull, False):
                    self._forget(pull)

    def drop(self, conn: Connection) -> None:
        """A connection closed: nobody waits on it any more."""
        for number in self._by_connection.pop(conn.id, set()):
            self._forget(self._pulls[number])

    def release(self) -> None:
        """Answer everybody with what there is now: this broker stops serving them.

        A client that hears "nothing yet" asks again at once, and finds the next master; one that
        hears nothing waits for its own time-out.
        """
        for number in list(self._pulls):
            self._expired(number)

    def close(self) -> None:
        """Drop everything."""
        self._deadlines.clear()
        self._pulls.clear()
        self._by_queue.clear()
        self._by_connection.clear()

    def _expired(self, number: int) -> None:
        pull = self._pulls.get(number)
        if pull is not None:
            self._serve(pull, True)
            self._forget(pull)

    def _forget(self, pull: ParkedPull) -> None:
        self._deadlines.remove(pull.number)
        if self._pulls.pop(pull.number, None) is None:
            return
        _discard(self._by_queue, pull.key, pull.number)
        _discard(self._by_connection, pull.connection.id, pull.number)


def _discard(table: dict[KeyT, set[int]], key: KeyT, number: int) -> None:
    """Take ``number`` out of a set in ``table``; an empty set goes."""
    numbers = table.get(key)
    if numbers is not None:
        numbers.discard(number)
        if not numbers:
            del table[key]
