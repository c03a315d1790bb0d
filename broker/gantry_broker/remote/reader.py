"""``ReplicaConnection``: a front's way to one replica of its group, to read what that has.

Rules protected: a read is answered once, with what the replica has or with None: ask the master.
So is everything that waits when the link is lost, or the replica has said nothing for
``SILENCE_S``. What is under way is bounded in number; beyond it the master is asked.
"""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

from gantry_protocol.errors import ConfigError, ConnectError, KeyRefused, WireError
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.process import log
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.types import Epoch

from gantry_broker.ha.wire import Frame
from gantry_broker.remote import messages as wire
from gantry_broker.remote.connecting import CONNECT_TIMEOUT_S, RETRY_MAX_S, RETRY_S
from gantry_broker.remote.link import BEAT_S, StoreLink
from gantry_broker.store.contract import GetResult, QueueRead

WAITING_MAX = 2_000

Had = Callable[[GetResult | None], None]
"""Takes what a replica has; None: ask the master."""

_log = log.get("store")


class ReplicaConnection:
    """See the module.

    Args:
        address: of its store port.
        cluster: of the group.
        group: its name.
        key: shown to it, which shows it, too.

    Attributes:
        address: of its store port.
        is_open: whether it may be asked now.
        topics_version: of the topics that it has.
        left: reads that it left to the master, ever.
    """

    def __init__(self, address: str, cluster: str, group: str, key: KeyFile = NO_KEY) -> None:
        """Nobody is asked before ``start``."""
        self.address = address
        self.is_open = False
        self.topics_version = 0
        self.left = 0
        self._hello = wire.Hello(cluster, group, Epoch(0), "", reads=True)
        self._key = key
        self._said = ""  # why it is not spoken to, as the log has it
        self._numbers = itertools.count(1)
        self._reads: dict[int, Had] = {}
        self._link: StoreLink | None = None
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Reads that are not answered."""
        return len(self._reads)

    def start(self) -> None:
        """Connect, and again whenever that ends."""
        self._task = keep(self._run(), "replica")

    async def stop(self) -> None:
        """Leave it; what waits is the master's to answer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.close("this front reads here no more")

    def read(self, wanted: QueueRead, had: Had) -> None:
        """Ask for records."""
        if self._link is None or not self.is_open or len(self._reads) >= WAITING_MAX:
            self.left += 1
            had(None)
            return
        number = next(self._numbers)
        self._reads[number] = had
        self._link.send(wire.encode(wire.Read(number, wanted)))

    async def _run(self) -> None:
        wait_s = RETRY_S
        while True:
            had = await self._try()
            wait_s = RETRY_S if had else min(2 * wait_s, RETRY_MAX_S)
            await asyncio.sleep(wait_s)

    async def _try(self) -> bool:
        """Read from it for as long as it lets us; whether it did."""
        self._ended = asyncio.Event()
        link = StoreLink(
            opened=self._greet, received=self._received, lost=self._lost, holds_back=False
        )
        self._link = link
        try:
            await open_connection(
                lambda: link,
                self.address,
                CONNECT_TIMEOUT_S,
                key=self._key,
                purpose=Purpose.STORE,
                expected=MemberName(MemberKind.BROKER, self._hello.cluster, self._hello.group),
            )
        except (ConnectError, ConfigError) as error:
            if isinstance(error, KeyRefused | ConfigError) and self._said != str(error):
                self._said = str(error)
                _log.error("replica cannot be spoken to", address=self.address, reason=error)
            return False
        was_open = False
        while not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._ended.wait()
            was_open = was_open or self.is_open
            if link.is_silent():
                link.close("the replica is silent")
            link.send(wire.encode(wire.Ping()))
        return was_open

    def _greet(self, link: StoreLink) -> None:
        link.send(wire.encode(self._hello))

    def _received(self, link: StoreLink, frame: Frame) -> None:
        message = wire.from_store(frame)
        match message:
            case wire.WasRead(number=number, result=result):
                had = self._reads.pop(number, None)
                if had is None:
                    raise WireError(f"An answer came under {number}, where nothing was asked.")
                self.left += result is None
                had(result)
            case wire.Rows(topics_version=version):
                self.topics_version = version
            case wire.State(is_offered=is_offered):
                self.is_open = is_offered
            case wire.Farewell(reason=reason):
                link.close(reason)
            case wire.Welcome():
                pass
            case _:
                raise WireError(f"A {type(message).__name__} came from a replica.")

    def _lost(self, link: StoreLink, reason: str) -> None:
        if link is not self._link:
            return
        self._link, self.is_open = None, False
        reads, self._reads = self._reads, {}
        self.left += len(reads)
        self._ended.set()
        for had in reads.values():
            had(None)
