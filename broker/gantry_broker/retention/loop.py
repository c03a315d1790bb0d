"""``RetentionLoop``: carries out what the retention of a log decides, once a second.

Rules protected: queues stop pointing below the new start before the log begins there, and the start
is durable before a file is deleted; what was decided is decided again once the queues are through.

What it refuses: to hold up the group. Queues are gone through in slices, files are deleted in a
thread, and one step is under way at a time. A step that fails is left, with its reason.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log
from gantry_protocol.records import MessageRecord
from gantry_protocol.types import Offset

from gantry_broker.log import CutRefusedError
from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.rules import Decision, Keep, Trim, WriteState
from gantry_broker.retention.trimming import cut_beginning
from gantry_broker.store.contract import Refusal, SendOutcome

LOOK_S = 1.0  # between two decisions
STATE_BYTES_MAX = 64 * 1024 * 1024  # of one state: it is appended in one go

_log = log.get("retention")


class LoopHost(Protocol):
    """The part of a group that a retention needs."""

    @property
    def store(self) -> MessageStore:
        """The group's store."""

    @property
    def store_host(self) -> tuple[str, int]:
        """For records of our own."""

    @property
    def serving(self) -> bool:
        """Whether this is the serving master."""

    def accepting_writes(self) -> Refusal | None:
        """None when a record may be appended."""

    def append(self, records: list[MessageRecord], done: Callable[[SendOutcome], None]) -> None:
        """Store and replicate."""

    def log_trimmed(self, start: Offset) -> None:
        """The log begins at ``start`` now."""


class RetentionLoop(ABC):
    """See the module; what is to be done, a subclass decides.

    Args:
        host: the group.
        failed: called with an error that ends the process.

    Attributes:
        reason: what keeps more on the disk than was asked for; empty for nothing.
        trims: how often the log was trimmed.
        trimmed_bytes: what was deleted of it.
        states: how often the whole state was written.
    """

    def __init__(self, host: LoopHost, failed: Callable[[BaseException], None]) -> None:
        """Nothing is deleted before ``start``."""
        self.reason = ""
        self.trims = 0
        self.trimmed_bytes = 0
        self.states = 0
        self._loop_host = host
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._writing = False
        self._state_bytes = 0
        self._state_end = Offset(0)

    @abstractmethod
    def _decide(self) -> Decision:
        """What is to be done now."""

    @property
    def _pause_s(self) -> float:
        """Until the next decision."""
        return LOOK_S

    @property
    def _may_write(self) -> bool:
        """Whether a state could be appended now."""
        host = self._loop_host
        return host.serving and not self._writing and host.accepting_writes() is None

    def start(self) -> None:
        """Begin to decide."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Decide no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self.look()
            except CutRefusedError as error:
                self._tell(str(error))
            except Exception as error:  # noqa: BLE001 -- the disk, damage, or a fault of ours
                self._failed(error)
                return

    async def look(self) -> None:
        """Decide once, and carry it out.

        Raises:
            LogFailedError: the disk failed.
            CorruptionError: a file is damaged.
        """
        decision = self._decide()
        match decision:
            case Keep(reason=reason):
                self._tell(reason)
            case WriteState():
                self._write_state()
            case Trim(to=to):
                await self._trim(to)

    def _tell(self, reason: str) -> None:
        if reason and reason != self.reason:
            _log.info("more is kept than asked for", reason=reason)
        self.reason = reason

    # ---- deeds

    def _write_state(self) -> None:
        store = self._loop_host.store
        records = store.state_records()
        if records is None:
            self._tell("a change of the topics is being confirmed, or the state is not whole yet")
            return
        size = sum(len(record.body) for record in records)
        if size > STATE_BYTES_MAX:
            self._tell(f"the state has {size} bytes, at most {STATE_BYTES_MAX} can be written")
            return
        for record in records:
            record.store_host = record.born_host = self._loop_host.store_host
        self._writing = True
        try:
            self._loop_host.append(records, self._written)
        except GantryError as error:
            self._writing = False
            self._tell(str(error))
            return
        self.states += 1
        self._state_bytes, self._state_end = size, store.log.end
        _log.info("state written", pieces=len(records), bytes=size, end=store.log.end)

    def _written(self, outcome: SendOutcome) -> None:
        self._writing = False
        if outcome.code != ResponseCode.SUCCESS:
            self._tell(f"the state is not confirmed: {outcome.remark}")

    async def _trim(self, to: Offset) -> None:
        store = self._loop_host.store
        before = store.log.log_start

        def still() -> bool:
            again = self._decide()  # much may have happened meanwhile
            return isinstance(again, Trim) and again.to >= to

        removed = await cut_beginning(store, to, self._loop_host.log_trimmed, still)
        if removed is None:
            return
        self._tell("")
        self.trims += 1
        self.trimmed_bytes += to - before
        _log.info("log trimmed", start=to, files=removed, bytes=to - before)
