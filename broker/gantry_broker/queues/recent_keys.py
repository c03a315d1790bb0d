"""The newest unique keys of a log: where a message that is sent again may stand already.

It follows from the log alone: of the records below some offset the last ``entries_max`` that have a
unique key, as far as they were stored within ``kept_ms`` of the newest. Each is noted once, in
the order of the log: by dispatch at a replica, which sees confirmed records only; at a master when
it appends, so that it knows what is under way, too. When a mastership begins, what the log holds
beyond dispatch is noted, and when it ends, that is forgotten, since it may be cut. So members that
have the same log know the same (H8, H12), but for one that was started lately: it reads the last
``REBUILD_BYTES`` of what it had derived.

A key is a hash, and an entry says where to look; whoever asks compares the record itself. Both cost
some 130 bytes together. Beside the place stands the way by which a message came to this process, a
number; 0 where it did not, or nobody knows. Several messages with one key stand beside each other,
the newest ``SAME_KEY_MAX`` of them.

What it refuses to note: records that no producer sends as they are (of system topics, retries, dead
letters, halves of transactions).
"""

from collections import deque
from collections.abc import Sequence

from gantry_protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from gantry_protocol.records import MessageRecord, RecordPeek, RecordRun
from gantry_protocol.records.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    UNIQ_KEY,
)

from gantry_broker.queues.key_index import keys_in_run, unique_key

ENTRIES_MAX = 262_144  # some 35 MB; 20,000 messages a second fill it in 13 s
WINDOW_MS = 60_000  # clients repeat a send for some seconds: three tries of 3 s each
REBUILD_BYTES = 64 * 1024 * 1024  # read at a start: a few tenths of a second
SAME_KEY_MAX = 8
_CLOCKS = 10
WAY_BITS = 24
_WAY = (1 << WAY_BITS) - 1
_NO_WAY = [0]
_UNIQUE = UNIQ_KEY + NAME_VALUE_SEPARATOR
_AGE_STEP_MS = 1_000  # between two looks for entries that are too old
NEVER = tuple(  # topics whose records have no mark, by what they begin with
    name.encode() for name in (RETRY_PREFIX, DEAD_LETTER_PREFIX, "GANTRY_SYS_", "RMQ_SYS_TRANS")
)


class RecentKeys:
    """See the module. Marks stand for keys; 0 stands for none.

    Args:
        entries_max: how many keys are remembered.
        window_ms: how long a client may repeat a send; 0 remembers nothing.

    Attributes:
        kept_ms: for how long keys are remembered, by store times. Clocks of masters may differ, and
            one that is ahead by more than the window must not take all keys for old.
        evicted: entries that went since there were too many, ever.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX, window_ms: int = WINDOW_MS) -> None:
        assert entries_max > 0
        self.entries_max = entries_max
        self.window_ms = window_ms
        self.kept_ms = _CLOCKS * window_ms
        self.evicted = 0
        # A place is a log offset, and behind it in ``WAY_BITS`` the way.
        self._places: dict[int, int | tuple[int, ...]] = {}  # of a mark, ascending
        self._marks: deque[int] = deque()  # of all entries, in the order of the log
        self._entries: deque[int] = deque()  # their places
        self._noted = 0  # entries that ever were, without those that were cut
        self._ages: deque[tuple[int, int]] = deque()  # store time, how many were noted before it
        self._looked_ms = -_AGE_STEP_MS
        self._last = -1  # offset of the newest record that was looked at
        self._topic, self._prefix = b"", b""

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def is_on(self) -> bool:
        """Whether anything is remembered."""
        return self.window_ms > 0

    def mark(self, topic: bytes, properties: bytes) -> int:
        """Of a record; 0 where it is none to remember."""
        key = unique_key(properties)
        if not key:
            return 0
        prefix = self._prefix if topic == self._topic else self._new_prefix(topic)
        return (hash(prefix + key) or 1) if prefix else 0

    def look(
        self, records: Sequence[MessageRecord] | RecordRun, once: int | None = None
    ) -> tuple[list[int], list[int], bool]:
        """Marks of records that stand in no log yet, their ways, and whether a mark is known.

        Args:
            records: what a send would store.
            once: by which connection to this process they came, which may be a front's, with many
                clients; 0 or None for no way.

        Returns:
            Of marks one for each record; of ways, too, or one for all.
        """
        if not self.is_on:
            return [0] * len(records), _NO_WAY, False
        if isinstance(records, RecordRun):
            common = records.common
            marks = self._marks_of_run(records, common.topic.encode())
            ways = [hash((once, common.born_host)) & _WAY or 1] if once else _NO_WAY
            return marks, ways, not self._places.keys().isdisjoint(marks)
        marks, ways, is_known = [], [], False
        for record in records:
            topic, text = record.topic.encode(), record.properties
            prefix = self._prefix if topic == self._topic else self._new_prefix(topic)
            at, mark = text.rfind(_UNIQUE), 0
            if prefix and at >= 0:
                if at == 0 or text[at - 1] == PROPERTY_SEPARATOR:
                    start = at + len(_UNIQUE)
                    end = text.find(PROPERTY_SEPARATOR, start)
                    key = text[start : end if end >= 0 else None].encode()
                else:  # inside of a value
                    key = unique_key(text.encode())
                mark = (hash(prefix + key) or 1) if key else 0
            marks.append(mark)
            ways.append(hash((once, record.born_host)) & _WAY or 1 if once else 0)
            is_known = is_known or mark in self._places
        return marks, ways, is_known

    def _marks_of_run(self, run: RecordRun, topic: bytes) -> list[int]:
        prefix = self._prefix if topic == self._topic else self._new_prefix(topic)
        if not prefix:
            return [0] * len(run)
        keys = keys_in_run(run.properties, len(run))
        return [(hash(prefix + key) or 1) if key else 0 for key in keys]

    def note(self, mark: int, offset: int, stored_ms: int, way: int = 0) -> None:
        """Remember a record behind all that were noted; again is harmless."""
        if offset <= self._last or not self.is_on:
            return
        self._last = offset
        if not mark:
            return
        places, place = self._places, offset << WAY_BITS | way
        before = places.get(mark)
        if before is None:
            places[mark] = place
        else:
            others = before if isinstance(before, tuple) else (before,)
            places[mark] = (*others, place)[-SAME_KEY_MAX:]
        self._marks.append(mark)
        self._entries.append(place)
        self._noted += 1
        if stored_ms >= self._looked_ms + _AGE_STEP_MS:
            self._age(stored_ms)
        if len(self._marks) > self.entries_max:
            self.evicted += 1
            self._forget(1)

    def note_record(self, record: RecordPeek) -> None:
        """The same of a record that was read."""
        mark = self.mark(record.topic.encode(), record.properties)
        self.note(mark, record.physical_offset, record.store_timestamp)

    def note_all(
        self, marks: Sequence[int], offsets: Sequence[int], stored_ms: int, ways: Sequence[int]
    ) -> None:
        """The same for records that were stored together, in one go where their keys are new.

        ``ways``: of each, or one for all.
        """
        count = len(marks)
        if count and 0 not in marks and self.is_on and offsets[0] > self._last:
            if len(ways) == 1:
                way = ways[0]
                fresh = {
                    mark: offset << WAY_BITS | way
                    for mark, offset in zip(marks, offsets, strict=False)
                }
            else:
                fresh = {
                    mark: offset << WAY_BITS | way
                    for mark, offset, way in zip(marks, offsets, ways, strict=False)
                }
            if len(fresh) == count and self._places.keys().isdisjoint(fresh):
                self._last = offsets[count - 1]
                self._places.update(fresh)
                self._marks.extend(marks)
                self._entries.extend(fresh.values())
                self._noted += count
                if stored_ms >= self._looked_ms + _AGE_STEP_MS:
                    self._age(stored_ms)
                if len(self._marks) > self.entries_max:
                    self.evicted += len(self._marks) - self.entries_max
                    self._forget(len(self._marks) - self.entries_max)
                return
        for at, (mark, offset) in enumerate(zip(marks, offsets, strict=False)):
            self.note(mark, offset, stored_ms, ways[at if len(ways) > 1 else 0])

    def find(self, mark: int) -> list[tuple[int, int]]:
        """Log offsets of records that may have the key of a mark, and their ways; oldest first."""
        found = self._places.get(mark, ())
        places = found if isinstance(found, tuple) else (found,)
        return [(place >> WAY_BITS, place & _WAY) for place in places]

    def cut(self, to: int) -> None:
        """Forget what stands at ``to`` or behind it."""
        while self._entries and self._entries[-1] >> WAY_BITS >= to:
            self._noted -= 1
            self._drop(self._marks.pop(), self._entries.pop())
        while self._ages and self._ages[-1][1] >= self._noted:
            self._ages.pop()
        self._looked_ms = self._ages[-1][0] if self._ages else -_AGE_STEP_MS
        self._last = min(self._last, to - 1)

    def clear(self) -> None:
        """Forget everything: the log is another one."""
        self.cut(0)
        self._ages.clear()
        self._last = -1

    def _new_prefix(self, topic: bytes) -> bytes:
        """What stands before the keys of a topic; empty for a topic that is not remembered."""
        self._topic = topic
        self._prefix = b"" if topic.startswith(NEVER) else topic + b"\0"
        return self._prefix

    def _age(self, stored_ms: int) -> None:
        """Forget what is too old, a second late or more."""
        self._looked_ms = stored_ms
        ages = self._ages
        ages.append((stored_ms, self._noted - 1))
        while len(ages) > 1 and ages[1][0] < stored_ms - self.kept_ms:
            ages.popleft()
            first = self._noted - len(self._marks)  # the number of the oldest entry
            self._forget(ages[0][1] - first)

    def _forget(self, count: int) -> None:
        """Forget so many of the oldest entries; none where it is below 1."""
        places, marks, entries = self._places, self._marks, self._entries
        for _ in range(count):
            mark, place = marks.popleft(), entries.popleft()
            if places.get(mark) == place:
                del places[mark]
            else:
                self._drop(mark, place)

    def _drop(self, mark: int, place: int) -> None:
        """Take a place away from a mark; of too many with one key it may be gone already."""
        found = self._places.get(mark)
        if found == place:
            del self._places[mark]
        elif isinstance(found, tuple):
            rest = tuple(item for item in found if item != place)
            self._places[mark] = rest if len(rest) > 1 else rest[0]
