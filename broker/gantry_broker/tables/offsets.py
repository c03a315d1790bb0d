"""How far each consumer group has come in each queue.

A commit takes effect on the master at once (``pending``) and goes to the system topic
``GANTRY_SYS_OFFSETS`` a little later, many at a time. Every replica applies those records when
they are confirmed (``applied``). Whoever becomes master also takes in the records that are in its
log and not confirmed yet: its log is never cut in its own epoch, and an offset that was once known
must not turn into "not found", which makes clients jump to the end of the queue. Lower offsets are
as good as higher ones: clients go back that way.

What is forgotten goes the same way: a row with the offset ``GONE`` takes its key away everywhere.
"""

from itertools import islice

import msgspec
from gantry_protocol.errors import BodyError
from gantry_protocol.records import MAX_BODY_BYTES, MessageRecord

from gantry_broker.tables.names import OFFSETS_TOPIC
from gantry_broker.tables.pieces import MAX_ROWS, pieces

GONE = -1  # in a row: there is no offset any more

OffsetKey = tuple[str, str, int]  # group, topic, queue id
OffsetRow = tuple[str, str, int, int]  # the key and the offset

TAKEN_MAX = 16 * MAX_ROWS  # rows of one write
TAKEN_BYTES = 1024 * 1024  # of one write, about: fits into whatever carries an append
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
    """

    def __init__(self, rows: list[OffsetRow] | None = None) -> None:
        self._applied: dict[OffsetKey, int] = {row[:3]: row[3] for row in rows or []}
        self._pending: dict[OffsetKey, int] = {}  # newer than applied; masters only
        self._dirty: dict[OffsetKey, None] = {}  # pending and in no record yet, oldest first
        self._changed: dict[OffsetKey, int] = {}  # applied since ``take_changed``
        self._ending: set[str] = set()  # topics whose end is in the log, unconfirmed; masters only
        self.unwritable = 0

    @property
    def is_dirty(self) -> bool:
        """Whether some commit is in no record yet."""
        return bool(self._dirty)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None when there was never one."""
        key = (group, topic, queue_id)
        found = self._pending.get(key)
        if found is None:
            return self._applied.get(key)
        return None if found == GONE else found

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A consumer has come to ``offset``; may be lower than before."""
        key = (group, topic, queue_id)
        if self.query(*key) != offset and topic not in self._ending:
            self._pending[key] = offset
            self._dirty[key] = None

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
        return [row for row in self.all() if row[0] == group]

    def all(self) -> list[OffsetRow]:
        """All offsets, those included that are in no record yet."""
        merged = {**self._applied, **self._pending}
        return [(*key, offset) for key, offset in merged.items() if offset != GONE]

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
        return records, keys

    def put_back(self, keys: list[OffsetKey]) -> None:
        """Write these again: nobody knows whether the last record of them stays."""
        self._dirty.update(
            (key, None) for key in keys if key in self._pending and key[1] not in self._ending
        )

    def apply(self, rows: list[OffsetRow]) -> None:
        """Take confirmed rows in."""
        for row in rows:
            key = row[:3]
            self._changed[key] = row[3]
            if row[3] == GONE:
                self._applied.pop(key, None)
            else:
                self._applied[key] = row[3]
            if key not in self._dirty and self._pending.get(key) == row[3]:
                del self._pending[key]

    def end_topic(self, topic: str) -> None:
        """The end of a topic stands in the log: no commit may follow it there.

        One that did would come back to whoever consumes the next topic of that name.
        """
        self._ending.add(topic)
        self._dirty = {key: None for key in self._dirty if key[1] != topic}

    def is_ending(self, topic: str) -> bool:
        """Whether the end of a topic stands in the log of this master and is not confirmed."""
        return topic in self._ending

    def drop_topics(self, gone: list[str], *, ended: list[str]) -> None:
        """Topics are gone, as the log says; so are their offsets, on every replica.

        Args:
            gone: by a confirmed change.
            ended: that it names, also if it was not newer and changed nothing.
        """
        self._ending.difference_update(ended)
        if not gone:
            return
        names = set(gone)  # a whole application may go at once, and offsets are many
        for key in [key for key in self._applied if key[1] in names]:
            del self._applied[key]
            self._changed[key] = GONE
        for key in [key for key in self._pending if key[1] in names]:
            del self._pending[key]
        self._dirty = {key: None for key in self._dirty if key[1] not in names}

    def foresee(self, rows: list[OffsetRow]) -> None:
        """Take rows in that this new master has in its log, unconfirmed."""
        for row in rows:
            self._pending[row[:3]] = row[3]

    def take_back(self, rows: list[OffsetRow]) -> None:
        """The reverse of ``foresee``, with the offsets from before it: nothing was appended.

        What was confirmed or dropped meanwhile stays so: a topic may have ended.
        """
        for row in rows:
            if row[:3] in self._pending:
                self._pending[row[:3]] = row[3]

    def forget_pending(self) -> None:
        """Back to what is confirmed: this broker is not the master any more."""
        self._ending.clear()
        self._pending.clear()
        self._dirty.clear()

    def take_changed(self) -> dict[OffsetKey, int]:
        """What was applied since the last call; ``GONE`` where there is no offset any more."""
        changed, self._changed = self._changed, {}
        return changed

    def applied_rows(self) -> list[OffsetRow]:
        """What is confirmed."""
        return [(*key, offset) for key, offset in self._applied.items()]
