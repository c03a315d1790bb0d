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
from msgspec.structs import replace

from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import GetResult, GetStatus, QueueRead, Refusal, WasRead
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


class TierWaits:
    """The reads that wait for the tier.

    Args:
        messages: for what the local log has.

    Attributes:
        timed_out: reads that were answered at their deadline, ever.
        refused: reads that were too many, ever.
    """

    def __init__(self, messages: MessageStore) -> None:
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
        done(self._result(wanted, answer))

    def _result(self, wanted: QueueRead, answer: Answer) -> GetResult | Refusal:
        low = self._messages.min_offset(wanted.topic, wanted.queue_id)
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
