"""``StoreConnection``: a broker's way to the storage process that is the master of its group.

It asks the addresses it was given, one after the other, until one of them serves, and begins again
when that ends. Rules protected: it never goes back to a master of an older epoch than it was served
by; nobody is served before the tables are whole; and a store that says nothing for ``SILENCE_S`` is
left, so that its requests are answered "unknown" and a master that was put to sleep is not waited
for.
"""

import asyncio
from contextlib import suppress
from typing import Protocol

from gantry_protocol.errors import ConfigError, ConnectError, KeyRefused, WireError
from gantry_protocol.process import log
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.types import BrokerId, Epoch

from gantry_broker.clients.consumers import Claim
from gantry_broker.ha.wire import Frame
from gantry_broker.remote import messages as wire
from gantry_broker.remote.link import BEAT_S, StoreLink
from gantry_broker.remote.store import RemoteStore

CONNECT_TIMEOUT_S = 0.5
OPEN_WITHIN_S = 5.0  # the tables of a large group
RETRY_S = 0.1  # between two rounds over the addresses

_log = log.get("store")


class Served(Protocol):
    """An observer of the store."""

    def store_opened(self, store: RemoteStore, claim: Claim) -> None:
        """Its tables are whole; serve from it."""

    def state_told(self, state: wire.State) -> None:
        """The storage process has said whether it accepts writes."""

    def store_lost(self) -> None:
        """It is gone; what waits for it is answered when this returns."""


class StoreConnection:
    """See the module.

    Args:
        addresses: host:port of every storage process of the group.
        cluster: of the group.
        group: its name.
        served: is told.
        key: shown to the store, which shows it, too.

    Attributes:
        store: the store that is served from; None while there is none.
        claim: by what it is the master.
        address: of it.
        reason: why there is none; empty while there is one.
        opened: how often a store was found.
        refused: how often a storage process refused.
        unknown: appends of stores that are gone, which nobody knows the outcome of.
    """

    def __init__(
        self,
        addresses: list[str],
        cluster: str,
        group: str,
        served: Served,
        key: KeyFile = NO_KEY,
    ) -> None:
        """Nobody is asked before ``start``."""
        self._key = key
        self._said = ""  # why a store is not spoken to, as the log has it
        self.store: RemoteStore | None = None
        self.claim: Claim | None = None
        self.address = ""
        self.reason = "no storage process was asked yet"
        self.opened = 0
        self.refused = 0
        self.unknown = 0
        self._addresses = addresses
        self._hello = wire.Hello(cluster, group, Epoch(0), "")
        self._served = served
        self._opening: RemoteStore | None = None
        self._link: StoreLink | None = None
        self._ended = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, own_address: str) -> None:
        """Begin to look for the master; clients reach this broker at ``own_address``."""
        self._hello = wire.Hello(self._hello.cluster, self._hello.group, Epoch(0), own_address)
        self._task = keep(self._run(), "store")

    async def stop(self) -> None:
        """Leave the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.close("this broker ends")

    async def _run(self) -> None:
        while True:
            for address in self._addresses:
                await self._try(address)
            await asyncio.sleep(RETRY_S)

    async def _try(self, address: str) -> None:
        """Be served from one address for as long as it serves."""
        self._ended, self._ready = asyncio.Event(), asyncio.Event()
        self._opening, self.claim = None, None
        link = StoreLink(
            opened=self._greet, received=self._received, lost=self._lost, holds_back=False
        )
        self._link, self.address = link, address
        try:
            await open_connection(
                lambda: link, address, CONNECT_TIMEOUT_S, key=self._key, purpose=Purpose.STORE
            )
        except (ConnectError, ConfigError) as error:
            self.reason = f"{address}: {error}"
            if isinstance(error, KeyRefused | ConfigError) and self._said != str(error):
                self._said = str(error)
                _log.error("store cannot be spoken to", address=address, reason=error)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_WITHIN_S):
                await self._ready.wait()
        if not self._ready.is_set():
            link.close("the tables did not come in time")
        while not self._ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._ended.wait()
            if link.is_silent():
                link.close("the store is silent")
            link.send(wire.encode(wire.Ping()))

    def _greet(self, link: StoreLink) -> None:
        link.send(wire.encode(self._hello))

    def _received(self, link: StoreLink, frame: Frame) -> None:
        message = wire.from_store(frame)
        store = self.store or self._opening
        match message:
            case wire.Farewell(reason=reason):
                self.refused += self.store is None
                link.close(reason)
            case wire.Welcome():
                self._welcome(link, message)
            case wire.State() if store is not None:
                store.received(message)
                if self.store is None:
                    self._open(store)
                self._served.state_told(message)
            case _ if store is not None:
                store.received(message)
            case _:
                raise WireError("A store that serves begins with Welcome.")

    def _welcome(self, link: StoreLink, message: wire.Welcome) -> None:
        if message.epoch < self._hello.newest_epoch:
            raise WireError(
                f"A master of epoch {message.epoch} came after one of {self._hello.newest_epoch}."
            )
        self.claim = Claim(BrokerId(message.broker_id), message.epoch, message.incarnation)
        self._opening = RemoteStore(lambda request: link.send(wire.encode(request)))

    def _open(self, store: RemoteStore) -> None:
        assert self.claim is not None, "a State comes after Welcome"
        self._hello = wire.Hello(
            self._hello.cluster, self._hello.group, self.claim.epoch, self._hello.address
        )
        self.store, self._opening, self.reason = store, None, ""
        self.opened += 1
        self._ready.set()
        _log.info("store opened", address=self.address, epoch=self.claim.epoch)
        self._served.store_opened(store, self.claim)

    def _lost(self, link: StoreLink, reason: str) -> None:
        if link is not self._link:
            return
        self.reason = f"{self.address}: {reason}"
        store, self.store = self.store, None
        if store is not None:
            _log.warning("store lost", address=self.address, reason=reason)
            self._served.store_lost()
            store.lost()
            self.unknown += store.unknown
        self._ended.set()
        self._ready.set()
