"""Messages on their way into the schedule topic and out of it again: records in, records out.

Upstream: ``HookUtils.transformDelayLevelMessage``, ``ScheduleMessageService.messageTimeUp``. A
parked record names its real topic and queue; a delivered one still has ``DELAY``, ``REAL_TOPIC``
and ``REAL_QID``, as clients know it, so delivery does not check for a delay: it would
park the message again, for ever.
"""

from collections.abc import Mapping

from gantry_protocol.errors import RecordError
from gantry_protocol.records import (
    DELAY_MS,
    SCHEDULE_TOPIC,
    Host,
    MessageRecord,
    append_properties,
    decode_properties,
    without_property,
)
from gantry_protocol.records.properties import DELAY_TIME_LEVEL, REAL_QUEUE_ID, REAL_TOPIC
from msgspec.structs import replace

from gantry_broker.clients.core.delay.levels import DelayLevels

PROGRESS_GROUP = "GANTRY_SYS_DELAY"  # whose consumer offsets say what was delivered

_OURS = (DELAY_TIME_LEVEL, REAL_TOPIC, REAL_QUEUE_ID, DELAY_MS)


def wanted_level(properties: Mapping[str, str]) -> int:
    """The delay level a message asks for; 0 or less asks for none.

    Raises:
        RecordError: it is no number.
    """
    found = properties.get(DELAY_TIME_LEVEL)
    if found is None:
        return 0
    try:
        return int(found)
    except ValueError as error:
        raise RecordError(f"its DELAY {found[:20]!r} is no delay level.") from error


def park(record: MessageRecord, level: int, levels: DelayLevels) -> MessageRecord:
    """``record`` as it waits for its time; a level beyond the highest is the highest."""
    assert level > 0, "level 0 is no delay"
    level = levels.clamp(level)
    properties = record.properties
    for name in _OURS:
        properties = without_property(properties, name)
    added = {
        DELAY_TIME_LEVEL: str(level),
        REAL_TOPIC: record.topic,
        REAL_QUEUE_ID: str(record.queue_id),
        DELAY_MS: str(levels.delay_ms(level)),
    }
    return replace(
        record,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=append_properties(properties, added),
    )


def as_sent(message: MessageRecord) -> MessageRecord:
    """A message that was unparked, for another broker group: it asks for no delay any more."""
    properties = message.properties
    for name in _OURS:
        properties = without_property(properties, name)
    return replace(message, properties=properties)


def unpark(record: MessageRecord, store_host: Host) -> MessageRecord:
    """The message that a parked record holds, to be appended by the broker at ``store_host``.

    Raises:
        RecordError: it does not say whose it is.
    """
    properties = decode_properties(record.properties)
    topic, queue = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if topic is None or not (queue.isascii() and queue.isdigit() and len(queue) < 10):
        raise RecordError("A parked record does not name its topic and queue.")
    return replace(
        record,
        topic=topic,
        queue_id=int(queue),
        properties=without_property(record.properties, DELAY_MS),
        store_host=store_host,
    )
