"""Connections by TLS to ports for clients."""

import asyncio
import ssl
from collections.abc import Callable

from gantry_protocol.errors import ConfigError, ConnectError
from gantry_protocol.tls.process import Tls

SHUTDOWN_S = 1.0  # how long the other side may take to say that it has heard all


async def dial_tls(
    inner: Callable[[], asyncio.Protocol], ip: str, port: int, tls: Tls
) -> asyncio.Transport:
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
            transport, _ = await loop.create_connection(
                inner,
                ip,
                port,
                ssl=context,
                server_hostname=tls.server_name or ip,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
            return transport
    except ConnectionRefusedError:
        raise
    except (ssl.SSLError, ConnectionError, ConfigError) as error:
        # Where anybody may do without, a certificate that is not believed is no worse than none.
        if not tls.dials_plainly:
            raise ConnectError(_reason(error), refused=False) from error
        tls.plain_dials += 1
    transport, _ = await loop.create_connection(inner, ip, port)
    return transport


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls_ca_file does not vouch for its certificate ({error.verify_message})"
    if isinstance(error, ConfigError):
        return str(error).removesuffix(".")
    return "it does not agree to TLS"
