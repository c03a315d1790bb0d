"""Pulls below the local log: asked of the tier, and answered when it has said something.

Rules protected: the event loop never waits; a pull is answered once, by its deadline, and never
with silence or a skipped offset. A store in trouble is answered with "ask again" (20) at the same
offset and the reason, after a pause, because clients ask again at once; what asking again does not
mend (a damaged object) with an error (1) that names it.

What it refuses: more than ``WAITING_MAX`` pulls at once (2, "busy": clients come back in a while).
"""

import asyncio
from typing import Protocol

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.process import log

from gantry_broker.clients.parking import ParkedPull
from gantry_broker.queues import GetResult, GetStatus, MessageStore
from gantry_broker.tier.locate import Gone, Queue
from gantry_broker.tier.reading import Answer, Local, Messages, Trouble, Wanted

WAITING_MAX = 512
DEADLINE_S = 5.0  # pulls that may not be suspended give up after 10 s
PAUSE_S = 1.0

_log = log.get("pull")


class TierReads(Protocol):
    """Where records are that the local log no longer has."""

    async def read(self, queue: Queue, wanted: Wanted, local: Local) -> Answer:
        """Records from ``wanted.offset`` on, where the reader goes on, or what is wrong."""
        ...

    def since(self, queue: Queue, timestamp: int, local: Local) -> int | None:
        """An offset at or before the first record stored then or later; None if all is older."""
        ...

    def earliest(self, queue: Queue) -> int | None:
        """When the first record of the queue was stored, ms; None if unknown."""
        ...


class Reply(Protocol):
    """Makes the answer to a pull out of a result, maybe with another code."""

    def __call__(
        self,
        pull: ParkedPull,
        result: GetResult,
        code: ResponseCode | None = None,
        remark: str | None = None,
    ) -> RemotingCommand:
        """The answer."""


class TierPulls:
    """The pulls of one mastership that wait for the tier.

    Args:
        tier: None answers everybody that it cannot be read.
        store: for what the local log has.
        answer: makes answers.

    Attributes:
        timed_out: pulls that were answered at their deadline, ever.
        refused: pulls that were too many, ever.
    """

    def __init__(self, tier: TierReads | None, store: MessageStore, answer: Reply) -> None:
        """Nobody waits."""
        self.timed_out = 0
        self.refused = 0
        self._tier = tier
        self._store = store
        self._answer = answer
        self._waiting: dict[asyncio.Task[None], tuple[ParkedPull, GetResult]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, pull: ParkedPull, result: GetResult, max_bytes: int) -> RemotingCommand | None:
        """Answer ``pull`` later, from the tier; at once when that cannot be.

        Args:
            pull: which to answer.
            result: what the local log said.
            max_bytes: of records to return.
        """
        if self._tier is None or len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            remark = f"{len(self._waiting)} pulls wait for the tier, try again later"
            return reply(pull.request, ResponseCode.SYSTEM_BUSY, remark)
        task = asyncio.create_task(self._serve(self._tier, pull, max_bytes))
        self._waiting[task] = (pull, result)
        task.add_done_callback(self._ended)
        return None

    def release(self) -> None:
        """This broker stops serving: send everybody back to ask again."""
        waiting, self._waiting = self._waiting, {}
        for task, (pull, result) in waiting.items():
            task.cancel()
            if not pull.connection.closed:
                pull.connection.reply(pull.request, self._answer(pull, result))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._waiting.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error  # a fault of ours: for the loop's handler

    async def _serve(self, tier: TierReads, pull: ParkedPull, max_bytes: int) -> None:
        queue = Queue(*pull.key)
        wanted = Wanted(pull.offset, pull.max_count, max_bytes, pull.codes)
        local = Local(self._store.log.log_start, self._store.local_min_offset(*pull.key))
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await tier.read(queue, wanted, local)
        except TimeoutError:
            self.timed_out += 1
            answer = Trouble(f"the tier did not answer within {DEADLINE_S:g} s; it is still asked")
        if isinstance(answer, Trouble) and not answer.lasting:
            _log.info("pull is sent back", queue=pull.key, offset=pull.offset, reason=answer.reason)
            await asyncio.sleep(PAUSE_S)
        if not pull.connection.closed:
            pull.connection.reply(pull.request, self._reply(pull, answer))

    def _reply(self, pull: ParkedPull, answer: Answer) -> RemotingCommand:
        low = self._store.min_offset(*pull.key)
        high = self._store.max_offset(*pull.key)
        match answer:
            case Messages(body=body, count=count, next_offset=next_offset):
                status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
                return self._answer(pull, GetResult(status, next_offset, low, high, body, count))
            case Gone(next_valid=next_valid):
                status = GetStatus.OFFSET_TOO_SMALL
                return self._answer(pull, GetResult(status, next_valid, low, high))
            case Trouble(reason=reason, lasting=lasting):
                code = ResponseCode.SYSTEM_ERROR if lasting else None
                result = GetResult(GetStatus.OFFSET_IN_TIER, pull.offset, low, high)
                return self._answer(pull, result, code, reason)
