"""The client of the local API server."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from gantry_local import client as client_module
from gantry_local.client import ApiError, Client
from support.freezes import cancelled_after_a_freeze


class Silent:
    """An API server that takes requests and answers none; ``async with`` it, for a client."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def _handle(self, _: web.Request) -> web.StreamResponse:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def __aenter__(self) -> Client:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return Client(f"http://127.0.0.1:{self._runner.addresses[0][1]}", "token")

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


async def test_a_server_that_does_not_answer_in_time_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_S", 0.05)
    async with Silent() as asks, asks as api:
        with pytest.raises(ApiError, match=r"No API server answers at .* \(timed out\)"):
            await api.request("GET", "/apis")


async def test_who_is_told_to_end_with_a_time_out_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Silent()
    async with server as asks, asks as api:
        asking = asyncio.create_task(api.request("GET", "/apis"))
        await cancelled_after_a_freeze(asking, server.asked.is_set, monkeypatch)
