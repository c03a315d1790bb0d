"""TLS and plain connections on one port: the first byte says which, as at upstream's servers.

A frame begins with 0, a PROXY preamble with ``P`` or a line break, and a TLS handshake with 22. So
the transport that a :class:`Connection` is given at a port with TLS waits for that byte, and from
then on is TLS over memory or hands bytes through. A preamble may come before the handshake, as a
load balancer sends it, or inside.

The connection counts from its first moment, so limits and the time for a first frame hold for those
in handshake, too. Back-pressure is exact: nothing is kept here but a record that is not whole,
since what comes is handed on and what is written lies in the transport below.

One thing is refused: a connection without TLS where TLS is enforced.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, NamedTuple, cast

from gantry_protocol.errors import FrameError
from gantry_protocol.proxy_preamble import parse_preamble, starts_preamble
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsMode

HANDSHAKE = 22  # the content type of a TLS record, RFC 8446 section 5.1
RECORD_BYTES = 16 * 1024  # the most that one record holds
_CLOSE_GRACE_S = 1.0  # how long the other side of a failed handshake may take to hear why


Note = Callable[[str, Connection, Exception | None], None]


class Opening(NamedTuple):
    """The beginning of a connection: whether TLS follows ``preamble_bytes``."""

    is_tls: bool
    preamble_bytes: int = 0


def opening_of(data: bytes) -> Opening | None:
    """The opening that ``data`` is; None if more bytes are needed to tell."""
    if not data:
        return None
    if not starts_preamble(data[0]):
        return Opening(data[0] == HANDSHAKE)
    try:
        preamble = parse_preamble(data)
    except FrameError:
        return Opening(is_tls=False)  # the connection says what is wrong with it
    if preamble is None or len(data) == preamble.size:
        return None
    is_tls = data[preamble.size] == HANDSHAKE
    return Opening(is_tls, preamble.size if is_tls else 0)


class _Course(Enum):
    """The state of a connection."""

    ASKED = auto()  # nothing tells yet what it will be
    PLAIN = auto()
    SHAKING = auto()  # hands
    SECURE = auto()
    ENDED = auto()


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The transport of one connection, and the protocol of the one below.

    Args:
        tls: of the process.
        connection: whose transport it is.
        note: logs that a peer's fault ended its connection.
    """

    def __init__(self, tls: Tls, connection: Connection, note: Note) -> None:
        self._tls = tls
        self._inner = connection
        self._note = note
        self._course = _Course.ASKED
        self._raw: asyncio.Transport  # set once connected
        self._begun = b""  # what came before it was known what it begins, then the preamble
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._secure: ssl.SSLObject  # set where hands are shaken

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected, and counts."""
        self._raw = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever ended it."""
        if self._course is _Course.SHAKING:
            self._tls.handshake_failures += 1
        self._course = _Course.ENDED
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._course is _Course.PLAIN:
            self._inner.data_received(data)
        elif self._course is _Course.ASKED:
            self._open(self._begun + data)
        elif self._course is not _Course.ENDED:
            self._advance(data)

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It caught up."""
        self._inner.resume_writing()

    # What the connection calls.

    def write(self, data: Any) -> None:
        """Send bytes in the way that the peer has chosen; nothing to one that has not yet."""
        if self._course is _Course.PLAIN:
            self._raw.write(data)
        elif self._course is _Course.SECURE:
            left = memoryview(data)
            while left:
                left = left[self._secure.write(left) :]
            self._send()

    def pause_reading(self) -> None:
        """Read no more; what was read has been handed on."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._raw.resume_reading()

    def close(self) -> None:
        """Deliver what was written, say that this is the end, and end it."""
        if self._course is _Course.SECURE:
            with suppress(ssl.SSLError):  # the peer has not said so, too; nobody waits for it
                self._secure.unwrap()
            self._send()
        if self._course is not _Course.PLAIN:
            self._course = _Course.ENDED
        self._raw.close()

    def abort(self) -> None:
        """End it at once."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it has ended, or will soon."""
        return self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer has not taken, as they travel."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio."""
        return self._raw.get_extra_info(name, default)

    # Inside.

    def _open(self, data: bytes) -> None:
        """Decide, if enough is here."""
        opening = opening_of(data)
        if opening is None:
            self._begun = data
        elif opening.is_tls:
            self._begun = data[: opening.preamble_bytes]
            self._course = _Course.SHAKING
            self._secure = self._tls.for_server().context.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
            self._advance(data[opening.preamble_bytes :])
        elif self._tls.mode is TlsMode.ENFORCING:
            self._tls.plain_refused += 1
            self._course = _Course.ENDED
            self._note("connection ended, it speaks no TLS", self._inner, None)
            self._raw.abort()
        else:
            self._course = _Course.PLAIN
            self._inner.data_received(data)

    def _advance(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if self._course is _Course.SHAKING:
                self._shake()
            self._read()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._fail(error)

    def _shake(self) -> None:
        self._secure.do_handshake()
        self._send()
        self._tls.handshakes += 1
        self._course = _Course.SECURE
        if self._begun:
            self._inner.data_received(self._begun)

    def _read(self) -> None:
        """Hand on all that is here, as one, so that the connection counts it."""
        pieces: list[bytes] = []
        try:
            while piece := self._secure.read(RECORD_BYTES):
                pieces.append(piece)
        finally:
            if pieces:
                self._inner.data_received(b"".join(pieces))
        self.close()  # the peer has said that it says nothing more

    def _fail(self, error: ssl.SSLError) -> None:
        """It is no TLS, or none that is spoken here; the peer is told why."""
        shaking = self._course is _Course.SHAKING
        if shaking:
            self._tls.handshake_failures += 1
        self._course = _Course.ENDED
        what = "a failed TLS handshake" if shaking else "broken TLS"
        self._note(f"connection ended by {what}", self._inner, error)
        self._send()
        self._raw.close()
        if self._raw.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, self._raw.abort)

    def _send(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)
