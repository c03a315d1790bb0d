"""``Delivery``: brings parked messages to their queues, for as long as a mastership lasts.

**What is guaranteed: at least once, in the order of each level.** What was delivered is a record in
the log (H10): one append holds the delivered messages and, behind them, how far the level has come,
as a consumer offset of ``GANTRY_SYS_DELAY``. A new master goes on where its log says. A message is
delivered twice only if the log broke off inside that append, between the message and the end of it
(at most ``BATCH`` messages of a level); an append that was stored is never made again, also when it
is not confirmed in time.

A timer's message is delivered the same way to its next step (``core.delay.levels``), and from the
last one to its queue; a step is a level here.

One timer of the event loop serves all levels. One append of a level is under way at a time, so
what waits in memory is bounded; an append that is refused is tried again after a pause, and holds
up its own level only.

What it refuses: to deliver to a topic that was deleted, or a parked record that does not say whose
it is. Both are passed over, counted and logged.
"""

import asyncio
import math
from collections.abc import Callable, Collection
from typing import NamedTuple

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import Busy, GantryError, RecordError
from gantry_protocol.process import log
from gantry_protocol.queue_map import Segment
from gantry_protocol.records import (
    SCHEDULE_TOPIC,
    MessageRecord,
    decode_records,
    delay_of,
    encode_record,
)
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.settings.delays import MAX_LEVELS
from gantry_protocol.types import Offset

from gantry_broker.clients.core.delay.levels import QUEUES, STEPS_MS, DelayLevels
from gantry_broker.clients.core.delay.parked import (
    PROGRESS_GROUP,
    as_sent,
    is_timer,
    next_park,
    park_again,
    unpark,
)
from gantry_broker.clients.core.delay.schedule import Level, Parked, Schedule
from gantry_broker.clients.recall import FORGET_EVERY_S, Recalls
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    ReadLimits,
    Refusal,
    SendOutcome,
)
from gantry_broker.store.tables.offsets import rows_record

BATCH = ReadLimits(max_count=128, max_bytes=256 * 1024)  # of one level in one append
HELD_UP_MS = 10_000  # before a timer's message is looked at again whose queue cannot take it
ASK_AGAIN_MS = 500  # after a store that could not say how far the levels reach

_log = log.get("delay")


class Delivery:
    """See the module.

    Args:
        view: the group; it is the master.
        levels: the delays of this broker.
        wall: seconds since 1970.
        recalls: messages for a certain moment that were taken back.

    Attributes:
        delivered: messages that were brought to their queues, in this mastership.
        passed_on: messages that were brought to another broker group, which has their queues.
        passed_over: messages that could not be delivered to anybody.
        refused: reads and appends that were refused and are tried again.
    """

    def __init__(
        self, view: GroupView, levels: DelayLevels, wall: Callable[[], float], recalls: Recalls
    ) -> None:
        """Take up every level where the log says it is."""
        self.delivered = 0
        self.passed_on = 0
        self.passed_over = 0
        self.refused = 0
        self._view = view
        self._levels = levels
        self._wall = wall
        self.recalls = recalls
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None  # uvloop's has no time of its own
        self._timer_ms = 0
        self._is_closed = False
        self._schedule = Schedule((), 0, 0)  # until the store has said how far each level reaches
        self._unknown = set(range(QUEUES))  # levels that may reach further than is known
        self._is_asking = False
        self._ask_ms = self._now_ms()
        self._unsubscribe = view.store.subscribe(self._arrived, {SCHEDULE_TOPIC})
        self._forgetting = self._loop.call_later(FORGET_EVERY_S, self._forget_recalls)
        self._look()

    def close(self) -> None:
        """The mastership is over: deliver nothing more."""
        self._is_closed = True
        self._unsubscribe()
        self._forgetting.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_known(self) -> bool:
        """Whether it is known how far every level reaches."""
        return bool(self._schedule.levels) and not self._unknown and not self._is_asking

    def pending(self) -> dict[int, int]:
        """Parked messages by level (from 1), then by step; those without any are left out."""
        return {
            number + 1: level.end - level.position
            for number, level in enumerate(self._schedule.levels)
            if level.end > level.position
        }

    def overdue_s(self) -> dict[int, float]:
        """The delay of a level's first message beyond its time; for the levels of ``pending``."""
        now_ms = self._now_ms()
        return {
            level: self._schedule.overdue_ms(level - 1, now_ms) / 1000 for level in self.pending()
        }

    def _forget_recalls(self) -> None:
        """Old recalls go, but while a timer is late: it may be one of them."""
        steps = range(MAX_LEVELS, len(self._schedule.levels))
        now_ms = self._now_ms()
        if self.is_known and not any(self._schedule.overdue_ms(step, now_ms) for step in steps):
            self.recalls.forget_old()
        self._forgetting = self._loop.call_later(FORGET_EVERY_S, self._forget_recalls)

    # ---- when

    def _level(self, number: int, queue: QueueOffsets) -> Level:
        """A level as the log has it; one beyond the table may hold what an earlier table parked."""
        position = self._view.store.committed.query(PROGRESS_GROUP, SCHEDULE_TOPIC, number)
        if number < MAX_LEVELS:
            delay_ms = self._levels.delay_ms(self._levels.clamp(number + 1))
        else:
            delay_ms = STEPS_MS[number - MAX_LEVELS]
        first = queue.min_offset if position is None else position
        return Level(first, queue.max_offset, queue.next_offset, delay_ms)

    def _arrived(self, confirm: Offset, queues: Collection[QueueKey]) -> None:
        """Messages were parked."""
        self._unknown.update(number for topic, number in queues if topic == SCHEDULE_TOPIC)
        self._arm()

    def _ask(self) -> None:
        """Ask the store how far levels reach; one question at a time, for all that are unknown."""
        if self._is_asking or not self._unknown or self._now_ms() < self._ask_ms:
            return
        self._is_asking = True
        numbers = sorted(self._unknown)
        self._unknown.clear()
        questions = [QueueQuestion(SCHEDULE_TOPIC, number) for number in numbers]
        self._view.store.offsets(questions, lambda queues: self._learned(numbers, queues))

    def _learned(self, numbers: list[int], queues: list[QueueOffsets] | Refusal) -> None:
        if self._is_closed:
            return
        self._is_asking = False
        wall_ms = self._wall_ms()
        # Whole ms that leave something out would make what came now early.
        now_ms = math.ceil(round(self._loop.time() * 1000, 3))
        if isinstance(queues, Refusal):
            _log.warning("parked messages wait", reason=queues.remark)
            self._unknown.update(numbers)
            self._ask_ms = now_ms + ASK_AGAIN_MS
        elif not self._schedule.levels:
            levels = [self._level(*item) for item in zip(numbers, queues, strict=True)]
            # What passed between the two clocks makes what was parked late, not early.
            self._schedule = Schedule(levels, now_ms, wall_ms)
        else:
            for number, queue in zip(numbers, queues, strict=True):
                self._schedule.levels[number].arrived(queue.max_offset, now_ms)
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the next moment something is to be done."""
        if self._is_closed:
            return
        wake_ms = self._schedule.wake_ms()
        if self._unknown and not self._is_asking:
            wake_ms = self._ask_ms if wake_ms is None else min(wake_ms, self._ask_ms)
        if self._timer is not None:
            if wake_ms is not None and self._timer_ms <= wake_ms:
                return  # it will ask again in time
            self._timer.cancel()
            self._timer = None
        if wake_ms is not None:
            self._timer_ms = wake_ms
            self._timer = self._loop.call_at(wake_ms / 1000, self._look)

    def _look(self) -> None:
        self._timer = None
        self._ask()
        for number in self._schedule.wanted(self._now_ms()):
            self._read(number)
        self._arm()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _wall_ms(self) -> int:
        return int(self._wall() * 1000)

    # ---- what

    def _read(self, number: int) -> None:
        """Read the level from its position on, and deliver what is due."""
        refusal = self._view.accepting_writes()
        if refusal is not None:
            self._refuse(number, refusal.remark)
            return
        wanted = QueueRead(SCHEDULE_TOPIC, number, self._schedule.levels[number].position, BATCH)
        self._view.store.read(wanted, lambda result: self._was_read(number, result))

    def _was_read(self, number: int, result: GetResult | Refusal) -> None:
        """Deliver what is due of what was read."""
        if self._is_closed:
            return
        try:
            self._take(number, result)
        except (RecordError, Busy) as error:
            self._refuse(number, str(error))
        self._arm()

    def _take(self, number: int, result: GetResult | Refusal) -> None:
        if isinstance(result, Refusal):
            self._refuse(number, result.remark)
            return
        level = self._schedule.levels[number]
        records = decode_records(result.body)
        if result.status is GetStatus.OFFSET_TOO_SMALL:
            _log.error("parked messages are gone", queue=number, first=result.next_offset)
            self._schedule.advanced(number, result.next_offset)
        elif result.status is not GetStatus.FOUND:
            self._refuse(number, f"the level's queue cannot be read: {result.status.name}")
        else:
            self._deliver_due(
                number, [record for record in records if record.queue_offset < level.end]
            )

    def _deliver_due(self, number: int, records: list[MessageRecord]) -> None:
        parked = [
            Parked(
                record.queue_offset, record.store_timestamp, delay_of(record.properties.encode())
            )
            for record in records
        ]
        count = self._schedule.judge(number, parked, self._now_ms())
        if count == 0:
            return
        position = records[count - 1].queue_offset + 1
        now_ms, wall_ms = self._now_ms(), self._wall_ms()
        found = [
            self._next_step(record, self._schedule.late_ms(number, parked[at], now_ms, wall_ms))
            if is_timer(record)
            else self._real(record)
            for at, record in enumerate(records[:count])
        ]
        stop = next(
            (at for at, item in enumerate(found) if isinstance(item, _Leaving | _HeldUp)), None
        )
        if stop == 0:
            first = found[0]
            if isinstance(first, _Leaving):
                self._pass_on(number, first, records[0])
            else:
                self._refuse(number, first.reason)  # type: ignore[union-attr]
            return
        if stop is not None:
            found, position = found[:stop], records[stop].queue_offset
        messages = [item for item in found if isinstance(item, MessageRecord)]
        recalled = [item for item in found if isinstance(item, _Recalled)]
        self.passed_over += len(found) - len(messages) - len(recalled)
        self._append(number, messages, position, len(recalled))

    def _pass_on(self, number: int, leaving: "_Leaving", parked: MessageRecord) -> None:
        """Have the group that has the queue store a message, and note that it was delivered.

        An answer that is lost is asked for again, by storing it again. A timer waits for that where
        it holds up nobody.
        """
        position = parked.queue_offset + 1

        def told(outcome: Outcome) -> None:
            if self._is_closed:
                return
            if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
                self.passed_on += 1
                self._append(number, [], position)
            else:
                reason = outcome.remark if isinstance(outcome, RemotingCommand) else str(outcome)
                if is_timer(parked) and self._view.accepting_writes() is None:
                    waiting = park_again(parked, HELD_UP_MS, self._view.store_host)
                    self._append(number, [waiting], position)
                else:
                    self._refuse(number, reason)
                self._arm()

        self._view.queues.pass_on(as_sent(leaving.message), leaving.place, told)

    def _next_step(self, parked: MessageRecord, late_ms: int) -> "_Found":
        """A timer's message as it waits on, or to be delivered."""
        if self.recalls.takes(parked):
            return _Recalled()
        found = next_park(parked, late_ms, self._view.store_host) or self._real(parked)
        if isinstance(found, _HeldUp):
            return park_again(parked, HELD_UP_MS, self._view.store_host)
        return found

    def _real(self, parked: MessageRecord) -> "_Found":
        """The message to deliver; None if there is nobody it could be delivered to."""
        try:
            message = unpark(parked, self._view.store_host)
            encode_record(message)
        except RecordError as error:
            reason = str(error)
        else:
            if self._view.store.topics.lookup(message.topic) is not None:
                queue_id = self._view.queues.deliverable(message.topic, message.queue_id)
                if queue_id is None:
                    place = self._view.queues.elsewhere(message.topic, message.queue_id)
                    if place is None:
                        return _HeldUp(f"the queue of {message.topic} moves, or is not known yet")
                    return _Leaving(message, place)
                message.queue_id = queue_id
                return message
            reason = f"topic {message.topic} was deleted"
        _log.warning("passed over", queue=parked.queue_id, reason=reason)
        return None

    def _append(
        self,
        number: int,
        messages: list[MessageRecord],
        position: int,
        recalled: int = 0,
    ) -> None:
        """Append the messages and, behind them, that the level is at ``position``."""
        key = (PROGRESS_GROUP, SCHEDULE_TOPIC, number)
        before = self._schedule.levels[number].position
        progress = rows_record([(*key, position)])
        progress.store_host = progress.born_host = self._view.store_host
        # At once, not at the confirmation: a state that is written between must not say less.
        self._view.store.committed.foresee([(*key, position)])

        def done(outcome: SendOutcome) -> None:
            if self._is_closed:
                return
            if outcome.may_be_stored:
                self.delivered += sum(item.topic != SCHEDULE_TOPIC for item in messages)
                self.recalls.taken_back += recalled
                self._schedule.advanced(number, position)
            else:
                self._view.store.committed.take_back([(*key, before)])
                self._refuse(number, outcome.remark)
            self._arm()

        try:
            self._view.store.append([*messages, progress], done)
        except GantryError as error:
            done(SendOutcome(ResponseCode.SYSTEM_ERROR, str(error)))

    def _refuse(self, number: int, reason: str | None) -> None:
        self.refused += 1
        _log.info("not delivered yet", queue=number, reason=reason)
        self._schedule.refused(number, self._now_ms())


class _HeldUp(NamedTuple):
    """A message that cannot be delivered yet."""

    reason: str


class _Recalled(NamedTuple):
    """A message that was taken back."""


class _Leaving(NamedTuple):
    """A message whose queue another broker group has now."""

    message: MessageRecord
    place: Segment


_Found = MessageRecord | _Leaving | _HeldUp | _Recalled | None  # what becomes of a parked message
