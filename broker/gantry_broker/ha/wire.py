"""The bytes between brokers: frames, and the replication messages in them.

A frame is versioned, length-bounded and checksummed, whatever is in it; the storage boundary
between two processes uses the same (``remote.messages``). It has a 16-byte head and a payload::

    4s magic "GNHA" | u8 version | u8 kind | u16 zero | u32 payload size | u32 crc32c

The checksum covers the first 12 bytes of the head and the payload, so a flipped bit anywhere ends
the link instead of reaching a log (TCP's own checksum misses one in 65,536).

Append and Ack, which come thousands of times a second, are packed; the rest is JSON. Hello carries
who is speaking, and for which group, so that a stray connection is refused before anything else is
read.

Not RocketMQ's HA protocol: that has no checksums, no epochs in acknowledgements, and lets a slave
choose its own truncation point.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import google_crc32c
import msgspec
from gantry_protocol.errors import WireError
from gantry_protocol.records import MAX_RECORD_BYTES
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset

from gantry_broker.replica.messages import (
    Ack,
    Append,
    Farewell,
    Hello,
    Message,
    Range,
    RangeAsk,
    Truncate,
)

VERSION = 1
MAGIC = b"GNHA"
MAX_PAYLOAD_BYTES = MAX_RECORD_BYTES + 64 * 1024  # one record or blank of the largest size

_HEAD = struct.Struct(">4sBBHI")
_CRC = struct.Struct(">I")
_HEAD_BYTES = _HEAD.size + _CRC.size

MAX_REASON_CHARS = 500
MAX_NAME_CHARS = 255
MAX_ENTRIES = 100_000

_APPEND = struct.Struct(">QQQQQB")
_ACK = struct.Struct(">QQB")
_RANGE = struct.Struct(">QB")
_IN_SYNC = 1
_DRAINING = 1
_REFUSED = 1
_HAS_ROOM = 2  # older masters pass over it


class LinkError(WireError):
    """The peer sent what no broker of this version sends; its link ends."""


class Frame(NamedTuple):
    """One frame that was whole."""

    kind: int
    payload: bytes


def framed(kind: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    head = _HEAD.pack(MAGIC, VERSION, kind, 0, len(payload))
    return head + _CRC.pack(google_crc32c.value(head + payload)) + payload


def framed_in_two(kind: int, fixed: bytes, data: bytes) -> list[bytes]:
    """The same of a payload in two parts, of which the second, large one is not copied."""
    head = _HEAD.pack(MAGIC, VERSION, kind, 0, len(fixed) + len(data))
    crc = google_crc32c.extend(google_crc32c.value(head + fixed), data)
    return [head + _CRC.pack(crc) + fixed, data]


class Frames:
    """Puts frames together from whatever pieces arrive; holds at most one unfinished one."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        """Nothing has arrived."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes.

        Raises:
            LinkError: a malformed frame; nothing after it can be read.
        """
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while (size := self._next_size(position)) is not None:
            frames.append(self._cut(position, size))
            position += _HEAD_BYTES + size
        del self._buffer[:position]
        return frames

    def _next_size(self, position: int) -> int | None:
        """Payload size of the whole frame at ``position``; None until all of it is here."""
        if len(self._buffer) - position < _HEAD_BYTES:
            return None
        magic, version, _, zero, size = _HEAD.unpack_from(self._buffer, position)
        if magic != MAGIC or zero != 0:
            raise LinkError(f"no replication message begins with {bytes(magic)!r}")
        if version != VERSION:
            raise LinkError(f"replication version {version} came, version {VERSION} is spoken here")
        if size > MAX_PAYLOAD_BYTES:
            raise LinkError(f"a message of {size} bytes, {MAX_PAYLOAD_BYTES} are allowed")
        if len(self._buffer) - position < _HEAD_BYTES + size:
            return None
        return int(size)

    def _cut(self, position: int, size: int) -> Frame:
        with memoryview(self._buffer) as view:
            body_at = position + _HEAD_BYTES
            head = bytes(view[position : position + _HEAD.size])
            (expected,) = _CRC.unpack_from(view, position + _HEAD.size)
            payload = bytes(view[body_at : body_at + size])
        got = google_crc32c.extend(google_crc32c.value(head), payload)
        if got != expected:
            raise LinkError(f"checksum {got:08x} over a message that says {expected:08x}")
        return Frame(head[5], payload)


class Kind(IntEnum):
    """The kind byte."""

    HELLO = 1
    TRUNCATE = 2
    APPEND = 3
    ACK = 4
    FAREWELL = 5
    RANGE_ASK = 6
    RANGE = 7


class Caller(NamedTuple):
    """The process that opens a link: names before numbers, so that a mix-up can be explained.

    Attributes:
        group_uid: as the controller said at registration; empty for a group nobody declared.
    """

    cluster: str
    group: str
    group_uid: str


class _HelloBody(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str
    group: str
    group_uid: str
    epoch: int
    broker_id: int
    incarnation: str
    log_start: int
    end: int
    lineage: list[tuple[int, int]]
    draining: bool


class _TruncateBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    incarnation: str
    point: int
    entry: tuple[int, int]
    reset: bool


class _FarewellBody(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    reason: str


class _RangeAskBody(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str
    group: str
    group_uid: str
    start: int
    length: int


_hello_decoder = msgspec.json.Decoder(_HelloBody)
_truncate_decoder = msgspec.json.Decoder(_TruncateBody)
_range_ask_decoder = msgspec.json.Decoder(_RangeAskBody)
_farewell_decoder = msgspec.json.Decoder(_FarewellBody)
_encoder = msgspec.json.Encoder()


class Received(NamedTuple):
    """A message, and who sent it where it may begin a link."""

    message: Message
    caller: Caller | None


def encode(message: Message, caller: Caller) -> list[bytes]:
    """The bytes of ``message`` in pieces, so that log bytes are not copied once more."""
    match message:
        case Append():
            return _encode_append(message)
        case Ack():
            flags = (_DRAINING if message.draining else 0) | (_HAS_ROOM if message.has_room else 0)
            return [framed(Kind.ACK, _ACK.pack(message.epoch, message.flushed_end, flags))]
        case Hello():
            return [framed(Kind.HELLO, _encoder.encode(_hello_body(message, caller)))]
        case Truncate():
            entry = (message.entry.epoch, message.entry.start_offset)
            truncate = _TruncateBody(
                message.epoch, message.incarnation, message.point, entry, message.reset
            )
            return [framed(Kind.TRUNCATE, _encoder.encode(truncate))]
        case Farewell():
            farewell = _FarewellBody(message.epoch, message.reason[:MAX_REASON_CHARS])
            return [framed(Kind.FAREWELL, _encoder.encode(farewell))]
        case RangeAsk():
            ask = _RangeAskBody(*caller, message.start, message.length)
            return [framed(Kind.RANGE_ASK, _encoder.encode(ask))]
        case Range():
            reason = message.reason[:MAX_REASON_CHARS].encode()
            fixed = _RANGE.pack(message.start, _REFUSED if reason else 0)
            return framed_in_two(Kind.RANGE, fixed, reason or message.data)


def _encode_append(message: Append) -> list[bytes]:
    flags = _IN_SYNC if message.in_sync else 0
    entry = message.entry
    fixed = _APPEND.pack(
        message.epoch, entry.epoch, entry.start_offset, message.offset, message.confirm, flags
    )
    return framed_in_two(Kind.APPEND, fixed, message.data)


def _hello_body(message: Hello, caller: Caller) -> _HelloBody:
    return _HelloBody(
        cluster=caller.cluster,
        group=caller.group,
        group_uid=caller.group_uid,
        epoch=message.epoch,
        broker_id=message.broker_id,
        incarnation=message.incarnation,
        log_start=message.log_start,
        end=message.end,
        lineage=[(entry.epoch, entry.start_offset) for entry in message.lineage],
        draining=message.draining,
    )


class Decoder:
    """Puts messages together from whatever pieces arrive; holds at most one unfinished one."""

    __slots__ = ("_frames",)

    def __init__(self) -> None:
        """Nothing has arrived."""
        self._frames = Frames()

    def feed(self, data: bytes) -> list[Received]:
        """The messages that ``data`` completes.

        Raises:
            LinkError: a malformed message; nothing after it can be read.
        """
        return [_decode(frame) for frame in self._frames.feed(data)]


def _decode(frame: Frame) -> Received:
    try:
        return _parse(frame.kind, frame.payload)
    except (msgspec.MsgspecError, struct.error, ValueError) as error:
        raise LinkError(f"message of kind {frame.kind} does not read: {error}") from error


def _parse(kind: int, payload: bytes) -> Received:
    match kind:
        case Kind.APPEND:
            return Received(_parse_append(payload), None)
        case Kind.ACK:
            epoch, flushed_end, flags = _ACK.unpack(payload)
            ack = Ack(
                Epoch(epoch),
                Offset(flushed_end),
                draining=bool(flags & _DRAINING),
                has_room=bool(flags & _HAS_ROOM),
            )
            return Received(ack, None)
        case Kind.HELLO:
            return _parse_hello(payload)
        case Kind.TRUNCATE:
            return Received(_parse_truncate(payload), None)
        case Kind.FAREWELL:
            body = _farewell_decoder.decode(payload)
            return Received(Farewell(Epoch(body.epoch), body.reason[:MAX_REASON_CHARS]), None)
        case Kind.RANGE_ASK:
            return _parse_range_ask(payload)
        case Kind.RANGE:
            return Received(_parse_range(payload), None)
        case _:
            raise LinkError(f"a message of the unknown kind {kind}")


def _parse_append(payload: bytes) -> Append:
    epoch, entry_epoch, start, offset, confirm, flags = _APPEND.unpack_from(payload)
    return Append(
        epoch=Epoch(epoch),
        entry=EpochEntry(Epoch(entry_epoch), Offset(start)),
        offset=Offset(offset),
        confirm=Offset(confirm),
        in_sync=bool(flags & _IN_SYNC),
        data=payload[_APPEND.size :],
    )


def _parse_hello(payload: bytes) -> Received:
    body = _hello_decoder.decode(payload)
    names = (body.cluster, body.group, body.group_uid, body.incarnation)
    if max(map(len, names)) > MAX_NAME_CHARS or len(body.lineage) > MAX_ENTRIES:
        raise ValueError("a name or the lineage is too long")
    hello = Hello(
        epoch=Epoch(body.epoch),
        broker_id=BrokerId(body.broker_id),
        incarnation=body.incarnation,
        log_start=Offset(body.log_start),
        end=Offset(body.end),
        lineage=tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in body.lineage),
        draining=body.draining,
    )
    return Received(hello, Caller(body.cluster, body.group, body.group_uid))


def _parse_range_ask(payload: bytes) -> Received:
    body = _range_ask_decoder.decode(payload)
    if max(map(len, (body.cluster, body.group, body.group_uid))) > MAX_NAME_CHARS:
        raise ValueError("a name is too long")
    if body.start < 0 or body.length < 1:
        raise ValueError(f"no range: {body.length} bytes from {body.start} on")
    ask = RangeAsk(Offset(body.start), body.length)
    return Received(ask, Caller(body.cluster, body.group, body.group_uid))


def _parse_range(payload: bytes) -> Range:
    start, flags = _RANGE.unpack_from(payload)
    rest = payload[_RANGE.size :]
    if flags & _REFUSED:
        return Range(Offset(start), b"", rest.decode("utf-8", "replace")[:MAX_REASON_CHARS] or "?")
    return Range(Offset(start), rest)


def _parse_truncate(payload: bytes) -> Truncate:
    body = _truncate_decoder.decode(payload)
    if body.point < 0:
        raise ValueError(f"a negative truncation point {body.point}")
    return Truncate(
        epoch=Epoch(body.epoch),
        incarnation=body.incarnation,
        point=Offset(body.point),
        entry=EpochEntry(Epoch(body.entry[0]), Offset(body.entry[1])),
        reset=body.reset,
    )
