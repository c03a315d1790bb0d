"""``StoreServer``: the port of a process at which fronts are served from the stores of its groups.

Rules protected: only the serving master of a group has sessions, and they end with the mastership;
a front that was served by a newer master is refused, since this one does not know yet that it is
none. A replica that serves reads is read from, and no more. Fronts append and read, as many at once
as there are. Sessions of clients, queue locks and everything else that must have one owner are the
master's own (``clients``), so nothing here decides between two fronts. A link names its group with
the first word, and is of that group alone. One that says nothing for ``SILENCE_S`` is ended.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from gantry_protocol.errors import WireError
from gantry_protocol.key_gate import KeyGate
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.process import log
from gantry_protocol.process.listening import BACKLOG, bind, stop_listening
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose

from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.ha.wire import Frame
from gantry_broker.remote import messages as wire
from gantry_broker.remote.link import StoreLink
from gantry_broker.remote.reading import ReadHost, ReadSession
from gantry_broker.remote.session import Session, StoreHost

TICK_S = 0.05
LINKS_MAX = 4_096  # of all groups: a front has one to each master, and to each replica it reads

_log = log.get("store")


class ServingHost(StoreHost, Protocol):
    """A group that is served from."""

    @property
    def serving(self) -> bool:
        """Whether it is the serving master."""

    @property
    def takes_requests(self) -> bool:
        """Whether it is, and not cut off."""

    @property
    def reads(self) -> ReadHost:
        """Its reads while it is a replica."""


Traced = Callable[[], OpenSends | None]


class StoreServer:
    """See the module.

    Args:
        key: what a front has to show.

    Attributes:
        gate: who has not shown the key.
        port: where it listens; 0 before ``start``.
        refused: links that were refused behind it, ever.
        opened: sessions of each group, ever.
    """

    def __init__(self, key: KeyFile = NO_KEY) -> None:
        """Nobody is served before ``start``, and no group before ``add``."""
        self.port = 0
        self.refused = 0
        self.opened: Counter[str] = Counter()
        self.gate = KeyGate(key, Purpose.STORE, self._link)
        self._hosts: dict[str, ServingHost] = {}
        self._traced: dict[str, Traced] = {}
        self._links: dict[StoreLink, str | None] = {}  # and the group; None before its Hello
        self._sessions: dict[str, dict[StoreLink, Session | ReadSession]] = {}
        self._listener: asyncio.Server | None = None
        self._ticks: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen for fronts.

        Raises:
            PortInUseError: somebody listens there.
        """
        socket = bind(host, port, purpose="the store")
        self.port = socket.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self.gate, sock=socket, backlog=BACKLOG)
        self._ticks = keep(self._tick(), "store-ticks")

    async def stop(self) -> None:
        """Serve nobody any more."""
        if self._listener is not None:
            await stop_listening(self._listener)
        self.gate.close()
        for name in list(self._sessions):
            self.end(name, "the storage process ends")
        for link in list(self._links):
            link.close("the storage process ends")
        if self._ticks is not None:
            self._ticks.cancel()
            await asyncio.gather(self._ticks, return_exceptions=True)

    def add(self, name: str, host: ServingHost, traced: Traced = lambda: None) -> None:
        """Serve a group while it is a serving master; ``traced`` is for each ``Session``."""
        self._hosts[name] = host
        self._traced[name] = traced

    def remove(self, name: str) -> None:
        """The group takes part no more, or begins anew."""
        self._hosts.pop(name, None)
        self._traced.pop(name, None)
        self.end(name, "this broker takes no part in its group now")

    def sessions(self, name: str) -> list[Session | ReadSession]:
        """Of the fronts that are served from a group."""
        return list(self._sessions.get(name, {}).values())

    def end(self, name: str, reason: str) -> None:
        """The mastership of a group is over: fronts look for the next master."""
        for link in list(self._sessions.get(name, {})):
            self._dismiss(link, reason)

    def _link(self) -> StoreLink:
        return StoreLink(
            opened=self._opened, received=self._received, lost=self._lost, holds_back=True
        )

    def _opened(self, link: StoreLink) -> None:
        self._links[link] = None
        if len(self._links) > LINKS_MAX:
            self._refuse(link, "too many links")

    def _received(self, link: StoreLink, frame: Frame) -> None:
        message = wire.from_front(frame)
        name = self._links.get(link)
        if name is not None:
            self._sessions[name][link].received(message)
        elif isinstance(message, wire.Hello):
            host = self._hosts.get(message.group)
            reason = self._disbelief(link, message) or _objection(message, host)
            if host is None or reason is not None:
                self._refuse(link, reason or "")
            else:
                self._serve(link, message, host)
        else:
            raise WireError("A link of the store begins with Hello.")

    def _disbelief(self, link: StoreLink, hello: wire.Hello) -> str | None:
        """Why a caller is not believed to be of that cluster."""
        tls = self.gate.key.tls
        if tls.takes(link.names, MemberName(MemberKind.FRONT, hello.cluster)):
            return None
        why = f"it says that it is a front of {hello.cluster}, its certificate is not"
        tls.note_refused("name", "store", link.peer, why)
        return "your certificate is not for that cluster"

    def _serve(self, link: StoreLink, hello: wire.Hello, host: ServingHost) -> None:
        name = hello.group
        self.opened[name] += 1
        session: Session | ReadSession
        if hello.reads:
            session = ReadSession(host.reads, lambda message: link.send(wire.encode(message)))
        else:
            session = Session(
                host, lambda message: link.send(wire.encode(message)), self._traced[name]
            )
        self._links[link] = name
        self._sessions.setdefault(name, {})[link] = session
        _log.info("front is served", group=name, front=hello.address, peer=link.peer)
        session.open()

    def _refuse(self, link: StoreLink, reason: str) -> None:
        self.refused += 1
        _log.info("front refused", peer=link.peer, reason=reason)
        self._dismiss(link, reason)

    def _dismiss(self, link: StoreLink, reason: str) -> None:
        link.send(wire.encode(wire.Farewell(reason)))
        link.close(reason)

    def _lost(self, link: StoreLink, reason: str) -> None:
        name = self._links.pop(link, None)
        if name is None:
            return
        _log.info("front is served no more", group=name, peer=link.peer, reason=reason)
        sessions = self._sessions[name]
        sessions.pop(link).end()
        if not sessions:
            del self._sessions[name]

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for sessions in self._sessions.values():
                for session in sessions.values():
                    session.tell_state()
            for link in list(self._links):
                if link.is_silent():
                    link.close("it was silent for too long")


def _objection(hello: wire.Hello, host: ServingHost | None) -> str | None:
    """Why a caller is not served."""
    if host is None:
        return f"the group {hello.group} is not open here"
    view = host.view
    if hello.cluster != view.cluster:
        return f"you serve {hello.cluster}/{hello.group}, this is {view.cluster}/{hello.group}"
    if hello.reads:
        return None if host.reads.is_offered else "this replica serves no reads now"
    if not host.serving:
        return "this is not the master of its group"
    if not host.takes_requests:
        return "this broker is cut off, and may be the master no more"
    if hello.newest_epoch > host.claim.epoch:
        return f"epoch {host.claim.epoch} is served here, you were served in {hello.newest_epoch}"
    return None
