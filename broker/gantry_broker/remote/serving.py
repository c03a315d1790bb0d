"""``StoreServer``: the port of a storage process at which one broker is served from its store.

Rules protected: only the serving master has a session, and it ends with the mastership; a broker
that was served by a newer master is refused, since this one does not know yet that it is none. One
broker at a time: queue locks and sessions of consumers are kept by the broker, and two would give a
queue to two consumers. Whoever comes second is told so and tries again; the first one's place is
free as soon as its connection ends, or after ``SILENCE_S`` without a word.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from gantry_protocol.errors import WireError
from gantry_protocol.key_gate import KeyGate
from gantry_protocol.process import log
from gantry_protocol.process.listening import BACKLOG, bind, stop_listening
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose

from gantry_broker.ha.wire import Frame
from gantry_broker.remote import messages as wire
from gantry_broker.remote.link import StoreLink
from gantry_broker.remote.session import Session, StoreHost

TICK_S = 0.05
LINKS_MAX = 64

_log = log.get("store")


class ServingHost(StoreHost, Protocol):
    """The group that is served from."""

    @property
    def serving(self) -> bool:
        """Whether it is the serving master."""

    @property
    def takes_requests(self) -> bool:
        """Whether it is, and not cut off."""


class StoreServer:
    """See the module.

    Args:
        host: the group.
        changed: called when another broker is served, or none any more.
        disk_is_full: whether messages are to be refused for want of room; the broker is told.
        key: what a broker has to show.

    Attributes:
        address: where clients reach the broker that is served; empty while there is none.
        gate: who has not shown the key.
        refused: links that were refused behind it, ever.
        sessions: that were opened, ever.
    """

    def __init__(
        self,
        host: ServingHost,
        changed: Callable[[], None],
        disk_is_full: Callable[[], bool] = lambda: False,
        key: KeyFile = NO_KEY,
    ) -> None:
        """Nobody is served before ``start``."""
        self.address = ""
        self.refused = 0
        self.sessions = 0
        self._stale_rows = 0  # of sessions that have ended
        self.gate = KeyGate(key, Purpose.STORE, self._link)
        self._host = host
        self._changed = changed
        self._disk_is_full = disk_is_full
        self._links: dict[StoreLink, None] = {}
        self._served: StoreLink | None = None
        self._session: Session | None = None
        self._listener: asyncio.Server | None = None
        self._ticks: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen for brokers; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        socket = bind(host, port, purpose="the store")
        bound_port: int = socket.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.gate, sock=socket, backlog=BACKLOG)
        self._ticks = keep(self._tick(), "store-ticks")
        return bound_port

    async def stop(self) -> None:
        """Serve nobody any more."""
        if self._listener is not None:
            await stop_listening(self._listener)
        self.gate.close()
        self.end("the storage process ends")
        for link in list(self._links):
            link.close("the storage process ends")
        if self._ticks is not None:
            self._ticks.cancel()
            await asyncio.gather(self._ticks, return_exceptions=True)

    @property
    def is_serving(self) -> bool:
        """Whether a broker is served."""
        return self._session is not None

    @property
    def unanswered(self) -> int:
        """Requests of the broker that is served, until they are answered."""
        return 0 if self._session is None else self._session.unanswered

    @property
    def stale_rows(self) -> int:
        """Committed offsets that were left out because their topic had ended, ever."""
        return self._stale_rows + (0 if self._session is None else self._session.stale_rows)

    def end(self, reason: str) -> None:
        """The mastership is over: whoever is served looks for the next master."""
        if self._served is not None:
            self._dismiss(self._served, reason)

    def _link(self) -> StoreLink:
        return StoreLink(
            opened=self._opened, received=self._received, lost=self._lost, holds_back=True
        )

    def _opened(self, link: StoreLink) -> None:
        self._links[link] = None
        if len(self._links) > LINKS_MAX:
            self._refuse(link, "too many links")

    def _received(self, link: StoreLink, frame: Frame) -> None:
        message = wire.from_broker(frame)
        if link is self._served and self._session is not None:
            self._session.received(message)
        elif isinstance(message, wire.Hello):
            reason = self._objection(message)
            if reason is None:
                self._serve(link, message)
            else:
                self._refuse(link, reason)
        else:
            raise WireError("A link of the store begins with Hello.")

    def _objection(self, hello: wire.Hello) -> str | None:
        """Why this caller is not served."""
        view = self._host.view
        if (hello.cluster, hello.group) != (view.cluster, view.broker_name):
            return (
                f"you serve {hello.cluster}/{hello.group},"
                f" this is {view.cluster}/{view.broker_name}"
            )
        if not self._host.serving:
            return "this is not the master of its group"
        if not self._host.takes_requests:
            return "this broker is cut off, and may be the master no more"
        if hello.newest_epoch > self._host.claim.epoch:
            return (
                f"epoch {self._host.claim.epoch} is served here,"
                f" you were served in {hello.newest_epoch}"
            )
        if self._served is not None:
            return f"the broker at {self.address} is served"
        return None

    def _serve(self, link: StoreLink, hello: wire.Hello) -> None:
        self.sessions += 1
        self._served, self.address = link, hello.address
        self._session = Session(
            self._host, lambda message: link.send(wire.encode(message)), self._disk_is_full
        )
        _log.info("broker is served", broker=hello.address, peer=link.peer)
        self._session.open()
        self._changed()

    def _refuse(self, link: StoreLink, reason: str) -> None:
        self.refused += 1
        _log.info("broker refused", peer=link.peer, reason=reason)
        self._dismiss(link, reason)

    def _dismiss(self, link: StoreLink, reason: str) -> None:
        link.send(wire.encode(wire.Farewell(reason)))
        link.close(reason)

    def _lost(self, link: StoreLink, reason: str) -> None:
        self._links.pop(link, None)
        if link is not self._served or self._session is None:
            return
        _log.info("broker is served no more", broker=self.address, reason=reason)
        self._session.end()
        self._stale_rows += self._session.stale_rows
        self._served, self._session, self.address = None, None, ""
        self._changed()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._session is not None:
                self._session.tell_state()
            for link in list(self._links):
                if link.is_silent():
                    link.close("it was silent for too long")
