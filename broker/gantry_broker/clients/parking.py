"""Long polling: pulls that wait for a record.

A parked pull wakes when its queue gets a confirmed record or its time is over, and is then answered
under its own opaque on its own connection. How many wait, and what they hold, is bounded
(``waiting_room``). Upstream: ``PullRequestHoldService``, whose sweep every 5 s is not copied.
"""

import itertools
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.deadlines import Deadlines
from gantry_protocol.types import Offset

from gantry_broker.clients.waiting_room import RoomLimits, WaitingRoom, held_bytes
from gantry_broker.store.contract import GetResult, QueueKey, QueueRead

KeyT = TypeVar("KeyT")

MAX_WAIT_S = 25.0  # clients give a pull up after 30
_LIMITS = RoomLimits()


class ParkedPull(msgspec.Struct, eq=False):
    """One waiting pull.

    Attributes:
        connection: where to answer.
        request: what to answer.
        wanted: what to read; its offset rises when records were examined that the filter drops.
        asked_offset: where the client asked to begin.
        sql: the filter that records must pass, by its text alone, which others hold; None for none.
        number: its name while it is parked; 0 before and after.
        size_bytes: what it holds while it is parked.
        last: what the store said last.
        is_reading: the store is being asked.
        has_news: records came meanwhile: ask again.
    """

    connection: Connection
    request: RemotingCommand
    wanted: QueueRead
    asked_offset: int
    sql: str | None = None
    number: int = 0
    size_bytes: int = 0
    last: GetResult | None = None
    is_reading: bool = False
    has_news: bool = False

    @property
    def key(self) -> QueueKey:
        """Topic and queue."""
        return self.wanted.topic, self.wanted.queue_id


class Parking:
    """All parked pulls of one master.

    Args:
        read: asks the store again for a pull; ``forget`` or nothing follows.
        give_up: answers a pull whose time is over with what the store said last.
        limits: how much may wait.

    Attributes:
        room: what waits now.
    """

    def __init__(
        self,
        read: Callable[[ParkedPull], None],
        give_up: Callable[[ParkedPull], None],
        limits: RoomLimits = _LIMITS,
    ) -> None:
        self.room = WaitingRoom(limits)
        self._read = read
        self._give_up = give_up
        self._pulls: dict[int, ParkedPull] = {}
        self._by_queue: dict[QueueKey, set[int]] = {}
        self._by_connection: dict[int, set[int]] = {}
        self._deadlines = Deadlines(self._expired)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._pulls)

    def park(self, pull: ParkedPull, wait_s: float) -> bool:
        """Let ``pull`` wait for at most ``wait_s``; False if there is no room for it."""
        size_bytes = held_bytes(pull.request, pull.wanted.codes)
        if not self.room.enter(pull.connection.id, size_bytes):
            return False
        number = pull.number = next(self._numbers)
        pull.size_bytes = size_bytes
        self._pulls[number] = pull
        self._by_queue.setdefault(pull.key, set()).add(number)
        self._by_connection.setdefault(pull.connection.id, set()).add(number)
        self._deadlines.add(number, min(wait_s, MAX_WAIT_S))
        return True

    def arrived(self, confirm: Offset, keys: Collection[QueueKey]) -> None:
        """Records were confirmed in these queues; who waited longest is served first."""
        if not self._pulls:
            return
        for key in keys:
            for number in sorted(self._by_queue.get(key, ())):
                pull = self._pulls.get(number)
                if pull is None:
                    continue
                if pull.is_reading:
                    pull.has_news = True
                else:
                    self._read(pull)

    def of_queue(self, key: QueueKey) -> list[ParkedPull]:
        """The pulls that wait for records of a queue."""
        return [self._pulls[number] for number in sorted(self._by_queue.get(key, ()))]

    def all(self) -> list[ParkedPull]:
        """The pulls that wait, in the order in which they came."""
        return list(self._pulls.values())

    def drop(self, conn: Connection) -> None:
        """A connection closed: nobody waits on it any more."""
        for number in list(self._by_connection.get(conn.id, ())):
            self.forget(self._pulls[number])

    def release(self) -> None:
        """Answer everybody with what was there last: this broker stops serving them.

        A client that hears "nothing yet" asks again at once, and finds the next master; one that
        hears nothing waits for its own time-out.
        """
        for number in list(self._pulls):
            self._expired(number)

    def release_one(self, pull: ParkedPull) -> None:
        """Answer one with what was there last; it asks again at once."""
        self._expired(pull.number)

    def close(self) -> None:
        """Drop everything."""
        for pull in list(self._pulls.values()):
            self.forget(pull)

    def _expired(self, number: int) -> None:
        pull = self._pulls.get(number)
        if pull is not None:
            self._give_up(pull)
            self.forget(pull)

    def forget(self, pull: ParkedPull) -> None:
        """It is answered, or nobody waits for an answer; twice is harmless."""
        number, pull.number = pull.number, 0
        self._deadlines.remove(number)
        if self._pulls.pop(number, None) is None:
            return
        self.room.leave(pull.connection.id, pull.size_bytes)
        _discard(self._by_queue, pull.key, number)
        _discard(self._by_connection, pull.connection.id, number)


def _discard(table: dict[KeyT, set[int]], key: KeyT, number: int) -> None:
    """Take ``number`` out of a set in ``table``; an empty set goes."""
    numbers = table.get(key)
    if numbers is not None:
        numbers.discard(number)
        if not numbers:
            del table[key]
