"""TLS over memory, between a transport and the protocol that speaks through it.

One class is both: the protocol of the transport below, and the transport of the protocol above. The
standard library's own (``loop.start_tls``) reads from the socket itself, so that whoever has to see
the first byte would have to peek; it keeps a buffer of its own that nobody above counts; and it
waits for the other side's goodbye. Here what comes is handed on at once, but for a record that is
not whole and for what is left by ``RECORDS_MAX``; what is written lies in the transport below,
whose limits hold.
"""

import asyncio
import ssl
from contextlib import suppress
from enum import Enum, auto
from typing import Any, cast

RECORD_BYTES = 16 * 1024  # the most that one record holds
RECORDS_MAX = 256  # at once, for half a millisecond; a peer may send as many in 6 KiB as in 4 MiB
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
        is_paused: whether the protocol above does not read.
    """

    inner: asyncio.Protocol

    def __init__(self) -> None:
        self.course = Course.ASKED
        self.raw: asyncio.Transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._secure: ssl.SSLObject  # set where hands are shaken
        self.is_paused = False  # by the protocol above
        self._left = False  # something is here that was not read, so nothing comes meanwhile

    # For subclasses.

    def prepare(self, context: ssl.SSLContext, *, name: str | None, server_side: bool) -> None:
        """Shake hands with what comes from now on.

        Args:
            context: the certificate that is shown, and those that are believed.
            name: of the server, on the side of the client.
            server_side: which side this is.
        """
        self.course = Course.SHAKING
        self._secure = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=name
        )

    def shaken(self) -> None:
        """The handshake ended well; what follows is encrypted."""
        raise NotImplementedError

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        """The handshake, or what came after it, was no good; the connection ends."""

    def later(self) -> None:
        """Call ``go_on`` later: there is more to decrypt than is done at once."""
        asyncio.get_running_loop().call_soon(self.go_on)

    @property
    def left_bytes(self) -> int:
        """Bytes that wait to be decrypted."""
        return self._incoming.pending if self._left else 0

    def go_on(self) -> None:
        """Decrypt what was left, unless the protocol above does not read."""
        if self.raw.is_closing():
            return
        if self._left and not self.is_paused and self.course is Course.SECURE:
            self._left = False
            self.raw.resume_reading()
            self.advance(b"")

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
        if self._left:  # none are asked for
            self._incoming.write(data)
        elif self.course is Course.SECURE or self.course is Course.SHAKING:
            self.advance(data)

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

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Speak through the connection instead of the protocol that did so far."""
        self.inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol above."""
        return self.inner

    def pause_reading(self) -> None:
        """Hand on no more."""
        self.is_paused = True
        self.raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        was_paused, self.is_paused = self.is_paused, False
        if not self._left:
            self.raw.resume_reading()
        elif was_paused:
            self.later()

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

    def advance(self, data: bytes) -> None:
        """Go on with the handshake, or read, now that this has come, too."""
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
        """Hand on what is here, as one, so that whoever is above counts it."""
        pieces: list[bytes] = []
        try:
            while piece := self._secure.read(RECORD_BYTES):
                pieces.append(piece)
                if len(pieces) == RECORDS_MAX:
                    self._left = True
                    self.raw.pause_reading()
                    break
        finally:
            if pieces:
                self.inner.data_received(b"".join(pieces))
        if not self._left:
            self.close()  # the peer has said that it says nothing more
        elif not self.is_paused and self.course is Course.SECURE:
            self.later()

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
