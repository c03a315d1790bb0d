"""Reads below the local log: asked of the tier, and answered when it has said something.

Rules protected: the event loop never waits; a read is answered once, by its deadline, and never
with silence or a skipped offset. A tier in trouble is answered with "ask again" at the same offset
and the reason, after a pause, because clients ask again at once; what asking again does not mend (a
damaged object) with a refusal that names it.

What it refuses: more than ``WAITING_MAX`` reads at once ("busy": clients come back in a while).
"""

import asyncio
from typing import Protocol

from gantry_protocol.codes import ResponseCode
from gantry_protocol.process import log
from gantry_protocol.types import Offset
from msgspec.structs import replace

from gantry_broker.store.contract import (
    GetResult,
    GetStatus,
    QueueKey,
    QueueRead,
    Refusal,
    WasRead,
)
from gantry_broker.tier.core.locate import Gone, Queue
from gantry_broker.tier.core.reading import Answer, Local, Messages, Trouble, Wanted

WAITING_MAX = 512
DEADLINE_S = 5.0  # pulls that may not be suspended give up after 10 s
PAUSE_S = 1.0

_log = log.get("pull")


class TierReads(Protocol):
    """Reads of records that the local log no longer has."""

    async def read(self, queue: Queue, wanted: Wanted, local: Local) -> Answer:
        """Records from ``wanted.offset`` on, where the reader goes on, or what is wrong."""
        ...

    def since(self, queue: Queue, timestamp: int, local: Local) -> int | None:
        """An offset at or before the first record stored then or later; None if all is older."""
        ...

    def earliest(self, queue: Queue) -> int | None:
        """The store time of the first record of the queue, ms; None if unknown."""
        ...

    def first(self, queue: Queue, offset: int, local: Local) -> int:
        """The offset that a reader at ``offset`` is sent on to; itself where it is not."""
        ...


class Begun(Protocol):
    """A log that need not begin at 0."""

    @property
    def log_start(self) -> Offset:
        """The offset at which it begins: what is below is asked of the tier."""


class Extent(Protocol):
    """The extent of a log, and of the queues in it; a message store has them."""

    @property
    def log(self) -> Begun:
        """The log."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that is served, here or from the tier."""

    def local_min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that is served here."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last confirmed one."""


def first_offset(messages: Extent, tier: TierReads | None, key: QueueKey) -> int:
    """The first offset of a queue that is served, from the tier or from the local log.

    The beginning of the tier may have been removed by a rule of its bucket.
    """
    low, local = messages.min_offset(*key), messages.local_min_offset(*key)
    if tier is None or low >= local:
        return low
    return tier.first(Queue(*key), low, Local(messages.log.log_start, local))


class TierWaits:
    """The reads that wait for the tier.

    Args:
        messages: what the local log has.

    Attributes:
        timed_out: reads that were answered at their deadline, ever.
        refused: reads that were too many, ever.
    """

    def __init__(self, messages: Extent) -> None:
        """Nobody waits."""
        self.timed_out = 0
        self.refused = 0
        self._messages = messages
        self._waiting: dict[asyncio.Task[None], tuple[GetResult, WasRead]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(
        self, tier: TierReads | None, wanted: QueueRead, result: GetResult, done: WasRead
    ) -> None:
        """Answer later, from the tier; at once when that cannot be.

        Args:
            tier: None refuses everybody.
            wanted: what to read.
            result: what the local log said.
            done: takes the answer.
        """
        if tier is None or len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            remark = f"{len(self._waiting)} pulls wait for the tier, try again later"
            done(Refusal(ResponseCode.SYSTEM_BUSY, remark))
            return
        task = asyncio.create_task(self._serve(tier, replace(wanted), done))
        self._waiting[task] = (result, done)
        task.add_done_callback(self._ended)

    def release(self) -> None:
        """This broker stops serving: send everybody back to ask again."""
        waiting, self._waiting = self._waiting, {}
        for task, (result, done) in waiting.items():
            task.cancel()
            done(result)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._waiting.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a fault of ours: for the loop's handler

    async def _serve(self, tier: TierReads, wanted: QueueRead, done: WasRead) -> None:
        queue = Queue(wanted.topic, wanted.queue_id)
        limits = wanted.limits
        asked = Wanted(wanted.offset, limits.max_count, limits.max_bytes, wanted.codes)
        low = self._messages.local_min_offset(wanted.topic, wanted.queue_id)
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await tier.read(queue, asked, Local(self._messages.log.log_start, low))
        except TimeoutError:
            self.timed_out += 1
            answer = Trouble(f"the tier did not answer within {DEADLINE_S:g} s; it is still asked")
        if isinstance(answer, Trouble) and not answer.lasting:
            _log.info("pull is sent back", queue=queue, offset=wanted.offset, reason=answer.reason)
            await asyncio.sleep(PAUSE_S)
        low = first_offset(self._messages, tier, (wanted.topic, wanted.queue_id))
        done(self._result(wanted, answer, low))

    def _result(self, wanted: QueueRead, answer: Answer, low: int) -> GetResult | Refusal:
        high = self._messages.max_offset(wanted.topic, wanted.queue_id)
        match answer:
            case Messages(body=body, count=count, next_offset=next_offset):
                status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
                return GetResult(status, next_offset, low, high, body, count)
            case Gone(next_valid=next_valid):
                return GetResult(GetStatus.OFFSET_TOO_SMALL, next_valid, low, high)
            case Trouble(reason=reason, lasting=True):
                return Refusal(ResponseCode.SYSTEM_ERROR, reason)
            case Trouble(reason=reason):
                status = GetStatus.OFFSET_IN_TIER
                return GetResult(status, wanted.offset, low, high, remark=reason)
