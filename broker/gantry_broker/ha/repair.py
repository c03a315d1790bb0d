"""Damaged ranges of a replica's log are fetched from the master and written anew.

A range that differs from its sum (``log/checked``) can be had again: whatever was flushed here came
from a master, or went to members. A replica asks the master that it follows for exactly that range,
on a connection of its own, compares the answer with its own sum, and writes it. A master does not
ask: it has a member of the set take over, and asks as a replica.

Rules protected: only bytes that match the sum which was made when they were first flushed are
written, whoever sent them; where no such sum is left (``log/mending``), whole records that are
confirmed, since those are the same on every member. A range that was cut or trimmed meanwhile is
left alone. A member does without a range only by its master's word that its log begins behind it.
What it refuses: a range of a file whose sums are gone. What cannot be repaired is tried again every
``RETRY_S``, said once for each reason, and shown.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import google_crc32c
from gantry_protocol.errors import ConfigError, ConnectError, RecordError
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.process import log as logs
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.types import Offset

from gantry_broker.ha.links import Link
from gantry_broker.ha.wire import Caller, Received
from gantry_broker.log import CommitLog
from gantry_broker.log.checked import Damage, DamagedError
from gantry_broker.log.sums import UNKNOWN
from gantry_broker.log.units import check_units
from gantry_broker.replica.messages import Farewell, Range, RangeAsk

RANGE_BYTES = 1024 * 1024  # of one answer; a longer range takes several
RETRY_S = 0.5
GIVES_WAY_WITHIN = 10  # of these; a damaged master asks others, once it is none any more
NOBODY = "this is the master and nobody in sync can take over, or there is no master to ask"
ANSWER_WITHIN_S = 2.0
CONNECT_TIMEOUT_S = 0.5

_log = logs.get("repair")


class NoRangeError(Exception):
    """The other side has not got the range, does not give it, or is too old for the question."""


_NOT_NOW = (ConnectError, ConfigError, RecordError, NoRangeError)


class TrimmedError(NoRangeError):
    """The other side's log begins later by now.

    Attributes:
        log_start: where.
    """

    def __init__(self, address: str, log_start: Offset) -> None:
        super().__init__(f"the log of {address} begins at {log_start}, behind these bytes")
        self.log_start = log_start


class Repairs:
    """See the module.

    Args:
        log: whose ranges.
        caller: which group this is.
        master: where the master that this replica follows listens for replicas; empty without one.
        key: shown to the master.
        trimmed: told of a range that the master has trimmed, and where its log begins.
        confirmed: everything below is known here to be confirmed.

    Attributes:
        repaired: ranges, ever.
        reasons: why a range that starts there could not be repaired, when it was tried last.
    """

    def __init__(
        self,
        log: CommitLog,
        caller: Callable[[], Caller],
        master: Callable[[], str],
        key: KeyFile = NO_KEY,
        trimmed: Callable[[Damage, Offset], None] = lambda damage, log_start: None,
        confirmed: Callable[[], Offset] = lambda: Offset(0),
    ) -> None:
        """Nothing is asked before ``start``."""
        self.repaired = 0
        self.reasons: dict[int, str] = {}
        self._log = log
        self._caller = caller
        self._master = master
        self._key = key
        self._trimmed = trimmed
        self._confirmed = confirmed
        self._found = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Repair what is found from now on, and was before."""
        self._found.set()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Leave the rest as it is."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def wake(self) -> None:
        """Damage was found."""
        self._found.set()

    def told(self) -> str:
        """The damage that could not be repaired so far, in a line; empty while there is none."""
        damage = self._log.checks.damage
        start = min((at for at in self.reasons if at in damage), default=None)
        if start is None:
            return ""
        first = damage[start]
        return (
            f"{len(damage)} damaged ranges, the first at log offsets {first.start} to {first.end}:"
            f" {self.reasons[start]}"
        )

    async def _run(self) -> None:
        rounds = 0  # with damage
        while True:
            await self._found.wait()
            address = self._master()
            damage = self._log.checks.damage
            if address:
                await self._repair_all(address)
            elif rounds >= GIVES_WAY_WITHIN:
                for item in list(damage.values()):
                    self._say(item, NOBODY)
            rounds = rounds + 1 if damage else 0
            self.reasons = {start: why for start, why in self.reasons.items() if start in damage}
            if damage:
                await asyncio.sleep(RETRY_S)
            else:
                self._found.clear()

    async def _repair_all(self, address: str) -> None:
        for damage in list(self._log.checks.damage.values()):
            try:
                await self._repair(damage, address)
            except TrimmedError as error:
                self._say(damage, str(error))
                if error.log_start >= damage.end:
                    self._trimmed(damage, error.log_start)
            except (*_NOT_NOW, DamagedError, OSError) as error:
                self._say(damage, str(error))

    async def _repair(self, damage: Damage, address: str) -> None:
        if damage.crc is None:
            raise NoRangeError("nothing says what its bytes were")
        if damage.crc == UNKNOWN and damage.end > self._confirmed():
            raise NoRangeError("it is not known to be confirmed")
        data = await fetch(address, damage.start, damage.length, self._caller(), self._key)
        if damage.crc == UNKNOWN:
            check_units(data, damage.start)
        elif google_crc32c.value(data) != damage.crc:
            raise NoRangeError(f"the bytes of {address} do not match its checksum, either")
        mending = self._log.mending
        if await asyncio.to_thread(mending.overwrite, damage, data):
            if damage.crc == UNKNOWN:
                mending.state(damage, google_crc32c.value(data))
            self._log.compare(damage.start, damage.end)
            self.repaired += 1
            _log.warning(
                "repaired", file=damage.path, start=damage.start, end=damage.end, source=address
            )

    def _say(self, damage: Damage, reason: str) -> None:
        if self.reasons.get(damage.start) != reason:
            self.reasons[damage.start] = reason
            _log.error(
                "not repaired",
                file=damage.path,
                start=damage.start,
                end=damage.end,
                reason=reason,
            )


async def fetch(address: str, start: int, length: int, caller: Caller, key: KeyFile) -> bytes:
    """The bytes [start, start + length) of the log of the member at ``address``.

    Raises:
        ConnectError: it cannot be reached, or is no member for this process.
        ConfigError: the key cannot be read.
        NoRangeError: it does not give them.
        TrimmedError: it has them no more.
    """
    answers: asyncio.Queue[Range | None] = asyncio.Queue()

    def received(_: Link, got: Received) -> None:
        message = got.message
        reason = message.reason if isinstance(message, Farewell) else "another message came"
        answers.put_nowait(message if isinstance(message, Range) else Range(Offset(0), b"", reason))

    link = Link(
        0,
        caller,
        opened=lambda _: None,
        received=received,
        closed=lambda _: answers.put_nowait(None),
        writable=lambda _: None,
        gone=lambda _: None,
    )
    parts: list[bytes] = []
    try:
        await open_connection(
            lambda: link,
            address,
            CONNECT_TIMEOUT_S,
            key=key,
            purpose=Purpose.REPLICATION,
            expected=MemberName(MemberKind.BROKER, caller.cluster, caller.group),
        )
        for at in range(start, start + length, RANGE_BYTES):
            size = min(RANGE_BYTES, start + length - at)
            link.send(RangeAsk(Offset(at), size))
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await answers.get()
            if answer is None:
                raise NoRangeError(f"{address} ended the link: it may be of an older version")
            if answer.reason and answer.start > at:
                raise TrimmedError(address, answer.start)
            if answer.reason or (answer.start, len(answer.data)) != (at, size):
                raise NoRangeError(f"{address} says: {answer.reason or 'other bytes'}")
            parts.append(answer.data)
    except TimeoutError as error:
        raise NoRangeError(f"{address} does not answer") from error
    finally:
        link.close()
    return b"".join(parts)


def give(log: CommitLog, ask: RangeAsk, confirm: Offset) -> Range:
    """The answer to another member: bytes that are confirmed here and were compared, or why not.

    A refusal begins where the log does, if that is behind what was asked for.
    """
    start, end = ask.start, ask.start + ask.length
    if not (log.log_start <= start < end <= confirm and ask.length <= RANGE_BYTES):
        reason = f"confirmed here is [{log.log_start}, {confirm})"
        return Range(max(start, log.log_start), b"", reason)
    parts: list[bytes] = []
    try:
        while start < end:
            parts.append(log.read(start, end - start))
            start = Offset(start + len(parts[-1]))
    except DamagedError as error:
        return Range(ask.start, b"", f"damaged here, too: {error}")
    return Range(ask.start, b"".join(parts))
