"""From the log to everything derived from it: queues, topics, consumer offsets.

Only confirmed units are dispatched, each once and in order. So nothing derived ever has to be taken
back when the log is cut, what consumers can see is confirmed by construction, and the derived state
at any log offset is what the rows say of an earlier one, plus replay (H12).

A batch that this master has appended was looked at when it came in. Until it is confirmed, the few
things that dispatch derives from it (places, sizes, properties) wait in ``AppendedRuns``, so that a
master does not read back and take apart what it has just written. What is there is never evidence:
a run is handed out only at the very log offset where it was appended, by the mastership that
appended it, and the log says the same; what is not there is read from the log.

Refused there, and so read from the log: records that have no entry of the usual kind (of
transactions, of system topics, parked ones), those of lite topics, which have two, long runs, and
everything that is too much to keep.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import repeat
from typing import NamedTuple

from gantry_protocol.errors import BodyError, CorruptionError, RecordError
from gantry_protocol.lite import lite_queue
from gantry_protocol.process import log as logs
from gantry_protocol.records import SCHEDULE_TOPIC, RecordPeek, RecordRun, entry_code
from gantry_protocol.records.layout import (
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from gantry_protocol.records.lite_topics import MARK, lite_of
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog
from gantry_broker.log.checked import DamagedError
from gantry_broker.log.units import Fields, Unit, parse_units, scan_units
from gantry_broker.queues import rows
from gantry_broker.queues.consume_queue import ConsumeQueue
from gantry_broker.queues.key_index import KeyIndex
from gantry_broker.queues.kv import KeyValue, KvBatch
from gantry_broker.queues.queue_table import QueueTable
from gantry_broker.queues.reads import first_kept
from gantry_broker.queues.recent_keys import NEVER, REBUILD_BYTES, RecentKeys
from gantry_broker.queues.rows import Head
from gantry_broker.store.contract import QueueKey
from gantry_broker.store.tables.changes import apply_change
from gantry_broker.store.tables.expired import decode_ends
from gantry_broker.store.tables.names import EXPIRED_TOPIC, STATE_TOPIC, SYSTEM_TOPICS
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.state_records import Gathered, decode_piece, gather
from gantry_broker.store.tables.topics import TopicTable, is_topic_name

BATCH_ENTRIES = 4096  # in one batch for the key-value store: at most about 10 ms of work

_log = logs.get("store")
_STEP_BYTES = 192 * 1024  # stays in the processor's cache from the read to the last look
RECORDS_MAX = 1024  # of one run; a longer one is dispatched in pieces, from the log
BYTES_MAX = 4 * 1024 * 1024  # of all that wait, about
_RECORD_BYTES = 100  # of one beside its properties: a position and a size
_TAGS = b"TAGS\x01"


class AppendedRun(NamedTuple):
    """One run, as far as dispatch needs it.

    Attributes:
        key: its queue.
        queue_offset: of the first record; the others follow.
        positions: the log offset of each, and of the end of the last.
        sizes: of each, bytes.
        properties: of all, with a zero byte between two.
        stored_ms: store time of all.
    """

    key: QueueKey
    queue_offset: int
    positions: list[int]
    sizes: list[int]
    properties: bytes
    stored_ms: int

    def entries(self) -> bytes:
        """The entries of the consume queue."""
        codes: repeat[int] | map[int] = repeat(0)
        if _TAGS in self.properties:
            topic, each = self.key[0].encode(), self.properties.split(b"\0")
            codes = map(entry_code, repeat(topic), each, repeat(self.stored_ms))
        return b"".join(map(rows.ENTRY.pack, self.positions, self.sizes, codes))


class AppendedRuns:
    """Those that wait for their dispatch, in the order of the log."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._runs: deque[AppendedRun] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: RecordRun, queue_offset: int, positions: list[int], stored_ms: int) -> None:
        """Keep a run that was appended behind everything that waits; or do not, see the module."""
        common = run.common
        size = _size(run.sizes, run.properties)
        if (
            len(run) > RECORDS_MAX
            or self._bytes + size > BYTES_MAX
            or common.sys_flag & TRANSACTION_MASK
            or common.topic == SCHEDULE_TOPIC
            or common.topic in SYSTEM_TOPICS
            or MARK in run.properties
            or not is_topic_name(common.topic)
        ):
            return
        key = (common.topic, common.queue_id)
        self._runs.append(
            AppendedRun(key, queue_offset, positions, run.sizes, run.properties, stored_ms)
        )
        self._bytes += size

    def take(self, offset: int, upto: int) -> AppendedRun | None:
        """The run at ``offset`` when all of it lies below ``upto``; it waits no longer."""
        runs = self._runs
        while runs and runs[0].positions[0] < offset:
            self._drop()
        if runs and runs[0].positions[0] == offset and runs[0].positions[-1] <= upto:
            return self._drop()
        return None

    def next_start(self, offset: int, upto: int) -> Offset:
        """The end up to which to read the log from ``offset`` on, where ``take`` found none."""
        start = self._runs[0].positions[0] if self._runs else upto
        return Offset(start if offset < start < upto else upto)

    def forget(self) -> None:
        """The mastership is over."""
        self._runs.clear()
        self._bytes = 0

    def _drop(self) -> AppendedRun:
        run = self._runs.popleft()
        self._bytes -= _size(run.sizes, run.properties)
        return run


class Dispatcher:
    """Derived state and how far it has come.

    Attributes:
        offset: everything below is dispatched; a boundary of units.
        store_timestamp: of the newest dispatched record, ms.
        queues: the consume queues.
        keys: the key index.
        topics: the topic table.
        offsets: the consumer offsets.
        appended: what a master still knows of records that are not dispatched.
        recent: notes the keys of what is dispatched; None while a master does so as it appends.
        whole_from: where the newest whole state in the log begins, see ``state_records``.
    """

    def __init__(self, log: CommitLog, kv: KeyValue, head: Head | None) -> None:
        """Continue where the rows in ``kv`` stand: at ``head``, or at the log's start without."""
        self._log = log
        self._kv = kv
        self.queues = QueueTable(kv)
        self.offset = log.log_start if head is None else head.offset
        self.store_timestamp = 0 if head is None else head.store_timestamp
        self.whole_from = None if head is None else head.whole_from
        self._trimmed_to = log.log_start if head is None else head.trimmed_to
        self._gathered: Gathered | None = None if head is None else head.gathered
        topics = [rows.decode_topic(value) for _, value in kv.pairs(*rows.TOPICS)]
        self.topics = TopicTable(0 if head is None else head.topics_version, topics)
        self.keys = KeyIndex(kv)
        self.appended = AppendedRuns()
        self.recent: RecentKeys | None = None
        self.offsets = ConsumerOffsets(
            (*rows.decode_offset_key(key), *rows.decode_used(value))
            for key, value in kv.pairs(*rows.OFFSETS)
        )

    def store(self) -> None:
        """Write what changed since the last time into the key-value store, as one batch.

        Raises:
            LogFailedError: the disk failed, while the log was flushed up to here.
            OSError: the disk failed.
        """
        if self.offset > self._log.flushed:
            self._log.flush()  # a power cut must not leave rows of records that are gone
        batch = KvBatch()
        self.queues.store(batch)
        self.keys.store(batch)
        for name, topic in self.topics.take_changed().items():
            if topic is None:
                batch.delete(rows.topic_key(name))
            else:
                batch.put(rows.topic_key(name), rows.encode(topic))
        for key, row in self.offsets.take_changed().items():
            if row is None:
                batch.delete(rows.offset_key(key))
            else:
                batch.put(rows.offset_key(key), rows.encode(row))
        head = Head(
            version=rows.VERSION,
            offset=self.offset,
            store_timestamp=self.store_timestamp,
            topics_version=self.topics.version,
            whole_from=self.whole_from,
            gathered=self._gathered,
            trimmed_to=self._trimmed_to,
        )
        batch.put(rows.HEAD, rows.encode(head))
        self._kv.write(batch)

    def dispatch(
        self, upto: Offset, on_step: Callable[[Offset], None] = lambda _: None
    ) -> Collection[QueueKey]:
        """Take in everything below ``upto``, a boundary of units; returns the queues that grew.

        They come in the order of the log, so whoever waits for them is told in that order.

        Args:
            upto: where to stop.
            on_step: called with ``offset`` after at most 192 KiB of log.

        Raises:
            CorruptionError: the log does not continue the state; nothing behind that place is
                dispatched.
            OSError: the disk failed.
        """
        touched: dict[QueueKey, None] = {}
        while self.offset < upto:
            start = self.offset
            run = self.appended.take(start, upto)
            if run is not None:
                self._take_run(run, touched)
                continue
            stop = self.appended.next_start(start, upto)
            data = self._read(start, stop)
            try:
                self._take_all(data, start, touched)
            except RecordError as error:
                raise CorruptionError(*self._log.locate(start), str(error)) from error
            self.offset = Offset(start + len(data))
            on_step(self.offset)
        return touched

    def _read(self, start: Offset, stop: Offset) -> bytes:
        """Whole units from ``start`` on, up to ``stop``, to damage or to what a step takes.

        Raises:
            DamagedError: the first is not what was flushed.
        """
        if stop - start <= _STEP_BYTES:  # up to there or to the end of a file: whole units
            with suppress(DamagedError):
                return self._log.read(start, stop - start)
        return self._log.read_units(start, _STEP_BYTES, limit=stop)

    def catch_up_with_trim(self) -> Iterator[None]:
        """Raise the minimums of a log that was trimmed after the rows were written.

        Raises:
            CorruptionError: rows are damaged.
            OSError: the disk failed.
        """
        if self._trimmed_to < self._log.log_start:
            yield from self.raise_minimums(self._log.log_start)

    def raise_minimums(self, start: Offset) -> Iterator[None]:
        """Let queues and keys forget what stands below ``start``; yields after each queue.

        Raises:
            CorruptionError: rows are damaged.
            OSError: the disk failed.
        """
        self.store()
        for queue in self.queues.stored_queues():
            kept = first_kept(queue, start)
            if kept > queue.min_offset:
                self.queues.trim(queue.key, kept)
            if self.queues.fresh >= BATCH_ENTRIES:
                self.store()
            yield
        for _ in self.queues.lite.trim(start):
            if self.queues.lite.fresh >= BATCH_ENTRIES:
                self.store()
            yield
        self.keys.trim(start)
        self._trimmed_to = start
        self.store()

    def remember(self, recent: RecentKeys) -> None:
        """Note the keys of what was dispatched last, and from now on of what is dispatched.

        What stands before damage is not known then: a repeat of it is stored again.

        Raises:
            OSError: the disk failed.
        """
        self.recent = recent
        try:
            if recent.is_on:
                self._remember(recent)
        except CorruptionError as error:
            recent.clear()
            _log.warning("the newest keys are not known, the log is damaged", reason=error)

    def _remember(self, recent: RecentKeys) -> None:
        since = max(self._log.log_start, self.offset - REBUILD_BYTES)
        start = self.keys.first_from(since)
        at = self.offset if start is None else Offset(start)
        while at < self.offset:
            data = self._read(at, self.offset)
            try:
                for physical, _, _, _, _, stored_ms, topic, properties, *_ in scan_units(data, at):
                    recent.note(recent.mark(topic, properties), physical, stored_ms)
            except RecordError as error:
                raise CorruptionError(*self._log.locate(at), str(error)) from error
            at = Offset(at + len(data))

    def look_ahead(self, visit: Callable[[bytes, RecordPeek], None]) -> None:
        """Show the undispatched records to ``visit``, with the buffer they stand in."""
        at = self.offset
        while at < self._log.end:
            data = self._log.read_units(at, _STEP_BYTES)
            for _, unit in self.parse(data, at):
                if unit.record is not None:
                    visit(data, unit.record)
            at = Offset(at + len(data))

    def parse(self, data: bytes, offset: Offset) -> list[tuple[int, Unit]]:
        """The units in ``data``, which was read at ``offset``.

        Raises:
            CorruptionError: they are none.
        """
        try:
            return parse_units(data, offset, check_body=False)
        except RecordError as error:
            raise CorruptionError(*self._log.locate(offset), str(error)) from error

    def _take_all(self, data: bytes, start: int, touched: dict[QueueKey, None]) -> None:
        """Take in the records in ``data``, which stands at ``start``.

        Records of one queue come in runs, so the queue is looked up once for each.
        """
        queue: ConsumeQueue | None = None
        key, queue_topic, queue_id, is_system = ("", 0), b"", 0, False
        at, newest_ms, fresh = int(self.offset), self.store_timestamp, 0
        pack, add_keys = rows.ENTRY.pack, self.keys.add
        recent = self.recent if self.recent is not None and self.recent.is_on else None
        try:
            for fields in scan_units(data, start):
                physical, size, to_queue, number, flag, stored_ms, topic, properties, *_ = fields
                if to_queue != queue_id or topic != queue_topic:
                    key, queue = self._key_of(topic, to_queue, physical), None
                    touched[key] = None
                    queue_topic, queue_id, is_system = topic, to_queue, key[0] in SYSTEM_TOPICS
                step = flag & TRANSACTION_MASK
                if step not in rows.NO_ENTRY:
                    if queue is None:
                        queue = self.queues.changing(key, number)
                    if queue.max_offset != number:
                        raise self._skipped(queue, number, physical)
                    queue.fresh += pack(physical, size, entry_code(topic, properties, stored_ms))
                    queue.max_offset = number + 1
                    fresh += 1
                if step != TRANSACTION_ROLLBACK:
                    unique = add_keys(topic, properties, physical, stored_ms)
                    if recent is not None and unique and not topic.startswith(NEVER):
                        mark = hash(topic + b"\0" + unique) or 1  # as ``RecentKeys.mark``
                        recent.note(mark, physical, stored_ms)
                if stored_ms > newest_ms:
                    newest_ms = stored_ms
                if is_system or MARK in properties:
                    self._apply(data, key[0], fields, touched)
                at = physical + size
                if fresh >= BATCH_ENTRIES:
                    self._reached(at, newest_ms)
                    self.store()
                    queue, fresh = None, 0
        finally:
            self._reached(at, newest_ms)
            self.queues.fresh += fresh
        if self.queues.fresh >= BATCH_ENTRIES:
            self.store()

    def _take_run(self, run: AppendedRun, touched: dict[QueueKey, None]) -> None:
        """Take in a run that was appended here, as ``_take_all`` would take in its records."""
        touched[run.key] = None
        queue = self.queues.changing(run.key, run.queue_offset)
        if queue.max_offset != run.queue_offset:
            raise self._skipped(queue, run.queue_offset, run.positions[0])
        queue.fresh += run.entries()
        queue.max_offset += len(run.sizes)
        self.keys.add_run(run.key[0].encode(), run.properties, run.positions, run.stored_ms)
        self.queues.fresh += len(run.sizes)
        self._reached(run.positions[-1], max(self.store_timestamp, run.stored_ms))
        if self.queues.fresh >= BATCH_ENTRIES:
            self.store()

    def _reached(self, offset: int, newest_ms: int) -> None:
        self.offset, self.store_timestamp = Offset(offset), newest_ms

    def _key_of(self, topic: bytes, queue_id: int, physical: int) -> QueueKey:
        key = (topic.decode("utf-8", "replace"), queue_id)
        if not is_topic_name(key[0]):
            where = self._log.locate(Offset(physical))
            raise CorruptionError(*where, f"{key[0][:80]!r} is no topic name")
        return key

    def _skipped(self, queue: ConsumeQueue, number: int, physical: int) -> CorruptionError:
        topic, queue_id = queue.key
        return CorruptionError(
            *self._log.locate(Offset(physical)),
            f"the record has the number {number} in queue {queue_id} of {topic}, and"
            f" {queue.max_offset} comes next",
        )

    def _apply(
        self, data: bytes, topic: str, fields: Fields, touched: dict[QueueKey, None]
    ) -> None:
        """Take in what a record of a system topic, or of a lite topic, says."""
        if topic not in SYSTEM_TOPICS:
            self._take_lite(fields, touched)
            return
        offset, body_start, body_size = fields[0], *fields[-2:]
        body = data[body_start : body_start + body_size]
        try:
            if topic == STATE_TOPIC:
                self._complete(body, Offset(offset))
                return
            if topic == EXPIRED_TOPIC:
                self.queues.lite.end(decode_ends(body))
                return
            for name in apply_change(self.topics, self.offsets, topic, body):
                self.queues.hide_topic(name)
        except BodyError as error:
            raise CorruptionError(*self._log.locate(Offset(offset)), str(error)) from error

    def _take_lite(self, fields: Fields, touched: dict[QueueKey, None]) -> None:
        """Take in that a record belongs to a lite topic, if it does."""
        physical, size, _, _, flag, stored_ms, topic, properties, *_ = fields
        lite = lite_of(topic, properties)
        if lite is not None and flag & TRANSACTION_MASK not in rows.NO_ENTRY:
            name = lite_queue(topic.decode(), lite)
            self.queues.lite.add(name, physical, size, stored_ms)
            touched[name, 0] = None

    def _complete(self, body: bytes, offset: Offset) -> None:
        """Take in a piece of a state; news only where the log began after what it speaks of.

        Raises:
            BodyError: it is no piece, or the log says otherwise.
        """
        piece = decode_piece(body)
        self.topics.complete(piece.topics_version, piece.topics)
        self.offsets.apply(piece.offsets, again=True)
        for topic, queue_id, first, following in piece.queues:
            if not is_topic_name(topic) or not 0 <= first <= following:
                raise BodyError(f"a state with a queue {topic[:80]!r} [{first}, {following})")
            if not self.queues.ensure((topic, queue_id), first, following):
                raise BodyError(
                    f"by the state {following} comes next in queue {queue_id} of {topic}, by the"
                    " records before it another"
                )
        self._gathered = gather(self._gathered, piece, offset)
        if self._gathered is not None and self._gathered.is_whole:
            self.whole_from = Offset(self._gathered.start)


def _size(sizes: list[int], properties: bytes) -> int:
    return _RECORD_BYTES * len(sizes) + len(properties)
