"""One connection between a front and a storage process: frames in, frames out, silence noticed.

Frames of one loop turn leave in one write; a frame may be made when that happens, of what came
together in the turn. A link that ``holds_back`` reads nothing while the other
side does not take what it is sent, so what waits for a slow front is bounded by one turn's answers
and the transport's high-water mark. Only one side may do so, or both would wait for each other; a
front bounds what it sends by what is under way (``RemoteStore``).

A malformed frame ends the link. It has no task and no timer of its own.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from gantry_protocol.errors import WireError
from gantry_protocol.member_tls.arriving import peer_names
from gantry_protocol.member_tls.names import Names
from gantry_protocol.process import log

from gantry_broker.ha.wire import Frame, Frames

HIGH_WATER_BYTES = 4 * 1024 * 1024
SILENCE_S = 2.5  # both sides say something at least every ``BEAT_S``
BEAT_S = 0.5

_log = log.get("store")


class StoreLink(asyncio.Protocol):
    """See the module.

    Args:
        opened: called with this link once it is there.
        received: called with each frame; a ``WireError`` ends the link.
        lost: called once, with why, when the link has ended, whoever ended it.
        holds_back: stop reading while the other side does.

    Attributes:
        peer: ``ip:port`` of the other side, empty before the connection is there.
        heard_at_s: when the other side last said something, by the loop's clock.
    """

    def __init__(
        self,
        *,
        opened: Callable[["StoreLink"], None],
        received: Callable[["StoreLink", Frame], None],
        lost: Callable[["StoreLink", str], None],
        holds_back: bool,
    ) -> None:
        """A link without a connection yet."""
        self.peer = ""
        self.heard_at_s = 0.0
        self._opened = opened
        self._received = received
        self._lost = lost
        self._holds_back = holds_back
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._waiting: list[bytes | Callable[[], bytes]] = []
        self._transport: asyncio.Transport | None = None
        self._ended = False

    @property
    def names(self) -> Names | None:
        """The names in the other side's certificate; None where it has shown none."""
        return peer_names(self._transport)

    def send(self, frame: bytes) -> None:
        """Send with the other frames of this turn; nothing happens on a link that is not there."""
        self._leave(frame)

    def send_later(self, make: Callable[[], bytes]) -> None:
        """The same of the frame that ``make`` gives when the turn ends; it may not be asked."""
        self._leave(make)

    def _leave(self, frame: bytes | Callable[[], bytes]) -> None:
        if self._transport is None or self._ended:
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(frame)

    def close(self, reason: str) -> None:
        """End the link after what was sent has left."""
        if self._ended:
            return
        self._flush()
        self._ended = True
        if self._transport is not None:
            self._transport.close()
        self._lost(self, reason)

    def is_silent(self) -> bool:
        """Whether the other side has said nothing for too long."""
        return self._loop.time() - self.heard_at_s > SILENCE_S

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and self._transport is not None and not self._ended:
            frames = [frame if isinstance(frame, bytes) else frame() for frame in waiting]
            self._transport.write(b"".join(frames))

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        tcp = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self._ended:
            tcp.abort()
            return
        self._transport = tcp
        self.heard_at_s = self._loop.time()
        tcp.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        peer = tcp.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        if not self._ended:
            self._ended = True
            self._lost(self, "the connection was lost" if exc is None else str(exc))

    def pause_writing(self) -> None:
        """The other side does not read fast enough."""
        if self._holds_back and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It caught up."""
        if self._holds_back and self._transport is not None and not self._ended:
            self.heard_at_s = self._loop.time()  # it could not be heard meanwhile
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self.heard_at_s = self._loop.time()
        try:
            for frame in self._frames.feed(data):
                if self._ended:
                    return
                self._received(self, frame)
        except WireError as error:
            _log.warning("link of the store ended", peer=self.peer, reason=error)
            self.close(str(error))
