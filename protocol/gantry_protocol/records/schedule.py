"""Parked messages: where a delayed message waits, and what its queue entry says.

Upstream: ``TopicValidator.RMQ_SYS_SCHEDULE_TOPIC``, ``ScheduleMessageService``. One queue per delay
level; the tags code of an entry is the delivery time in ms.

Rule protected: the entry follows from the record alone (H12). Upstream computes it from the
broker's table of levels, so that a replica with another table, or a later start, has other entries.
Here the record says its own delay in a property that is taken off again at delivery.
"""

from functools import lru_cache

from gantry_protocol.records.properties import TAGS, find_property, tags_code

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # this very name
DELAY_MS = "__GANTRY_DELAY_MS"  # of a parked record: how long after its store time it is due
_SCHEDULE = SCHEDULE_TOPIC.encode()
_TAGS = TAGS.encode() + b"\x01"


def delay_of(properties: bytes) -> int:
    """The delay of a parked record after its store time, ms; 0 if it does not say."""
    found = find_property(properties, DELAY_MS)
    return int(found) if found is not None and found.isascii() and found.isdigit() else 0


def entry_code(topic: bytes, properties: bytes, store_timestamp: int) -> int:
    """The tags code of a record's queue entry: a delivery time (ms) for a parked record."""
    if topic == _SCHEDULE:
        return store_timestamp + delay_of(properties)
    at = properties.rfind(_TAGS)
    if at < 0:
        return 0
    stop = properties.find(b"\x02", at)
    if stop > at + len(_TAGS) and (at == 0 or properties[at - 1] == 2):
        return _code(properties[at + len(_TAGS) : stop])
    tags = find_property(properties, TAGS)  # not what a client writes; the long way
    return 0 if tags is None else tags_code(tags)


@lru_cache(maxsize=4096)
def _code(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))
