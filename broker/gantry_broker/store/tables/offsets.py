"""Committed offsets of consumer groups, by queue.

A commit takes effect on the master at once (``pending``) and goes to the system topic
``GANTRY_SYS_OFFSETS`` a little later, many at a time. Every replica applies those records when
they are confirmed (``applied``). Whoever becomes master also takes in the records that are in its
log and not confirmed yet: its log is never cut in its own epoch, and an offset that was once known
must not turn into "not found", which makes clients jump to the end of the queue. Lower offsets are
as good as higher ones: clients go back that way. What counts is the last of them in the log, from
the moment it is known: records before it that are confirmed one by one, equal ones included, do not
bring their own back.

What is forgotten goes the same way: a row with the offset ``GONE`` takes its key away everywhere.

**Age.** A group that nobody uses any more leaves its offsets behind, and any client can make up
names. So each offset knows the hour in which it was used last. Hours are not those of a clock,
which may be set: a master counts those that it serves, and the count is an offset of ``AGE_GROUP``
like any other, so all replicas agree on it and no jump makes anything old.

Bounds: ``OFFSETS_MAX`` offsets; beyond them a commit at a new place is refused.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MAX_BODY_BYTES, MessageRecord

from gantry_broker.store.tables.compact import PlacedRows, Row
from gantry_broker.store.tables.names import OFFSETS_TOPIC
from gantry_broker.store.tables.pieces import MAX_ROWS, pieces

GONE = -1  # in a row: there is no offset any more
AGE_GROUP = "GANTRY_SYS_AGE"
OFFSETS_MAX = 2_000_000  # some 400 MB at most; 100 MB where they are of groups of one topic
TOUCH_HOURS = 24  # an offset that is committed again, unchanged, is written anew after so many

OffsetKey = tuple[str, str, int]  # group, topic, queue id
OffsetRow = tuple[str, str, int, int]  # the key and the offset
UsedRow = tuple[str, str, int, int, int]  # and the hour in which it was used last

TAKEN_MAX = 16 * MAX_ROWS  # rows of one write
TAKEN_BYTES = 1024 * 1024  # of one write, about: fits into whatever carries an append
_HOURS_MAX = 2**32 - 1
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[OffsetRow])


def decode_rows(body: bytes) -> list[OffsetRow]:
    """The rows in a record of the system topic.

    Raises:
        BodyError: there are none.
    """
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BodyError(f"consumer offsets do not read: {error}") from error


def encode_rows(rows: list[OffsetRow]) -> bytes:
    """The body of a record of the system topic; the reverse of ``decode_rows``."""
    return _encoder.encode(rows)


def rows_record(rows: list[OffsetRow]) -> MessageRecord:
    """The record that carries at most ``MAX_ROWS`` rows to every replica."""
    assert len(rows) <= MAX_ROWS
    return MessageRecord(topic=OFFSETS_TOPIC, body=encode_rows(rows))


class ConsumerOffsets:
    """The offsets of one broker group.

    Attributes:
        unwritable: rows that no record can carry, and that were therefore dropped; here.
        refused: commits at a new place, of which there were too many; here.
    """

    def __init__(self, rows: Iterable[UsedRow] = ()) -> None:
        self._applied = PlacedRows()
        self._hour = 0
        for group, topic, queue_id, offset, hour in rows:
            self._applied.put((topic, queue_id), group, (offset, hour))
        self._hour = self._counted_hours()
        self._pending: dict[OffsetKey, int] = {}  # newer than applied; masters only
        self._dirty: dict[OffsetKey, None] = {}  # pending and in no record yet, oldest first
        self._on_the_way: dict[OffsetKey, int] = {}  # records of it that may come to be confirmed
        self._changed: dict[OffsetKey, Row | None] = {}  # applied since ``take_changed``
        # Topics whose end is in the log, unconfirmed, and what was foreseen behind; masters only.
        self._ending: dict[str, set[OffsetKey]] = {}
        self.unwritable = 0
        self.refused = 0

    def __len__(self) -> int:
        """How many offsets there are, about: those in no record are counted once more."""
        return self._applied.count + len(self._pending)

    @property
    def hour(self) -> int:
        """The number of hours that masters have served since somebody counts."""
        return self._hour

    @property
    def is_dirty(self) -> bool:
        """Whether some commit is in no record yet."""
        return bool(self._dirty)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None when there was never one, or its topic is ending."""
        key = (group, topic, queue_id)
        if self._is_over(key):
            return None
        found = self._pending.get(key)
        if found is None:
            row = self._row(*key)
            return None if row is None else row[0]
        return None if found == GONE else found

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """A consumer has come to ``offset``; may be lower than before.

        Returns:
            False when there are too many offsets for another one.
        """
        key = (group, topic, queue_id)
        if topic in self._ending:
            return True
        found = self._pending.get(key)
        if found is None:
            row = self._row(*key)
            if row is None and len(self) >= OFFSETS_MAX:
                self.refused += 1
                return False
            is_news = row is None or row[0] != offset or self._hour - row[1] >= TOUCH_HOURS
        else:
            is_news = found != offset
        if is_news:
            self._pending[key] = offset
            self._dirty[key] = None
        return True

    def count_hour(self) -> None:
        """A master has served for another hour."""
        self.commit(AGE_GROUP, OFFSETS_TOPIC, 0, (self.query(AGE_GROUP, OFFSETS_TOPIC, 0) or 0) + 1)

    def touch(self, group: str, topic: str, queue_id: int) -> None:
        """It is in use, though its offset is what it was."""
        key = (group, topic, queue_id)
        offset = self.query(*key)
        if offset is not None and key not in self._pending and topic not in self._ending:
            self._pending[key] = offset
            self._dirty[key] = None

    def unused(self, hours: int) -> Iterator[tuple[OffsetKey, int]]:
        """Offsets unused for so long, and for how long; the table may change meanwhile."""
        for place in self._applied.places():
            for group, row in self._applied.items(place):
                if self._hour - row[1] >= hours:
                    yield (group, *place), self._hour - row[1]

    def _row(self, group: str, topic: str, queue_id: int) -> Row | None:
        return self._applied.get((topic, queue_id), group)

    def _counted_hours(self) -> int:
        row = self._row(AGE_GROUP, OFFSETS_TOPIC, 0)
        return 0 if row is None else min(max(row[0], 0), _HOURS_MAX)

    def must_write(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a commit is in no record, or in one that is not confirmed and may not last.

        The latter is written again, since nobody here hears when that record is confirmed.
        """
        key = (group, topic, queue_id)
        if key in self._pending and topic not in self._ending:
            self._dirty[key] = None
        return key in self._dirty

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """There shall be no offset any more."""
        key = (group, topic, queue_id)
        if self.query(*key) is not None:
            self._pending[key] = GONE
            self._dirty[key] = None

    def of_group(self, group: str) -> list[OffsetRow]:
        """All offsets of one group."""
        found = {
            place: row[0]
            for place in self._applied.places()
            if (row := self._applied.get(place, group)) is not None
        }
        found |= {key[1:]: offset for key, offset in self._pending.items() if key[0] == group}
        rows = [(group, *place, offset) for place, offset in found.items() if offset != GONE]
        return self._without_ending(rows)

    def of_queues(self, topic: str, queues: Collection[int]) -> list[tuple[str, int, int]]:
        """Group, queue id and offset of everything in some queues of one topic."""
        rows = [
            (group, topic, queue_id, row[0])
            for queue_id in queues
            for group, row in self._applied.items((topic, queue_id))
            if (group, topic, queue_id) not in self._pending
        ]
        rows += [
            (*key, offset)
            for key, offset in self._pending.items()
            if offset != GONE and key[1] == topic and key[2] in queues
        ]
        return [(row[0], row[2], row[3]) for row in self._without_ending(rows)]

    def all(self) -> list[OffsetRow]:
        """All offsets, those included that are in no record yet."""
        pending = self._pending
        rows = self.applied_rows()
        if pending:
            rows = [row for row in rows if row[:3] not in pending]
        rows += [(*key, offset) for key, offset in pending.items() if offset != GONE]
        return self._without_ending(rows)

    def walk(self) -> Iterator[OffsetRow]:
        """Confirmed offsets as of now, queue by queue; the table may change meanwhile."""
        for place in self._applied.places():
            for group in [group for group, _ in self._applied.items(place)]:
                offset = self.query(group, *place)
                if offset is not None:
                    yield group, *place, offset

    def _without_ending(self, rows: list[OffsetRow]) -> list[OffsetRow]:
        return [row for row in rows if not self._is_over(row[:3])] if self._ending else rows

    def _is_over(self, key: OffsetKey) -> bool:
        """Whether the end of its topic stands in the log, behind it."""
        ending = self._ending.get(key[1])
        return ending is not None and key not in ending

    def take_records(self) -> tuple[list[MessageRecord], list[OffsetKey]]:
        """Records of some of what is dirty, and the keys in them; those are clean then.

        When the records do not get confirmed, ``put_back`` the keys. A row that no record can carry
        is dropped, so that it keeps nobody's else from the log.
        """
        oldest = list(islice(self._dirty, TAKEN_MAX))
        rows = [(*key, self._pending[key]) for key in oldest if key in self._pending]
        records: list[MessageRecord] = []
        keys: list[OffsetKey] = []
        size = 0
        for piece in pieces(rows, _encoder.encode):
            record = rows_record(piece)
            if len(record.body) > MAX_BODY_BYTES:  # one row
                self.unwritable += 1
                del self._pending[piece[0][:3]]
                continue
            size += len(record.body)
            if records and size > TAKEN_BYTES:
                break
            records.append(record)
            keys += [row[:3] for row in piece]
        for key in [*keys, *(key for key in oldest if key not in self._pending)]:
            self._dirty.pop(key, None)
        self._set_out(keys)
        return records, keys

    def _set_out(self, keys: Iterable[OffsetKey]) -> None:
        for key in keys:
            self._on_the_way[key] = self._on_the_way.get(key, 0) + 1

    def _arrive(self, key: OffsetKey) -> None:
        """A record of it was confirmed, or will never be."""
        left = self._on_the_way.pop(key, 0) - 1
        if left > 0:
            self._on_the_way[key] = left

    def put_back(self, keys: list[OffsetKey], *, stored: bool) -> None:
        """Write these again: nobody knows whether the last record of them stays.

        Args:
            keys: as ``take_records`` gave them.
            stored: the record is in the log, and is confirmed if this mastership lasts.
        """
        if not stored:
            for key in keys:
                self._arrive(key)
        self._dirty.update(
            (key, None) for key in keys if key in self._pending and key[1] not in self._ending
        )

    def apply(self, rows: Sequence[OffsetRow], *, again: bool = False) -> None:
        """Take confirmed rows in.

        Args:
            rows: what a record says.
            again: it says what is so, and not that anybody has used it.
        """
        for row in rows:
            key, offset = row[:3], row[3]
            known = self._row(*key) if again else None
            if known is None or known[0] != offset:
                if key[0] == AGE_GROUP:
                    self._hours_are(offset)
                if offset == GONE:
                    self._applied.pop(key[1:], key[0])
                    self._changed[key] = None
                else:
                    self._changed[key] = used = (offset, self._hour)
                    self._applied.put(key[1:], key[0], used)
            if not again:
                self._arrive(key)
            is_last = key not in self._dirty and key not in self._on_the_way
            if is_last and self._pending.get(key) == offset:
                del self._pending[key]

    def _hours_are(self, hour: int) -> None:
        """So many were counted; what is known here was used now if nobody here saw them pass."""
        was, self._hour = self._hour, min(max(hour, 0), _HOURS_MAX)
        if self._hour != was + 1:
            for group, topic, queue_id, offset in self.applied_rows():
                self._changed[group, topic, queue_id] = row = (offset, self._hour)
                self._applied.put((topic, queue_id), group, row)

    def end_topic(self, topic: str) -> None:
        """The end of a topic stands in the log: no commit may follow it there.

        One that did would come back to whoever consumes the next topic of that name. Those before
        it are not told any more: the end may have been confirmed, and answered, by another master.
        """
        self._ending[topic] = set()
        self._dirty = {key: None for key in self._dirty if key[1] != topic}

    def drop_topics(self, gone: list[str], *, ended: list[str]) -> None:
        """Topics are gone, as the log says; so are their offsets, on every replica.

        Args:
            gone: by a confirmed change.
            ended: that it names, also if it was not newer and changed nothing.
        """
        behind = {key for name in ended for key in self._ending.pop(name, ())}
        if not gone:
            return
        names = set(gone)  # a whole application may go at once, and offsets are many
        for place in [place for place in self._applied.places() if place[0] in names]:
            groups = self._applied.drop(place)
            self._changed.update(((group, *place), None) for group in groups)
        for key in [key for key in self._pending if key[1] in names and key not in behind]:
            del self._pending[key]
            self._on_the_way.pop(key, None)  # its rows may have been left out of the log
        self._dirty = {key: None for key in self._dirty if key[1] not in names}

    def foresee(self, rows: list[OffsetRow], *, again: bool = False) -> None:
        """Take rows in that this new master has in its log, unconfirmed, or will append now.

        Args:
            rows: of a record that is confirmed later, or taken back.
            again: as for ``apply``.
        """
        if not again:
            self._set_out(row[:3] for row in rows)
        for row in rows:
            self._pending[row[:3]] = row[3]
            if row[1] in self._ending:
                self._ending[row[1]].add(row[:3])

    def take_back(self, rows: list[OffsetRow]) -> None:
        """The reverse of ``foresee``, with the offsets from before it: nothing was appended.

        What was confirmed or dropped meanwhile stays so: a topic may have ended.
        """
        for row in rows:
            self._arrive(row[:3])
            if row[:3] in self._pending:
                self._pending[row[:3]] = row[3]

    def forget_pending(self) -> None:
        """Back to what is confirmed: this broker is not the master any more."""
        self._ending.clear()
        self._pending.clear()
        self._dirty.clear()
        self._on_the_way.clear()

    def take_changed(self) -> dict[OffsetKey, Row | None]:
        """The offsets applied since the last call; None where there is no offset any more."""
        changed, self._changed = self._changed, {}
        return changed

    def applied_rows(self) -> list[OffsetRow]:
        """The confirmed offsets."""
        return [
            (group, *place, offset)
            for place in self._applied.places()
            for group, (offset, _) in self._applied.items(place)
        ]
