"""Connections by TLS to ports for clients."""

import asyncio
import ssl
from collections.abc import Callable

from gantry_protocol.errors import ConnectError
from gantry_protocol.tls.process import Tls

SHUTDOWN_S = 1.0  # how long the other side may take to say that it has heard all


async def dial_tls(
    inner: Callable[[], asyncio.Protocol], ip: str, port: int, tls: Tls
) -> asyncio.Transport:
    """A connection to ``ip:port`` for ``inner``, by TLS where ``tls`` says so.

    The caller bounds the time; a cancellation leaves no connection behind.

    Raises:
        ConnectError: the other side speaks no TLS, or shows a certificate that is not believed.
        OSError: no connection.
        ConfigError: the certificates of this process cannot be read.
    """
    loop = asyncio.get_running_loop()
    context = tls.for_client()
    if context is not None:
        try:
            transport, _ = await loop.create_connection(
                inner,
                ip,
                port,
                ssl=context,
                server_hostname=tls.server_name or ip,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ssl.SSLCertVerificationError as error:
            why = f"tls_ca_file does not vouch for its certificate ({error.verify_message})"
            raise ConnectError(why, refused=False) from error
        except ConnectionRefusedError:
            raise
        except (ssl.SSLError, ConnectionError) as error:
            if not tls.dials_plainly:
                raise ConnectError("it does not agree to TLS", refused=False) from error
            tls.plain_dials += 1
        else:
            return transport
    transport, _ = await loop.create_connection(inner, ip, port)
    return transport
