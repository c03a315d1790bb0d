"""``StoreConnection``: a front's way to the storage process that is the master of its group.

It connects to the master that is known, and again when that ends or another one is known. Rules
protected: it never goes back to a master of an older epoch than it was served by; nobody is served
before the tables are whole; and a store that says nothing for ``SILENCE_S`` is left, so that a
master that was put to sleep is not waited for.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gantry_protocol.errors import ConfigError, ConnectError, KeyRefused, WireError
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.process import log
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.types import Epoch

from gantry_broker.ha.wire import Frame
from gantry_broker.remote import messages as wire
from gantry_broker.remote.link import BEAT_S, StoreLink
from gantry_broker.remote.store import RemoteStore

CONNECT_TIMEOUT_S = 0.5
OPEN_WITHIN_S = 5.0  # the tables of a large group
RETRY_S = 0.1  # before a store that is not there is asked again
RETRY_MAX_S = 5.0  # twice as long after each time, until there is news of the master

_log = log.get("store")


class Served(Protocol):
    """An observer of the store."""

    def store_opened(self, store: RemoteStore, epoch: Epoch) -> None:
        """Its tables are whole; serve from it."""

    def state_told(self, state: wire.State) -> None:
        """The storage process has said whether it accepts writes."""

    def store_lost(self) -> None:
        """It is gone; what waits for it is answered when this returns."""

    def beat(self) -> wire.Ping:
        """The word that it is given every ``BEAT_S``."""


class StoreConnection:
    """See the module.

    Args:
        address_of_master: host:port of the store of the master that is known; empty for none.
        cluster: of the group.
        group: its name.
        served: is told.
        key: shown to the store, which shows it, too.

    Attributes:
        store: the store that is served from; None while there is none.
        store_host: where clients reach it, which is also in the ids of its messages.
        address: of it.
        reason: why there is none; empty while there is one.
        opened: how often a store was found.
        refused: how often a storage process refused.
    """

    def __init__(
        self,
        address_of_master: Callable[[], str],
        cluster: str,
        group: str,
        served: Served,
        key: KeyFile = NO_KEY,
    ) -> None:
        """Nobody is asked before ``start``."""
        self._key = key
        self._said = ""  # why a store is not spoken to, as the log has it
        self.store: RemoteStore | None = None
        self._epoch = Epoch(0)  # of the master of the store
        self.store_host = ("", 0)
        self.address = ""
        self.reason = "no master is known yet"
        self.opened = 0
        self.refused = 0
        self._overloads = 0  # at stores that are gone
        self._address_of_master = address_of_master
        self._news = asyncio.Event()
        self._hello = wire.Hello(cluster, group, Epoch(0), "")
        self._served = served
        self._opening: RemoteStore | None = None
        self._link: StoreLink | None = None
        self._ended = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def overloads(self) -> int:
        """Requests that were refused since too much was under way, ever."""
        return self._overloads + (0 if self.store is None else self.store.refused)

    def start(self, own_address: str) -> None:
        """Begin to look for the master; clients reach this front at ``own_address``."""
        self._hello = wire.Hello(self._hello.cluster, self._hello.group, Epoch(0), own_address)
        self._task = keep(self._run(), "store")

    async def stop(self) -> None:
        """Leave the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.close("this front ends")

    def master_changed(self) -> None:
        """There is news of the master: leave another one, and wait no longer."""
        if self._link is not None and self.address != self._address_of_master():
            self._link.close("there is another master")
        self._news.set()

    async def _run(self) -> None:
        wait_s = RETRY_S
        while True:
            self._news.clear()
            opened, address = self.opened, self._address_of_master()
            if address:
                await self._try(address)
            wait_s = RETRY_S if self.opened > opened else min(2 * wait_s, RETRY_MAX_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
                    wait_s = RETRY_S

    async def _try(self, address: str) -> None:
        """Be served from one address for as long as it serves."""
        self._ended, self._ready = asyncio.Event(), asyncio.Event()
        self._opening = None
        link = StoreLink(
            opened=self._greet, received=self._received, lost=self._lost, holds_back=False
        )
        self._link, self.address = link, address
        try:
            await open_connection(
                lambda: link,
                address,
                CONNECT_TIMEOUT_S,
                key=self._key,
                purpose=Purpose.STORE,
                expected=MemberName(MemberKind.BROKER, self._hello.cluster, self._hello.group),
            )
        except (ConnectError, ConfigError) as error:
            self.reason = str(error)
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
            link.send(wire.encode(self._served.beat()))

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
        self._epoch = message.epoch
        self.store_host = (message.host, message.port)
        self._opening = RemoteStore(
            lambda request: link.send(wire.encode(request)),
            lambda make: link.send_later(lambda: wire.encode(make())),
        )

    def _open(self, store: RemoteStore) -> None:
        self._hello = wire.Hello(
            self._hello.cluster, self._hello.group, self._epoch, self._hello.address
        )
        self.store, self._opening, self.reason = store, None, ""
        self.opened += 1
        self._ready.set()
        _log.info("store opened", address=self.address, epoch=self._epoch)
        self._served.store_opened(store, self._epoch)

    def _lost(self, link: StoreLink, reason: str) -> None:
        if link is not self._link:
            return
        self.reason = f"{self.address}: {reason}"
        store, self.store = self.store, None
        if store is not None:
            _log.warning("store lost", address=self.address, reason=reason)
            self._served.store_lost()
            store.lost()
            self._overloads += store.refused
        self._ended.set()
        self._ready.set()
