"""The ledger of POP of one mastership, kept in step with its records in the log.

Rules protected:

* Whoever is answered 0 finds it so after any failure: an answer waits for the confirmation of the
  record that says it. What a master knows is what its successor reads.
* One append is under way at a time, so records say what happened in its order, and those that come
  meanwhile share the next one. When it is refused, nothing of it was stored: it is taken back
  together with everything that was built on it.
* In one append stand first the dead letters, then the committed offsets, then the events: one that
  is cut off between two masters leaves a message twice among the dead letters, or in flight though
  its acknowledgement was on its way, and never one that nobody gets.
* The log is needed from the newest table of the ledger on. A table is written when the records
  behind the last one weigh four times as much, and every few minutes, so that what was popped once
  does not keep the log for ever.

What it refuses: to say anything before it has read all that its predecessors wrote.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import is_lite_queue
from gantry_protocol.process import log
from gantry_protocol.records import MessageRecord

from gantry_broker.clients.core.clocks import Clocks
from gantry_broker.clients.core.pop.ledger import (
    Back,
    DeliveryState,
    LogReader,
    PopLedger,
    PopQueue,
    Undo,
    reset_events,
)
from gantry_broker.clients.core.pop.records import (
    BATCH_EVENTS,
    GROUP,
    POP_TOPIC,
    Event,
    ModeSet,
    OffsetMoved,
    QueueId,
    events_record,
    parse,
    table_records,
)
from gantry_broker.clients.core.reading import (
    MissingRecordsError,
    first_needed,
    inherited,
    read_slice,
)
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueQuestion, SendOutcome
from gantry_broker.store.steps import Steps
from gantry_broker.store.tables.offsets import OffsetRow, rows_record
from gantry_broker.store.tables.pieces import MAX_ROWS
from gantry_broker.store.tables.resets import may_commit

TABLE_BYTES = 1024 * 1024  # of records behind a table, at least, before the next
TABLE_INTERVAL_S = 300.0
BURIED_BYTES = 1024 * 1024  # of dead letters in one append, about
WAITING_MAX = 8_192  # events that wait for an append: 1 MiB
RETRY_FIRST_S = 0.5  # between a read that failed and the next; twice as long after each
RETRY_MAX_S = 60.0
UNKNOWN = -1  # as a committed offset: it is still to be followed
_ENDED = SendOutcome(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker lost its mastership")
_TOO_MANY = SendOutcome(
    ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many acknowledgements and pops wait for the log"
)

Told = Callable[[SendOutcome], None]

_log = log.get("pop")


class _Wish(msgspec.Struct, eq=False):
    """Events that belong together, and who waits for them."""

    events: list[Event]
    undos: list[Undo]
    buried: list[MessageRecord]
    done: Told


class PopBook:
    """See the module.

    Args:
        view: the group, which is the master.
        writer: of committed offsets.
        now_ms: the wall clock.
        changed: is told of each change that may let somebody pop: when the log was read or could
            not be, and when something was taken back.

    Attributes:
        ledger: what is in flight.
        committed: the offset of a queue as this ledger has set it last; another one was set by
            somebody else.
        unwritten: queues whose offset stands in the next append, though it is what it was: what is
            in flight of them stands there, and is of no use to a master that has no offset.
        taken: the queues that some pop takes of now; no table forgets them, since what the pop
            has learned of them is to hold until it hands out.
        generation: rises whenever something is taken back, or a group is reset: what was built on
            it does not hold.
        failure: why POP is not served; empty while it is.
        refused: appends that were refused.
        tables: tables that were confirmed.
    """

    def __init__(
        self,
        view: GroupView,
        writer: OffsetWriter,
        now_ms: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self.ledger = PopLedger()
        self.committed: dict[QueueId, int] = {}
        self.unwritten: set[QueueId] = set()
        self.taken: set[QueueId] = set()
        self.generation = 0
        self.failure = ""
        self.refused = 0
        self.tables = 0
        self._view = view
        self._writer = writer
        self._now_ms = now_ms
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._was_read = False
        self._is_closed = False
        self._run: Run[LogReader] | None = None
        self._retry_s = RETRY_FIRST_S
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[_Wish] = deque()
        self._waiting_events = 0
        self._waiting_bytes = 0  # of dead letters
        self._writing: list[_Wish] = []
        self._since_table_bytes = 0
        self._table_bytes = 0
        self._wants_table = False
        self._begin()

    def close(self) -> None:
        """The mastership is over: nobody knows what becomes of what is waited for."""
        self._is_closed = True
        if self._run is not None:
            self._run.cancel()
        if self._timer is not None:
            self._timer.cancel()
        waiting = [*self._writing, *self._waiting]
        self._writing, self._waiting = [], deque()
        for wish in waiting:
            wish.done(_ENDED)

    @property
    def ready(self) -> bool:
        """Whether everything that earlier masters wrote has been read."""
        return self._was_read and not self._is_closed

    @property
    def is_being_read(self) -> bool:
        """Whether it will soon be ready, as far as anybody knows."""
        return not (self._was_read or self._is_closed or self.failure)

    def may_have(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a consumer group pops from a queue, as far as anybody knows."""
        return not self.ready or QueueId(group, topic, queue_id) in self.ledger.queues

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the log that nothing more is taken."""
        return self._waiting_events >= WAITING_MAX

    @property
    def may_bury(self) -> bool:
        """Whether there is room for another dead letter in the next append."""
        return self._waiting_bytes < BURIED_BYTES

    def clocks(self) -> Clocks:
        """Now."""
        return Clocks(self._now_ms(), int(self._loop.time() * 1000))

    # ---- events

    def record(self, events: list[Event], done: Told, buried: Sequence[MessageRecord] = ()) -> None:
        """These events are so, here at once; ``done`` comes once, when that is confirmed or not.

        Args:
            events: in their order; none waits for those before it.
            done: is told. Only with 0 it lasts; with a refusal it has been taken back.
            buried: dead letters that are stored with them.
        """
        assert self.ready, "what earlier masters wrote is known"
        if self.is_behind and events:
            done(_TOO_MANY)
            return
        now = self.clocks()
        undos = [self.ledger.apply(event, now) for event in events]
        self._waiting.append(_Wish(events, undos, list(buried), done))
        self._waiting_events += len(events)
        self._waiting_bytes += sum(len(record.body) for record in buried)
        if not self._writing:
            self._loop.call_soon(self._write)  # those of one turn share an append

    def state(self, queue_id: QueueId, offset: int, popped_ms: int) -> DeliveryState:
        """The state of one delivery, also of a queue that the ledger has forgotten."""
        if queue_id not in self.ledger.queues and is_lite_queue(queue_id.topic):
            done = self._view.store.committed.query(*queue_id)
            if done is not None and offset < done:
                return DeliveryState.DONE
        return self.ledger.state(queue_id, offset, popped_ms)

    def reset(self, moves: Sequence[Back], done: Told) -> None:
        """Groups are reset, whose offsets are committed here by now.

        What is read for them at the moment is not handed out. Where a group does not pop there is
        nothing to record.

        Args:
            moves: of queues that may be unknown here.
            done: is told as by ``record``; a reset that was taken back is followed as a commit is.
        """
        assert self.ready, "what earlier masters wrote is known"
        assert not self.is_behind, "it would be refused"
        self.generation += 1
        events: list[Event] = []
        moved: list[QueueId] = []
        for move in moves:
            queue = self.ledger.queues.get(move.queue)
            if queue is None:
                continue
            events += reset_events(queue, move)
            if move.is_rest_done:
                self.committed[move.queue] = move.first
                self.unwritten.add(move.queue)
                moved.append(move.queue)

        def recorded(outcome: SendOutcome) -> None:
            if outcome.code != ResponseCode.SUCCESS and not outcome.may_be_stored:
                self.committed.update(dict.fromkeys(moved, UNKNOWN))
            done(outcome)

        if events:
            self.record(events, recorded)
        else:
            done(SendOutcome(ResponseCode.SUCCESS))
        self._changed()

    def settled(self, done: Told) -> None:
        """Tell ``done`` once everything that is so here is confirmed, or why it is not."""
        if self._writing or self._waiting:
            self.record([], done)
        else:
            done(SendOutcome(ResponseCode.SUCCESS))

    def commit(self, queue: QueueId, offset: int) -> bool:
        """Have the committed offset of ``queue`` be ``offset``; a reset to there is followed.

        Returns:
            False when there are too many offsets for another one.
        """
        committed = self._view.store.committed
        is_kept = True
        if may_commit(committed, *queue, offset):
            is_kept = committed.commit(*queue, offset)
        self._writer.soon()
        return is_kept

    def _write(self) -> None:
        if self._is_closed or self._writing or not self._waiting:
            return
        refusal = self._view.accepting_writes()
        if refusal is not None:
            self._take_back([], {}, SendOutcome(refusal.code, refusal.remark))
            return
        wishes = list(self._waiting)  # all of them: offsets and tables are of the whole state
        self._waiting.clear()
        self._waiting_events = self._waiting_bytes = 0
        host = self._view.store_host
        events = [event for wish in wishes for event in wish.events]
        records = [record for wish in wishes for record in wish.buried]
        touched = dict.fromkeys(event.queue for event in events if not isinstance(event, ModeSet))
        rows = self._moved_rows(touched)
        unwritten = self.unwritten.intersection(touched)
        self.unwritten -= unwritten
        before = [(*row[:3], self.committed[QueueId(*row[:3])]) for row in rows]
        if rows:
            self._view.store.committed.foresee(rows)
            self.committed.update((QueueId(*row[:3]), row[3]) for row in rows)
            for at in range(0, len(rows), MAX_ROWS):
                record = rows_record(rows[at : at + MAX_ROWS])
                record.store_host = record.born_host = host
                records.append(record)
        for at in range(0, len(events), BATCH_EVENTS):
            records.append(events_record(events[at : at + BATCH_EVENTS], host))
            self._since_table_bytes += len(records[-1].body)
        table_from = len(records)
        with_table = self._is_table_due()
        forgotten: dict[QueueId, PopQueue] = {}
        if with_table:
            forgotten = self._forget()
            records += table_records(list(self.ledger.rows()), host)
            self._wants_table = False
            self._since_table_bytes = 0
            self._table_bytes = sum(len(record.body) for record in records[table_from:])
        if not records:
            for wish in wishes:
                wish.done(SendOutcome(ResponseCode.SUCCESS))
            return
        self._writing = wishes

        def done(outcome: SendOutcome) -> None:
            if outcome.code != ResponseCode.SUCCESS and not outcome.may_be_stored:
                self._view.store.committed.take_back(before)
                self.committed.update((QueueId(*row[:3]), row[3]) for row in before)
                self.unwritten |= unwritten
            self._written(outcome, table_from if with_table else None, forgotten)

        try:
            self._view.store.append(records, done)
        except GantryError as error:
            done(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))

    def _moved_rows(self, touched: Iterable[QueueId]) -> list[OffsetRow]:
        """The offsets that the next append sets; none where somebody else has set one meanwhile."""
        query = self._view.store.committed.query
        return [
            (*queue_id, queue.floor)
            for queue_id in touched
            if (queue := self.ledger.queues.get(queue_id)) is not None
            and query(*queue_id) == self.committed.get(queue_id, UNKNOWN)
            and (queue.floor != self.committed[queue_id] or queue_id in self.unwritten)
        ]

    def _written(
        self,
        outcome: SendOutcome,
        table_from: int | None,
        forgotten: dict[QueueId, PopQueue],
    ) -> None:
        wishes, self._writing = self._writing, []
        if self._is_closed:
            return
        if outcome.code != ResponseCode.SUCCESS and not outcome.may_be_stored:
            self._wants_table = self._wants_table or table_from is not None
            self._take_back(wishes, forgotten, outcome)
            return
        if table_from is not None and outcome.code == ResponseCode.SUCCESS:
            self.tables += 1
            first = outcome.stored[table_from].queue_offset
            if self._view.store.committed.commit(GROUP, POP_TOPIC, 0, first):
                self._writer.soon()
            else:  # a first table: the log is needed from its beginning on, as before
                _log.warning("no room for the offset of the table", at=first)
        for wish in wishes:
            wish.done(outcome)
        self._write()

    def _take_back(
        self, wishes: list[_Wish], forgotten: dict[QueueId, PopQueue], outcome: SendOutcome
    ) -> None:
        """Nothing of ``wishes`` was stored, so what was built on them does not hold either.

        Nor was the table that stood behind them, and said that some queues are forgotten.
        """
        self.refused += 1
        self.generation += 1
        _log.warning("not stored", reason=outcome.remark)
        later = list(self._waiting)
        self._waiting.clear()
        self._waiting_events = self._waiting_bytes = 0
        self._undo(later)
        self.ledger.remember(forgotten)
        self.committed.update(dict.fromkeys(forgotten, UNKNOWN))
        self._undo(wishes)
        for wish in [*wishes, *later]:
            wish.done(outcome)
        self._changed()

    def _undo(self, wishes: list[_Wish]) -> None:
        for wish in reversed(wishes):
            for undo in reversed(wish.undos):
                self.ledger.undo(undo)
                if isinstance(undo.event, OffsetMoved):
                    self.committed[undo.event.queue] = UNKNOWN

    # ---- tables

    def _is_table_due(self) -> bool:
        least = max(TABLE_BYTES, 4 * self._table_bytes)
        return self._wants_table or self._since_table_bytes >= least

    def _forget(self) -> dict[QueueId, PopQueue]:
        """Forget the queues that nobody can pop from any more, as the next table does.

        And lite topics of which nothing is in flight: there may be a million, and the committed
        offset says all about them.
        """
        query = self._view.store.committed.query
        gone = [
            queue_id
            for queue_id, queue in self.ledger.queues.items()
            if queue_id not in self.taken
            and (
                (offset := query(*queue_id)) is None
                or (
                    not queue.held
                    and self.committed.get(queue_id) == offset == queue.next
                    and is_lite_queue(queue_id.topic)
                )
            )
        ]
        for queue_id in gone:
            self.committed.pop(queue_id, None)
        return self.ledger.forget(gone)

    def _tick(self) -> None:
        """From time to time the log behind the last table is let go."""
        self._timer = self._loop.call_later(TABLE_INTERVAL_S, self._tick)
        if self.ready and (self.ledger.queues or self.ledger.modes or self._table_bytes):
            self._wants_table = True
            self.record([], lambda outcome: None)

    # ---- the log

    def _begin(self) -> None:
        self._timer = None
        self._run = Run(self._view.store, self._read_log(), self._read, self._fail)
        self._run.start()

    def _read(self, found: LogReader) -> None:
        self._run = None
        self.ledger = found.ledger
        self.committed = {queue_id: queue.floor for queue_id, queue in self.ledger.queues.items()}
        self._was_read = True
        self.failure, self._retry_s = "", RETRY_FIRST_S
        _log.info("pops read", queues=len(self.ledger.queues), in_flight=self.ledger.in_flight)
        self._timer = self._loop.call_later(TABLE_INTERVAL_S, self._tick)
        self._changed()

    def _fail(self, error: GantryError) -> None:
        """Serve no POP until everything is read again."""
        self._run = None
        self.failure = str(error)
        _log.error("POP is not served", reason=error, again_in_s=self._retry_s)
        self._timer = self._loop.call_later(self._retry_s, self._begin)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        self._changed()

    def _read_log(self) -> Steps[LogReader]:
        """All that earlier masters wrote, in slices; first it must be confirmed."""
        self._since_table_bytes = 0
        (queue,) = yield from inherited([QueueQuestion(POP_TOPIC, 0)])
        at = start = first_needed(self._view.store.committed, GROUP, POP_TOPIC, queue)
        reader = LogReader(self.clocks())
        while at < queue.max_offset:
            entries = yield from read_slice(POP_TOPIC, at)
            for entry in entries:
                record = parse(entry.peek.properties, entry.body)
                reader.take(entry.peek.queue_offset, record)
                self._since_table_bytes += len(entry.body)
            at += len(entries)
            yield 0.0
        if reader.table_at is None and start > 0:
            raise MissingRecordsError(
                f"No table of what is in flight stands in {POP_TOPIC} from record {start} on, where"
                " the log says it is. Restore this broker from a replica that has it."
            )
        return reader
