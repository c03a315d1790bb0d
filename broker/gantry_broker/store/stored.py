"""The bytes and the places that a store gives to the records of one append.

A batch is stored in one queue and without a gap: first queue offset and log offsets say everything,
so nobody makes an object for each record only to take the log offset out of it again.
"""

from collections.abc import Sequence
from typing import overload

from gantry_protocol.errors import RecordError
from gantry_protocol.records import MAX_RECORD_BYTES, MessageRecord, encode_record
from gantry_protocol.types import Offset

from gantry_broker.store.contract import StoredAt


class StoredRun(Sequence[StoredAt]):
    """Places of records that follow each other in one queue and in one file of the log.

    Attributes:
        queue_id: of all.
        queue_offset: of the first; the others follow.
        positions: the log offset of each, and of the end of the last.
    """

    __slots__ = ("positions", "queue_id", "queue_offset")

    def __init__(self, queue_id: int, queue_offset: int, positions: list[int]) -> None:
        """At least one record, so at least two positions."""
        assert len(positions) > 1
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions) - 1

    @overload
    def __getitem__(self, index: int) -> StoredAt: ...

    @overload
    def __getitem__(self, index: slice) -> list[StoredAt]: ...

    def __getitem__(self, index: int | slice) -> StoredAt | list[StoredAt]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        offset = self.positions[at]
        size = self.positions[at + 1] - offset
        return StoredAt(self.queue_id, self.queue_offset + at, Offset(offset), size)


def offsets_of(stored: Sequence[StoredAt]) -> list[int]:
    """The log offsets of records."""
    if isinstance(stored, StoredRun):
        return stored.positions[:-1]
    return [at.offset for at in stored]


def encode(record: MessageRecord) -> bytes:
    """The bytes of ``record`` in a log.

    Raises:
        RecordError: it cannot be stored.
    """
    if "\0" in record.properties or "\0" in record.topic:
        raise RecordError("A topic or property holds a zero byte, which the log does not allow.")
    data = encode_record(record)
    if len(data) > MAX_RECORD_BYTES:
        raise RecordError(f"The record takes {len(data)} bytes; {MAX_RECORD_BYTES} are allowed.")
    return data
