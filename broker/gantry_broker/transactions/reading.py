"""Reading the queues of transactions from the store: in order, one record, the one behind a place.

What is refused: to go on where records are missing. An op record that is not seen would open a
transaction again that has ended.
"""

from typing import NamedTuple

from gantry_protocol.errors import GantryError
from gantry_protocol.records import MessageRecord, RecordPeek, decode_record, peek
from gantry_protocol.types import Offset

from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import GetStatus, Limits, Store
from gantry_broker.store.local import LocalStore
from gantry_broker.transactions.records import GROUP, HALF_TOPIC, OP_TOPIC

_SLICE = Limits(max_count=256, max_bytes=1024 * 1024)
_ONE = Limits(max_count=1, max_bytes=0)


def local_log(store: Store) -> MessageStore:
    """What transactions are read from: the log of this process."""
    assert isinstance(store, LocalStore), "transactions are served where the log is"
    return store.messages


class MissingRecordsError(GantryError):
    """The log does not hold a record of transactions that is still needed."""


class Entry(NamedTuple):
    """One record of a queue."""

    peek: RecordPeek
    body: bytes


def read_slice(store: MessageStore, topic: str, offset: int) -> list[Entry]:
    """The next confirmed records of queue 0 of ``topic``, at least one.

    ``offset`` is below the end of the queue.

    Raises:
        MissingRecordsError: they are not in the local log.
        CorruptionError: they do not read.
    """
    found = store.get(topic, 0, offset, _SLICE)
    if found.status is not GetStatus.FOUND:
        raise MissingRecordsError(
            f"The log begins behind record {offset} of {topic}: what became of transactions is not"
            " known. Restore this broker from a replica that has it."
        )
    entries, at = [], 0
    while at < len(found.body):
        record = peek(found.body, at)
        body = found.body[record.body_start : record.body_start + record.body_size]
        entries.append(Entry(record, body))
        at += record.size
    return entries


def read_record(
    store: MessageStore, topic: str, queue_id: int, offset: int
) -> MessageRecord | None:
    """One confirmed record; None when the local log does not have it.

    Raises:
        GantryError: it does not read.
    """
    found = store.get(topic, queue_id, offset, _ONE)
    return decode_record(found.body) if found.status is GetStatus.FOUND else None


def first_behind(
    store: MessageStore, topic: str, queue_id: int, physical: int
) -> MessageRecord | None:
    """The first confirmed record of a queue that stands behind log offset ``physical``.

    Raises:
        GantryError: a record does not read.
    """
    low, high = store.local_min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    found = None
    while low < high:
        middle = (low + high) // 2
        record = read_record(store, topic, queue_id, middle)
        if record is None or record.physical_offset <= physical:
            low = middle + 1
        else:
            found, high = record, middle
    return found


def first_needed(store: MessageStore, topic: str) -> int:
    """The first queue offset of half or op records that the log does not call done with."""
    saved = store.offsets.query(GROUP, topic, 0)
    return store.local_min_offset(topic, 0) if saved is None else saved


def pins(store: MessageStore) -> tuple[Offset, ...]:
    """From where on the log is needed here, for transactions that are open or end from now on.

    Each member knows it by itself, from what is confirmed: it may be the next master.
    """
    found = []
    for topic in (HALF_TOPIC, OP_TOPIC):
        behind = store.bytes_behind(topic, 0, first_needed(store, topic))
        if behind is not None:
            found.append(Offset(store.log.end - behind))
    return tuple(found)
