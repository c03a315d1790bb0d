"""Messages on their way into the schedule topic and out of it again: records in, records out.

Upstream: ``HookUtils.transformDelayLevelMessage``, ``ScheduleMessageService.messageTimeUp``. A
parked record names its real topic and queue; a delivered one still has ``DELAY``, ``REAL_TOPIC``
and ``REAL_QID``, as clients know it, so delivery does not check for a delay: it would
park the message again, for ever.

A timer (5.x: ``TIMER_DELAY_SEC``, ``TIMER_DELAY_MS``, ``TIMER_DELIVER_MS``) is parked once for each
step that it waits (``levels.STEPS_MS``). Its record says how much longer it is to be parked then;
what one step is late is taken off that. ``TIMER_OUT_MS``, upstream's name, says when it was to be
due, for who consumes it. Upstream: ``HookUtils.handleScheduleMessage``.
"""

from collections.abc import Iterable, Mapping

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
from gantry_protocol.records.properties import (
    DELAY_TIME_LEVEL,
    LEFT_MS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_S,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from gantry_protocol.settings.delays import MAX_DELAY_MS, MAX_LEVELS
from msgspec.structs import replace

from gantry_broker.clients.core.delay.levels import (
    STEPS_MS,
    DelayLevels,
    next_step,
)

PROGRESS_GROUP = "GANTRY_SYS_DELAY"  # whose consumer offsets say what was delivered

_STEP = (DELAY_MS, LEFT_MS)  # taken off at delivery
_OURS = (DELAY_TIME_LEVEL, REAL_TOPIC, REAL_QUEUE_ID, *_STEP)
_TIMERS = (TIMER_DELAY_S, TIMER_DELAY_MS, TIMER_DELIVER_MS)  # the first that is there counts


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


def wanted_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """The moment for which a message asks, ms since 1970; None for none, or for one that is over.

    A delay level is asked for instead where there is one, and one that was a timer is none again.

    Raises:
        RecordError: it is no number, or more than 40 days from ``now_ms``.
    """
    due_ms = named_time(properties, now_ms)
    return None if due_ms is None or due_ms <= now_ms else due_ms


def named_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """The same, also if it is over. Raises like ``wanted_time``."""
    name = _timer_of(properties)
    if name is None or TIMER_OUT_MS in properties or wanted_level(properties) > 0:
        return None
    found = properties[name]
    if not (found.isascii() and found.isdigit() and len(found) < 16):
        raise RecordError(f"its {name} {found[:20]!r} is no time.")
    time = int(found)
    if name == TIMER_DELIVER_MS:
        due_ms = time
    else:
        due_ms = now_ms + (time * 1000 if name == TIMER_DELAY_S else time)
    if due_ms - now_ms > MAX_DELAY_MS:
        days = MAX_DELAY_MS // 86_400_000
        raise RecordError(f"its {name} {found} is more than {days} days from now.")
    return due_ms


def is_moment(properties: Mapping[str, str]) -> bool:
    """Whether it names a moment, which stays the same when the message is sent again."""
    return _timer_of(properties) == TIMER_DELIVER_MS


def _timer_of(properties: Mapping[str, str]) -> str | None:
    return next((name for name in _TIMERS if name in properties), None)


def park_timer(record: MessageRecord, due_ms: int, now_ms: int) -> MessageRecord:
    """``record`` as it waits for its first step."""
    properties = _without(record.properties, _OURS)
    added = {
        REAL_TOPIC: record.topic,
        REAL_QUEUE_ID: str(record.queue_id),
        TIMER_OUT_MS: str(due_ms),
    }
    return _step(record, append_properties(properties, added), max(1, due_ms - now_ms))


def is_timer(record: MessageRecord) -> bool:
    """Whether a record waits for a step, not in a delay level."""
    return record.topic == SCHEDULE_TOPIC and record.queue_id >= MAX_LEVELS


def next_park(parked: MessageRecord, late_ms: int, store_host: Host) -> MessageRecord | None:
    """A timer's message as it waits for its next step; None once it is due.

    ``late_ms`` have passed since its step was over.
    """
    left = decode_properties(parked.properties).get(LEFT_MS, "")
    left_ms = int(left) - late_ms if left.isascii() and left.isdigit() else 0
    return None if left_ms <= 0 else park_again(parked, left_ms, store_host)


def park_again(parked: MessageRecord, left_ms: int, store_host: Host) -> MessageRecord:
    """A timer's message as it waits for ``left_ms`` more."""
    properties = _without(parked.properties, _STEP)
    return replace(_step(parked, properties, left_ms), store_host=store_host)


def _step(record: MessageRecord, properties: str, left_ms: int) -> MessageRecord:
    step = next_step(left_ms)
    added = {DELAY_MS: str(STEPS_MS[step]), LEFT_MS: str(max(0, left_ms - STEPS_MS[step]))}
    return replace(
        record,
        topic=SCHEDULE_TOPIC,
        queue_id=MAX_LEVELS + step,
        properties=append_properties(properties, added),
    )


def park(record: MessageRecord, level: int, levels: DelayLevels) -> MessageRecord:
    """``record`` as it waits for its time; a level beyond the highest is the highest."""
    assert level > 0, "level 0 is no delay"
    level = levels.clamp(level)
    # The level counts, here and wherever it may go later.
    properties = _without(record.properties, (*_OURS, *_TIMERS))
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
    return replace(message, properties=_without(message.properties, _OURS))


def unpark(record: MessageRecord, store_host: Host) -> MessageRecord:
    """The message that a parked record holds, to be appended by the broker at ``store_host``.

    Raises:
        RecordError: it does not say whose it is.
    """
    properties = decode_properties(record.properties)
    topic, queue = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if topic is None or not (queue.isascii() and queue.isdigit() and len(queue) < 10):
        raise RecordError("A parked record does not name its topic and queue.")
    text = _without(record.properties, _STEP)
    return replace(record, topic=topic, queue_id=int(queue), properties=text, store_host=store_host)


def _without(properties: str, names: Iterable[str]) -> str:
    for name in names:
        properties = without_property(properties, name)
    return properties
