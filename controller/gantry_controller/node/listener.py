"""Incoming peer connections: check who is there, then hand over each frame.

Whoever connects shows the quorum's key first (``key_gate``); without it nobody comes this far. A
connection that does not introduce itself in time, introduces itself wrongly, or sends what no peer
sends is closed; one of the same peer replaces the one before it.

Connections are bounded, and strangers cannot keep peers out: where there is no place left, the
stranger that has been silent for longest gives up its own. (A peer introduces itself in its first
packet.)
"""

import asyncio
from collections.abc import Callable
from typing import cast

from gantry_protocol.errors import WireError
from gantry_protocol.key_gate import KeyGate
from gantry_protocol.process import listening, log
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.types import NodeId

from gantry_controller.node.framing import (
    HELLO_BYTES_MAX,
    PING,
    Channel,
    FrameReader,
    Hello,
    decode_hello,
    frame,
    refusal_of,
)
from gantry_controller.node.options import FRAME_BYTES_MAX
from gantry_controller.node.receiving import Connection

CONNECTIONS_MAX = 64
HELLO_TIMEOUT_S = 2.0
IDLE_MAX_S = 10.0  # diallers ping every half second

Receive = Callable[[NodeId, list[bytes]], None]
ReceiveSnapshot = Callable[[NodeId, list[bytes], Connection], None]

_log = log.get("peers")


class PeerListener:
    """Accepts peers.

    Args:
        node_id, cluster_uid: what a hello is checked against.
        receive: gets the frames of a peer, pings left out; raises ``WireError`` for nonsense.
        receive_snapshot: the same for the connection that carries a snapshot, and answers on it.
        greeted: a peer has come; gets its number and where it says it is reached.
        left: its last connection for messages has ended.
        key: what has to be shown.

    Attributes:
        gate: who has not shown the key.
        refused: hellos of nobody who belongs here, and connections for which a place was lacking.
    """

    def __init__(
        self,
        node_id: NodeId,
        cluster_uid: str,
        receive: Receive,
        receive_snapshot: ReceiveSnapshot,
        *,
        greeted: Callable[[NodeId, str], None],
        left: Callable[[NodeId], None],
        key: KeyFile = NO_KEY,
    ) -> None:
        self.gate = KeyGate(key, Purpose.RAFT, lambda: _Incoming(self))
        self.refused = 0
        self.node_id = node_id
        self.receive = receive
        self.receive_snapshot = receive_snapshot
        self._cluster_uid = cluster_uid
        self._greeted = greeted
        self._left = left
        self._server: asyncio.Server | None = None
        self._connections: dict[_Incoming, None] = {}  # the oldest first
        self._by_peer: dict[tuple[NodeId, Channel], _Incoming] = {}

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        socket = listening.bind(host, port, purpose="Raft peers")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.gate, sock=socket)
        return int(socket.getsockname()[1])

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            await listening.stop_listening(self._server)
        self.gate.close()
        for connection in list(self._connections):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def admit(self, connection: "_Incoming") -> bool:
        """Whether one more connection may stay."""
        if len(self._connections) >= CONNECTIONS_MAX:
            self.refused += 1
            stranger = next((item for item in self._connections if item.peer is None), None)
            if stranger is None:
                return False
            del self._connections[stranger]
            stranger.abort()
        self._connections[connection] = None
        return True

    def greet(self, connection: "_Incoming", hello: Hello) -> str:
        """Check a hello; the reason to refuse it, or nothing."""
        reason = refusal_of(hello, self.node_id, self._cluster_uid)
        if reason:
            self.refused += 1
            _log.error(
                "peer refused", node_id=self.node_id, address=connection.address, reason=reason
            )
            return reason
        key = (hello.source, hello.channel)
        before = self._by_peer.get(key)
        if before is not None:
            before.abort()
        self._by_peer[key] = connection
        if hello.channel is Channel.MESSAGES:
            self._greeted(hello.source, hello.address)
        return ""

    def gone(self, connection: "_Incoming") -> None:
        """A connection has ended."""
        self._connections.pop(connection, None)
        if connection.peer is None:
            return
        if self._by_peer.get((connection.peer, connection.channel)) is connection:
            del self._by_peer[connection.peer, connection.channel]
            if connection.channel is Channel.MESSAGES:
                self._left(connection.peer)


class _Incoming(asyncio.Protocol):
    """The server side of one connection."""

    def __init__(self, listener: PeerListener) -> None:
        self.peer: NodeId | None = None
        self.channel = Channel.MESSAGES
        self.address = "?"
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._heard_at = self._loop.time()
        self._watch = self._loop.call_later(HELLO_TIMEOUT_S, self._check_idle)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.address = str((transport.get_extra_info("peername") or "?")[0])
        if not self._listener.admit(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            frames = self._reader.feed(data)
            if frames and self.peer is None:
                self._introduce(frames.pop(0))
            if frames and self.peer is not None:
                self._receive(self.peer, frames)
        except WireError as error:
            _log.error(
                "peer connection closed",
                node_id=self._listener.node_id,
                peer=self.peer,
                address=self.address,
                reason=error,
            )
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        self._listener.gone(self)

    def send(self, body: bytes) -> None:
        """Answer, unless the connection has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(body))

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _introduce(self, body: bytes) -> None:
        assert self._transport is not None
        hello = decode_hello(body)
        refusal = self._listener.greet(self, hello)
        self._transport.write(frame(refusal.encode()))
        if refusal:
            self._transport.close()
            return
        self.peer, self.channel = hello.source, hello.channel
        self._reader.bytes_max = FRAME_BYTES_MAX

    def _receive(self, peer: NodeId, frames: list[bytes]) -> None:
        assert self._transport is not None
        bodies = [body for body in frames if body]
        if len(bodies) < len(frames) and not self._transport.is_closing():
            self._transport.write(PING)
        if bodies and self.channel is Channel.SNAPSHOT:
            self._listener.receive_snapshot(peer, bodies, self)
        elif bodies:
            self._listener.receive(peer, bodies)

    def _check_idle(self) -> None:
        silent_s = self._loop.time() - self._heard_at
        if self.peer is None or silent_s > IDLE_MAX_S:
            self.abort()
            return
        self._watch = self._loop.call_later(IDLE_MAX_S - silent_s + 0.1, self._check_idle)
