"""TLS and plain connections on one port: the first byte says which, as at upstream's servers.

A frame begins with 0, a PROXY preamble with ``P`` or a line break, and a TLS handshake with 22. So
the transport that a :class:`Connection` is given at a port with TLS waits for that byte, and from
then on is TLS over memory or hands bytes through. A preamble may come before the handshake, as a
load balancer sends it, or inside.

The connection counts from its first moment, so limits and the time for a first frame hold for those
in handshake, too.

One thing is refused: a connection without TLS where TLS is enforced.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from gantry_protocol.errors import FrameError
from gantry_protocol.proxy_preamble import parse_preamble, starts_preamble
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.tls.layer import Course, TlsLayer
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsMode

HANDSHAKE = 22  # the content type of a TLS record, RFC 8446 section 5.1

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


class TlsTransport(TlsLayer):
    """The transport of one connection.

    Args:
        tls: of the process.
        connection: whose transport it is.
        note: logs that a peer's fault ended its connection.
    """

    def __init__(self, tls: Tls, connection: Connection, note: Note) -> None:
        super().__init__()
        self.inner: Connection = connection
        self._tls = tls
        self._note = note
        self._begun = b""  # what came before it was known what it begins, then the preamble

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected, and counts."""
        super().connection_made(transport)
        self.inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever ended it."""
        if self.course is Course.SHAKING:
            self._tls.handshake_failures += 1
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.course is Course.PLAIN:
            self.inner.data_received(data)
        elif self.course is Course.ASKED:
            self._open(self._begun + data)
        else:
            super().data_received(data)

    def write(self, data: Any) -> None:
        """Send bytes in the way that the peer has chosen; nothing to one that has not yet."""
        if self.course is Course.PLAIN:
            self.raw.write(data)
        else:
            super().write(data)

    def shaken(self) -> None:
        """The connection may speak; what came before the handshake belongs to it, too."""
        self._tls.handshakes += 1
        if self._begun:
            self.inner.data_received(self._begun)

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        """It is no TLS, or none that is spoken here."""
        self._tls.handshake_failures += shaking
        what = "a failed TLS handshake" if shaking else "broken TLS"
        self._note(f"connection ended by {what}", self.inner, error)

    def _open(self, data: bytes) -> None:
        """Decide, if enough is here."""
        opening = opening_of(data)
        if opening is None:
            self._begun = data
        elif opening.is_tls:
            size = opening.preamble_bytes
            self._begun = data[:size]
            context = self._tls.for_server().context
            self.shake(context, data[size:], name=None, server_side=True)
        elif self._tls.mode is TlsMode.ENFORCING:
            self._tls.plain_refused += 1
            self.course = Course.ENDED
            self._note("connection ended, it speaks no TLS", self.inner, None)
            self.raw.abort()
        else:
            self.course = Course.PLAIN
            self.inner.data_received(data)
