"""The units a commit log consists of: whole records, and the blank at the end of a file.

What a record is, ``gantry_protocol.records.scan`` decides. One rule is added here: topic and
properties must not hold a zero byte. The body CRC does not cover them, and after a power cut a page
that never reached the disk reads as zeros; with this rule no such page goes unnoticed. Where a file
is covered by range sums (``sums``) this judgement is not needed; it serves bytes that were written
but not known to be flushed, and bytes from another machine.

Whole ranges are gone through without an object for each record: by ``check_units``, what another
machine sent; by ``scan_units``, what is dispatched. Records as the broker writes nearly all of them
(version 1, IPv4 hosts) are read there with one unpacking of their fixed part; anything else, and
anything odd, goes the long way through ``parse_unit``, which also says what is wrong with it.

Units stand one behind another, and in a new file when the old one has no room (``Tail``). A blank
fills a file up to the configured size, so a record goes there only if the blank's head still fits
behind it. A record too large for any file stands alone in one.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gantry_protocol.errors import RecordError
from gantry_protocol.records import (
    BLANK_HEADER_BYTES,
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MAX_RECORD_BYTES,
    RecordPeek,
    ScanKind,
    peek,
    scan,
)
from gantry_protocol.records.layout import HOST_FAMILIES, MAX_TOPIC_V1_BYTES
from gantry_protocol.types import Offset

_HEAD = struct.Struct(">iI")
_PLACE = struct.Struct(">28xq")  # the offset a record was written for
# Size, magic, CRC of the body, physical offset, system flag, body size.
_CHECKED = struct.Struct(">iIi16xqi44xi")
# Size, magic, queue id, queue offset, physical offset, system flag, store timestamp, body size.
_SCANNED = struct.Struct(">iI4xi4xqqi16xq20xi")
_PROPERTIES_SIZE = struct.Struct(">h")
_CRC_MASK = 0x7FFFFFFF
HEAD_BYTES = _PLACE.size

# Where it stands, its size, queue id, queue offset, system flag, store timestamp, topic,
# properties, position and size of its body in what was scanned.
Fields = tuple[int, int, int, int, int, int, bytes, bytes, int, int]


class Unit(NamedTuple):
    """A record or a blank; ``record`` is None for a blank."""

    size: int
    record: RecordPeek | None

    @property
    def is_blank(self) -> bool:
        """Whether it is the blank that ends a file."""
        return self.record is None


def blank_head(size: int) -> bytes:
    """The part of a blank that means something; zeros follow up to ``size``."""
    return _HEAD.pack(size, BLANK_MAGIC)


def unit_size(data: bytes, pos: int) -> int:
    """The size that the unit at ``pos`` claims; 0 when fewer than 8 bytes are left.

    Raises:
        RecordError: neither a record nor a blank begins there.
    """
    if len(data) - pos < _HEAD.size:
        return 0
    size, magic = _HEAD.unpack_from(data, pos)
    if magic == BLANK_MAGIC and size >= BLANK_HEADER_BYTES:
        return int(size)
    if magic in (MAGIC_V1, MAGIC_V2) and 0 < size <= MAX_RECORD_BYTES:
        return int(size)
    raise RecordError(f"no record begins here: size {size} and magic {magic:08x}")


def stands_at(data: bytes, offset: int, left: int) -> bool:
    """Whether ``data`` begins with a unit that was written for ``offset``, by its head alone.

    Args:
        data: at least ``HEAD_BYTES``, unless the file ends before.
        offset: its place in the log.
        left: bytes from there to the end of the file.
    """
    try:
        size = unit_size(data, 0)
    except RecordError:
        return False
    if size and _HEAD.unpack_from(data)[1] == BLANK_MAGIC:
        return size == left
    return len(data) >= HEAD_BYTES and _PLACE.unpack_from(data)[0] == offset


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
    found = scan(data, pos, physical_offset=offset, check_crc=check_body)
    if found.kind is ScanKind.BLANK:
        return Unit(found.size, None)
    if found.kind is not ScanKind.RECORD:
        raise RecordError(found.reason)
    record = peek(data, pos)
    if not record.topic or "\0" in record.topic:
        raise RecordError("the record's topic is not a name")
    if 0 in record.properties:
        raise RecordError("the record's properties hold a zero byte")
    return Unit(record.size, record)


def whole_units(data: bytes) -> int:
    """The number of leading bytes of ``data`` that are whole units, by their sizes alone.

    Raises:
        RecordError: something in ``data`` is no unit at all.
    """
    pos = 0
    while True:
        size = unit_size(data, pos)
        if size == 0 or pos + size > len(data):
            return pos
        pos += size


def parse_units(data: bytes, offset: int, *, check_body: bool = True) -> list[tuple[int, Unit]]:
    """Log offset and unit of everything in ``data``, which holds whole units from ``offset`` on.

    Raises:
        RecordError: one is not whole and valid; a blank must be the last, and whole too.
    """
    units: list[tuple[int, Unit]] = []
    pos, end = 0, len(data)
    while pos < end:
        unit = parse_unit(data, pos, offset + pos, check_body=check_body)
        if unit.is_blank and pos + unit.size != end:
            raise RecordError("a blank is cut short, or something follows it")
        units.append((offset + pos, unit))
        pos += unit.size
    return units


def check_units(data: bytes, offset: int) -> bool:
    """Check everything in ``data``, which holds whole units from the log offset ``offset`` on.

    Returns:
        Whether the last one is a blank, which ends a file.

    Raises:
        RecordError: one is not whole and valid; a blank must be the last, and whole too.
    """
    at, end = 0, len(data)
    while at < end:
        size = _usual_size(data, at, offset + at, end)
        if not size:
            unit = parse_unit(data, at, offset + at)
            size = unit.size
            if unit.is_blank:
                if at + size != end:
                    raise RecordError("a blank is cut short, or something follows it")
                return True
        at += size
    return False


def _usual_size(data: bytes, at: int, offset: int, end: int) -> int:
    """The size of the record at ``at`` if it is one of the usual kind and sound; otherwise 0."""
    body_at = at + _CHECKED.size
    if body_at > end:
        return 0
    size, magic, body_crc, physical, flag, body_size = _CHECKED.unpack_from(data, at)
    stop, topic_at = at + size, body_at + body_size
    if (
        magic != MAGIC_V1
        or flag & HOST_FAMILIES
        or physical != offset
        or body_size < 0
        or not topic_at + 3 <= stop <= end
        or size > MAX_RECORD_BYTES
    ):
        return 0
    topic_size = data[topic_at]
    topic_end = topic_at + 1 + topic_size
    if not 0 < topic_size <= MAX_TOPIC_V1_BYTES or topic_end + 2 > stop:
        return 0
    properties = data[topic_end + 2 : stop]
    if len(properties) != _PROPERTIES_SIZE.unpack_from(data, topic_end)[0] or 0 in properties:
        return 0
    if 0 in data[topic_at + 1 : topic_end]:
        return 0
    if body_size and zlib.crc32(data[body_at:topic_at]) & _CRC_MASK != body_crc:
        return 0
    return int(size)


def scan_units(data: bytes, offset: int) -> Iterator[Fields]:
    """The records in ``data``, which holds whole units from the log offset ``offset`` on.

    Raises:
        RecordError: one is not whole, or not what was written there; those before it were yielded.
    """
    at, end = 0, len(data)
    fixed_bytes, unpack, unpack_size = (
        _SCANNED.size,
        _SCANNED.unpack_from,
        _PROPERTIES_SIZE.unpack_from,
    )
    while at < end:
        if end - at > fixed_bytes:
            size, magic, queue_id, number, physical, flag, stored_ms, body_size = unpack(data, at)
            stop = at + size
            topic_at = at + fixed_bytes + body_size
            is_usual = magic == MAGIC_V1 and not flag & HOST_FAMILIES and physical == offset + at
            if is_usual and body_size >= 0 and topic_at + 3 <= stop <= end:
                topic_size = data[topic_at]
                topic_end = topic_at + 1 + topic_size
                if 0 < topic_size <= MAX_TOPIC_V1_BYTES and topic_end + 2 <= stop:
                    (properties_size,) = unpack_size(data, topic_end)
                    properties = data[topic_end + 2 : stop]
                    if len(properties) == properties_size and 0 not in properties:
                        yield (
                            physical, size, queue_id, number, flag, stored_ms,
                            data[topic_at + 1 : topic_end], properties, at + fixed_bytes, body_size,
                        )  # fmt: skip
                        at = stop
                        continue
        unit = parse_unit(data, at, offset + at, check_body=False)
        record = unit.record
        if record is not None:
            yield (
                offset + at, record.size, record.queue_id, record.queue_offset, record.sys_flag,
                record.store_timestamp, record.topic.encode(), record.properties,
                record.body_start, record.body_size,
            )  # fmt: skip
        elif at + unit.size != end:
            raise RecordError("a blank is cut short, or something follows it")
        at += unit.size


class Tail(NamedTuple):
    """The place of the next record.

    Attributes:
        start: log offset where the file begins that it would go to.
        end: end of the log; equal to ``start`` where a file is still to be made.
        size_bytes: when files end.
    """

    start: Offset
    end: Offset
    size_bytes: int

    def fits(self, size: int) -> bool:
        """Whether records of ``size`` bytes together certainly stand in this file.

        A record too large for any file is not one of them; ``positions`` tells where that goes.
        """
        return self.end - self.start + size + BLANK_HEADER_BYTES <= self.size_bytes

    def positions(self, sizes: Sequence[int]) -> list[Offset]:
        """The places of records of these sizes when they are appended in this order."""
        start, at, _ = self
        found: list[Offset] = []
        for size in sizes:
            if at != start and not Tail(start, at, self.size_bytes).fits(size):
                start = at = Offset(at + max(BLANK_HEADER_BYTES, self.size_bytes - (at - start)))
            found.append(at)
            at = Offset(at + size)
        return found


def check_patched(records: Iterable[bytes], position: int) -> None:
    """Assert that each of ``records``, which stand from ``position`` on, says where it stands."""
    for record in records:
        assert int.from_bytes(record[28:36], "big") == position, "patched for another position"
        position += len(record)
