"""The port at which replicas of all groups of this process arrive.

Who arrives shows the quorum's key first (``key_gate``), and where members have certificates one of
a broker. A link begins with Hello, and Hello names the group; only then does anybody know whose
link it is, and a certificate must name that group.
Until then it is a stranger: strangers are bounded, must speak within ``HELLO_WITHIN_S``, and reach
no replica core. A member that asks for a range of the log, to repair its own, remains one. A port
scan, or a broker with a stale address, is told why and shown out.
"""

import asyncio
from typing import NamedTuple, Protocol

from gantry_protocol.key_gate import KeyGate
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.process import log
from gantry_protocol.process.listening import BACKLOG, bind, stop_listening
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.types import Epoch

from gantry_broker.ha.links import Link
from gantry_broker.ha.wire import Caller, Received
from gantry_broker.replica.messages import Farewell, RangeAsk

STRANGERS_MAX = 1024  # all replicas of 512 groups that connect in the same moment
HELLO_WITHIN_S = 2.0

_log = log.get("ha")
_NOBODY = Caller("", "", "")  # we never say Hello on a link that others opened


class GroupKey(NamedTuple):
    """The group of a link."""

    cluster: str
    group: str


class Host(Protocol):
    """One group's links."""

    def adopt(self, link: Link, hello: Received) -> None:
        """Take over a link that began with a Hello for this group, or end it."""

    def give(self, link: Link, ask: Received) -> None:
        """Answer a member that asks for a range of the log."""


class ReplicaListener:
    """See the module.

    Args:
        key: what has to be shown.

    Attributes:
        gate: who stands before it.
        refused: links that were shown out behind it.
    """

    def __init__(self, key: KeyFile = NO_KEY) -> None:
        """Nobody can arrive before ``start``."""
        self.gate = KeyGate(key, Purpose.REPLICATION, self._accept)
        self._tls = key.tls
        self.refused = 0
        self._hosts: dict[GroupKey, Host] = {}
        self._strangers: dict[Link, None] = {}
        self._server: asyncio.Server | None = None

    def __len__(self) -> int:
        return len(self._strangers)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        socket = bind(host, port, purpose="replication")
        bound_port: int = socket.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.gate, sock=socket, backlog=BACKLOG)
        return bound_port

    async def stop(self) -> None:
        """Nobody arrives any more; links that were adopted stay with their groups."""
        server, self._server = self._server, None  # from now on they are shown out
        if server is not None:
            await stop_listening(server)
        self.gate.close()
        for link in list(self._strangers):
            link.abort()
        self._strangers.clear()

    def add(self, key: GroupKey, host: Host) -> None:
        """Links for ``key`` go to ``host`` from now on."""
        assert key not in self._hosts, key
        self._hosts[key] = host

    def remove(self, key: GroupKey) -> None:
        """Nobody takes links for ``key`` any more; unknown keys are fine."""
        self._hosts.pop(key, None)

    # ---- strangers

    def _accept(self) -> Link:
        return Link(
            0,
            _NOBODY,
            opened=self._opened,
            received=self._received,
            closed=self._forget,
            writable=lambda _: None,
            gone=self._forget,
        )

    def _opened(self, link: Link) -> None:
        if len(self._strangers) >= STRANGERS_MAX or self._server is None:
            self.refused += 1
            link.close()
            return
        self._strangers[link] = None
        asyncio.get_running_loop().call_later(HELLO_WITHIN_S, self._expect_hello, link)

    def _forget(self, link: Link) -> None:
        self._strangers.pop(link, None)

    def _expect_hello(self, link: Link) -> None:
        if link in self._strangers:
            self._show_out(link)

    def _received(self, link: Link, received: Received) -> None:
        if link not in self._strangers:
            return
        theirs = received.caller
        if theirs is None:
            self._refuse(link, "a link begins with Hello")
            return
        member = MemberName(MemberKind.BROKER, theirs.cluster, theirs.group)
        if not self._tls.takes(link.names, member):
            why = f"it says that it is of {theirs.cluster}/{theirs.group}, its certificate is not"
            self._tls.note_refused("name", "replication", link.peer, why)
            self._refuse(link, "your certificate is not for that group")
            return
        host = self._hosts.get(GroupKey(theirs.cluster, theirs.group))
        if host is None:
            self._refuse(link, f"you are of group {theirs.cluster}/{theirs.group}, {self._here()}")
            return
        if isinstance(received.message, RangeAsk):
            host.give(link, received)  # it stays a stranger, and is soon shown out
            return
        self._forget(link)
        host.adopt(link, received)

    def _here(self) -> str:
        if len(self._hosts) == 1:
            (only,) = self._hosts
            return f"this is {only.cluster}/{only.group}"
        return f"which is none of the {len(self._hosts)} groups here"

    def _refuse(self, link: Link, reason: str) -> None:
        _log.warning("replica refused", peer=link.peer, reason=reason)
        link.send(Farewell(epoch=Epoch(0), reason=reason))
        self._show_out(link)

    def _show_out(self, link: Link) -> None:
        self.refused += 1
        self._forget(link)
        link.close()
