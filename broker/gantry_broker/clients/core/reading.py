"""Reading what earlier masters wrote from the store: in order, one record, one behind a place.

What is refused: to go on where records are missing. An op record that is not seen would open a
transaction again that has ended; an acknowledgement would bring back a message.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gantry_protocol.errors import GantryError
from gantry_protocol.records import MessageRecord, RecordPeek, decode_record, peek

from gantry_broker.store.contract import (
    GetStatus,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
)
from gantry_broker.store.steps import Steps
from gantry_broker.store.tables.offsets import ConsumerOffsets

_SLICE = ReadLimits(max_count=256, max_bytes=1024 * 1024)
_WAIT_S = 0.05  # for the confirmation of what earlier masters wrote
_ONE = ReadLimits(max_count=1, max_bytes=0)


class MissingRecordsError(GantryError):
    """The log does not hold a record that is still needed."""


class PeekedRecord(NamedTuple):
    """One record of a queue."""

    peek: RecordPeek
    body: bytes


def inherited(questions: Sequence[QueueQuestion]) -> Steps[list[QueueOffsets]]:
    """Queues, once everything in them is confirmed that earlier masters wrote."""
    queues: list[QueueOffsets] = yield questions
    ends = [queue.next_offset for queue in queues]
    while any(queue.max_offset < end for queue, end in zip(queues, ends, strict=True)):
        yield _WAIT_S
        queues = yield questions
    return queues


def read_slice(topic: str, offset: int) -> Steps[list[PeekedRecord]]:
    """The next confirmed records of queue 0 of ``topic``, at least one.

    ``offset`` is below the end of the queue.

    Raises:
        MissingRecordsError: they are not there any more.
        GantryError: they do not read.
    """
    found = yield QueueRead(topic, 0, offset, _SLICE)
    if found.status is not GetStatus.FOUND:
        raise MissingRecordsError(
            f"The log begins behind record {offset} of {topic}: what stood there is not known."
            " Restore this broker from a replica that has it."
        )
    entries, at = [], 0
    while at < len(found.body):
        record = peek(found.body, at)
        body = found.body[record.body_start : record.body_start + record.body_size]
        entries.append(PeekedRecord(record, body))
        at += record.size
    return entries


def read_record(topic: str, queue_id: int, offset: int) -> Steps[MessageRecord | None]:
    """One confirmed record; None when it is not there.

    Raises:
        GantryError: it does not read.
    """
    found = yield QueueRead(topic, queue_id, offset, _ONE)
    return decode_record(found.body) if found.status is GetStatus.FOUND else None


def first_behind(topic: str, queue_id: int, physical: int) -> Steps[MessageRecord | None]:
    """The first confirmed record of a queue that stands behind log offset ``physical``.

    Raises:
        GantryError: a record does not read.
    """
    (queue,) = yield [QueueQuestion(topic, queue_id)]
    low, high = queue.min_offset, queue.max_offset
    found = None
    while low < high:
        middle = (low + high) // 2
        record = yield from read_record(topic, queue_id, middle)
        if record is None or record.physical_offset <= physical:
            low = middle + 1
        else:
            found, high = record, middle
    return found


def first_needed(committed: ConsumerOffsets, group: str, topic: str, queue: QueueOffsets) -> int:
    """The first record of queue 0 of ``topic`` that the offset of ``group`` does not call done."""
    saved = committed.query(group, topic, 0)
    return queue.min_offset if saved is None else saved
