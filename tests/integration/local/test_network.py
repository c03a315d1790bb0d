"""Service proxies under load: nothing lost, nothing held without bound, cut together."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from gantry_local.network.pipe import Address, Front
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Backend = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BIG = 8 * 1024 * 1024


class Proxy:
    """A front on a free port, with a choice of backends."""

    def __init__(self) -> None:
        self.backends: list[Address] = []
        self.open = 0
        self.limit = 100
        self.address: Address = ("", 0)

    def choose(self, failed: set[Address]) -> Address | None:
        return next((b for b in self.backends if b not in failed), None)

    def opened(self, _front: Front) -> bool:
        self.open += 1
        return self.open <= self.limit

    def closed(self, _front: Front) -> None:
        self.open -= 1


@contextlib.asynccontextmanager
async def proxied(*backends: Backend) -> AsyncIterator[Proxy]:
    loop, proxy = asyncio.get_running_loop(), Proxy()
    servers: list[asyncio.Server] = []
    writers: list[asyncio.StreamWriter] = []

    def tracked(backend: Backend) -> Backend:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await backend(reader, writer)

        return serve

    for backend in backends:
        server = await asyncio.start_server(tracked(backend), "127.0.0.1", 0)
        proxy.backends.append(server.sockets[0].getsockname())
        servers.append(server)
    front = await loop.create_server(
        lambda: Front(proxy.choose, proxy.opened, proxy.closed), "127.0.0.1", 0
    )
    proxy.address = front.sockets[0].getsockname()
    try:
        yield proxy
    finally:
        for running in (front, *servers):
            running.close()
        for writer in writers:
            writer.transport.abort()
        while proxy.open > 0:
            await asyncio.sleep(0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_bytes_pass_both_ways_in_order() -> None:
    payload = bytes(range(256)) * (BIG // 256)
    async with proxied(echo) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.address)
        writer.write(payload)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.readexactly(len(payload)) == payload
        writer.close()
        await writer.wait_closed()


async def test_a_slow_reader_stops_the_sender() -> None:
    sent = 0
    blocked = asyncio.Event()

    async def pour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.transport.set_write_buffer_limits(high=65536)
        with contextlib.suppress(ConnectionError):
            while sent < 64 * BIG:
                writer.write(b"x" * 65536)
                sent += 65536
                try:
                    async with asyncio.timeout(0.5):
                        await writer.drain()
                except TimeoutError:
                    blocked.set()
                    return

    async with proxied(pour) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.address, limit=65536)
        async with asyncio.timeout(PATIENCE_S):
            await blocked.wait()
        assert sent < 64 * BIG
        del reader
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("abort", [True, False], ids=["reset", "close"])
async def test_a_lost_backend_cuts_the_client(*, abort: bool) -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if abort:
            writer.transport.abort()
        else:
            writer.write(b"bye")
            writer.close()

    async with proxied(drop) as proxy:
        reader, writer = await asyncio.open_connection(*proxy.address)
        writer.write(b"x")
        async with asyncio.timeout(PATIENCE_S):
            try:
                assert await reader.read() == (b"" if abort else b"bye")
            except ConnectionError:
                assert abort
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_lost_client_cuts_the_backend() -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()
        writer.close()

    async with proxied(wait) as proxy:
        _, writer = await asyncio.open_connection(*proxy.address)
        writer.write(b"x")
        await writer.drain()
        writer.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()


async def test_a_dead_endpoint_is_skipped() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead: Address = unused.getsockname()
        async with proxied(echo) as proxy:
            proxy.backends.insert(0, dead)
            reader, writer = await asyncio.open_connection(*proxy.address)
            writer.write(b"hello")
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.readexactly(5) == b"hello"
            writer.close()
            await writer.wait_closed()


async def test_connections_are_bounded() -> None:
    async with proxied(echo) as proxy:
        proxy.limit = 0
        reader, writer = await asyncio.open_connection(*proxy.address)
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await asyncio.sleep(0)
        assert proxy.open == 0
