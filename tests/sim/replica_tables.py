"""What follows from a simulated log: how long each queue is, and where each consumer stands.

A record's number says what it is: 32 bits that no other record has, then whether it is a message
or a consumer's position, the queue, and a value: the message's number in its queue, which the
master gave it, or the position. Tables are a fold over the log from its first byte, so they can be
told for any offset (H12), and nothing but a record changes them (H10).
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import msgspec
from sim.replica_disk import RECORD, SIZE

QUEUES = 4
_POSITION = 1 << 31
_VALUE_BITS = 28


class Content(NamedTuple):
    """What a record says.

    Attributes:
        queue: below ``QUEUES``; also names the consumer that reads it.
        value: number of the message in its queue, or the consumer's position.
    """

    is_position: bool
    queue: int
    value: int


def number_of(unique: int, content: Content) -> int:
    """The number of a record."""
    kind = _POSITION if content.is_position else 0
    return unique << 32 | kind | content.queue << _VALUE_BITS | content.value


def content_of(number: int) -> Content:
    """What the record with this number says."""
    value = number & (1 << _VALUE_BITS) - 1
    return Content(bool(number & _POSITION), number >> _VALUE_BITS & 7, value)


class Tables(msgspec.Struct):
    """The fold of a log.

    Attributes:
        offset: everything below is in it.
        ends: by queue, how many messages it holds: the number of the next one.
        positions: by queue, where its consumer stands, and the log offset that says so.
    """

    offset: int = 0
    ends: list[int] = msgspec.field(default_factory=lambda: [0] * QUEUES)
    positions: list[tuple[int, int]] = msgspec.field(default_factory=lambda: [(0, -1)] * QUEUES)

    def fold(self, log: bytes | bytearray, to: int) -> Tables:
        """Take in the records up to ``to``; returns itself."""
        for offset in range(self.offset, to, SIZE):
            content = content_of(RECORD.unpack_from(log, offset)[1])
            if content.is_position:
                self.positions[content.queue] = (content.value, offset)
            else:
                self.ends[content.queue] = content.value + 1
        self.offset = max(self.offset, to)
        return self

    def copy(self) -> Tables:
        """Another one, equal now."""
        return deepcopy(self)
