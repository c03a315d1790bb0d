"""Finding the records that a send has left in the log, as ``store.steps``.

Most clients write a unique key into each message, and records are found by it. Of a send without
one (ali-ons for Node) the broker has made up a key that nobody else knows. Its record is looked for
among the newest ones of its queues: the same body, properties, time of birth and sender's address.
A message that was sent twice in one millisecond is there twice: ``given`` names the records that
have answered a send already.

Bounded: a record stored longer than ``CLOCKS_MS`` before its birth, or behind ``RECORDS_MAX``
newer ones or ``BYTES_MAX`` of them, is not found.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from gantry_protocol.records import (
    SCHEDULE_TOPIC,
    MessageRecord,
    RecordPeek,
    decode_properties,
    decode_record,
    peek,
)
from gantry_protocol.records.properties import (
    DELAY_MS,
    LEFT_MS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from gantry_protocol.types import Offset

from gantry_broker.store.contract import (
    GetResult,
    KeyRead,
    QueueKey,
    QueueRead,
    ReadLimits,
    StoredAt,
)
from gantry_broker.store.steps import Steps

CLOCKS_MS = 5_000  # a client's clock may be this much ahead of the broker's
RECORDS_MAX = 4_096  # records that are looked at for one send: some 10 ms, in pieces
BYTES_MAX = 16 * 1024 * 1024
_BLOCK = ReadLimits(max_count=32, max_bytes=256 * 1024)  # one read
_SAME_KEY_MAX = 8  # records with one key: a message that its client has sent several times
_TURN = 64  # lookups by key in one turn of the event loop
_PAUSE = 0.0  # others are served meanwhile

Stretch = tuple[QueueKey, int, int]  # of a queue, from one queue offset to before another


def key_of(record: MessageRecord) -> str | None:
    """The unique key, None without one."""
    return decode_properties(record.properties).get(UNIQ_KEY)


def place_of(record: MessageRecord | RecordPeek) -> StoredAt:
    """The place of a record that was read."""
    return StoredAt(
        record.queue_id, record.queue_offset, Offset(record.physical_offset), record.size
    )


def by_key(sought: Sequence[MessageRecord], since_ms: int) -> Steps[list[StoredAt]]:
    """The places of those that are there, up to the first that is not; each is stored since then.

    A log that was cut in the midst of a batch has its first records.
    """
    found: list[StoredAt] = []
    for record in sought:
        place = None
        for topic in _topics_of(record):
            result: GetResult = yield KeyRead(
                topic=topic,
                key=key_of(record) or "",
                max_count=_SAME_KEY_MAX,
                begin_ms=since_ms,
                end_ms=2**62,
                is_unique=True,
            )
            place = place or next(
                (place_of(item) for _, item in _peeks(result.body) if _is_one(item, record)), None
            )
        if place is None:
            break
        found.append(place)
        if len(found) % _TURN == 0:
            yield _PAUSE
    return found


def _topics_of(record: MessageRecord) -> tuple[str, ...]:
    """Where its record may be: a timer may have been delivered, or have come too late to wait."""
    if not _is_any_step(record):
        return (record.topic,)
    return (record.topic, decode_properties(record.properties)[REAL_TOPIC])


def _is_any_step(record: MessageRecord) -> bool:
    """Whether a timer is sought, at whatever step it waits."""
    return record.topic == SCHEDULE_TOPIC and record.queue_id < 0


def _is_one(found: RecordPeek, sought: MessageRecord) -> bool:
    """Whether a record with the key of the sought one is it."""
    is_same_queue = sought.queue_id in (-1, found.queue_id)
    return found.born_timestamp == sought.born_timestamp and is_same_queue


def by_content(
    sought: MessageRecord, stretches: Sequence[Stretch], since_ms: int, given: Collection[int]
) -> Steps[MessageRecord | None]:
    """The record of a send without a unique key, from the newest ones of all queues on."""
    since_ms = max(since_ms, sought.born_timestamp - CLOCKS_MS)
    made_up = _made_up(sought)
    wanted = _content(sought, made_up)
    left = deque(stretches)
    looked_at = looked_bytes = 0
    while left and looked_at < RECORDS_MAX and looked_bytes < BYTES_MAX:
        queue, low, high = left.popleft()
        start = max(low, high - _BLOCK.max_count)
        result: GetResult = yield QueueRead(*queue, start, _BLOCK)
        records = [pair for pair in _peeks(result.body) if pair[1].queue_offset < high]
        for position, found in reversed(records):
            is_due = found.store_timestamp >= since_ms and found.physical_offset not in given
            if is_due and found.born_timestamp == sought.born_timestamp:
                record = decode_record(result.body, position)
                if _content(record, made_up) == wanted:
                    return record
        looked_at += len(records)
        looked_bytes += len(result.body)
        if records and result.next_offset < high:  # large ones
            left.append((queue, result.next_offset, high))
        if records and records[0][1].store_timestamp >= since_ms and low < start:
            left.append((queue, low, start))
        if left:
            yield _PAUSE
    return None


def _made_up(sought: MessageRecord) -> set[str]:
    """The properties that say something else in each record of one message."""
    names = {UNIQ_KEY, TRANSACTION_ID}
    said = decode_properties(sought.properties)
    if said.get(REAL_QUEUE_ID) == "-1":
        names.add(REAL_QUEUE_ID)
    if _is_any_step(sought):  # a timer's steps follow from when it came
        names |= {DELAY_MS, LEFT_MS, TIMER_OUT_MS}
    return names


def _content(record: MessageRecord, made_up: set[str]) -> tuple[object, ...]:
    """What a stored record has in common with what was sent, besides its time of birth."""
    properties = decode_properties(record.properties)
    said = {name: value for name, value in properties.items() if name not in made_up}
    return record.born_host, record.body, said


def _peeks(records: bytes) -> Iterator[tuple[int, RecordPeek]]:
    position = 0
    while position < len(records):
        found = peek(records, position)
        yield position, found
        position += found.size
