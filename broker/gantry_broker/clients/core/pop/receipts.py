"""Receipts of POP as clients speak them: ``ExtraInfoUtil`` of upstream.

A receipt names one delivery: queue, offset, and the time it was popped, which no other delivery of
that queue has. So it says everything that an acknowledgement needs, and whoever holds it needs no
memory of the process that gave it.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from gantry_protocol.errors import BodyError

from gantry_broker.clients.core.pop.records import InFlight

ORDERED = 999  # as the revive queue of what is consumed in order
BATCH_MAX = 4096  # offsets that one acknowledgement may name
_NORMAL = "0"  # no retry topic: messages stay where they are
_FIELDS = 8  # start, popTime, invisibleTime, reviveQid, r, broker, queue, offset
_MAX = 2**63 - 1


Handed: TypeAlias = Sequence[tuple[int, Sequence[InFlight]]]
"""What an answer hands out: queue ids, each with its messages."""


class Receipt(msgspec.Struct, frozen=True):
    """One delivery of a message.

    Attributes:
        popped_ms: when it was popped.
        invisible_ms: for how long.
        revive_queue: ``ORDERED``, or 0.
        broker_name: of the group that handed it out.
        queue_id: of its queue.
        offset: in its queue.
    """

    popped_ms: int
    invisible_ms: int
    revive_queue: int
    broker_name: str
    queue_id: int
    offset: int


def parse_receipt(text: str) -> Receipt:
    """The receipt in ``extraInfo``, whose fields are separated by blanks.

    RocketMQ's proxy adds a field, where the message is in its broker's log.

    Raises:
        BodyError: it is none.
    """
    fields = text.split(" ")
    if len(fields) not in (_FIELDS, _FIELDS + 1) or fields[4] != _NORMAL:
        raise BodyError(f"the receipt {text[:128]!r} is none of this broker's")
    numbers = [_number(field) for field in (*fields[1:4], *fields[6:_FIELDS])]
    if None in numbers:
        raise BodyError(f"the receipt {text[:128]!r} has a number that is none")
    popped, invisible, revive, queue_id, offset = numbers
    return Receipt(popped, invisible, revive, fields[5], queue_id, offset)  # type: ignore[arg-type]


def _number(text: str) -> int | None:
    is_one = text.isascii() and text.isdecimal() and len(text) < 20
    return int(text) if is_one and int(text) <= _MAX else None


def start_offsets(found: Handed) -> str:
    """``startOffsetInfo`` of an answer: the first message of each queue."""
    return ";".join(f"{_NORMAL} {queue_id} {messages[0].offset}" for queue_id, messages in found)


def message_offsets(found: Handed) -> str:
    """``msgOffsetInfo`` of an answer: all messages of each queue."""
    return ";".join(
        f"{_NORMAL} {queue_id} {','.join(str(item.offset) for item in messages)}"
        for queue_id, messages in found
    )


def order_counts(found: Handed) -> str:
    """``orderCountInfo``: how often messages were popped before; empty for none."""
    return ";".join(
        f"{_NORMAL} qo{queue_id}%{item.offset} {item.count - 1}"
        for queue_id, messages in found
        for item in messages
        if item.count > 1
    )


def bits(text: str) -> list[int]:
    """The numbers in a Java ``BitSet`` of a batch acknowledgement, in Base64; ascending.

    Raises:
        BodyError: it is none, or it has more than ``BATCH_MAX``.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BodyError(f"the set of offsets does not read: {error}") from error
    found = [
        8 * at + bit
        for at, byte in enumerate(data[:BATCH_MAX])
        for bit in range(8)
        if byte >> bit & 1
    ]
    if len(data) > BATCH_MAX or len(found) > BATCH_MAX:
        raise BodyError(f"one acknowledgement names at most {BATCH_MAX} offsets")
    return found
