"""Is a range of another machine's log what it should be? One pass, without an object per record.

The rule is that of ``units.parse_unit``: whole records of the right sizes that say where they
stand, bodies that match their CRC, topics and properties without a zero byte. Records as the broker
writes nearly all of them (version 1, IPv4 hosts) are checked with one unpacking of their fixed
part; anything else, and anything odd, goes to ``parse_unit``, which also says what is wrong.
"""

import struct
import zlib

from gantry_protocol.errors import RecordError
from gantry_protocol.records import MAGIC_V1, MAX_RECORD_BYTES
from gantry_protocol.records.layout import HOST_FAMILIES, MAX_TOPIC_V1_BYTES

from gantry_broker.log.units import parse_unit

# Size, magic, CRC of the body, physical offset, system flag, body size.
_FIXED = struct.Struct(">iIi16xqi44xi")
_PROPERTIES_SIZE = struct.Struct(">h")
_CRC_MASK = 0x7FFFFFFF


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
    body_at = at + _FIXED.size
    if body_at > end:
        return 0
    size, magic, body_crc, physical, flag, body_size = _FIXED.unpack_from(data, at)
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
