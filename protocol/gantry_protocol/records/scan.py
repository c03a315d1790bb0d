"""Looking at a record without decoding it; recovery, dispatch and replication walk the log so.

``scan`` decides whether the bytes at a position are a sound record, the blank at a file's end, the
zeros after the data, a record cut short, or damage, and says why. The difference between the last
two is what recovery turns on: a cut record at the end of the newest file is the trace of a crash, a
bad one is not.
"""

import struct
import zlib
from enum import Enum, auto

import msgspec

from gantry_protocol.records.layout import (
    BLANK_HEADER_BYTES,
    BLANK_MAGIC,
    FIXED,
    HOST_FAMILIES,
    MAGIC_V1,
    MAGIC_V2,
    MAX_RECORD_BYTES,
    MAX_TOPIC_V1_BYTES,
    MIN_RECORD_BYTES,
    QUEUE_OFFSET,
    RECONSUME_OFFSET,
    SYS_FLAG_OFFSET,
)

_HEAD = struct.Struct(">iI")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_BODY_CRC_OFFSET = 8


class ScanKind(Enum):
    """The kind of bytes at a position."""

    RECORD = auto()
    BLANK = auto()  # ``size`` bytes that fill the file
    ZERO = auto()  # total size and magic are zero: nothing was written here
    SHORT = auto()  # what is there could be the start of a record, but the buffer ends
    BAD = auto()


class Scan(msgspec.Struct, frozen=True):
    """The verdict on one position.

    Attributes:
        kind: what it is.
        size: bytes of the record or blank; for ``SHORT`` the size it claims (0 if that is cut too).
        reason: why it is no record, without a full stop; empty for a record.
        topic_size: bytes of a record's topic.
    """

    kind: ScanKind
    size: int = 0
    reason: str = ""
    topic_size: int = 0


class RecordPeek(msgspec.Struct, frozen=True):
    """A record as far as dispatch needs it, read without decoding the rest.

    ``properties`` are the encoded bytes; body and properties are addressed relative to the buffer.
    """

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    body_start: int
    body_size: int
    properties: bytes


def _bad(reason: str) -> Scan:
    return Scan(ScanKind.BAD, 0, reason)


def _short(size: int, reason: str) -> Scan:
    return Scan(ScanKind.SHORT, size, reason)


def scan(
    buffer: bytes | bytearray | memoryview,
    position: int = 0,
    *,
    physical_offset: int | None = None,
    check_crc: bool = True,
    max_size: int = MAX_RECORD_BYTES,
) -> Scan:
    """The kind and size of the bytes at ``position`` of ``buffer``.

    Args:
        buffer: bytes of one commit-log file, or of a transfer.
        position: where the record should start.
        physical_offset: the offset the record must carry; None accepts any.
        check_crc: whether to read the body against its CRC.
        max_size: a record that claims more is bad, not short.
    """
    left = len(buffer) - position
    if left < _HEAD.size:
        return _short(0, f"{left} bytes are left, a record starts with {_HEAD.size}")
    size, magic = _HEAD.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _scan_other(size, magic)
    if not MIN_RECORD_BYTES <= size <= max_size:
        return _bad(f"the size is {size}, a record has {MIN_RECORD_BYTES} to {max_size} bytes")
    if size > left:
        return _short(size, f"the record has {size} bytes, {left} are left")
    return _scan_parts(buffer, position, size, magic, physical_offset, check_crc)


def _scan_other(size: int, magic: int) -> Scan:
    if magic == BLANK_MAGIC:
        if size < BLANK_HEADER_BYTES:
            return _bad(f"a blank of {size} bytes cannot be")
        return Scan(ScanKind.BLANK, size, "a blank fills the file from here on")
    if size == 0 and magic == 0:
        return Scan(ScanKind.ZERO, 0, "nothing was written here")
    return _bad(f"the magic is {magic:08x}, a record has {MAGIC_V1:08x} or {MAGIC_V2:08x}")


def _scan_parts(
    buffer: bytes | bytearray | memoryview,
    position: int,
    size: int,
    magic: int,
    physical_offset: int | None,
    check_crc: bool,
) -> Scan:
    """The verdict on a record that lies whole in the buffer: do its parts add up?"""
    (sys_flag,) = _INT32.unpack_from(buffer, position + SYS_FLAG_OFFSET)
    fixed_size = FIXED[sys_flag & HOST_FAMILIES].size
    end = position + size
    body_start = position + fixed_size
    if body_start > end:
        return _bad(f"the size is {size}, its hosts alone need {fixed_size}")
    (body_size,) = _INT32.unpack_from(buffer, body_start - 4)
    topic_at = body_start + body_size
    wide = magic == MAGIC_V2
    if body_size < 0 or topic_at + (4 if wide else 3) > end:
        return _bad(f"the size is {size}, the body claims {body_size}")
    topic_size = _UINT16.unpack_from(buffer, topic_at)[0] if wide else buffer[topic_at]
    if not wide and topic_size > MAX_TOPIC_V1_BYTES:
        return _bad(f"the topic claims {topic_size} bytes, version 1 allows {MAX_TOPIC_V1_BYTES}")
    properties_at = topic_at + (2 if wide else 1) + topic_size
    if properties_at + 2 > end:
        return _bad(f"the size is {size}, the topic claims {topic_size}")
    (properties_size,) = _INT16.unpack_from(buffer, properties_at)
    if properties_size < 0 or properties_at + 2 + properties_size != end:
        parts_size = properties_at + 2 + properties_size - position
        return _bad(f"the size is {size}, its parts have {parts_size}")
    if physical_offset is not None:
        (got,) = struct.unpack_from(">q", buffer, position + 28)
        if got != physical_offset:
            return _bad(f"the record says it stands at {got}, not {physical_offset}")
    if check_crc and body_size:
        (expected,) = _INT32.unpack_from(buffer, position + _BODY_CRC_OFFSET)
        got = zlib.crc32(memoryview(buffer)[body_start:topic_at]) & 0x7FFFFFFF
        if got != expected:
            return _bad(f"the body's CRC is {got:08x}, the record says {expected & 0xFFFFFFFF:08x}")
    return Scan(ScanKind.RECORD, size, "", topic_size)


def peek(buffer: bytes | bytearray | memoryview, position: int = 0) -> RecordPeek:
    """The dispatch fields of a record that :func:`scan` found sound; anything else is our fault."""
    (sys_flag,) = _INT32.unpack_from(buffer, position + SYS_FLAG_OFFSET)
    fixed = FIXED[sys_flag & HOST_FAMILIES]
    (
        size, magic, _crc, queue_id, _flag, queue_offset, physical_offset, _sys_flag,
        born_timestamp, _born, store_timestamp, _store, _reconsumed, _prepared, body_size,
    ) = fixed.unpack_from(buffer, position)  # fmt: skip
    body_start = position + fixed.size
    topic_at = body_start + body_size
    if magic == MAGIC_V1:
        topic_size, topic_start = buffer[topic_at], topic_at + 1
    else:
        topic_size, topic_start = _UINT16.unpack_from(buffer, topic_at)[0], topic_at + 2
    topic_end = topic_start + topic_size
    return RecordPeek(
        size=size,
        topic=str(buffer[topic_start:topic_end], "utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        store_timestamp=store_timestamp,
        body_start=body_start,
        body_size=body_size,
        properties=bytes(buffer[topic_end + 2 : position + size]),
    )


def properties_at(buffer: bytes, position: int = 0) -> tuple[int, int, bytes]:
    """Size, queue offset and encoded properties of a sound record, and nothing else of it."""
    size, magic = _HEAD.unpack_from(buffer, position)
    (sys_flag,) = _INT32.unpack_from(buffer, position + SYS_FLAG_OFFSET)
    body_at = position + FIXED[sys_flag & HOST_FAMILIES].size
    topic_at = body_at + _INT32.unpack_from(buffer, body_at - 4)[0]
    if magic == MAGIC_V1:
        properties_start = topic_at + 3 + buffer[topic_at]
    else:
        properties_start = topic_at + 4 + _UINT16.unpack_from(buffer, topic_at)[0]
    (queue_offset,) = _INT64.unpack_from(buffer, position + QUEUE_OFFSET)
    return size, queue_offset, buffer[properties_start : position + size]


def with_reconsume_times(record: bytes, times: int) -> bytes:
    """``record`` as one that was tried again so often; no checksum covers that field."""
    (sys_flag,) = _INT32.unpack_from(record, SYS_FLAG_OFFSET)
    families = sys_flag & HOST_FAMILIES
    at = RECONSUME_OFFSET + 12 * families.bit_count()
    return record[:at] + _INT32.pack(times) + record[at + _INT32.size :]
