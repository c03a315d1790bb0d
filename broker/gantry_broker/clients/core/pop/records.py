"""Records of POP: what was taken, acknowledged or hidden for longer, and the table of all of it.

They stand in queue 0 of ``GANTRY_SYS_POP``, which no client can read or write. A record carries
many events, in their order. A table is several records that follow each other; it replaces
everything before it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from gantry_protocol.errors import BodyError
from gantry_protocol.records import Host, MessageRecord, encode_properties, find_property

POP_TOPIC = "GANTRY_SYS_POP"
GROUP = "GANTRY_SYS_POP"  # whose offset in ``POP_TOPIC`` is the first record that is needed
BATCH_EVENTS = 256  # of one record; one Popped of 32 messages has some 1,500 bytes
ROW_MESSAGES = 4096  # of one row of a table: 48 bytes each at most
_PIECE_BYTES = 256 * 1024  # of one record of a table, about
_EVENTS_TAG, _TABLE_TAG = "e", "t"


class QueueId(NamedTuple):
    """A queue as one consumer group sees it."""

    group: str
    topic: str
    queue_id: int


class InFlight(msgspec.Struct, frozen=True, array_like=True):
    """A message that was popped and is not acknowledged.

    Attributes:
        offset: its queue offset.
        popped_ms: names this delivery: no other one of the same offset has it. By the wall clock,
            about when the message was popped, or its time was changed.
        invisible_ms: nobody else gets it for so long from then on.
        count: how often it was popped.
    """

    offset: int
    popped_ms: int
    invisible_ms: int
    count: int


class Popped(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Messages of a queue were handed to a client.

    Attributes:
        queue: whose.
        next: every message below was popped, or passed over since the filter does not want it.
        attempt: the client's name for this try, in ordered consumption; else empty.
        messages: those that were handed out; of one ``popped_ms``.
    """

    queue: QueueId
    next: int
    attempt: str
    messages: list[InFlight]


class Acked(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Messages are done: acknowledged, dead, or no longer in any log."""

    queue: QueueId
    offsets: list[int]


class Changed(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """A message stays invisible until another time; its delivery has a new name."""

    queue: QueueId
    message: InFlight


class OffsetMoved(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """The group's committed offset was set by somebody else: by a reset, or by pulls.

    Below what is in flight, everything is popped again from there; otherwise what is below is done.
    """

    queue: QueueId
    offset: int


class ModeSet(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """SetMessageRequestMode (401): whether a group pops a topic.

    Attributes:
        topic: the topic.
        group: the consumer group.
        is_pop: whether it does.
        share_queues: queues that each member gets; 0 and below: all of them.
    """

    topic: str
    group: str
    is_pop: bool
    share_queues: int


class QueueRow(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """A queue in a table; a long one has several rows, which follow each other."""

    queue: QueueId
    next: int
    attempt: str
    messages: list[InFlight]


class Piece(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """A part of a table.

    Attributes:
        index: of this piece, from 0.
        count: of all pieces.
        rows: some of the queues and modes.
    """

    index: int
    count: int
    rows: list[QueueRow | ModeSet]


Event: TypeAlias = Popped | Acked | Changed | OffsetMoved | ModeSet
Row: TypeAlias = QueueRow | ModeSet

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(list[Event])
_piece = msgspec.json.Decoder(Piece)


def events_record(events: Sequence[Event], store_host: Host) -> MessageRecord:
    """The record of some events, in their order."""
    assert len(events) <= BATCH_EVENTS
    return _record(_EVENTS_TAG, list(events), store_host)


def table_records(rows: Sequence[Row], store_host: Host) -> list[MessageRecord]:
    """The records of a table; to be appended together, so that they follow each other."""
    parts = list(_parts(rows)) or [[]]
    return [
        _record(_TABLE_TAG, Piece(index, len(parts), part), store_host)
        for index, part in enumerate(parts)
    ]


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    size_bytes = 0
    for row in rows:
        row_bytes = len(_encoder.encode(row))
        if part and size_bytes + row_bytes > _PIECE_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(row)
        size_bytes += row_bytes
    if part:
        yield part


def _record(tag: str, body: object, store_host: Host) -> MessageRecord:
    return MessageRecord(
        topic=POP_TOPIC,
        body=_encoder.encode(body),
        properties=encode_properties({"TAGS": tag}),
        born_host=store_host,
        store_host=store_host,
    )


def parse(properties: bytes, body: bytes) -> list[Event] | Piece:
    """Decode a record of the topic.

    Raises:
        BodyError: it is none of ours.
    """
    tag = find_property(properties, "TAGS")
    try:
        if tag == _EVENTS_TAG:
            return _events.decode(body)
        if tag == _TABLE_TAG:
            return _piece.decode(body)
    except msgspec.DecodeError as error:
        raise BodyError(f"a record of POP does not read: {error}") from error
    raise BodyError(f"a record of POP has the tag {tag!r}")
