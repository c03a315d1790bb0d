"""TLS over memory, between a transport and the protocol that speaks through it.

One class is both: the protocol of the transport below, and the transport of the protocol above. The
standard library's own (``loop.start_tls``) reads from the socket itself, so that whoever has to see
the first byte would have to peek; it keeps a buffer of its own that nobody above counts; and it
waits for the other side's goodbye. Here nothing is kept but a record that is not whole: what comes
is handed on at once, and what is written lies in the transport below, whose limits hold.
"""

import asyncio
import ssl
from contextlib import suppress
from enum import Enum, auto
from typing import Any, cast

RECORD_BYTES = 16 * 1024  # the most that one record holds
_CLOSE_GRACE_S = 1.0  # how long the other side of a broken connection may take to hear why


class Course(Enum):
    """The state of a connection."""

    ASKED = auto()  # nothing tells yet what it will be
    PLAIN = auto()
    SHAKING = auto()  # hands
    SECURE = auto()
    ENDED = auto()


class TlsLayer(asyncio.Protocol, asyncio.Transport):
    """See the module; subclasses say when hands are shaken, and what follows.

    Attributes:
        inner: the protocol above.
        raw: the transport below; set once connected.
        course: the state.
    """

    inner: asyncio.Protocol

    def __init__(self) -> None:
        self.course = Course.ASKED
        self.raw: asyncio.Transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._secure: ssl.SSLObject  # set where hands are shaken

    # For subclasses.

    def shake(
        self, context: ssl.SSLContext, data: bytes, *, name: str | None, server_side: bool
    ) -> None:
        """Shake hands.

        Args:
            context: with what.
            data: what has come already.
            name: of the server, on the side of the client.
            server_side: which side this is.
        """
        self.course = Course.SHAKING
        self._secure = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=name
        )
        self._advance(data)

    def shaken(self) -> None:
        """The handshake ended well; what follows is encrypted."""
        raise NotImplementedError

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        """The handshake, or what came after it, was no good; the connection ends."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport below is there."""
        self.raw = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever ended it."""
        self.course = Course.ENDED
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.course is Course.SECURE or self.course is Course.SHAKING:
            self._advance(data)

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        if self.course is not Course.SHAKING:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It caught up."""
        if self.course is not Course.SHAKING:
            self.inner.resume_writing()

    # What the protocol above calls.

    def write(self, data: Any) -> None:
        """Send bytes; none before hands were shaken, and none after the end."""
        if self.course is Course.SECURE:
            left = memoryview(data)
            while left:
                left = left[self._secure.write(left) :]
            self._send()

    def pause_reading(self) -> None:
        """Read no more; what was read has been handed on."""
        self.raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self.raw.resume_reading()

    def close(self) -> None:
        """Deliver what was written, say that this is the end, and end it."""
        if self.course is Course.SECURE:
            with suppress(ssl.SSLError):  # the peer has not said so, too; nobody waits for it
                self._secure.unwrap()
            self._send()
        self.course = Course.ENDED
        self.raw.close()

    def abort(self) -> None:
        """End it at once."""
        self.raw.abort()

    def is_closing(self) -> bool:
        """Whether it has ended, or will soon."""
        return self.raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer has not taken, as they travel."""
        return self.raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        self.raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio."""
        return self.raw.get_extra_info(name, default)

    # Inside.

    def _advance(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if self.course is Course.SHAKING:
                self._secure.do_handshake()
                self._send()
                self.course = Course.SECURE
                self.shaken()
            if self.course is Course.SECURE:
                self._read()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._fail(error)

    def _read(self) -> None:
        """Hand on all that is here, as one, so that whoever is above counts it."""
        pieces: list[bytes] = []
        try:
            while piece := self._secure.read(RECORD_BYTES):
                pieces.append(piece)
        finally:
            if pieces:
                self.inner.data_received(b"".join(pieces))
        self.close()  # the peer has said that it says nothing more

    def _fail(self, error: ssl.SSLError) -> None:
        """End it; the peer is told why."""
        shaking = self.course is Course.SHAKING
        self.course = Course.ENDED
        self.failed(error, shaking=shaking)
        self._send()
        self.raw.close()
        if self.raw.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, self.raw.abort)

    def _send(self) -> None:
        data = self._outgoing.read()
        if data and not self.raw.is_closing():
            self.raw.write(data)
