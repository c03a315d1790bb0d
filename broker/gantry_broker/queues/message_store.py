"""The store of one replication group: a commit log and everything derived from it.

For the group's master: ``take_mastership``, then ``put`` for every send; both roles: ``dispatch``
whenever the confirm offset rises, before anybody else hears of it. Nothing that is not confirmed
can be read here, because it has not been dispatched. All state that replicates is in records of the
log (topics, consumer offsets, queue positions); the rest of the directory can be deleted.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.files import make_directory
from gantry_protocol.records import MAX_RECORD_BYTES, MessageRecord, RecordPeek, RecordRun
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog, CutRefusedError, LogFailedError
from gantry_broker.log.checked import Damage, DamagedError
from gantry_broker.log.disk import Disks
from gantry_broker.log.segments import Segment
from gantry_broker.queues import continuity, derived, lookups, reads
from gantry_broker.queues.dispatcher import Dispatcher
from gantry_broker.queues.kv import KeyValue
from gantry_broker.queues.queue_table import QueueTable
from gantry_broker.queues.recent_keys import RecentKeys
from gantry_broker.queues.rows import Head
from gantry_broker.queues.saving import Saver, Scrubber, saying_progress
from gantry_broker.store.contract import GetResult, KeyRead, QueueKey, ReadLimits, StoredAt
from gantry_broker.store.stored import StoredRun, encode
from gantry_broker.store.tables.names import OFFSETS_TOPIC, STATE_TOPIC, SYSTEM_TOPICS, TOPICS_TOPIC
from gantry_broker.store.tables.offsets import ConsumerOffsets, decode_rows
from gantry_broker.store.tables.state_records import decode_piece, state_records
from gantry_broker.store.tables.topics import TopicTable, decode_change

CHECKPOINT_BYTES = 32 * 1024 * 1024  # of log between checkpoints: about a second of replay
CHECKPOINT_INTERVAL_S = 30.0
OnArrival = Callable[[Collection[QueueKey]], None]

_ZERO = Offset(0)


class MessageStore:
    """See the module. Open one with ``MessageStore.open``.

    Attributes:
        tiered: what the log no longer has can be read from the tier.
        in_the_way: damage that ``dispatch`` or ``take_mastership`` did not get past. Neither the
            ends of the queues are known then, nor which numbers and changes come next.
        lost: why the rows are of no use any more and have to be made again by another opening;
            empty while they are sound.
        on_lost: called once with that, in any thread.
        scrubber: compares the log with its checksums, once it was told to.
        recent: keys of the newest records: a replica's of what is dispatched, a master's of all.
        lite: the lite topics, as of ``dispatched``.
    """

    def __init__(
        self, directory: Path, log: CommitLog, kv: KeyValue, head: Head | None, recent: RecentKeys
    ) -> None:
        self.log = log
        self.recent = recent
        self.tiered = False
        self.lost = ""
        self.on_lost: Callable[[str], None] = lambda _: None
        self._directory = directory
        self.first_offset: Callable[[str, int], int] = lambda topic, queue_id: 0
        self._next: dict[QueueKey, int] | None = None  # of what is not dispatched; None: no master
        self._found_end = _ZERO  # of the log that this master began with
        self.newest_ms = 0  # store time of a master's newest record
        self.in_the_way: Damage | None = None
        self._foresees = False  # a master has seen all that is not dispatched
        self._listeners: list[tuple[OnArrival, Collection[str] | None]] = []
        self.scrubber: Scrubber | None = None
        self._derive_from(kv, head)

    def _derive_from(self, kv: KeyValue, head: Head | None) -> None:
        self._kv = kv
        kv.on_lost = self._lose
        self._dispatcher = Dispatcher(self.log, kv, head)
        self.lite = self._dispatcher.queues.lite
        self._saver = Saver(kv)
        self._saved_offset = self._dispatcher.offset
        self._saved_at = time.monotonic()

    @classmethod
    def open(
        cls,
        directory: Path,
        segment_size_bytes: int,
        *,
        confirm_floor: Offset = _ZERO,
        disks: Disks | None = None,
        recent: RecentKeys | None = None,
    ) -> "MessageStore":
        """Open or create the store in ``directory``; blocks while it reads, repairs and replays.

        ``disks``: see ``CommitLog.open``. ``recent``: empty; None for the usual bounds.

        Raises:
            CorruptionError: the log is damaged.
            DataDirError: the directory holds something else, or a newer format.
            OSError: the disk failed.
        """
        make_directory(directory)
        kv, head = derived.open_derived(directory / "kv")
        try:
            floor = max(confirm_floor, _ZERO if head is None else head.offset)
            log = CommitLog.open(
                directory / "commitlog",
                segment_size_bytes,
                confirm_floor=floor,
                disks=disks,
                keeps_damage=True,
            )
        except BaseException:
            kv.close()
            raise
        if head is not None and head.offset < log.log_start:  # what it lacks is gone
            kv, head = derived.begin_again(kv), None
        store = cls(directory, log, kv, head, RecentKeys() if recent is None else recent)
        try:
            for _ in store._dispatcher.catch_up_with_trim():
                pass
            store._dispatcher.remember(store.recent)
            floor = max(log.confirm_floor, floor)
            store._prove(floor)
            store._replay(floor)
        except BaseException:
            log.close()
            kv.close()
            raise
        return store

    # What is known

    @property
    def topics(self) -> TopicTable:
        """The topics, as of ``dispatched``."""
        return self._dispatcher.topics

    @property
    def offsets(self) -> ConsumerOffsets:
        """The consumer offsets, as of ``dispatched`` and, on a master, its own commits."""
        return self._dispatcher.offsets

    @property
    def dispatched(self) -> Offset:
        """Everything below is confirmed and can be read; rises with ``dispatch`` only."""
        return self._dispatcher.offset

    @property
    def _queues(self) -> QueueTable:
        return self._dispatcher.queues

    @property
    def is_master(self) -> bool:
        """Whether ``put`` may be called."""
        return self._next is not None

    @property
    def whole_from(self) -> Offset | None:
        """The place of the newest whole state in the confirmed log; None without one."""
        return self._dispatcher.whole_from

    @property
    def is_way_free(self) -> bool:
        """Whether what was in the way is mended, or gone with the part of the log it was in."""
        damage = self.in_the_way
        return damage is not None and damage.start not in self.log.checks.damage

    @property
    def is_whole(self) -> bool:
        """Whether topics, offsets and queues are all known, though the log may begin later."""
        knows_all = self.log.log_start == 0 or self.whole_from is not None
        return knows_all and self.in_the_way is None

    @property
    def knows_its_topics(self) -> bool:
        """Whether the topics are those of all that this master found in its log."""
        return self.is_whole and self.dispatched >= self._found_end

    def add_listener(self, on_arrival: OnArrival, topics: Collection[str] | None = None) -> None:
        """Call ``on_arrival(queues)`` after each dispatch that gave ``topics``, or any, records."""
        self._listeners.append((on_arrival, topics))

    def remove_listener(self, on_arrival: OnArrival) -> None:
        """The reverse of ``add_listener``; twice is harmless."""
        self._listeners = [listener for listener in self._listeners if listener[0] != on_arrival]

    # Writing

    def take_mastership(self) -> None:
        """Get ready to ``put``: learn queue positions and offsets of what is not confirmed yet.

        Where damage is ``in_the_way`` nothing may be put before this was called again.
        """
        self._next = {}
        self._dispatcher.recent = None  # what is appended is noted then
        self._found_end = self.log.end
        self.newest_ms = self._dispatcher.store_timestamp
        self._foresees = False
        try:
            self._dispatcher.look_ahead(self._foresee)
        except DamagedError as error:
            self.in_the_way = error.damage
            return
        self._foresees, self.in_the_way = True, None

    def drop_mastership(self) -> None:
        """Forget what only a master may know: unconfirmed records, positions and commits."""
        self._next = None
        if self.in_the_way is not None and self.in_the_way.start > self.dispatched:
            self.in_the_way = None  # only a master looks so far ahead
        self._dispatcher.appended.forget()
        self.offsets.forget_pending()
        self.recent.cut(self.dispatched)  # the rest may be cut, or comes again when it is confirmed
        self._dispatcher.recent = self.recent

    def put(
        self,
        records: Sequence[MessageRecord] | RecordRun,
        *,
        now_ms: int,
        marks: Sequence[int] | None = None,
        ways: Sequence[int] = (0,),
    ) -> Sequence[StoredAt]:
        """Give records their positions and append them, in one write per file; not flushed.

        Fills ``queue_offset``, ``physical_offset`` and ``store_timestamp`` of each record of a
        sequence; store times never fall from record to record. ``marks``, ``ways``: ``recent``'s.

        Raises:
            RecordError: a record cannot be stored; none was.
            DiskFullError: there is no room; none was stored.
            LogFailedError: the disk failed.
        """
        assert self._next is not None, "only a master puts"
        assert self.in_the_way is None, "nobody knows which number comes next"
        timestamp = max(now_ms, self.newest_ms)
        if marks is None:
            marks, ways, _ = self.recent.look(records)
        if isinstance(records, RecordRun):
            stored = self._put_run(records, timestamp)
            if stored is not None:
                self.recent.note_all(marks, stored.positions, timestamp, ways)
                return stored
            records = list(records)
        numbers, encoded, at = dict[QueueKey, int](), list[bytes](), self.log.end
        for record in records:
            key = (record.topic, record.queue_id)
            number = numbers.get(key)
            record.queue_offset = self._next_offset(key) if number is None else number
            record.physical_offset = at
            record.store_timestamp = timestamp
            data = encode(record)
            encoded.append(data)
            numbers[key] = record.queue_offset + 1
            at = Offset(at + len(data))
        if not self.log.fits(at - self.log.end):
            for index, offset in enumerate(self.log.layout([len(data) for data in encoded])):
                if records[index].physical_offset != offset:  # a file ends in between
                    records[index].physical_offset = offset
                    encoded[index] = encode(records[index])
        self.log.append(encoded)
        self._next.update(numbers)
        self.newest_ms = timestamp
        if len(marks) == 1:
            self.recent.note(marks[0], records[0].physical_offset, timestamp, ways[0])
        else:
            self.recent.note_all(marks, [one.physical_offset for one in records], timestamp, ways)
        return [
            StoredAt(one.queue_id, one.queue_offset, Offset(one.physical_offset), len(data))
            for one, data in zip(records, encoded, strict=True)
        ]

    def _put_run(self, run: RecordRun, timestamp: int) -> StoredRun | None:
        """Append a run with one write; None where a file may end within it."""
        assert self._next is not None, "only a master puts"
        start, size = self.log.end, sum(run.sizes)
        if max(run.sizes) > MAX_RECORD_BYTES or not self.log.fits(size):
            return None
        common = run.common
        key = (common.topic, common.queue_id)
        number = self._next_offset(key)
        self.log.append(run.encode(number, start, timestamp))
        self._next[key] = number + len(run)
        self.newest_ms = timestamp
        positions = list(accumulate(run.sizes, initial=int(start)))
        self._dispatcher.appended.add(run, number, positions, timestamp)
        return StoredRun(common.queue_id, number, positions)

    def dispatch(self, upto: Offset) -> None:
        """Make everything below ``upto``, the confirm offset, visible; lower values do nothing.

        Raises:
            CorruptionError: the log does not fit what is derived from it.
            DamagedError: of the log; it is ``in_the_way``, and what stands before it is visible.
            LogFailedError: the disk failed.
        """
        if upto <= self._dispatcher.offset:
            return
        self.log.raise_confirm_floor(upto)
        damage = self.in_the_way
        if damage is not None and damage.start <= self.dispatched and not self.is_way_free:
            raise DamagedError(damage)  # it was looked at, and is tried for again and again
        try:
            touched = self._dispatcher.dispatch(upto)
            self._save_sometimes()
        except DamagedError as error:
            self.in_the_way = error.damage
            raise
        except OSError as error:
            raise self._failed(error) from error
        if damage is not None and damage.start < upto and (self._next is None or self._foresees):
            self.in_the_way = None
        if self._next is not None:
            self._forget_dispatched(touched)
        for listener, topics in list(self._listeners):
            if topics is None or any(topic in topics for topic, _ in touched):
                listener(touched)

    def state_records(self) -> list[MessageRecord] | None:
        """The whole state, to be put next; None while something about it is not confirmed.

        See ``state_records``. Only a master knows it.

        Raises:
            LogFailedError: the disk failed.
        """
        assert self._next is not None, "only a master knows what comes next"
        topics = (TOPICS_TOPIC, 0)
        if not self.is_whole or self._next_offset(topics) != self.max_offset(*topics):
            return None
        try:
            self._dispatcher.store()
        except OSError as error:
            raise self._failed(error) from error
        queues = self._queues.positions(self._next, but=STATE_TOPIC)
        return state_records(self.topics.version, self.topics.all(), self.offsets.all(), queues)

    def raise_minimums(self, start: Offset) -> Iterator[None]:
        """Serve nothing from here that stands below ``start``; queue by queue, with pauses.

        First this, then ``trim``: nobody may be sent to bytes that are gone.

        Raises:
            LogFailedError: the disk failed.
        """
        try:
            yield from self._dispatcher.raise_minimums(start)
        except OSError as error:
            raise self._failed(error) from error

    def trim(self, to: Offset) -> list[Segment]:
        """Let the log begin at ``to``; see ``CommitLog.trim``.

        Raises:
            CutRefusedError: no file begins there, or the state of now could not be had any more.
            LogFailedError: the disk failed.
        """
        if self.whole_from is None or to > self.whole_from:
            raise CutRefusedError(
                f"The log in {self.log.directory} is not trimmed to {to}: the newest whole state"
                f" in it begins at {self.whole_from}."
            )
        return self.log.trim(to)

    def begin_behind(self, to: Offset) -> None:
        """Let the log begin at ``to``, behind damage ``in_the_way``; a whole state stands there.

        What is derived is ``lost``. Raises as ``CommitLog.trim``.
        """
        assert self._next is None, "a master's rows are never lost for this"
        self.log.trim(to)  # its files go with the next opening
        self._lose(f"they ended at {self.dispatched}, and the log begins at {to}")

    def truncate(self, to: Offset) -> None:
        """Cut the log; nothing derived is affected, since only confirmed records led to it.

        Raises:
            CutRefusedError: ``to`` lies below what is confirmed here.
        """
        assert self._next is None, "a master's log is never cut"
        self.log.truncate(to)
        assert to >= self.dispatched, "the log's floor is at least what was dispatched"

    def reset(self, to: Offset) -> None:
        """Throw everything away and begin an empty log at ``to``; durable on return."""
        assert self._next is None, "a master's log is never cut"
        with suppress(OSError, CorruptionError):
            self._saver.join()  # whatever it wrote goes now
        # First, and durably: its offset would be evidence for a log that is gone.
        kv = derived.begin_again(self._kv)
        self.log.reset(to)
        self.in_the_way = None
        self.recent.clear()
        self._derive_from(kv, None)
        self._dispatcher.recent = self.recent

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: ReadLimits,
        codes: frozenset[int] | None = None,
        fetch: reads.Fetch | None = None,
    ) -> GetResult:
        """Confirmed records of a queue from ``offset`` on; see ``reads.get``."""
        queue = self._queues.get((topic, queue_id))
        if self.in_the_way is not None and offset >= self.max_offset(topic, queue_id):
            self.check_known()
        return reads.get(self.log, queue, offset, limits, codes, tiered=self.tiered, fetch=fetch)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset that is served, from the tier or from here; 0 without a record."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0
        return queue.first if self.tiered else queue.min_offset

    def local_min_offset(self, topic: str, queue_id: int) -> int:
        """The first queue offset that is served from the local log; 0 without any record."""
        return 0 if (queue := self._queues.get((topic, queue_id))) is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last confirmed queue offset; 0 without any record."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset the next record will get, unconfirmed ones counted; never below max.

        A reader between ``max_offset`` and this waits for the confirmation, it is not lost.
        """
        key = (topic, queue_id)
        return self.max_offset(*key) if self._next is None else self._next_offset(key)

    def offset_at_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """The queue offset for a store time in ms; see ``reads.offset_at_time``."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0
        return reads.offset_at_time(self.log, queue, timestamp, upper=upper)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The store time of the record with this queue offset, ms; None when there is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        return reads.store_time(self.log, queue, offset)

    def bytes_behind(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The length of the log behind the record with this queue offset; None without such one."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        return self.log.end - reads.physical_offset(queue, offset)

    def view(self, offset: int) -> bytes | None:
        """The confirmed record at a log offset; None when no record begins there."""
        if offset >= self.dispatched:
            self.check_known()
        if not self.log.log_start <= offset < self.dispatched:
            return None
        return reads.record_at(self.log, Offset(offset))

    def find(self, wanted: KeyRead) -> GetResult:
        """Confirmed records with a key; see ``lookups.find``."""
        self.check_known()
        return lookups.find(self._dispatcher.keys, self.view, wanted)

    # Keeping

    def verify(self) -> None:
        """Compare everything confirmed with its checksums; for a thread, takes as long as a read.

        Raises:
            CorruptionError: naming file and offset.
        """
        self.log.verify()

    def scrub(self, period_s: float) -> None:
        """Compare the log with its checksums in the background; see ``Scrubber``."""
        assert self.scrubber is None
        self.scrubber = Scrubber(self.log, period_s)

    def save(self) -> None:
        """Make everything derived durable as it is now, blocking; not where there is no room.

        Raises:
            LogFailedError: the disk failed.
        """
        try:
            if not self._kv.has_room:
                return  # the next start derives it from the log
            self._begin_save()
            self._saver.join()
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Make everything durable and close the log; blocks."""
        if self.scrubber is not None:
            self.scrubber.stop()
        try:
            if not self.lost:
                self.save()
        finally:
            self.log.close()
            self._kv.close()

    def check_known(self) -> None:
        """Raises DamagedError: the ends of the queues are not known, see ``in_the_way``."""
        if self.in_the_way is not None:
            raise DamagedError(self.in_the_way)

    def _next_offset(self, key: QueueKey) -> int:
        assert self._next is not None
        if (number := self._next.get(key)) is not None:
            return number
        queue = self._queues.get(key)
        return self.first_offset(*key) if queue is None else queue.max_offset

    def _foresee(self, data: bytes, record: RecordPeek) -> None:
        assert self._next is not None
        self._next[(record.topic, record.queue_id)] = record.queue_offset + 1
        self.recent.note_record(record)
        self.newest_ms = max(self.newest_ms, record.store_timestamp)
        if record.topic not in SYSTEM_TOPICS:
            return
        body = data[record.body_start : record.body_start + record.body_size]
        if record.topic == OFFSETS_TOPIC:
            self.offsets.foresee(decode_rows(body))
        elif record.topic == TOPICS_TOPIC:
            for name in decode_change(body).removed:
                self.offsets.end_topic(name)
        elif record.topic == STATE_TOPIC:
            piece = decode_piece(body)
            self.offsets.foresee(piece.offsets, again=True)
            self._next.update({row[:2]: row[3] for row in piece.queues})

    def _forget_dispatched(self, touched: Collection[QueueKey]) -> None:
        """Keep the next numbers only of queues with something in flight: the rest are in rows."""
        assert self._next is not None
        for key in list(self._next) if (STATE_TOPIC, 0) in touched else touched:
            queue = self._queues.get(key)
            if queue is not None and self._next.get(key) == queue.max_offset:
                del self._next[key]

    def _prove(self, upto: Offset) -> None:
        """Doubt what has no sums of its own any more, before anything is derived from it."""
        mending = self.log.mending
        if mending.unproved:
            self._replay(min(upto, Offset(mending.unproved[0].start)))
            reason = continuity.find_break(self._dispatcher, is_whole=self.is_whole)
            if reason:
                mending.doubt(reason)

    def _replay(self, upto: Offset) -> None:
        """Dispatch at the start what the rows lack, and say now and then how far it is."""
        if upto > self.dispatched:
            self.log.raise_confirm_floor(upto)
            try:
                self._dispatcher.dispatch(upto, saying_progress(upto))
            except DamagedError as error:  # it goes on from there once it is repaired
                self.in_the_way = error.damage

    def _save_sometimes(self) -> None:
        grown_bytes = self._dispatcher.offset - self._saved_offset
        waited_s = time.monotonic() - self._saved_at
        is_due = grown_bytes >= CHECKPOINT_BYTES or waited_s >= CHECKPOINT_INTERVAL_S
        if is_due and not self._saver.is_busy and self._kv.has_room:
            self._begin_save()

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            self.on_lost(reason)

    def _begin_save(self) -> None:
        """Write the rows of now; a thread makes them durable, since nobody should wait for that."""
        self._saver.join()
        self._dispatcher.store()
        self._saver.begin()
        self._saved_offset = self._dispatcher.offset
        self._saved_at = time.monotonic()

    def _failed(self, error: OSError) -> LogFailedError:
        return LogFailedError(
            f"The disk under {self._directory} failed ({error.strerror}): what is flushed is kept,"
            " check the volume and start again."
        )
