"""The units a commit log consists of: whole records, and the blank at the end of a file.

The layout is RocketMQ's (``MessageDecoder``, ``CommitLog.DefaultAppendMessageCallback``). A unit
is judged as strictly as its bytes allow: sizes must add up, the physical offset must be the place
where it stands, the body must match its CRC, and topic and properties must not hold a NUL. The last
rule closes a gap of the layout: the body CRC does not cover them, and after a power cut a page that
never reached the disk reads as zeros. Where a file is covered by range sums (``sums``) this
judgement is not needed; it serves bytes that were written but not known to be flushed, and bytes
from another machine.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from gantry_protocol.errors import RecordError

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB  # two bytes of topic length
MAGIC_BLANK = 0xCBD43194
BLANK_HEAD_BYTES = 8
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_RECORD_BYTES = MAX_BODY_BYTES + 64 * 1024
MIN_RECORD_BYTES = 91
SIZE_AND_MAGIC = struct.Struct(">iI")

_FIXED = struct.Struct(">iIIiiqqi")  # up to and with sysFlag: 40 bytes
_BORN_HOST_V6 = 0x10
_STORE_HOST_V6 = 0x20
_V6_EXTRA_BYTES = 12
_BODY_LENGTH_AT = 84  # with two IPv4 hosts
_STORE_TIMESTAMP_AT = 56  # with an IPv4 born host
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")


class Unit(NamedTuple):
    """A record or blank, parsed as far as the log and its queues need it.

    ``body``, ``topic`` and ``properties`` are (start, end) positions in the buffer it was read
    from; all are empty for a blank.
    """

    size: int
    is_blank: bool
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    store_timestamp: int = 0
    body: tuple[int, int] = (0, 0)
    topic: tuple[int, int] = (0, 0)
    properties: tuple[int, int] = (0, 0)


def unit_size(data: bytes, pos: int) -> int:
    """The size that the unit at ``pos`` claims; 0 when fewer than 8 bytes are left.

    Raises:
        RecordError: neither a record nor a blank begins there.
    """
    if len(data) - pos < BLANK_HEAD_BYTES:
        return 0
    size, magic = SIZE_AND_MAGIC.unpack_from(data, pos)
    if magic == MAGIC_BLANK and size >= BLANK_HEAD_BYTES:
        return int(size)
    if magic in (MAGIC_V1, MAGIC_V2) and MIN_RECORD_BYTES <= size <= MAX_RECORD_BYTES:
        return int(size)
    raise RecordError(f"no record begins here: size {size} and magic {magic:#010x}")


def parse_unit(data: bytes, pos: int, offset: int, *, check_body: bool = True) -> Unit:
    """The whole unit at ``pos``, which stands in the log at ``offset``.

    Args:
        data: holds all of the unit, except that a blank may end early.
        pos: where it begins in ``data``.
        offset: its place in the log.
        check_body: compare the body with its CRC; off only for bytes that were checked before.

    Raises:
        RecordError: it is not whole, or not what was written at ``offset``.
    """
    size = unit_size(data, pos)
    end = pos + size
    if size == 0:
        raise RecordError("the record is cut short")
    if SIZE_AND_MAGIC.unpack_from(data, pos)[1] == MAGIC_BLANK:
        return Unit(size, is_blank=True)
    if end > len(data):
        raise RecordError(f"the record is cut short: {len(data) - pos} of {size} bytes")
    _, magic, body_crc, queue_id, _, queue_offset, physical, sys_flag = _FIXED.unpack_from(
        data, pos
    )
    if physical != offset:
        raise RecordError(f"the record says it stands at {physical}, not at {offset}")
    extra = _V6_EXTRA_BYTES if sys_flag & _BORN_HOST_V6 else 0
    (store_timestamp,) = _INT64.unpack_from(data, pos + _STORE_TIMESTAMP_AT + extra)
    if sys_flag & _STORE_HOST_V6:
        extra += _V6_EXTRA_BYTES
    body, topic, properties = _variable_parts(data, pos + _BODY_LENGTH_AT + extra, end, magic)
    if check_body and crc32(data[body[0] : body[1]]) & 0x7FFFFFFF != body_crc:
        raise RecordError("the body does not match its checksum")
    return Unit(
        size, False, queue_id, queue_offset, sys_flag, store_timestamp, body, topic, properties
    )


def _variable_parts(
    data: bytes, pos: int, end: int, magic: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Body, topic and properties, whose lengths must add up to the record's end."""
    topic_length_bytes = 2 if magic == MAGIC_V2 else 1
    if end - pos < _INT32.size:
        raise RecordError("the record's parts do not add up to its size")
    body_start = pos + _INT32.size
    (body_length,) = _INT32.unpack_from(data, pos)
    body_end = body_start + body_length
    if body_length < 0 or body_end + topic_length_bytes > end:
        raise RecordError("the record's parts do not add up to its size")
    if magic == MAGIC_V2:
        (topic_length,) = _UINT16.unpack_from(data, body_end)
    else:
        topic_length = data[body_end]
    topic_start = body_end + topic_length_bytes
    topic_end = topic_start + topic_length
    if topic_end + _UINT16.size > end:
        raise RecordError("the record's parts do not add up to its size")
    (properties_length,) = _UINT16.unpack_from(data, topic_end)
    properties_start = topic_end + _UINT16.size
    if properties_start + properties_length != end:
        raise RecordError("the record's parts do not add up to its size")
    if topic_length == 0 or data.find(0, topic_start, topic_end) >= 0:
        raise RecordError("the record's topic is not a name")
    if data.find(0, properties_start, end) >= 0:
        raise RecordError("the record's properties hold a zero byte")
    return (body_start, body_end), (topic_start, topic_end), (properties_start, end)


def whole_units(data: bytes) -> int:
    """How many leading bytes of ``data`` are whole units, by their sizes alone.

    Raises:
        RecordError: something in ``data`` is no unit at all.
    """
    pos = 0
    while True:
        size = unit_size(data, pos)
        if size == 0 or pos + size > len(data):
            return pos
        pos += size


def iter_units(data: bytes, offset: int, *, check_body: bool = True) -> Iterator[tuple[int, Unit]]:
    """Position and unit of everything in ``data``, which holds whole units from ``offset`` on.

    Raises:
        RecordError: on the first unit that is not whole and valid; a blank must be the last and
            whole too.
    """
    pos, end = 0, len(data)
    while pos < end:
        unit = parse_unit(data, pos, offset + pos, check_body=check_body)
        if unit.is_blank and pos + unit.size != end:
            raise RecordError("a blank is cut short, or something follows it")
        yield pos, unit
        pos += unit.size
