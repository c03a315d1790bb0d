"""Connections by TLS to ports for clients."""

import asyncio
import ssl
from collections.abc import Callable

from gantry_protocol.errors import ConfigError, ConnectError
from gantry_protocol.tls.layer import Course, TlsLayer
from gantry_protocol.tls.process import Tls

Factory = Callable[[], asyncio.Protocol]


async def dial_tls(inner: Factory, ip: str, port: int, tls: Tls) -> asyncio.Transport:
    """A connection to ``ip:port`` for ``inner``, by TLS where ``tls`` says so.

    The caller bounds the time; a cancellation leaves no connection behind.

    Raises:
        ConnectError: the other side speaks no TLS, shows a certificate that is not believed, or
            this process's own files are no good.
        OSError: no connection.
    """
    loop = asyncio.get_running_loop()
    try:
        context = tls.for_client()
        if context is not None:
            transport, dialled = await loop.create_connection(
                lambda: _Dialled(inner, context, tls.server_name or ip), ip, port
            )
            try:
                await dialled.done
            except BaseException:
                transport.abort()
                raise
            return dialled
    except ConnectionRefusedError:
        raise
    except (ssl.SSLError, ConnectionError, ConfigError) as error:
        # Where anybody may do without, a certificate that is not believed is no worse than none.
        if not tls.dials_plainly:
            raise ConnectError(_reason(error), refused=False) from error
        tls.plain_dials += 1
    transport, _ = await loop.create_connection(inner, ip, port)
    return transport


class _Dialled(TlsLayer):
    """The side that dials."""

    def __init__(self, inner: Factory, context: ssl.SSLContext, name: str) -> None:
        super().__init__()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._factory = inner
        self._context = context
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.prepare(self._context, name=self._name, server_side=False)
        self.advance(b"")

    def shaken(self) -> None:
        if self.done.done():  # nobody waits any more
            self.course = Course.ENDED
            self.raw.abort()
            return
        self.done.set_result(None)
        self.inner = self._factory()
        self.inner.connection_made(self)

    def failed(self, error: ssl.SSLError, *, shaking: bool) -> None:
        self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError())
        if hasattr(self, "inner"):
            super().connection_lost(exc)

    def _end(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # nobody may be waiting any more


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls_ca_file does not vouch for its certificate ({error.verify_message})"
    if isinstance(error, ConfigError):
        return str(error).removesuffix(".")
    return "it does not agree to TLS"
