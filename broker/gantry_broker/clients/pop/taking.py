"""Taking messages from queues for one PopMessage: what is visible again first, then what is new.

The queue is taken by one pop at a time, from its reading until its messages are in flight; a pop
that would take of any queue passes it over meanwhile. What was read is handed out only if nothing
was taken back since (``PopBook.generation``).

A message that was popped as often as its group allows goes to the dead letters instead. One that is
no longer in any log is done.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError, RecordError
from gantry_protocol.process import log
from gantry_protocol.queue_map import number_of
from gantry_protocol.records import (
    Host,
    MessageRecord,
    decode_record,
    peek,
    with_reconsume_times,
)
from msgspec.structs import replace

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.retries import DEAD_LETTER_PREFIX, Fate, returned
from gantry_broker.clients.core.filters.sql import FILTERS
from gantry_broker.clients.core.pop.ledger import Held, PopQueue
from gantry_broker.clients.core.pop.records import Acked, InFlight, OffsetMoved, Popped, QueueId
from gantry_broker.clients.creation import TopicCreation
from gantry_broker.clients.filtered import both, further
from gantry_broker.clients.offsets import is_young
from gantry_broker.clients.pop.book import PopBook
from gantry_broker.clients.pop.polls import ANY_QUEUE, Place
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
    SendOutcome,
)
from gantry_broker.store.steps import Steps
from gantry_broker.store.stored import encode
from gantry_broker.store.tables.offsets import OFFSETS_MAX
from gantry_broker.store.tables.resets import due_reset

MAX_COUNT = 32  # of one PopMessage, upstream's
MAX_BYTES = 256 * 1024
SPREAD_MAX = 16_384  # between the first and the last offset of one queue in an answer: a batch
# acknowledgement names them by a bit each
_TOO_MANY = f"[OVERLOAD]{OFFSETS_MAX} offsets are kept, there is no room for another one"
_BURYING_MAX = 1024  # messages on their way to the dead letters
REST_S = 1.0  # before a dead letter, or the topic for it, is tried again that was refused

Stored = Callable[[int, SendOutcome], None]  # with the queue id

_log = log.get("pop")


class NoRoomError(GantryError):
    """A group cannot pop from a queue, since there is no room for its offset."""

    answer_code = ResponseCode.SYSTEM_BUSY


class WantedMessages(msgspec.Struct, frozen=True):
    """One PopMessage.

    Attributes:
        group: the consumer group.
        topic: the topic.
        count: messages at most.
        invisible_ms: for so long nobody else gets them.
        codes: tag codes to deliver; None delivers everything.
        sql: the filter that they must pass, which compiles; None for none.
        from_end: a group that is new begins behind the last message, but for a young queue.
        ordered: queues are taken in order, one batch of each at a time.
        attempt: of ordered consumption, the client's name for this try.
        tries: how often a message may be popped again; below 0: always.
    """

    group: str
    topic: str
    count: int
    invisible_ms: int
    codes: frozenset[int] | None
    sql: str | None
    from_end: bool
    ordered: bool
    attempt: str
    tries: int


class Taken(NamedTuple):
    """Messages of one queue that are in flight now.

    Attributes:
        queue_id: their queue.
        messages: by ascending offset, of one ``popped_ms``.
        body: their records, whole, in that order.
        rest: messages behind them that were not popped yet.
    """

    queue_id: int
    messages: list[InFlight]
    body: bytes
    rest: int

    @property
    def popped_ms(self) -> int:
        """The time in the receipts."""
        return self.messages[0].popped_ms


class _Found(NamedTuple):
    """Records of one queue, as they were read."""

    records: dict[int, bytes]  # by offset, ascending
    again: dict[int, Held]  # of these, those in flight, as they were before they were read
    gone: list[int]
    next: int
    rest: int


class Taking:
    """See the module.

    Args:
        view: the group.
        book: the ledger.
        creation: of topics for dead letters.
        unlocked: is told where somebody wanted a queue that was taken, and is not any more, and
            where there is more to do.

    Attributes:
        groups: that popped since somebody asked; each has an offset, so they are bounded.
        popped: messages that were handed out, in this mastership.
        again: of these, those that had been handed out before.
        buried: messages that went to the dead letters.
        gone: messages that were in flight and are no longer in any log, or that no record can
            carry to the dead letters.
    """

    def __init__(
        self,
        view: GroupView,
        book: PopBook,
        creation: TopicCreation,
        unlocked: Callable[[Place], None],
    ) -> None:
        self.popped = 0
        self.again = 0
        self.buried = 0
        self.gone = 0
        self._view = view
        self._book = book
        self._creation = creation
        self._unlocked = unlocked
        self._contended: dict[QueueId, set[Place]] = {}  # who wanted what was taken
        self.groups: set[str] = set()
        self._burying: set[tuple[QueueId, int]] = set()  # left aside by what looks for messages
        self._making: dict[str, list[tuple[QueueId, int]]] = {}  # of these, by the topic they need
        self._loop = asyncio.get_running_loop()

    def take(
        self,
        wanted: WantedMessages,
        queue_ids: Sequence[int],
        place: Place,
        stored: Stored,
        popped_ms: int | None = None,
    ) -> Steps[list[Taken]]:
        """Take messages of these queues, in this order, until there are enough.

        ``popped_ms``: of an answer that has messages already; what needs a later one is left.
        ``place`` is told if one that is passed over, since somebody else takes of it, is free.
        ``stored`` is told once of each queue of the result, maybe before this returns: when its
        record is confirmed, or why it is not. A queue that fails is passed over: what others gave
        is in flight already, and must be handed out.

        Raises:
            GantryError: nothing was found, and the store does not say what some queue holds.
        """
        found: list[Taken] = []
        failure: GantryError | None = None
        if popped_ms is None:
            popped_ms = self._name(wanted, queue_ids)
        count, size_bytes = wanted.count, MAX_BYTES
        for queue_id in queue_ids:
            queue = QueueId(wanted.group, wanted.topic, queue_id)
            if queue in self._book.taken:
                self._contended.setdefault(queue, set()).add(place)
                continue
            self._book.taken.add(queue)
            try:
                taken = yield from self._take(
                    wanted, queue, ReadLimits(count, size_bytes), popped_ms, stored
                )
            except GantryError as error:
                failure, taken = error, None
            finally:
                self._book.taken.discard(queue)
                for other in self._contended.pop(queue, ()):
                    self._unlocked(other)
            if taken is not None:
                found.append(taken)
                count -= len(taken.messages)
                size_bytes -= len(taken.body)
            if count <= 0 or size_bytes <= 0:
                break
        if failure is not None and not found:
            raise failure
        return found

    def take_groups(self) -> set[str]:
        """The groups that popped since this was asked last."""
        groups = set(self.groups)
        self.groups.clear()
        return groups

    def has_some(
        self, group: str, topic: str, queue_ids: Sequence[int], *, ordered: bool
    ) -> Steps[bool]:
        """Whether a pop of these queues may find a message, whatever it filters.

        Raises:
            GantryError: the store does not say.
        """
        steady_ms = self._book.clocks().steady_ms
        committed = self._view.store.committed
        asked: list[tuple[int, int]] = []  # queue id, and the first offset that was not popped
        for queue_id in queue_ids:
            queue = self._book.ledger.queues.get(QueueId(group, topic, queue_id))
            if queue is None:
                asked.append((queue_id, committed.query(group, topic, queue_id) or 0))
                continue
            is_blocked = ordered and queue.is_blocked(steady_ms)
            if not is_blocked and queue.visible(steady_ms, 1):
                return True
            if not (ordered and queue.held):
                asked.append((queue_id, queue.next))
        places: list[QueueOffsets] = yield [QueueQuestion(topic, at) for at, _ in asked]
        return any(
            place.max_offset > max(first, place.min_offset)
            for place, (_, first) in zip(places, asked, strict=True)
        )

    def _name(self, wanted: WantedMessages, queue_ids: Sequence[int]) -> int:
        """The ``popped_ms`` of this pop: now, and later than those of what it may hand out again.

        Receipts of one answer share it.
        """
        now = self._book.clocks()
        known = self._book.ledger.queues
        queues = [known.get(QueueId(wanted.group, wanted.topic, at)) for at in queue_ids]
        earlier = [
            popped_ms
            for queue in queues
            if queue is not None
            for popped_ms in (
                queue.over_ms,
                *(item.popped_ms for item in self._candidates(wanted, queue, now.steady_ms)),
            )
        ]
        return max(now.wall_ms, max(earlier, default=0) + 1)

    def _candidates(
        self, wanted: WantedMessages, queue: PopQueue, steady_ms: int
    ) -> list[InFlight]:
        """Messages in flight that may be handed out again."""
        if wanted.ordered and queue.is_blocked(steady_ms):
            if not wanted.attempt or wanted.attempt != queue.attempt:
                return []
            return [item.message for item in queue.held.values()]  # its answer was lost
        return queue.visible(steady_ms, wanted.count + len(self._burying))

    def _take(
        self,
        wanted: WantedMessages,
        queue_id: QueueId,
        limits: ReadLimits,
        popped_ms: int,
        stored: Stored,
    ) -> Steps[Taken | None]:
        generation = self._book.generation
        queue = yield from self._current(wanted, queue_id)
        if queue is None:
            return None
        self.groups.add(wanted.group)
        found = yield from self._read(wanted, queue_id, queue, limits)
        if generation != self._book.generation or not self._book.ready:
            return None  # it was read for a state that does not hold
        if popped_ms <= queue.over_ms:
            return None  # the group was led back since this pop has its name
        return self._hand_out(wanted, queue_id, queue, found, popped_ms, stored)

    def _current(self, wanted: WantedMessages, queue_id: QueueId) -> Steps[PopQueue | None]:
        """The queue of the ledger, which begins or goes on where the group's offset says.

        None if that can be recorded no more, or not now.

        Raises:
            NoRoomError: there are too many offsets for another one.
        """
        if not self._book.ready:
            return None
        generation = self._book.generation
        committed = self._view.store.committed
        offset = committed.query(*queue_id)
        due = due_reset(committed, *queue_id)
        if due is not None:
            offset = due
            self._commit(queue_id, due)  # which ends the reset
        known = self._book.ledger.queues.get(queue_id)
        if known is not None and offset is not None and offset == self._book.committed[queue_id]:
            return known
        if offset is None:
            place: QueueOffsets
            (place,) = yield [QueueQuestion(queue_id.topic, queue_id.queue_id)]
            is_from_end = wanted.from_end and not is_young(place)
            first = self._view.queues.first_offset(queue_id.topic, queue_id.queue_id)
            offset = max(first, place.max_offset if is_from_end else place.min_offset)
        if not self._book.ready or self._book.is_behind:
            return None
        if generation != self._book.generation:
            return None  # its offset may be another one by now
        self._commit(queue_id, offset)
        self._book.committed[queue_id] = offset
        self._book.unwritten.add(queue_id)
        self._book.record([OffsetMoved(queue_id, offset)], lambda outcome: None)
        return self._book.ledger.queues[queue_id]

    def _commit(self, queue_id: QueueId, offset: int) -> None:
        """Commit an offset, without which the next pop would take everything anew."""
        if not self._book.commit(queue_id, offset):
            raise NoRoomError(_TOO_MANY)

    # ---- reading

    def _read(
        self, wanted: WantedMessages, queue_id: QueueId, queue: PopQueue, limits: ReadLimits
    ) -> Steps[_Found]:
        """The records of what is visible again, and behind them new ones."""
        steady_ms = self._book.clocks().steady_ms
        records: dict[int, bytes] = {}
        gone: list[int] = []
        left = limits
        ranges = self._again(wanted, queue_id, queue, steady_ms, limits.max_count)
        again = {at: queue.held[at] for first, last in ranges for at in range(first, last + 1)}
        for first, last in ranges:
            result = yield QueueRead(
                queue_id.topic,
                queue_id.queue_id,
                first,
                ReadLimits(min(last - first + 1, left.max_count), left.max_bytes),
            )
            came = _by_offset(result)
            if result.status is GetStatus.OFFSET_TOO_SMALL:  # no log has them any more
                gone += range(first, min(last + 1, result.min_offset))
            self._take_dead(wanted, queue_id, queue, came)
            records |= came
            left = ReadLimits(
                limits.max_count - len(records),
                limits.max_bytes - sum(map(len, records.values())),
            )
            if left.max_count <= 0 or left.max_bytes <= 0:
                return _Found(records, again, gone, queue.next, 1)
        is_blocked = wanted.ordered and bool(queue.held)
        left = ReadLimits(min(left.max_count, self._book.ledger.room(queue)), left.max_bytes)
        if is_blocked or left.max_count <= 0:
            return _Found(records, again, gone, queue.next, 0)
        if records and queue.next - min(records) + left.max_count > SPREAD_MAX:
            return _Found(records, again, gone, queue.next, 1)
        result = yield from self._read_new(wanted, queue_id, queue.next, left)
        return _Found(
            records | _by_offset(result),
            again,
            gone,
            result.next_offset,
            max(0, result.max_offset - result.next_offset),
        )

    def _read_new(
        self, wanted: WantedMessages, queue_id: QueueId, offset: int, limits: ReadLimits
    ) -> Steps[GetResult]:
        for _ in range(2):
            result: GetResult = yield QueueRead(
                queue_id.topic, queue_id.queue_id, offset, limits, wanted.codes
            )
            if result.status not in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
                break
            offset = result.next_offset  # the log begins behind it, or ends before it
        if wanted.sql is None:
            return result
        read = QueueRead(queue_id.topic, queue_id.queue_id, offset, limits)
        first = FILTERS.apply(result, wanted.sql, limits)
        more = further(read, wanted.sql, first)
        return first if more is None else both(read, wanted.sql, first, (yield more))

    def _again(
        self, wanted: WantedMessages, queue_id: QueueId, queue: PopQueue, steady_ms: int, count: int
    ) -> list[tuple[int, int]]:
        """Offsets to hand out once more, as ranges from the first to the last, both included."""
        found = self._candidates(wanted, queue, steady_ms)
        offsets = [item.offset for item in found if (queue_id, item.offset) not in self._burying]
        ranges: list[tuple[int, int]] = []
        for offset in offsets[:count]:
            if offset - offsets[0] > SPREAD_MAX:
                break
            if ranges and ranges[-1][1] == offset - 1:
                ranges[-1] = (ranges[-1][0], offset)
            else:
                ranges.append((offset, offset))
        return ranges

    # ---- handing out

    def _hand_out(
        self,
        wanted: WantedMessages,
        queue_id: QueueId,
        queue: PopQueue,
        found: _Found,
        popped_ms: int,
        stored: Stored,
    ) -> Taken | None:
        """Record what was read as in flight."""
        if found.gone:
            self.gone += len(found.gone)
            _log.warning("messages in flight are gone", queue=queue_id, count=len(found.gone))
            self._book.record([Acked(queue_id, found.gone)], lambda outcome: None)
        if not found.records:
            if found.next != queue.next:  # nothing that the filter wants
                event = Popped(queue_id, found.next, queue.attempt, [])
                self._book.record([event], partial(self._passed_over, queue_id, found.rest))
            return None
        changed = {at for at, item in found.again.items() if queue.held.get(at) != item}
        if wanted.ordered and changed:
            return None  # the queue may be blocked again
        messages, pieces = [], []
        for offset, record in found.records.items():
            held = queue.held.get(offset)
            if offset in changed:
                continue  # it was acknowledged or hidden while it was read
            if held is not None and held.message.popped_ms >= popped_ms:
                continue  # the clock stands still; it is visible to the next one
            count = 1 if held is None else held.message.count + 1
            messages.append(InFlight(offset, popped_ms, wanted.invisible_ms, count))
            pieces.append(with_reconsume_times(record, count - 1) if count > 1 else record)
            self.again += count > 1
        if not messages:
            return None
        self.popped += len(messages)
        event = Popped(queue_id, found.next, wanted.attempt, messages)
        self._book.record([event], partial(stored, queue_id.queue_id))
        return Taken(queue_id.queue_id, messages, b"".join(pieces), found.rest)

    def _passed_over(self, queue_id: QueueId, rest: int, outcome: SendOutcome) -> None:
        """Who waits goes on behind what the filter left; by now they wait in their line."""
        if rest and outcome.code == ResponseCode.SUCCESS:
            self._loop.call_soon(self._look_again, queue_id)

    def _take_dead(
        self, wanted: WantedMessages, queue_id: QueueId, queue: PopQueue, records: dict[int, bytes]
    ) -> None:
        """Send what was tried often enough to the dead letters, and leave it out."""
        for offset in list(records):
            held = queue.held.get(offset)
            if held is None or not 0 <= wanted.tries < held.message.count:
                continue
            record = records.pop(offset)
            if len(self._burying) < _BURYING_MAX and self._book.may_bury and self._book.ready:
                self._bury(queue_id, held.message, record)

    def _bury(self, queue_id: QueueId, message: InFlight, data: bytes) -> None:
        queue = self._book.ledger.queues.get(queue_id)
        held = None if queue is None else queue.held.get(message.offset)
        if held is None or held.message != message:
            return  # it was taken back while it was read
        to = Fate(DEAD_LETTER_PREFIX + queue_id.group, 0)
        self._burying.add((queue_id, message.offset))
        if self._view.store.topics.lookup(to.topic) is None:
            self._wait_for_topic(to.topic, queue_id, message.offset)
            return

        def ended(outcome: SendOutcome, *, has_copy: bool = True) -> None:
            if outcome.code != ResponseCode.SUCCESS:
                _log.warning("not among the dead letters yet", reason=outcome.remark)
                self._loop.call_later(REST_S, self._burying.discard, (queue_id, message.offset))
                return
            self._burying.discard((queue_id, message.offset))
            self.buried += has_copy
            self.gone += not has_copy
            self._look_again(queue_id)  # there may be more than fit into one append

        try:
            record = replace(decode_record(data), reconsume_times=message.count - 1)
        except GantryError as error:
            ended(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        copy = _dead_letter(record, to, self._view.store_host)
        copies = [] if copy is None else [copy]
        if copy is None:
            _log.error("no record can carry a dead letter", queue=queue_id, at=message.offset)
        done = partial(ended, has_copy=bool(copies))
        self._book.record([Acked(queue_id, [message.offset])], done, copies)

    def _wait_for_topic(self, name: str, queue_id: QueueId, offset: int) -> None:
        """Leave a message in flight until there is a topic for it; its record is read again then.

        What is left aside is known by its place only: records may be large, and many.
        """
        waiting = self._making.get(name)
        if waiting is not None:
            waiting.append((queue_id, offset))
            return
        self._making[name] = [(queue_id, offset)]

        def look_again() -> None:
            places = self._making.pop(name)
            self._burying.difference_update(places)
            for left in dict.fromkeys(queue for queue, _ in places):
                self._look_again(left)

        def made(refusal: Refusal | None) -> None:
            if refusal is None:
                look_again()
            else:
                _log.warning("no topic for dead letters yet", topic=name, reason=refusal.remark)
                self._loop.call_later(REST_S, look_again)

        self._creation.ensure(topic_rules.internal_topic(name), made)

    def _look_again(self, queue_id: QueueId) -> None:
        for at in (number_of(queue_id.queue_id), ANY_QUEUE):
            self._unlocked(Place(queue_id.topic, queue_id.group, at))


def _dead_letter(record: MessageRecord, to: Fate, store_host: Host) -> MessageRecord | None:
    """The copy for the dead letters, which fits into a record; None if there is none.

    Where there is no room to say where it comes from, it has the properties that it had.
    """
    plain = replace(
        record,
        topic=to.topic,
        queue_id=0,
        store_host=store_host,
        reconsume_times=record.reconsume_times + 1,
    )
    makers: list[Callable[[], MessageRecord]] = [
        lambda: returned(record, to, 0, store_host),
        lambda: plain,
    ]
    for make in makers:
        try:
            copy = make()
            encode(copy)  # or the whole append would be refused, with what others wait for in it
        except RecordError:
            continue
        return copy
    return None


def _by_offset(result: GetResult) -> dict[int, bytes]:
    """The records of a read, by their queue offsets."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(result.body):
        record = peek(result.body, at)
        found[record.queue_offset] = result.body[at : at + record.size]
        at += record.size
    return found
