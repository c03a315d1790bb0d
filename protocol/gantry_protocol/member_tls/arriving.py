"""A port between members: who comes shakes hands and is judged, before anything else is said.

::

    22 …      TLS, with certificates of both sides; then, inside:
              listener   u8 1        or u8 0 | why not, and the end
    others    no TLS: served while permissive, else ended

From then on the connection belongs to the protocol behind, which notices none of this; it may ask
its transport who is there (``get_extra_info(PEER_NAMES)``).

The listener's first byte is there because the dialler's side of a handshake ends well before its
own certificate was looked at. Those who have not shaken hands are bounded in number, bytes and
time. Where no place is left, the address that takes most of them gives up its oldest.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from gantry_protocol.errors import ConfigError, MemberRefused
from gantry_protocol.member_tls.names import MemberName, Names
from gantry_protocol.member_tls.process import ALPN, MemberTls, why_not
from gantry_protocol.tls.layer import Course, TlsLayer

PEER_NAMES = "gantry member names"  # in a connection's attrs
SHAKE_WITHIN_S = 2.0
SHAKING_MAX = 1024  # all replicas of 512 groups that connect in the same moment
SHAKING_BYTES_MAX = 128 * 1024  # that wait for a turn; a chain of certificates with 1,000 names
BELIEVED = b"\x01"
REFUSED = b"\x00"
WHY_BYTES_MAX = 400
HANDSHAKE = 22  # the content type of a TLS record, RFC 8446 section 5.1

Factory = Callable[[], asyncio.Protocol]


def refusal(reason: str) -> bytes:
    """The words to a member that is not believed."""
    return REFUSED + reason.encode()[:WHY_BYTES_MAX]


class MemberPort:
    """One port; a factory of protocols for ``loop.create_server``.

    Args:
        tls: of the process, which is on.
        port: its purpose, for the log.
        expected: who may come.
        behind: makes the protocol of a connection that may.
    """

    def __init__(
        self, tls: MemberTls, port: str, expected: Sequence[MemberName], behind: Factory
    ) -> None:
        """Nobody has come."""
        self.tls = tls
        self.port = port
        self.expected = expected
        self.behind = behind
        self._shaking: dict[_Arrived, None] = {}  # the oldest first

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Arrived(self)

    def __len__(self) -> int:
        return len(self._shaking)

    def close(self) -> None:
        """Show out who has not been judged."""
        for arrived in list(self._shaking):
            arrived.abort()

    def arrived(self, arrived: "_Arrived") -> None:
        """One more; where there is no place, one of the address with most goes."""
        if len(self._shaking) >= SHAKING_MAX:
            crowd = Counter(item.address for item in self._shaking)
            ((address, _),) = crowd.most_common(1)
            oldest = next(item for item in self._shaking if item.address == address)
            oldest.refuse("crowd", "others wait")
        self._shaking[arrived] = None

    def left(self, arrived: "_Arrived") -> None:
        """It was judged, or is gone."""
        self._shaking.pop(arrived, None)


class ShakesInTurn(TlsLayer):
    """The listener's side of a connection whose handshake waits for its turns.

    Attributes:
        address: of the peer.
    """

    def __init__(self, tls: MemberTls) -> None:
        super().__init__()
        self.address = "?"
        self._tls = tls
        self._put_off = bytearray()  # until its turn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        super().connection_made(transport)
        self.address = str((self.raw.get_extra_info("peername") or "?")[0])

    def take_turn(self) -> None:
        """Go on with the handshake."""
        data, self._put_off = bytes(self._put_off), bytearray()
        if self.course is Course.SHAKING and not self.raw.is_closing():
            self.raw.resume_reading()
            self.advance(data)

    def later_on(self, data: bytes) -> None:
        """Go on with the handshake in a later turn, now that this has come, too."""
        waits = bool(self._put_off)
        self._put_off += data
        if len(self._put_off) > SHAKING_BYTES_MAX:
            self.refuse("certificate", f"its handshake has more than {SHAKING_BYTES_MAX} bytes")
        elif not waits:
            self.raw.pause_reading()
            self._tls.turns.wait(self, self.address)

    def refuse(self, kind: str, reason: str) -> None:
        """Show it out, for one of ``REASONS``."""
        raise NotImplementedError


class _Arrived(ShakesInTurn):
    """The listener's side of one connection."""

    def __init__(self, port: MemberPort) -> None:
        super().__init__(port.tls)
        self._port = port
        self._names: Names | None = None
        self._timer = asyncio.get_running_loop().call_later(SHAKE_WITHIN_S, self._late)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._port.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        if self._names is not None:
            super().connection_lost(exc)
        elif self.course is Course.SHAKING:
            self.course = Course.ENDED
            self._note("left", "it left amid the handshake")

    def data_received(self, data: bytes) -> None:
        if self.course is Course.ASKED:
            self._open(data)
        elif self.course is Course.SHAKING:
            self.later_on(data)
        else:
            super().data_received(data)

    # What the layer asks.

    def shaken(self) -> None:
        self._end()
        port = self._port
        try:
            if self._secure.selected_alpn_protocol() != ALPN:
                raise MemberRefused("it does not speak as a member")
            self._names = port.tls.judge(self._secure, port.expected)
        except MemberRefused as error:
            self._note("name", str(error))
            self.write(refusal(str(error)))
            self.close()
            return
        port.tls.handshakes += 1
        self.write(BELIEVED)
        self.inner = port.behind()
        self.inner.connection_made(self)

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        if shaking:
            self._end()
            self._note("certificate", why_not(error))

    # What the protocol behind may ask.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._names if name == PEER_NAMES else super().get_extra_info(name, default)

    # Inside.

    def refuse(self, kind: str, reason: str) -> None:
        """Show it out."""
        if self.course in (Course.ASKED, Course.SHAKING):
            self.course = Course.ENDED
            self._note(kind, reason)
            self.abort()

    def abort(self) -> None:
        self._end()
        super().abort()

    def _open(self, data: bytes) -> None:
        tls = self._port.tls
        if data[0] == HANDSHAKE:
            try:
                context = tls.certificate().listening
            except ConfigError as error:  # never since ``load``
                self.refuse("certificate", str(error))
                return
            self.prepare(context, name=None, server_side=True)
            self.later_on(data)
        elif tls.is_enforced:
            self.refuse("plain", "it speaks no TLS, which is enforced here")
        else:
            self._end()
            tls.plain_accepted += 1
            inner = self._port.behind()
            self.raw.set_protocol(inner)
            inner.connection_made(self.raw)
            if not self.raw.is_closing():
                inner.data_received(data)

    def _late(self) -> None:
        self.refuse("time", f"its handshake took more than {SHAKE_WITHIN_S:g} s")

    def _end(self) -> None:
        self._timer.cancel()
        self._port.left(self)

    def _note(self, kind: str, reason: str) -> None:
        self._port.tls.note_refused(kind, self._port.port, self.address, reason)


def peer_names(transport: asyncio.BaseTransport | None) -> Names | None:
    """The names of the member at the other side; None where it has shown no certificate."""
    return None if transport is None else cast(Names | None, transport.get_extra_info(PEER_NAMES))
