"""The TLS of processes in tests, and a client that speaks it byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.tls import contexts
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsSettings
from support.certificates import Authority, Pair
from support.wire import WirePeer

Serve = Callable[..., Awaitable[tuple[RemotingServer, int]]]


def serving(pair: Pair, **more: Any) -> Tls:
    """Of a process with this certificate."""
    return Tls(TlsSettings(tls_cert_file=pair.cert, tls_key_file=pair.key, **more))


def dialling(authority: Authority, **more: Any) -> Tls:
    """Of a process that dials, and believes this authority."""
    return Tls(TlsSettings(tls_ca_file=authority.file, **more))


class TlsPeer(WirePeer):
    """The same inside TLS."""

    @classmethod
    async def shake(cls, port: int, authority: Authority, **more: Any) -> TlsPeer:
        """A connection, once hands are shaken."""
        context = contexts.client_context(
            authority.file, more.pop("cert", None), more.pop("key", None), None
        )
        for name, value in more.items():
            setattr(context, name, value)
        return cls(
            *await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="127.0.0.1", ssl_shutdown_timeout=1
            )
        )
