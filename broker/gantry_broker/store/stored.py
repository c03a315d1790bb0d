"""The bytes, the places and the time that a store gives to the records of one append. Pure.

A batch is stored in one queue and without a gap: first queue offset and log offsets say everything,
so nobody makes an object for each record only to take the log offset out of it again.

Store times come from a clock that follows the wall clock, and not its jumps. A wall clock may be
set, wrongly or rightly, while a master serves. Store times never fall along a log, so one that was
a year ahead for a second would hold the times of a whole year: nothing stored meanwhile could be
told apart by time, and nothing would age. So this clock goes by the steady one and is led back to
the wall clock: at twice the pace where it is behind, at half the pace where it is ahead.

Rules protected:

* A wall clock that was wrong for some time has led store times astray by no more than that time,
  however far it was off, and they are right again at most twice as long after it was set right.
* Small steps, as time daemons make them, are followed at once.

What the clock cannot know is whether the wall clock was right when the process began. A master
whose clock is ahead from its start stores what it says, and later ones cannot go back behind that.
"""

from collections.abc import Sequence
from typing import overload

from gantry_protocol.errors import RecordError
from gantry_protocol.records import MAX_RECORD_BYTES, MessageRecord, encode_record
from gantry_protocol.types import Offset

from gantry_broker.store.contract import StoredAt

FOLLOWED_MS = 1_000  # so far from the wall clock it is no jump


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


class StoreClock:
    """The time of a store; see the module.

    Args:
        wall_ms: since 1970, by the wall clock.
        steady_ms: the same moment by a clock that is never set.

    Attributes:
        at_ms: the time when it was last asked.
    """

    def __init__(self, wall_ms: int, steady_ms: int) -> None:
        self.at_ms = wall_ms
        self._steady_ms = steady_ms
        self._wall_ms = wall_ms

    @property
    def ahead_ms(self) -> int:
        """The lead over the wall clock when it was last asked; negative behind."""
        return self.at_ms - self._wall_ms

    def now_ms(self, wall_ms: int, steady_ms: int) -> int:
        """The time; ask often, for what passes between two questions is what it may correct."""
        passed_ms = max(0, steady_ms - self._steady_ms)
        expected_ms = self.at_ms + passed_ms
        off_ms = wall_ms - expected_ms
        if -FOLLOWED_MS <= off_ms <= FOLLOWED_MS:
            at_ms = wall_ms
        elif off_ms > 0:
            at_ms = min(wall_ms, expected_ms + passed_ms)
        else:
            at_ms = max(wall_ms, expected_ms - passed_ms // 2)
        self.at_ms, self._steady_ms, self._wall_ms = at_ms, steady_ms, wall_ms
        return at_ms
