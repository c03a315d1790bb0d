"""Parked messages: where a delayed message waits, and what its queue entry says.

Upstream: ``TopicValidator.RMQ_SYS_SCHEDULE_TOPIC``, ``ScheduleMessageService``. One queue per delay
level; the tags code of an entry is the delivery time in ms.

Rule protected: the entry follows from the record alone (H12). Upstream computes it from the
broker's table of levels, so that a replica with another table, or a later start, has other entries.
Here the record says its own delay in a property that is taken off again at delivery.
"""

from gantry_protocol.records.properties import find_property, tags_code
from gantry_protocol.records.scan import RecordPeek

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # this very name
DELAY_MS = "__GANTRY_DELAY_MS"  # of a parked record: how long after its store time it is due


def delay_of(properties: bytes) -> int:
    """How long a parked record waits after its store time, ms; 0 for one that does not say."""
    found = find_property(properties, DELAY_MS)
    return int(found) if found is not None and found.isascii() and found.isdigit() else 0


def entry_code(record: RecordPeek) -> int:
    """The tags code of a record's queue entry: a delivery time (ms) for a parked record."""
    if record.topic == SCHEDULE_TOPIC:
        return record.store_timestamp + delay_of(record.properties)
    tags = find_property(record.properties, "TAGS")
    return 0 if tags is None else tags_code(tags)
