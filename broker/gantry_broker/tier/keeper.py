"""``LocalRetention``: gathers the facts for ``retention.decide`` and carries out what it says.

Rules protected: what is read in the chain counts for this broker only after the chain was compared
with its own log (lineage, and the bytes of the tier's last record), and only while its upload role
does not object (a fenced or halted one deletes nothing). Queues stop pointing below the new start
before the log begins there, and the start is durable before a file is deleted.

What it refuses: to hold up the group. Queues are gone through in slices, files are deleted in a
thread, and one step is under way at a time. A step that fails is left, with its reason.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import google_crc32c
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log
from gantry_protocol.records import MessageRecord
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.types import Offset

from gantry_broker.log import CutRefusedError
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import Refusal, SendOutcome
from gantry_broker.store.trimming import cut_beginning
from gantry_broker.tier.reconcile import mismatch
from gantry_broker.tier.retention import Decision, Facts, Keep, Trim, WriteState, decide
from gantry_broker.tier.role import UploadRole
from gantry_broker.tier.values import Head, LocalLog

LOOK_S = 1.0  # between two decisions
STATE_BYTES_MAX = 64 * 1024 * 1024  # of one state: it is appended in one go

_log = log.get("retention")


class RetentionHost(Protocol):
    """What the retention needs of its group."""

    @property
    def store(self) -> MessageStore:
        """The group's store."""

    @property
    def store_host(self) -> tuple[str, int]:
        """For records of our own."""

    @property
    def serving(self) -> bool:
        """Whether this is the serving master."""

    def local_log(self) -> LocalLog:
        """The log as it is now."""

    def pins(self) -> tuple[Offset, ...]:
        """Where the log is read: by replicas, or to deliver what is parked."""

    def accepting_writes(self) -> Refusal | None:
        """None when a record may be appended."""

    def append(self, records: list[MessageRecord], done: Callable[[SendOutcome], None]) -> None:
        """Store and replicate."""

    def log_trimmed(self, start: Offset) -> None:
        """The log begins at ``start`` now."""


class LocalRetention:
    """See the module.

    Args:
        host: the group.
        role: the upload role of this process.
        chain: as far as it was read.
        readable_end: how far the tier can be read here.
        local_bytes: how much of the confirmed log is kept.
        failed: called with an error that ends the process.

    Attributes:
        reason: what keeps more on the disk than was asked for; empty for nothing.
        trims: how often the log was trimmed.
        trimmed_bytes: what was deleted of it.
        states: how often the whole state was written.
    """

    def __init__(
        self,
        host: RetentionHost,
        role: UploadRole,
        *,
        chain: Callable[[], ChainState],
        readable_end: Callable[[], Offset],
        local_bytes: int,
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing is deleted before ``start``."""
        self.reason = ""
        self.trims = 0
        self.trimmed_bytes = 0
        self.states = 0
        self._host = host
        self._role = role
        self._chain = chain
        self._readable_end = readable_end
        self._local_bytes = local_bytes
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._writing = False
        self._state_bytes = 0
        self._state_end = Offset(0)
        self._compared = 0  # the newest version whose last record was found in our log

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
            await asyncio.sleep(LOOK_S)
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

    # ---- facts

    def _decide(self) -> Decision:
        host = self._host
        local, chain = host.local_log(), self._chain()
        committed_end, objection = self._committed_end(local, chain)
        decision = decide(
            Facts(
                local_bytes=self._local_bytes,
                starts=host.store.log.starts,
                log_start=local.log_start,
                end=local.end,
                confirm=host.store.dispatched,
                committed_end=committed_end,
                tail_at=None if chain.tail is None else Offset(chain.tail.at),
                readable_end=self._readable_end(),
                whole_from=host.store.whole_from,
                pins=host.pins(),
                state_bytes=self._state_bytes,
                state_end=self._state_end,
                writes=host.serving and not self._writing and host.accepting_writes() is None,
            )
        )
        if isinstance(decision, Keep) and decision.reason and objection:
            return Keep(objection)
        return decision

    def _committed_end(self, local: LocalLog, chain: ChainState) -> tuple[Offset | None, str]:
        """Up to where the chain may be gone by, and what is in the way."""
        if chain.v == 0 or chain.tail is None:
            return None, "the tier holds nothing yet"
        vouched = self._role.end_for_trim(Head(chain.v, chain.pair, Offset(chain.end)))
        if vouched is None:
            return None, f"the upload role is {self._role.state.value}: {self._role.status.reason}"
        wrong = mismatch(chain, local)
        if wrong is None and self._compared < chain.v:
            wrong = self._tail_differs(local, chain)
        if wrong is not None:
            return None, wrong
        self._compared = chain.v
        return Offset(min(vouched, chain.end)), ""

    def _tail_differs(self, local: LocalLog, chain: ChainState) -> str | None:
        tail = chain.tail
        assert tail is not None
        if not local.log_start <= tail.at or tail.at + tail.size > local.limit:
            return f"the tier's last record, at {tail.at}, is not in the confirmed part of this log"
        found = f"{google_crc32c.value(self._host.store.log.read(Offset(tail.at), tail.size)):08x}"
        if found != tail.crc:
            return (
                f"the record at {tail.at} has the sum {found} here and {tail.crc} in the tier; "
                f"keep both and compare them"
            )
        return None

    # ---- deeds

    def _write_state(self) -> None:
        store = self._host.store
        records = store.state_records()
        if records is None:
            self._tell("a change of the topics is being confirmed, or the state is not whole yet")
            return
        size = sum(len(record.body) for record in records)
        if size > STATE_BYTES_MAX:
            self._tell(f"the state has {size} bytes, at most {STATE_BYTES_MAX} can be written")
            return
        for record in records:
            record.store_host = record.born_host = self._host.store_host
        self._writing = True
        try:
            self._host.append(records, self._written)
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
        store = self._host.store
        before = store.log.log_start

        def still() -> bool:
            again = self._decide()  # much may have happened meanwhile
            return isinstance(again, Trim) and again.to >= to

        removed = await cut_beginning(store, to, self._host.log_trimmed, still)
        if removed is None:
            return
        self._tell("")
        self.trims += 1
        self.trimmed_bytes += to - before
        _log.info("log trimmed", start=to, files=removed, bytes=to - before)
