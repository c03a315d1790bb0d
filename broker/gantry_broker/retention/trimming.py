"""The beginning of a log that nobody needs any more: what goes first, and what is refused.

Rules protected: a log loses only whole files, of confirmed records, below everything that replicas,
parked messages and open transactions need; a whole state is confirmed behind them first (H12), and
nobody is sent to bytes that are gone. What it refuses: a group with a tier, whose own retention
decides what may go; a second trim while one is under way.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.process.files import fsync_directory
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset

from gantry_broker.log.segments import Segment
from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.pins import Pins
from gantry_broker.store.contract import Appended, Refusal, SendOutcome, Trimmed

SLICE = 128  # queues between two turns of the loop

_TIERED = Refusal(
    ResponseCode.SYSTEM_ERROR, "this group has a tier: what it holds is trimmed by its retention"
)
_BUSY = Refusal(ResponseCode.SYSTEM_BUSY, "the log is being trimmed already")
_NO_STATE = Refusal(ResponseCode.SYSTEM_BUSY, "the state cannot be written now, try again later")


class TrimHost(Protocol):
    """The part of a group that a trim needs."""

    def pins(self) -> Pins:
        """Those who need the log, and from where on."""

    def log_trimmed(self, start: Offset) -> None:
        """The log begins at ``start`` now."""

    @property
    def serving(self) -> bool:
        """Whether this is the serving master."""

    @property
    def store_host(self) -> tuple[str, int]:
        """For records of our own."""

    def append(self, records: list[MessageRecord], done: Appended) -> None:
        """Store and replicate."""


class LogTrim:
    """The trims of one group, one at a time.

    Args:
        messages: the group's store.
        host: the group.
    """

    def __init__(self, messages: MessageStore, host: TrimHost) -> None:
        """Nothing is under way."""
        self._messages = messages
        self._host = host
        self._task: asyncio.Task[None] | None = None

    def trim(self, below: Offset, done: Trimmed) -> None:
        """Let the log begin as near to ``below`` as it may; ``done`` comes once."""
        if self._messages.tiered:
            done(_TIERED)
        elif self._task is not None:
            done(_BUSY)
        else:
            self._task = asyncio.create_task(self._run(below, done))

    async def _run(self, below: Offset, done: Trimmed) -> None:
        try:
            refusal = await self._trim(below)
        except GantryError as error:
            refusal = Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        finally:
            self._task = None
        done(refusal)

    async def _trim(self, below: Offset) -> Refusal | None:
        if self._start_for(below) is None:
            return None
        records = self._messages.state_records() if self._host.serving else None
        if records is None:
            return _NO_STATE
        for record in records:
            record.store_host = record.born_host = self._host.store_host
        outcome: asyncio.Future[SendOutcome] = asyncio.get_running_loop().create_future()
        self._host.append(records, outcome.set_result)
        said = await outcome
        if said.code != ResponseCode.SUCCESS:
            return Refusal(said.code, said.remark or "the state is not confirmed")
        start = self._start_for(below)  # somebody may need more by now
        if start is not None:
            await cut_beginning(self._messages, start, self._host.log_trimmed)
        return None

    def _start_for(self, below: Offset) -> Offset | None:
        """The last file that may be the first; None when that is the case already."""
        log = self._messages.log
        limit = min(below, self._host.pins().bound(self._messages.dispatched))
        starts = sorted(log.starts)
        found = starts[max(0, bisect_right(starts, limit) - 1)]
        return found if found > log.log_start else None


async def cut_beginning(
    messages: MessageStore,
    to: Offset,
    trimmed: Callable[[Offset], None],
    still: Callable[[], bool] = lambda: True,
) -> int | None:
    """Let the log begin at ``to``, a file's start: queues first, then the log, then the files.

    Args:
        messages: the group's store.
        to: where.
        trimmed: told when the log begins there.
        still: asked once the queues are through, since that takes a while.

    Returns:
        How many files went; None when it was not to be done any more.

    Raises:
        CutRefusedError: no file begins there, or the state of now could not be had any more.
        LogFailedError: the disk failed.
    """
    for number, _ in enumerate(messages.raise_minimums(to)):
        if number % SLICE == 0:
            await asyncio.sleep(0)
    if not still():
        return None
    removed = messages.trim(to)
    trimmed(to)
    await asyncio.to_thread(_remove, removed)
    return len(removed)


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove()
    if segments:
        fsync_directory(segments[0].path.parent)
