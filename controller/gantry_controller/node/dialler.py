"""One outgoing connection to a peer, dialled again whenever it ends.

What is sent while there is no connection, or while too much waits in the buffer, is dropped: Raft
repeats what matters. After an established connection broke, the first dial that is refused tells
that the peer's process is gone: its machine answers and nobody listens. (A dial before it may end
otherwise: a dying process closes its connections before it stops to listen.) That word, and nothing
weaker, is passed on as a hint (``raft.election.leader_lost``).
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from gantry_protocol import hosts
from gantry_protocol.errors import ConfigError, FrameError, KeyRefused, ResolveError
from gantry_protocol.key_gate import dial
from gantry_protocol.process import log
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.types import NodeId

from gantry_controller.node.framing import (
    HELLO_BYTES_MAX,
    PING,
    VERSION,
    FrameReader,
    Hello,
    encode_hello,
)

BUFFER_BYTES_MAX = 32 * 1024 * 1024
DIAL_TIMEOUT_S = 1.0
BACK_OFF_FIRST_S = 0.02
BACK_OFF_MAX_S = 0.5
PING_EVERY_S = 0.5
SILENCE_MAX_S = 2.0

_log = log.get("peers")


class _Outgoing(asyncio.Protocol):
    """The client side of one connection: hello, welcome, then pings come back."""

    def __init__(self, hello: Hello) -> None:
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[str] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.heard_at = loop.time()
        self._hello = hello
        self._loop = loop
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.write(encode_hello(self._hello))

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        try:
            frames = self._reader.feed(data)
        except FrameError:
            assert self._transport is not None
            self._transport.abort()
            return
        if frames and not self.welcome.done():
            self.welcome.set_result(frames[0].decode(errors="replace"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(ConnectionResetError("closed before the welcome"))
            self.welcome.exception()  # nobody may be waiting any more
        self.closed.set_result(None)


class Dialler:
    """Keeps one connection to ``peer`` up and sends on it.

    Attributes:
        connected: a welcome was received and the connection still stands.
        dropped: messages that could not be sent.
        connects: connections made so far.
        refused: how often the peer refused this node's hello.
    """

    def __init__(
        self,
        peer: NodeId,
        address: str,
        hello: Hello,
        *,
        process_gone: Callable[[NodeId], None],
        key: KeyFile = NO_KEY,
    ) -> None:
        self.peer = peer
        self._key = key
        self.connected = False
        self.dropped = 0
        self.connects = 0
        self.refused = 0
        self.address = address
        self._hello = hello
        self._process_gone = process_gone
        self._transport: asyncio.Transport | None = None
        self._said = ""
        self._log = _log.bind(node_id=hello.source, peer=peer, address=address)

    def send(self, frames: list[bytes]) -> None:
        """Send frames in one write, or drop them."""
        transport = self._transport
        if (
            not self.connected
            or transport is None
            or transport.is_closing()  # uvloop raises between the close and its callback
            or transport.get_write_buffer_size() > BUFFER_BYTES_MAX
        ):
            self.dropped += len(frames)
            return
        transport.write(b"".join(frames))

    async def run(self) -> None:
        """Dial, and dial again, until cancelled."""
        back_off_s = 0.0
        broken = False
        while True:
            await asyncio.sleep(back_off_s)
            back_off_s = min(max(back_off_s * 2, BACK_OFF_FIRST_S), BACK_OFF_MAX_S)
            try:
                established = await self._dial_and_hold()
            except (OSError, ResolveError, TimeoutError) as error:
                if broken and isinstance(error, ConnectionRefusedError):
                    broken = False
                    self._process_gone(self.peer)
                self._say(f"peer cannot be reached: {error or type(error).__name__}")
                continue
            if established:
                back_off_s, broken = 0.0, True
                self._say("peer connection closed")

    async def _dial_and_hold(self) -> bool:
        """One connection, to its end. False if the peer refused the hello."""
        host, port = hosts.split_address(self.address)
        protocol = _Outgoing(self._hello)
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            address = await hosts.resolve(host)
            try:
                transport = await dial(lambda: protocol, address, port, self._key, Purpose.RAFT)
            except (KeyRefused, ConfigError) as error:
                self.refused += 1
                self._say(f"peer refused this node: {error}")
                return False
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                refusal = await protocol.welcome
            if refusal:
                self.refused += 1
                self._say(f"peer refused this node: {refusal}")
                return False
            self._hold_begins(transport)
            await self._hold(transport, protocol)
            return True
        finally:
            self.connected = False
            self._transport = None
            transport.abort()

    def _hold_begins(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.connected = True
        self.connects += 1
        self._say("peer connected")

    async def _hold(self, transport: asyncio.Transport, protocol: _Outgoing) -> None:
        """Ping until the connection closes or the peer has been silent for too long."""
        loop = asyncio.get_running_loop()
        while not protocol.closed.done() and not transport.is_closing():
            transport.write(PING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY_S):
                    await asyncio.shield(protocol.closed)
            if loop.time() - protocol.heard_at > SILENCE_MAX_S:
                self._say("peer is silent")
                return

    def _say(self, phrase: str) -> None:
        """Log a change once, however often a dial ends the same way."""
        if phrase == self._said:
            return
        self._said = phrase
        event, _, reason = phrase.partition(": ")
        if not reason:
            self._log.info(event)
        elif event == "peer refused this node":
            self._log.error(event, reason=reason, version=VERSION)
        else:
            self._log.warning(event, reason=reason)
