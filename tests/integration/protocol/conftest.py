"""Both event loops a process may run on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop
from gantry_protocol.remoting.server import Handler, RemotingServer


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every asynchronous test in this folder runs on each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


StartServer = Callable[..., Awaitable[tuple[RemotingServer, int]]]


@pytest.fixture
async def serve() -> AsyncIterator[StartServer]:
    """Start servers that end with the test."""
    servers = []

    async def start(handler: Handler, **options: object) -> tuple[RemotingServer, int]:
        server = RemotingServer(handler, **options)  # type: ignore[arg-type]  # passed through
        servers.append(server)
        return server, await server.start("127.0.0.1", 0)

    yield start
    for server in servers:
        await server.stop(grace_s=0)
