"""A scan of the log for dispatch, without an object for each record.

Records as the broker writes nearly all of them (version 1, IPv4 hosts) are read with one unpacking
of their fixed part; anything else, and anything odd, goes the long way through ``parse_unit``,
which also says what is wrong with it.
"""

import struct
from collections.abc import Iterator

from gantry_protocol.errors import RecordError
from gantry_protocol.records import MAGIC_V1
from gantry_protocol.records.layout import BORN_HOST_V6, MAX_TOPIC_V1_BYTES, STORE_HOST_V6

from gantry_broker.log.units import parse_unit

# Size, magic, queue id, queue offset, physical offset, system flag, store timestamp, body size.
_FIXED = struct.Struct(">iI4xi4xqqi16xq20xi")
_PROPERTIES_SIZE = struct.Struct(">h")
_WIDE = BORN_HOST_V6 | STORE_HOST_V6

# Where it stands, its size, queue id, queue offset, system flag, store timestamp, topic,
# properties, position and size of its body in what was scanned.
Fields = tuple[int, int, int, int, int, int, bytes, bytes, int, int]


def scan(data: bytes, offset: int) -> Iterator[Fields]:
    """The records in ``data``, which holds whole units from the log offset ``offset`` on.

    Raises:
        RecordError: one is not whole, or not what was written there; those before it were yielded.
    """
    at, end = 0, len(data)
    fixed_bytes, unpack, unpack_size = _FIXED.size, _FIXED.unpack_from, _PROPERTIES_SIZE.unpack_from
    while at < end:
        if end - at > fixed_bytes:
            size, magic, queue_id, number, physical, flag, stored_ms, body_size = unpack(data, at)
            stop = at + size
            topic_at = at + fixed_bytes + body_size
            is_usual = magic == MAGIC_V1 and not flag & _WIDE and physical == offset + at
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
