"""The units a commit log consists of: whole records, and the blank at the end of a file.

What a record is, ``gantry_protocol.records.scan`` decides. One rule is added here: topic and
properties must not hold a zero byte. The body CRC does not cover them, and after a power cut a page
that never reached the disk reads as zeros; with this rule no such page goes unnoticed. Where a file
is covered by range sums (``sums``) this judgement is not needed; it serves bytes that were written
but not known to be flushed, and bytes from another machine.
"""

import struct
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

_HEAD = struct.Struct(">iI")
_PLACE = struct.Struct(">28xq")  # the offset a record was written for
HEAD_BYTES = _PLACE.size


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
