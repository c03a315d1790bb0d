"""Texts that clients carry for the server: receipt handles, and ids of transactions.

Both say everything that a later request needs, so any proxy can serve it, and nobody remembers
anything. A receipt handle is the receipt of a broker's POP, as ``ExtraInfoUtil`` of upstream writes
it, and where the message is in the log, as upstream's proxy adds it; whether it is still good is
the broker's to say. That of a message of a lite topic names this, too: clients are to name it in
each request, and some do not (Java's 5.2.0, where a message is put off).
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from gantry_protocol.lite import lite_problem

from gantry_proxy.core.refusals import CallRefused

_FIELDS = 9  # start, popTime, invisibleTime, reviveQid, r, broker, queue, offset, physical offset
CHARS_MAX = 512
IN_ORDER = "999"  # as reviveQid, of what is consumed in order, as lite topics are


class Handle(msgspec.Struct, frozen=True):
    """A delivery.

    Attributes:
        text: the receipt.
        broker_name: of the group that handed it out.
        queue_id: of its queue.
        offset: in its queue.
        physical_offset: in the log.
        lite_topic: that its message belongs to; None for an ordinary one.
    """

    text: str
    broker_name: str
    queue_id: int
    offset: int
    physical_offset: int
    lite_topic: str | None = None

    @property
    def whole(self) -> str:
        """The text that clients carry."""
        return self.text if self.lite_topic is None else f"{self.text} {self.lite_topic}"


def receipt(
    start: int, popped_ms: int, invisible_ms: int, revive: int, place: tuple[str, int, int, int]
) -> str:
    """A message's handle: ``place`` is broker name, queue id, queue offset, physical offset."""
    times = f"{start} {popped_ms} {invisible_ms} {revive}"
    return f"{times} 0 {' '.join(str(part) for part in place)}"


def changed(handle: Handle, popped_ms: int, invisible_ms: int) -> str:
    """The handle after a change of the invisible time."""
    fields = handle.whole.split(" ")
    return " ".join([fields[0], str(popped_ms), str(invisible_ms), *fields[3:]])


def parse(text: str) -> Handle:
    """The delivery in a receipt handle.

    Raises:
        CallRefused: it is none.
    """
    fields = text.split(" ") if len(text) <= CHARS_MAX else []
    is_lite = len(fields) == _FIELDS + 1 and fields[3] == IN_ORDER
    lite = fields.pop() if is_lite else None
    is_sound = len(fields) == _FIELDS and all(map(_is_number, (*fields[:4], *fields[6:])))
    if not is_sound or (lite is not None and lite_problem(lite) is not None):
        raise CallRefused("INVALID_RECEIPT_HANDLE", f"{text[:128]!r} is no receipt handle")
    queue_id, offset, physical = map(int, fields[6:])
    return Handle(" ".join(fields), fields[5], queue_id, offset, physical, lite)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """A half message, as EndTransaction (37) names it.

    Attributes:
        broker_name: of its group.
        topic: that it is for.
        queue_offset: its number among half messages.
        physical_offset: in the log.
        message_id: its unique key.
        transaction_id: the broker's word for it.
    """

    broker_name: str
    topic: str
    queue_offset: int
    physical_offset: int
    message_id: str
    transaction_id: str


_transaction = msgspec.json.Decoder(Transaction)


def pack(transaction: Transaction) -> str:
    """The id that a client gets."""
    return base64.urlsafe_b64encode(msgspec.json.encode(transaction)).decode()


def unpack(text: str) -> Transaction:
    """The transaction in an id.

    Raises:
        CallRefused: it is none.
    """
    try:
        if len(text) > 4 * CHARS_MAX:
            raise ValueError
        return _transaction.decode(base64.urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise CallRefused(
            "INVALID_TRANSACTION_ID", f"{text[:64]!r} is no transaction id"
        ) from error
