"""Connections between peers.

Each node dials every other and sends on the connection it dialled; what a peer sends arrives on the
connection the peer dialled. Both sides greet first (``wire``). A message that finds no connection,
or a peer that does not read, is dropped: Raft repeats what matters, so nothing is queued here
beyond the bound of the socket's buffer.

A connection that was up and then closes, followed by a refused one, means that the peer's *process*
is gone while its machine answers. That is only a hint, and pre-vote makes a wrong one harmless; but
it lets followers of a killed leader begin an election within a moment instead of a time-out.
"""

import asyncio
import random
from collections.abc import Callable
from typing import cast

from gantry_protocol import hosts
from gantry_protocol.errors import ResolveError, WireError
from gantry_protocol.process import listening, log
from gantry_protocol.types import NodeId

from gantry_controller.node.options import NodeOptions
from gantry_controller.node.wire import Greeting, PeerStream, frame

CONNECT_WITHIN_S = 1.0
GREET_WITHIN_S = 1.0
PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 0.5
UNSENT_BYTES_MAX = 16 * 1024 * 1024
INBOUND_MAX = 64  # far more than peers; a port scan must not cost memory

_log = log.get("peers")


class LinkStats:
    """Counters of one node's links."""

    __slots__ = ("connects", "dropped", "received", "refused", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.dropped = 0
        self.received = 0
        self.connects = 0
        self.refused = 0


class _Wire(asyncio.Protocol):
    """One connection, either way round."""

    def __init__(self, owner: "PeerLinks", dialled: NodeId | None) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = asyncio.Event()
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.peer = dialled
        self._owner = owner
        self._dialled = dialled
        self._stream = PeerStream()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self._dialled is not None:
            self.transport.write(self._owner.greeting(self._dialled))
        elif not self._owner.admit(self):
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        try:
            bodies = self._stream.feed(data)
            if not self.greeted.done() and self._stream.greeting is not None:
                self._check(self._stream.greeting)
            if bodies and self._dialled is not None:
                raise WireError("messages on a connection that only this node sends on")
        except WireError as error:
            self._owner.turn_away(self.transport, error)
            return
        if bodies:
            assert self.peer is not None
            self._owner.deliver(self.peer, bodies, self.transport)

    def _check(self, greeting: Greeting) -> None:
        self._owner.check(greeting, self._dialled)
        self.peer = greeting.source
        self.greeted.set_result(None)
        if self._dialled is None:
            assert self.transport is not None
            self.transport.write(self._owner.greeting(greeting.source))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        if not self.greeted.done():
            self.greeted.cancel()
        self._owner.gone(self)


class PeerLinks:
    """All connections of one node.

    Args:
        options: who we are and where the peers are.
        received: called with the bodies of messages as they arrive; raises ``WireError`` for
            bytes no honest peer sends, which closes the connection.
        lost: called when a peer's process is found to be gone.
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        received: Callable[[NodeId, list[bytes]], None],
        lost: Callable[[NodeId], None],
    ) -> None:
        self.stats = LinkStats()
        self._options = options
        self._received = received
        self._lost = lost
        self._outgoing: dict[NodeId, asyncio.Transport] = {}
        self._incoming: set[_Wire] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen and begin to dial; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        loop = asyncio.get_running_loop()
        sock = listening.bind(self._options.bind, self._options.port, purpose="controller peers")
        self._server = await loop.create_server(lambda: _Wire(self, None), sock=sock)
        port: int = sock.getsockname()[1]
        for node, address in self._options.peers.items():
            if node != self._options.node_id:
                self._tasks.append(loop.create_task(self._keep(node, address), name=f"peer-{node}"))
        return port

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for wire in list(self._incoming):
            if wire.transport is not None:
                wire.transport.abort()

    def send(self, target: NodeId, bodies: list[bytes]) -> None:
        """Send messages, or drop them when the peer cannot take them."""
        transport = self._outgoing.get(target)
        if transport is None or transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.stats.dropped += len(bodies)
            return
        self.stats.sent += len(bodies)
        transport.write(b"".join(map(frame, bodies)))

    # ---- for the connections ---------------------------------------------------------------------

    def greeting(self, target: NodeId) -> bytes:
        """What this node says first."""
        return Greeting(self._options.cluster_uid, self._options.node_id, target).encode()

    def check(self, greeting: Greeting, dialled: NodeId | None) -> None:
        """Refuse strangers.

        Raises:
            WireError: says who it is instead.
        """
        options = self._options
        if greeting.cluster_uid != options.cluster_uid:
            raise WireError(
                f"node {greeting.source} belongs to quorum {greeting.cluster_uid!r}, this node to "
                f"{options.cluster_uid!r}"
            )
        if greeting.target != options.node_id or greeting.source not in options.peers:
            raise WireError(
                f"node {greeting.source} looks for node {greeting.target}, this is node "
                f"{options.node_id} of {sorted(options.peers)}"
            )
        if dialled is not None and greeting.source != dialled:
            raise WireError(f"node {greeting.source} answers at the address of node {dialled}")

    def admit(self, wire: _Wire) -> bool:
        """Take an incoming connection, up to the bound."""
        if len(self._incoming) >= INBOUND_MAX:
            self.stats.refused += 1
            return False
        self._incoming.add(wire)
        asyncio.get_running_loop().call_later(GREET_WITHIN_S, self._hang_up_if_silent, wire)
        return True

    @staticmethod
    def _hang_up_if_silent(wire: _Wire) -> None:
        if not wire.greeted.done() and wire.transport is not None:
            wire.transport.abort()

    def deliver(self, peer: NodeId, bodies: list[bytes], transport: asyncio.Transport) -> None:
        """Messages have arrived."""
        self.stats.received += len(bodies)
        try:
            self._received(peer, bodies)
        except WireError as error:
            self.turn_away(transport, error)

    def turn_away(self, transport: asyncio.Transport, error: WireError) -> None:
        """Hang up on somebody who is no peer."""
        self.stats.refused += 1
        address = transport.get_extra_info("peername")
        _log.warning("hung up on a peer", address=address, reason=error)
        transport.abort()

    def gone(self, wire: _Wire) -> None:
        """A connection has closed."""
        self._incoming.discard(wire)

    # ---- dialling --------------------------------------------------------------------------------

    async def _keep(self, node: NodeId, address: str) -> None:
        """Hold a connection to ``node``, forever."""
        pause_s = PAUSE_MIN_S
        was_up = False
        while True:
            try:
                wire = await self._dial(node, address)
            except ConnectionRefusedError:
                if was_up:
                    was_up = False
                    self._lost(node)
            except (OSError, ResolveError, TimeoutError, asyncio.CancelledError) as error:
                if _is_our_cancellation(error):
                    raise
            else:
                pause_s = PAUSE_MIN_S
                was_up = True
                await self._use(node, wire)
                continue
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _dial(self, node: NodeId, address: str) -> _Wire:
        loop = asyncio.get_running_loop()
        host, port = hosts.split_address(address)
        async with asyncio.timeout(CONNECT_WITHIN_S):
            ip = await hosts.resolve(host)
            _, wire = await loop.create_connection(lambda: _Wire(self, node), ip, port)
        try:
            async with asyncio.timeout(GREET_WITHIN_S):
                await wire.greeted
        except BaseException:
            assert wire.transport is not None
            wire.transport.abort()
            raise
        return wire

    async def _use(self, node: NodeId, wire: _Wire) -> None:
        """Send on ``wire`` until it closes."""
        assert wire.transport is not None
        self.stats.connects += 1
        self._outgoing[node] = wire.transport
        _log.info("connected to peer", node=node)
        try:
            await wire.closed.wait()
        finally:
            del self._outgoing[node]
            wire.transport.abort()
        _log.info("lost connection to peer", node=node)


def _is_our_cancellation(error: BaseException) -> bool:
    """Whether ``error`` stops the dialling task; a greeting that never came is cancelled too."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
