"""HTTP sessions that find hosts as every other connection does."""

from __future__ import annotations

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import resolve


class HostsResolver(AbstractResolver):
    """The hosts file and DNS, by way of `hosts.resolve`."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The address of `host`, of whatever family it has.

        Raises:
            OSError: it has none.
        """
        try:
            address = await resolve(host)
        except ResolveError as error:
            raise OSError(str(error)) from error
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        ]

    async def close(self) -> None:
        """Nothing is held."""


def open_session() -> aiohttp.ClientSession:
    """A session to members of a quorum; the caller closes it."""
    connector = aiohttp.TCPConnector(resolver=HostsResolver(), use_dns_cache=False)
    return aiohttp.ClientSession(connector=connector)
