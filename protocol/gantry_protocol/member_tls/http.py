"""The TLS of a controller's HTTP port, with the certificate that it shows to members.

::

    22 …      TLS; the peer shows no certificate
    others    no TLS: probes and metrics; while permissive also everything else

Whoever asks by HTTP is no member: he verifies the controller (``asking``) and shows a token. What
no TLS protects here are probes and metrics, which hold no secret and which kubelets and Prometheus
ask for by addresses.

A connection counts from its first moment, so the bounds of the port hold for those amid their
handshake, too; handshakes take turns with those of members.
"""

import asyncio
import ssl
from typing import Any

from gantry_protocol.errors import ConfigError
from gantry_protocol.member_tls.arriving import HANDSHAKE, ShakesInTurn
from gantry_protocol.member_tls.process import MemberTls, why_not
from gantry_protocol.tls.layer import Course

PORT = "http"


class HttpCover:
    """See the module, and ``probes.Cover``; ``tls`` is on."""

    def __init__(self, tls: MemberTls) -> None:
        """Nobody has come."""
        self._tls = tls

    def over(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Covered(self._tls, inner)

    def refuses(self, address: str) -> bool:
        """Whether a request without TLS is refused; then it is counted."""
        if self._tls.is_enforced:
            self._tls.note_refused("plain", PORT, address, "its admin request came without TLS")
        return self._tls.is_enforced

    def served(self) -> None:
        """A request of the admin API came without TLS, and is served."""
        self._tls.plain_accepted += 1


class _Covered(ShakesInTurn):
    """One connection; the protocol above is there from its first moment."""

    def __init__(self, tls: MemberTls, inner: asyncio.Protocol) -> None:
        super().__init__(tls)
        self.inner = inner

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.course is Course.SHAKING:
            self._note("left", "it left amid the handshake")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.course is Course.PLAIN:
            self.inner.data_received(data)
        elif self.course is Course.ASKED:
            self._open(data)
        elif self.course is Course.SHAKING:
            self.later_on(data)
        else:
            super().data_received(data)

    # What the layer asks.

    def shaken(self) -> None:
        """Anybody may: the token says who it is."""

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        if shaking:
            self._note("certificate", why_not(error))

    def refuse(self, kind: str, reason: str) -> None:
        self._note(kind, reason)
        self.course = Course.ENDED
        self.abort()

    # What the protocol above asks.

    def write(self, data: Any) -> None:
        if self.course is Course.PLAIN:
            self.raw.write(data)
        else:
            super().write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext" and self.course is Course.SECURE:  # by which aiohttp says `secure`
            return self._secure.context
        return super().get_extra_info(name, default)

    # Inside.

    def _open(self, data: bytes) -> None:
        if data[0] != HANDSHAKE:
            self.course = Course.PLAIN
            self.inner.data_received(data)
            return
        try:
            context = self._tls.certificate().http
        except ConfigError as error:  # never since ``load``
            self.refuse("certificate", str(error))
            return
        self.prepare(context, name=None, server_side=True)
        self.later_on(data)

    def _note(self, kind: str, reason: str) -> None:
        self._tls.note_refused(kind, PORT, self.address, reason)
