"""Paths for this machine alone: without a token on loopback, and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, TCPConnector, web
from gantry_protocol.process import listening, probes
from gantry_protocol.process.probes import DECISIONS_PATH, HttpServer

POD = "127.0.0.2"
"""Stands for the pod's address, which is no loopback address here."""


async def word(_: web.Request) -> web.Response:
    return web.Response(text="said")


@asynccontextmanager
async def served(bind: str, port: int = 0) -> AsyncIterator[int]:
    http = HttpServer(ready=lambda: (True, "ok"), token="the token")
    http.add_local_route(DECISIONS_PATH, word)
    http.add_route("GET", "/v1/other", word)
    port = await http.start(bind, port)
    try:
        yield port
    finally:
        await http.stop()


async def status(source: str, target: str, port: int, path: str) -> int:
    connector = TCPConnector(local_addr=(source, 0))
    async with (
        ClientSession(connector=connector) as session,
        session.get(f"http://{target}:{port}{path}") as response,
    ):
        return response.status


@pytest.fixture(autouse=True)
def one_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    for asks in (listening, probes):
        monkeypatch.setattr(asks, "is_loopback", lambda address: address == "127.0.0.1")


async def test_a_pods_process_answers_on_loopback_what_it_answers_nobody_else() -> None:
    async with served(POD) as port:
        assert await status("127.0.0.1", "127.0.0.1", port, DECISIONS_PATH) == 200
        assert await status("127.0.0.1", "127.0.0.1", port, "/metrics") == 200
        assert await status("127.0.0.1", "127.0.0.1", port, "/v1/other") == 401
        assert await status(POD, POD, port, DECISIONS_PATH) == 404
        assert await status(POD, POD, port, "/v1/other") == 401
        assert await status(POD, POD, port, "/livez") == 200
    with pytest.raises(OSError, match="Connect call failed"):
        await status("127.0.0.1", "127.0.0.1", port, DECISIONS_PATH)


async def test_a_taken_loopback_address_ends_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with served(POD, taken.getsockname()[1]) as port:
            assert await status(POD, POD, port, "/livez") == 200
