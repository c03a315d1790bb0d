"""Both event loops a process may run on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from gantry_protocol.remoting.server import Handler, RemotingServer
from support.certificates import Authority, Pair


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


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Of the processes of a module."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def pair(authority: Authority, tmp_path: Path) -> Pair:
    """A certificate of it."""
    return authority.issue("brokers", into=Pair(tmp_path / "tls.crt", tmp_path / "tls.key"))
