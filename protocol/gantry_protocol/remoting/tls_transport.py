"""TLS and plain connections on one port: the first byte says which, as at upstream's servers.

A frame begins with 0, a PROXY preamble with ``P`` or a line break, and a TLS handshake with 22. So
the transport that a :class:`Connection` is given at a port with TLS waits for that byte, and from
then on is TLS over memory or hands bytes through. A preamble may come before the handshake, as a
load balancer sends it, or inside.

The connection counts from its first moment, so limits and the time for a first frame hold for those
in handshake, too. Handshakes, and what is left of many small records, wait for their turns like
requests, so that strangers keep the loop from nobody.

Refused: a connection without TLS where TLS is enforced, and TLS where no certificate is there yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gantry_protocol.errors import ConfigError, FrameError
from gantry_protocol.proxy_preamble import parse_preamble, starts_preamble
from gantry_protocol.tls.admission import Admission  # noqa: TC001 - of a protocol
from gantry_protocol.tls.layer import Course, TlsLayer
from gantry_protocol.tls.settings import TlsMode

if TYPE_CHECKING:
    import asyncio
    import ssl

    from gantry_protocol.remoting.connection import Connection
    from gantry_protocol.remoting.server import RemotingServer

HANDSHAKE = 22  # the content type of a TLS record, RFC 8446 section 5.1


class ServedTls(Protocol):
    """The part of ``Tls`` that is needed here; ports of members have another one.

    Attributes:
        mode: who is served.
        handshakes: see ``Tls``.
        handshake_failures: see ``Tls``.
        plain_refused: see ``Tls``.
    """

    mode: TlsMode
    handshakes: int
    handshake_failures: int
    plain_refused: int

    @property
    def is_served(self) -> bool:
        """Whether the port speaks TLS."""

    def server_context(self) -> ssl.SSLContext:
        """For a connection that came."""

    def admit(self, secure: ssl.SSLObject, attrs: dict[str, Any]) -> Admission:
        """Judge whose hand was shaken; what is to be known of him goes into ``attrs``."""


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
        server: whose connection that is.
    """

    def __init__(self, tls: ServedTls, connection: Connection, server: RemotingServer) -> None:
        super().__init__()
        self.inner: Connection = connection
        self._tls = tls
        self._server = server
        self._turns = connection.turns
        self._begun = b""  # what came before it was known what it begins, then the preamble
        self._put_off = b""  # of a handshake, until its turn
        self._waits = False  # for a turn
        self._counted_bytes = 0  # of what waits to be decrypted, in the server's counts

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected, and counts."""
        super().connection_made(transport)
        self.inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever ended it."""
        if self.course is Course.SHAKING:
            self._tls.handshake_failures += 1
        self._count(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.course is Course.PLAIN:
            self.inner.data_received(data)
        elif self.course is Course.ASKED:
            self._open(self._begun + data)
        elif self.course is Course.SHAKING:
            self._shake_on(data)
        else:
            super().data_received(data)

    # What the layer asks.

    def write(self, data: Any) -> None:
        """Send bytes in the way that the peer has chosen; nothing to one that has not yet."""
        if self.course is Course.PLAIN:
            self.raw.write(data)
        else:
            super().write(data)

    def shaken(self) -> None:
        """The connection may speak; what came before the handshake belongs to it, too."""
        admission = self._tls.admit(self._secure, self.inner.attrs)
        if admission.greeting:
            self.write(admission.greeting)
        if admission.refusal:
            self._server.note_ended(f"connection ended, {admission.refusal}", self.inner)
            self.close()
            return
        self._tls.handshakes += 1
        if self._begun:
            self.inner.data_received(self._begun)

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        """It is no TLS, or none that is spoken here."""
        self._tls.handshake_failures += shaking
        what = "a failed TLS handshake" if shaking else "broken TLS"
        self._server.note_ended(f"connection ended by {what}", self.inner, error)

    def later(self) -> None:
        """Wait for a turn, behind those who do not send many small records."""
        self._count(self.left_bytes)
        if self._server.stats.partial_bytes > self._server.max_partial_bytes:
            self._count(0)
            self._server.note_ended("connection ended, too much is to be decrypted", self.inner)
            self.abort()
        else:
            self._wait(first=False)

    def take_turn(self) -> bool:
        """Go on with what was put off; whether it is dear."""
        self._waits = False
        if self.raw.is_closing():
            return False
        if self.course is Course.SHAKING:
            data, self._put_off = self._put_off, b""
            if not self.is_paused:
                self.raw.resume_reading()
            self._shake_now(data)
            return False
        self.go_on()
        self._count(self.left_bytes)
        return True

    # Inside.

    def _open(self, data: bytes) -> None:
        """Decide, if enough is here."""
        opening = opening_of(data)
        if opening is None:
            self._begun = data
        elif opening.is_tls:
            self._begun = data[: opening.preamble_bytes]
            self._begin_tls(data[opening.preamble_bytes :])
        elif self._tls.mode is TlsMode.ENFORCING:
            self._tls.plain_refused += 1
            self.course = Course.ENDED
            self._server.note_ended("connection ended, it speaks no TLS", self.inner)
            self.raw.abort()
        else:
            self.course = Course.PLAIN
            self.inner.data_received(data)

    def _begin_tls(self, data: bytes) -> None:
        try:
            context = self._tls.server_context()
        except ConfigError as error:  # of a listener, which may wait for its certificate
            self._tls.handshake_failures += 1
            self.course = Course.ENDED
            self._server.note_ended("connection ended, no certificate to show", self.inner, error)
            self.raw.abort()
            return
        self.prepare(context, name=None, server_side=True)
        self._shake_on(data)

    def _shake_on(self, data: bytes) -> None:
        """A step of the handshake, in this turn or in another one: many at once take long."""
        if self._waits or not self._turns.is_open:
            self._put_off += data
            self.raw.pause_reading()
            self._wait(first=True)
        else:
            begun_s = self._turns.clock()
            self._shake_now(data)
            self._turns.used(self._turns.clock() - begun_s)

    def _shake_now(self, data: bytes) -> None:
        super().data_received(data)

    def _wait(self, *, first: bool) -> None:
        if not self._waits:
            self._waits = True
            self._turns.wait(self, first=first)

    def _count(self, left_bytes: int) -> None:
        self._server.stats.partial_bytes += left_bytes - self._counted_bytes
        self._counted_bytes = left_bytes
