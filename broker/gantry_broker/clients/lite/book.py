"""The lite subscriptions of one mastership, kept in step with their records in the log.

Rules protected:

* A change is applied, and answered, once its record is confirmed; also if that is late, when it
  is answered 12. So whoever is answered 0 finds its subscription at the next master, what a master
  knows is what the log says, and nothing has ever to be taken back.
* The log is needed from the oldest record on that says all about a client. That of the client whose
  record is oldest is written anew when what stands behind it weighs twice as much as all
  subscriptions, and after an hour. So no append carries more than a few clients, however many there
  are, and a start reads little more than there is.

What it refuses: to say anything before it has read all that its predecessors wrote.
"""

import asyncio
from collections.abc import Callable

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log

from gantry_broker.clients.core.lite.records import (
    GROUP,
    LITE_TOPIC,
    Event,
    event_record,
    parse,
)
from gantry_broker.clients.core.lite.registry import Evicted, LiteRegistry
from gantry_broker.clients.core.reading import first_needed, inherited, read_slice
from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.step_run import Run
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import QueueQuestion, SendOutcome
from gantry_broker.store.steps import Steps

BEHIND_BYTES = 1024 * 1024  # of records behind the oldest whole one, at least, before it is renewed
RECORD_BYTES = 512  # as which the reading of a small record weighs
NAME_BYTES = 32  # as which a subscription does, in a whole record
RENEWED_BYTES = 256 * 1024  # of one append that renews, about
RENEWED_AFTER_S = 3_600.0
TICK_S = 60.0
RETRY_FIRST_S = 0.5  # between a read that failed and the next; twice as long after each
RETRY_MAX_S = 60.0

Done = Callable[[SendOutcome, list[Evicted]], None]

_log = log.get("lite")


class LiteBook:
    """See the module.

    Args:
        view: the group, which is the master.
        writer: of committed offsets.
        changed: is told when the log was read, or could not be.

    Attributes:
        registry: who subscribes to what.
        failure: why lite topics are not served; empty while they are.
        renewed: whole records that were written anew.
        refused: appends that were refused.
    """

    def __init__(self, view: GroupView, writer: OffsetWriter, changed: Callable[[], None]) -> None:
        self.registry = LiteRegistry()
        self.failure = ""
        self.renewed = self.refused = 0
        self._view = view
        self._writer = writer
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._was_read = self._is_closed = self._is_renewing = False
        self._retry_s = RETRY_FIRST_S
        self._timer: asyncio.TimerHandle | None = None
        self._written_bytes = 0  # of records, from the first that was read on
        self._end = 0  # queue offset behind the last record
        # Of each record that is some client's oldest: what was written before it, and when.
        self._marks: dict[int, tuple[int, float]] = {}
        self._run: Run[LiteRegistry] | None = None
        self._begin()

    def close(self) -> None:
        """The mastership is over."""
        self._is_closed = True
        if self._run is not None:
            self._run.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def ready(self) -> bool:
        """Whether everything that earlier masters wrote has been read."""
        return self._was_read and not self._is_closed

    def record(self, events: list[Event], done: Done) -> None:
        """Have these be so; ``done`` is told once, when they are, or why they are not."""
        assert self.ready, "what earlier masters wrote is known"
        records = [event_record(event, self._view.store_host) for event in events]

        def appended(outcome: SendOutcome) -> None:
            if self._is_closed:
                done(outcome, [])
                return
            self.refused += outcome.code != ResponseCode.SUCCESS
            if not outcome.stored:
                done(outcome, [])
                return
            # Also without a confirmation in time: it is in the log for as long as this lasts.
            evicted: list[Evicted] = []
            for event, record, stored in zip(events, records, outcome.stored, strict=True):
                evicted += self._apply(self.registry, event, stored.queue_offset, len(record.body))
            self._let_go()
            self._renew_sometimes()
            done(outcome, evicted)

        try:
            self._view.store.append(records, appended)
        except GantryError as error:
            appended(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))

    # ---- keeping what has to be read short

    def _apply(
        self, registry: LiteRegistry, event: Event, at: int, size_bytes: int
    ) -> list[Evicted]:
        evicted = registry.apply(event, at)
        item = registry.clients.get((event.group, event.client_id))
        if item is not None and item.at == at:
            self._marks[at] = (self._written_bytes, self._loop.time())
        self._written_bytes += RECORD_BYTES + size_bytes
        self._end = at + 1
        return evicted

    def _let_go(self) -> None:
        """Say from where on the log is needed, and forget the marks of what is not."""
        first = self.registry.first_needed()
        needed = self._end if first is None else first
        while self._marks and (oldest := next(iter(self._marks))) < needed:
            del self._marks[oldest]
        committed = self._view.store.committed
        if committed.query(GROUP, LITE_TOPIC, 0) != needed:
            committed.commit(GROUP, LITE_TOPIC, 0, needed)
            self._writer.soon()

    def _renew_sometimes(self) -> None:
        """Write the oldest whole records anew, where too much stands behind them."""
        if self._is_renewing or self._is_closed:
            return
        oldest = next(iter(self.registry.clients.values()), None)
        if oldest is None:
            return
        before, written_s = self._marks.get(oldest.at, (0, 0.0))
        behind = self._written_bytes - before
        live = self.registry.count * NAME_BYTES + len(self.registry.clients) * RECORD_BYTES
        is_old = self._loop.time() - written_s > RENEWED_AFTER_S
        if behind < max(BEHIND_BYTES, 2 * live) and not is_old:
            return
        events: list[Event] = []
        size_bytes = 0
        for item in self.registry.clients.values():
            events.append(self.registry.whole(item))
            size_bytes += item.size_bytes
            if size_bytes >= RENEWED_BYTES:
                break
        if self._view.accepting_writes() is not None:
            return
        self._is_renewing = True

        def done(outcome: SendOutcome, evicted: list[Evicted]) -> None:
            self._is_renewing = False
            if outcome.code == ResponseCode.SUCCESS:
                self.renewed += len(events)
                self._loop.call_soon(self._renew_sometimes)

        self.record(events, done)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._renew_sometimes()

    # ---- the log

    def _begin(self) -> None:
        self._timer = None
        self._run = Run(self._view.store, self._read_log(), self._read, self._failed)
        self._run.start()

    def _read_log(self) -> Steps[LiteRegistry]:
        """All that earlier masters wrote, in slices; first it must be confirmed."""
        self._written_bytes, self._marks = 0, {}
        (queue,) = yield from inherited([QueueQuestion(LITE_TOPIC, 0)])
        at = first_needed(self._view.store.committed, GROUP, LITE_TOPIC, queue)
        registry = LiteRegistry()
        while at < queue.max_offset:
            entries = yield from read_slice(LITE_TOPIC, at)
            for entry in entries:
                event = parse(entry.body)
                self._apply(registry, event, entry.peek.queue_offset, len(entry.body))
            at += len(entries)
            yield 0.0
        return registry

    def _read(self, found: LiteRegistry) -> None:
        self._run = None
        self.registry = found
        self._was_read = True
        self.failure, self._retry_s = "", RETRY_FIRST_S
        _log.info("lite subscriptions read", clients=len(found.clients), count=found.count)
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._changed()

    def _failed(self, error: GantryError) -> None:
        self._run = None
        self.failure = str(error)
        _log.error("lite subscriptions not read", reason=self.failure, retry_s=self._retry_s)
        self._timer = self._loop.call_later(self._retry_s, self._begin)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
        self._changed()
