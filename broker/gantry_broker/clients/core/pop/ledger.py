"""The ledger of POP: which messages are in flight, until when, and what comes next. Pure.

A message of a queue is, for each consumer group that pops, one of three: not popped yet (at or
above ``next``), in flight (popped, not acknowledged), or done. One in flight is invisible until its
time is over, and is popped again then, from the place where it stands: no copy is made, so a group
that changes from POP to pull finds what is not done at its committed offset, which is that of the
first message in flight.

The ledger is what the records of ``GANTRY_SYS_POP`` say in their order. A master applies an event
before its record is confirmed, so that nobody else gets the message meanwhile; if the record was
not stored, everything since is taken back by ``undo``, newest first.

**Time** (as delays, ADR 0031): within one mastership only the steady clock counts. The wall clock
is looked at once, when a mastership begins: a message that an earlier master handed out is
invisible for what is left by the wall clock, never longer than it was to be.

Bounds: ``IN_FLIGHT_MAX`` messages of a queue and group, ``TOTAL_MAX`` over all. Beyond them nothing
new is popped; what is in flight can be acknowledged, and popped again.
"""

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from gantry_broker.clients.core.clocks import Clocks
from gantry_broker.clients.core.pop.records import (
    ROW_MESSAGES,
    Acked,
    Changed,
    Event,
    InFlight,
    ModeSet,
    OffsetMoved,
    Piece,
    Popped,
    QueueId,
    QueueRow,
    Row,
)

IN_FLIGHT_MAX = 10_000  # upstream's popInflightMessageThreshold
TOTAL_MAX = 200_000  # some 60 MB here, and 10 MB for each table in the log


class Held(NamedTuple):
    """A message in flight, and when it becomes visible, by the steady clock."""

    message: InFlight
    due_ms: int


class PopQueue:
    """One queue of one consumer group.

    Attributes:
        next: messages from here on were not popped yet.
        held: popped and not done, by queue offset, ascending.
        attempt: of ordered consumption, the client's name for its last try; else empty.
        newest_ms: no delivery has a later ``popped_ms``, as far as is known here.
        over_ms: deliveries up to this ``popped_ms`` are over: the group was led back since. What
            comes again has a later one, so that no receipt from before names it.
    """

    __slots__ = ("_due", "attempt", "held", "newest_ms", "next", "over_ms")

    def __init__(self, next_offset: int) -> None:
        self.next = next_offset
        self.held: dict[int, Held] = {}
        self.attempt = ""
        self.newest_ms = self.over_ms = 0
        self._due: list[tuple[int, int]] = []  # steady ms and offset; stale ones among them

    @property
    def floor(self) -> int:
        """Everything below is done: the group's committed offset."""
        return next(iter(self.held), self.next)

    def visible(self, steady_ms: int, limit: int) -> list[InFlight]:
        """Messages whose time is over, by ascending offset; those due first if there are more."""
        found: dict[int, int] = {}
        while self._due and self._due[0][0] <= steady_ms and len(found) < limit:
            due_ms, offset = heapq.heappop(self._due)
            if self._is_current(due_ms, offset):
                found[offset] = due_ms
        for offset, due_ms in found.items():
            heapq.heappush(self._due, (due_ms, offset))
        return [self.held[offset].message for offset in sorted(found)]

    def next_due_ms(self) -> int | None:
        """The steady time when the next message becomes visible; None with none in flight."""
        while self._due and not self._is_current(*self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def is_blocked(self, steady_ms: int) -> bool:
        """Whether some message in flight is invisible, so that ordered consumption waits."""
        return any(item.due_ms > steady_ms for item in self.held.values())

    def put(self, item: Held) -> None:
        """It is in flight, until ``drop``."""
        offset = item.message.offset
        self.newest_ms = max(self.newest_ms, item.message.popped_ms)
        is_new = offset not in self.held
        is_behind = is_new and bool(self.held) and offset < next(reversed(self.held))
        self.held[offset] = item
        if is_behind:  # back again, before others
            self.held = dict(sorted(self.held.items()))
        heapq.heappush(self._due, (item.due_ms, offset))
        if len(self._due) > 64 + 2 * len(self.held):  # mostly stale
            self._due = [(held.due_ms, offset) for offset, held in self.held.items()]
            heapq.heapify(self._due)

    def drop(self, offset: int) -> Held | None:
        """It is in flight no more; returns what it was."""
        return self.held.pop(offset, None)

    def _is_current(self, due_ms: int, offset: int) -> bool:
        item = self.held.get(offset)
        return item is not None and item.due_ms == due_ms


class Back(NamedTuple):
    """A reset of a consumer group in one queue.

    Attributes:
        queue: the queue.
        first: messages from there on come again, also those that are acknowledged.
        is_rest_done: what stands before is done; otherwise it is left as it is.
    """

    queue: QueueId
    first: int
    is_rest_done: bool


def reset_events(queue: PopQueue, back: Back) -> list[Event]:
    """The events of a reset; none if it changes nothing.

    A log that ends between the two has messages come twice, and none left out.
    """
    first = back.first if back.is_rest_done else min(back.first, queue.next)
    over = [offset for offset in queue.held if back.is_rest_done or offset >= first]
    if first == queue.next and not over:
        return []
    return [Popped(back.queue, first, queue.attempt, []), Acked(back.queue, over)]


class DeliveryState(Enum):
    """The state of the delivery that a receipt names."""

    CURRENT = auto()
    DONE = auto()  # the message was acknowledged, by this receipt or another one
    OVER = auto()  # the message was handed out again since
    UNKNOWN = auto()  # no such message was handed out


class Undo(NamedTuple):
    """The way back from one event.

    Attributes:
        event: what was applied.
        next: of the queue, before it; None if the queue was not known.
        attempt: of the queue, before it.
        before: the messages that it changed, as they were; None for one that was not in flight.
        mode: as it was before a ``ModeSet``.
    """

    event: Event
    next: int | None = None
    attempt: str = ""
    before: list[tuple[int, Held | None]] = []  # noqa: RUF012 - never changed
    mode: ModeSet | None = None


class PopLedger:
    """See the module.

    Attributes:
        queues: what groups have popped.
        modes: by topic and group, where it was set.
        in_flight: messages, over all queues.
    """

    def __init__(self) -> None:
        self.queues: dict[QueueId, PopQueue] = {}
        self.modes: dict[tuple[str, str], ModeSet] = {}
        self.in_flight = 0

    def room(self, queue: PopQueue | None) -> int:
        """The number of further messages of a queue that may be in flight."""
        own = 0 if queue is None else len(queue.held)
        return max(0, min(IN_FLIGHT_MAX - own, TOTAL_MAX - self.in_flight))

    def state(self, queue_id: QueueId, offset: int, popped_ms: int) -> DeliveryState:
        """The state of one delivery."""
        queue = self.queues.get(queue_id)
        if queue is None or offset >= queue.next:
            return DeliveryState.UNKNOWN
        item = queue.held.get(offset)
        if item is None:
            return DeliveryState.DONE
        return DeliveryState.CURRENT if item.message.popped_ms == popped_ms else DeliveryState.OVER

    def apply(self, event: Event, now: Clocks) -> Undo:
        """``event`` is so from now on; one that is so already changes nothing."""
        if isinstance(event, ModeSet):
            key = (event.topic, event.group)
            undo = Undo(event, mode=self.modes.get(key))
            self.modes[key] = event
            return undo
        known = self.queues.get(event.queue)
        if known is None:
            start = event.offset if isinstance(event, OffsetMoved) else 0
            queue = self.queues[event.queue] = PopQueue(start)
            undo = Undo(event, before=[])
        else:
            queue = known
            undo = Undo(event, queue.next, queue.attempt, [])
        match event:
            case Popped():
                for message in event.messages:
                    self._put(queue, message, now, undo)
                queue.next = event.next
                queue.attempt = event.attempt
            case Changed():
                if event.message.offset in queue.held:
                    self._put(queue, event.message, now, undo)
            case Acked():
                self._drop(queue, event.offsets, undo)
            case OffsetMoved():
                if event.offset < queue.floor:
                    self._drop(queue, list(queue.held), undo)
                    queue.next = event.offset
                else:
                    done = [offset for offset in queue.held if offset < event.offset]
                    self._drop(queue, done, undo)
                    queue.next = max(queue.next, event.offset)
        if undo.next is not None and queue.next < undo.next:
            queue.over_ms = queue.newest_ms
        return undo

    def undo(self, undo: Undo) -> None:
        """The reverse of ``apply``; events are taken back newest first."""
        event = undo.event
        if isinstance(event, ModeSet):
            if undo.mode is None:
                del self.modes[event.topic, event.group]
            else:
                self.modes[event.topic, event.group] = undo.mode
            return
        queue = self.queues[event.queue]
        for offset, item in undo.before:
            self.in_flight -= queue.drop(offset) is not None
            if item is not None:
                queue.put(item)
                self.in_flight += 1
        if undo.next is None:
            del self.queues[event.queue]
        else:
            queue.next, queue.attempt = undo.next, undo.attempt

    def forget(self, gone: Iterable[QueueId]) -> dict[QueueId, PopQueue]:
        """These queues are not there any more, or nobody consumes them; the next table says so.

        Returns:
            What was forgotten, for ``remember``.
        """
        forgotten = {at: self.queues.pop(at) for at in gone if at in self.queues}
        self.in_flight -= sum(len(queue.held) for queue in forgotten.values())
        return forgotten

    def remember(self, forgotten: dict[QueueId, PopQueue]) -> None:
        """The reverse of ``forget``, when all that was applied since is taken back."""
        assert not forgotten.keys() & self.queues.keys(), "it is taken back newest first"
        self.queues |= forgotten
        self.in_flight += sum(len(queue.held) for queue in forgotten.values())

    def _put(self, queue: PopQueue, message: InFlight, now: Clocks, undo: Undo) -> None:
        before = queue.held.get(message.offset)
        undo.before.append((message.offset, before))
        self.in_flight += before is None
        queue.put(Held(message, now.over_at(message.popped_ms, message.invisible_ms)))

    def _drop(self, queue: PopQueue, offsets: list[int], undo: Undo) -> None:
        for offset in offsets:
            before = queue.drop(offset)
            if before is not None:
                undo.before.append((offset, before))
                self.in_flight -= 1

    # ---- tables

    def rows(self) -> Iterator[Row]:
        """Everything of now, as rows of a table."""
        yield from self.modes.values()
        for queue_id, queue in self.queues.items():
            messages = iter([item.message for item in queue.held.values()])
            part = list(islice(messages, ROW_MESSAGES))
            while True:
                yield QueueRow(queue_id, queue.next, queue.attempt, part)
                part = list(islice(messages, ROW_MESSAGES))
                if not part:
                    break

    def take_rows(self, rows: Iterable[Row], now: Clocks) -> None:
        """Begin with a table."""
        for row in rows:
            if isinstance(row, ModeSet):
                self.modes[row.topic, row.group] = row
                continue
            queue = self.queues.setdefault(row.queue, PopQueue(row.next))
            queue.attempt = row.attempt
            undo = Undo(Acked(row.queue, []), before=[])
            for message in row.messages:
                self._put(queue, message, now, undo)


class LogReader:
    """Makes a ledger of the records of the topic, in their order.

    Attributes:
        ledger: of what was read so far.
        table_at: queue offset of the first record of the newest whole table; None without any.
    """

    def __init__(self, now: Clocks) -> None:
        self.ledger = PopLedger()
        self.table_at: int | None = None
        self._now = now
        self._pieces: list[Piece] = []
        self._pieces_at = 0

    def take(self, offset: int, record: list[Event] | Piece) -> None:
        """The next record, at queue offset ``offset``."""
        if not isinstance(record, Piece):
            self._pieces = []
            for event in record:
                self.ledger.apply(event, self._now)
            return
        if record.index == 0:
            self._pieces, self._pieces_at = [], offset
        elif record.index != len(self._pieces):
            self._pieces = []  # cut off by a change of master
            return
        self._pieces.append(record)
        if len(self._pieces) == record.count:
            self.ledger = PopLedger()
            self.ledger.take_rows((row for piece in self._pieces for row in piece.rows), self._now)
            self.table_at = self._pieces_at
            self._pieces = []
