"""Connections to ports between members."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from gantry_protocol.errors import ConfigError, MemberRefused
from gantry_protocol.member_tls.arriving import BELIEVED, PEER_NAMES, WHY_BYTES_MAX
from gantry_protocol.member_tls.names import MemberName, Names
from gantry_protocol.member_tls.process import ALPN, MemberTls, why_not
from gantry_protocol.tls.layer import Course, TlsLayer

Factory = Callable[[], asyncio.Protocol]


async def dial_member(
    inner: Factory, ip: str, port: int, tls: MemberTls, expected: MemberName
) -> asyncio.Transport:
    """A connection to ``ip:port`` for ``inner``, by TLS where ``tls`` is on.

    Both sides believe each other then. While permissive, what fails is tried without TLS. The
    caller bounds the time; a cancellation leaves no connection behind.

    Raises:
        MemberRefused: one side does not believe the other; says which.
        OSError: no connection.
    """
    loop = asyncio.get_running_loop()
    if tls.is_on:
        try:
            return await _dial(inner, ip, port, tls, expected)
        except ConnectionRefusedError:
            raise
        except (ssl.SSLError, ConnectionError, MemberRefused, ConfigError) as error:
            why = why_not(error)
            tls.note_refused("listener", f"{expected.kind} dialled", f"{ip}:{port}", why)
            if tls.is_enforced:
                raise MemberRefused(why) from error
            tls.plain_dials += 1
    transport, _ = await loop.create_connection(inner, ip, port)
    return transport


async def _dial(
    inner: Factory, ip: str, port: int, tls: MemberTls, expected: MemberName
) -> asyncio.Transport:
    transport, dialled = await asyncio.get_running_loop().create_connection(
        lambda: _Dialled(inner, tls, expected), ip, port
    )
    try:
        await dialled.done
    except BaseException:
        transport.abort()
        raise
    return dialled


class _Dialled(TlsLayer):
    """The dialler's side of one connection."""

    def __init__(self, inner: Factory, tls: MemberTls, expected: MemberName) -> None:
        super().__init__()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._factory = inner
        self._tls = tls
        self._expected = expected
        self._context = tls.certificate().dialling
        self._names: Names | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.prepare(self._context, name=None, server_side=False)
        self.advance(b"")

    def shaken(self) -> None:
        try:
            if self._secure.selected_alpn_protocol() != ALPN:
                raise MemberRefused("it speaks TLS, and not as a member")
            self._names = self._tls.judge(self._secure, (self._expected,))
        except MemberRefused as error:
            self._fail_with(error)
        else:
            self.inner = _Answer(self)

    def believed(self, rest: bytes) -> None:
        """From now on the connection is that of the protocol above."""
        if self.done.done():  # nobody waits any more
            self.raw.abort()
            return
        self.done.set_result(None)
        self.inner = self._factory()
        self.inner.connection_made(self)
        if rest and not self.is_closing():
            self.inner.data_received(rest)

    def disbelieved(self, why: str) -> None:
        """The listener says why it does not take this process for a member."""
        self._fail_with(MemberRefused(f"it says: {why}"))

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError())
        if hasattr(self, "inner"):
            super().connection_lost(exc)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._names if name == PEER_NAMES else super().get_extra_info(name, default)

    def _fail_with(self, error: Exception) -> None:
        self.course = Course.ENDED
        self._end(error)
        self.raw.abort()

    def _end(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # nobody may be waiting any more


class _Answer(asyncio.Protocol):
    """Waits for the listener's word."""

    def __init__(self, dialled: _Dialled) -> None:
        self._dialled = dialled

    def data_received(self, data: bytes) -> None:
        if data[:1] == BELIEVED:
            self._dialled.believed(data[1:])
        else:
            why = data[1 : 1 + WHY_BYTES_MAX].decode(errors="replace")
            self._dialled.disbelieved("".join(char for char in why if char.isprintable()))
