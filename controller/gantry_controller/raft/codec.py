"""Messages as bytes, for the transport between peers.

A body is: type (1 byte), source, target (4 bytes each), then the fixed fields of the type, big
endian; an Append goes on with its entries, each as length (4 bytes) and the very bytes that the
leader encoded once. Framing and the bound on a body's size are the transport's.

Decoding trusts nothing: unknown types, wrong lengths and entries that cannot follow each other are
refused, so the core only sees messages an honest peer could have sent.
"""

import struct

import msgspec
from gantry_protocol.types import Index, NodeId, Term

from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Entry,
    Heartbeat,
    HeartbeatReply,
    Message,
    PristineQuery,
    PristineReply,
    ReadIndexReply,
    ReadIndexRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
    parse_entry,
)

_LENGTH = struct.Struct(">I")
_APPEND_TYPE = 1
_APPEND = struct.Struct(">BIIQQQQQQI")  # the fields before the entries, and their number

# Types of fixed size: the layout lists the fields in the order of the class.
_FIXED: dict[int, tuple[type[Message], struct.Struct]] = {
    2: (AppendReply, struct.Struct(">BIIQQ?QQQQ")),
    3: (Heartbeat, struct.Struct(">BIIQQQQQ")),
    4: (HeartbeatReply, struct.Struct(">BIIQQQIQQ")),
    5: (VoteRequest, struct.Struct(">BIIQQQ??")),
    6: (VoteReply, struct.Struct(">BIIQ??")),
    7: (PristineQuery, struct.Struct(">BIIQ")),
    8: (PristineReply, struct.Struct(">BIIQ?")),
    9: (TimeoutNow, struct.Struct(">BIIQ")),
    10: (ReadIndexRequest, struct.Struct(">BIIQQ")),
    11: (ReadIndexReply, struct.Struct(">BIIQQQ")),
}
_TYPE_OF = {message: (number, layout) for number, (message, layout) in _FIXED.items()}


def encode(message: Message) -> bytes:
    """The bytes of ``message``."""
    if isinstance(message, Append):
        return _encode_append(message)
    number, layout = _TYPE_OF[type(message)]
    return layout.pack(number, *msgspec.structs.astuple(message))


def _encode_append(message: Append) -> bytes:
    *fields, entries = msgspec.structs.astuple(message)
    parts = [_APPEND.pack(_APPEND_TYPE, *fields, len(entries))]
    for entry in message.entries:
        parts.append(_LENGTH.pack(len(entry.encoded)))
        parts.append(entry.encoded)
    return b"".join(parts)


def decode(body: bytes) -> Message:
    """The message that ``body`` holds.

    Raises:
        MessageError: it holds none; says why.
    """
    if not body:
        raise MessageError("an empty message")
    number = body[0]
    try:
        if number == _APPEND_TYPE:
            return _decode_append(body)
        if number not in _FIXED:
            raise MessageError(f"a message of the unknown type {number}")
        message, layout = _FIXED[number]
        return message(*layout.unpack(body)[1:])
    except struct.error as error:
        raise MessageError(f"a message of type {number} with {len(body)} bytes: {error}") from None


def _decode_append(body: bytes) -> Append:
    _, source, target, term, prev_index, prev_term, commit, round_, admit, count = (
        _APPEND.unpack_from(body)
    )
    entries = _decode_entries(body, count, Index(prev_index), Term(prev_term), Term(term))
    return Append(
        NodeId(source),
        NodeId(target),
        Term(term),
        Index(prev_index),
        Term(prev_term),
        Index(commit),
        round_,
        admit,
        entries,
    )


def _decode_entries(
    body: bytes, count: int, prev_index: Index, prev_term: Term, term: Term
) -> tuple[Entry, ...]:
    """``count`` entries that follow (``prev_index``, ``prev_term``) and fill the body."""
    entries: list[Entry] = []
    position = _APPEND.size
    newest_term = prev_term
    for index in range(prev_index + 1, prev_index + 1 + min(count, len(body))):
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        entry = parse_entry(body[position : position + length])
        if len(entry.encoded) != length:
            raise MessageError(f"an append whose entry {index} ends after the message")
        if entry.index != index or not newest_term <= entry.term <= term:
            raise MessageError(
                f"an append of term {term} with entry {entry.index} of term {entry.term} where "
                f"entry {index} of term {newest_term} or later is due"
            )
        newest_term = entry.term
        entries.append(entry)
        position += length
    if position != len(body) or len(entries) != count:
        raise MessageError(f"an append of {len(body)} bytes does not end with its {count} entries")
    return tuple(entries)
