"""Placing of consumers of queues with several readers: the master's division of its load; pure.

Each consumer of a queue sits at one member. A new one gets the member from which least is read, the
master last of equals, since it has the writes as well. It stays there unless that member has grown
much heavier than the lightest one, so that nobody goes back and forth. What a consumer reads in a
second follows from its own offsets, wherever it reads: all come by now and then.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from gantry_protocol.bodies.route import MASTER_ID

CONSUMERS_MAX = 10_000
FORGET_S = 120.0  # of a consumer that has not come by
MEASURE_S = 1.0  # at least, between two looks at an offset
STAYS_UP_TO = 1.25  # of what is read at the lightest member

_GUESSED_BYTES = 1_000  # of a message, before one was seen


class Consumer(NamedTuple):
    """A client that reads a queue for a consumer group."""

    client: str
    group: str
    topic: str
    queue_id: int


class _Seat(NamedTuple):
    """The place of a consumer, as of a look at it.

    Attributes:
        member: a broker id, or the master's 0.
        weight: bytes that it reads in a second, about.
        is_measured: otherwise ``weight`` is what others read.
        message_bytes: of one, about.
    """

    member: int
    weight: float
    is_measured: bool
    message_bytes: float
    offset: int
    at_s: float


@lru_cache(maxsize=4096)
def able_members(
    readers: int, replicas: tuple[int, ...], topic: str, queue_id: int
) -> tuple[int, ...]:
    """The members that serve a queue: the master, and as many replicas as are asked for.

    Different queues have different replicas; one that comes or goes moves no more than it has to.

    Args:
        readers: members that are to serve, the master included.
        replicas: broker ids of those that could.
        topic: of the queue.
        queue_id: likewise.
    """

    def rank(member: int) -> bytes:
        return blake2b(f"{topic}/{queue_id}/{member}".encode(), digest_size=8).digest()

    return MASTER_ID, *sorted(replicas, key=rank)[: max(readers - 1, 0)]


class Placing:
    """See the module."""

    def __init__(self) -> None:
        """Nobody has come by."""
        self._seats: dict[Consumer, _Seat] = {}  # whoever came by last stands last
        self._loads: dict[int, float] = {}

    def at(self, member: int) -> int:
        """Consumers that sit at a member."""
        return sum(seat.member == member for seat in self._seats.values())

    def place(
        self,
        consumer: Consumer,
        offset: int,
        message_bytes: float | None,
        able: Sequence[int],
        now_s: float,
    ) -> int:
        """The member that a consumer is to ask next.

        Args:
            consumer: comes by.
            offset: where it goes on.
            message_bytes: of what it has just got; None if that was nothing.
            able: members that may serve its queue, the master among them.
            now_s: the time, never falling.
        """
        known = self._seats.get(consumer)
        if known is not None and known.member in able and now_s - known.at_s < MEASURE_S:
            return known.member
        self._forget(now_s)
        if known is None and len(self._seats) >= CONSUMERS_MAX:
            return MASTER_ID
        if self._seats.pop(consumer, None) is not None and known is not None:
            self._loads[known.member] -= known.weight
        weight = self._guess() if known is None else _measured(known, offset, now_s)
        member = self._choose(known, able, weight)
        size = message_bytes or (_GUESSED_BYTES if known is None else known.message_bytes)
        self._seats[consumer] = _Seat(member, weight, known is not None, size, offset, now_s)
        self._loads[member] = self._load(member) + weight
        return member

    def _choose(self, known: _Seat | None, able: Sequence[int], weight: float) -> int:
        lightest = min(able, key=lambda item: (self._load(item), item == MASTER_ID, item))
        if known is None or known.member not in able:
            return lightest
        stays = self._load(known.member) <= self._load(lightest) * STAYS_UP_TO + weight
        return known.member if stays else lightest

    def _load(self, member: int) -> float:
        return self._loads.get(member, 0.0)

    def _guess(self) -> float:
        """What a consumer reads that nobody knows yet: as much as the others."""
        return max(sum(self._loads.values()) / len(self._seats), 1.0) if self._seats else 1.0

    def _forget(self, now_s: float) -> None:
        while self._seats:
            consumer, seat = next(iter(self._seats.items()))
            if now_s - seat.at_s <= FORGET_S:
                return
            del self._seats[consumer]
            self._loads[seat.member] -= seat.weight


def _measured(known: _Seat, offset: int, now_s: float) -> float:
    """Half of what it reads now, half of what it read before; never nothing."""
    elapsed_s = max(now_s - known.at_s, MEASURE_S)
    now = max(offset - known.offset, 0) * known.message_bytes / elapsed_s
    before = known.weight if known.is_measured else now
    return max((now + before) / 2, 1.0)
