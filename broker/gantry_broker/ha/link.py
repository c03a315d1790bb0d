"""One replication connection, either way round: bytes in, messages out, and the other way.

No task and no timer of its own. Messages of one loop turn leave in one write where the transport
allows. A link that cannot take more says so (``congested``) and the owner stops reading the log for
it; bytes that wait are bounded by the transport's high-water mark and one batch. A malformed
message ends the link.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from gantry_protocol.process import log

from gantry_broker.ha.framing import LinkError
from gantry_broker.ha.wire import Caller, Decoder, Received, encode
from gantry_broker.replica.messages import Message

HIGH_WATER_BYTES = 1024 * 1024
_CLOSE_GRACE_S = 0.5  # for a last message, such as the reason, to leave

_log = log.get("ha")


class Link(asyncio.Protocol):
    """One connection.

    Args:
        number: positive for incoming links, negative for outgoing ones.
        caller: who we are, for our Hello.
        received: called with this link and each message.
        closed: called with this link once it has ended, unless we closed it ourselves.
        writable: called with this link when it can take more after it was congested.
        gone: called with this link when its socket is gone, whoever closed it.

    Attributes:
        peer: ``ip:port`` of the other side, empty before the connection is there.
        congested: do not send log bytes now.
        bytes_sent: of messages, ever.
    """

    def __init__(
        self,
        number: int,
        caller: Caller,
        *,
        opened: Callable[["Link"], None],
        received: Callable[["Link", Received], None],
        closed: Callable[["Link"], None],
        writable: Callable[["Link"], None],
        gone: Callable[["Link"], None],
    ) -> None:
        """A link without a connection yet."""
        self.number = number
        self.peer = ""
        self.congested = False
        self.bytes_sent = 0
        self._caller = caller
        self._opened = opened
        self._received = received
        self._closed = closed
        self._writable = writable
        self._gone = gone
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._ended = False

    def belongs_to(
        self,
        number: int,
        *,
        received: Callable[["Link", Received], None],
        closed: Callable[["Link"], None],
        writable: Callable[["Link"], None],
        gone: Callable[["Link"], None],
    ) -> None:
        """Somebody else owns this link from now on, under ``number``."""
        self.number = number
        self._received = received
        self._closed = closed
        self._writable = writable
        self._gone = gone

    @property
    def ended(self) -> bool:
        """Whether we have closed it, or it is gone."""
        return self._ended

    def send(self, message: Message) -> None:
        """Send now; nothing happens on a link that is not there."""
        if self._transport is None or self._ended:
            return
        pieces = encode(message, self._caller)
        self.bytes_sent += sum(map(len, pieces))
        self._transport.writelines(pieces)  # one write, without joining them

    def close(self) -> None:
        """End the link; what was sent is given a moment to leave."""
        if self._ended:
            return
        self._ended = True
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, transport.abort)

    def abort(self) -> None:
        """End the link now; what was not sent is dropped."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        tcp = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self._ended:
            tcp.abort()
            return
        self._transport = tcp
        tcp.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        peer = tcp.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        self._transport = None
        if not self._ended:
            self._ended = True
            self._closed(self)
        self._gone(self)

    def pause_writing(self) -> None:
        """The other side does not read fast enough."""
        self.congested = True

    def resume_writing(self) -> None:
        """It caught up."""
        self.congested = False
        if not self._ended:
            self._writable(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._ended:
            return
        try:
            messages = self._decoder.feed(data)
        except LinkError as error:
            _log.warning("replication link ended", peer=self.peer, reason=error)
            self.close()
            self._closed(self)
            return
        for message in messages:
            if self._ended:
                return
            self._received(self, message)
