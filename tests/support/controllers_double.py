"""Stand-ins for controllers: small HTTP servers on loopback that say what a test tells them to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web
from gantry_protocol.admin_client.quorum import Endpoint, Quorum

TOKEN = "t0ken"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Controller:
    """One controller; `answer` decides what it says."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[tuple[str, str, Any]] = []
        self.answer: Answer = self.nothing
        self.token = TOKEN
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, "127.0.0.1", self.port)

    async def nothing(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({})

    def says(self, body: Any, status: int = 200) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.json_response(body, status=status)

        self.answer = answer

    def follows(self, leader: Controller | str | None) -> None:
        host = f"{leader.name}.svc" if isinstance(leader, Controller) else leader
        hint = f"http://{host}:9880" if host else None
        self.says({"error": "NOT_LEADER", "message": "ask the leader", "leader": hint}, 421)

    def hangs(self) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        self.answer = answer

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        self.seen.append((request.method, request.path_qs, json.loads(data) if data else None))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"error": "UNAUTHORIZED", "message": "no"}, status=401)
        return await self.answer(request)


class Trio:
    """Three controllers and the operator's way to them."""

    def __init__(self) -> None:
        self.controllers = [Controller(f"gantry-controller-{n}") for n in range(3)]
        self.token = TOKEN
        self.fresh_token = TOKEN
        self.session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Trio:
        for controller in self.controllers:
            await controller.start()
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.session is not None
        await self.session.close()
        for controller in self.controllers:
            await controller.stop()

    async def read_token(self, fresh: bool) -> str:
        if fresh:
            self.token = self.fresh_token
        return self.token

    def quorum(self) -> Quorum:
        assert self.session is not None
        endpoints = [c.endpoint for c in self.controllers]
        return Quorum("gantry", lambda: endpoints, self.read_token, self.session)

    def asked(self) -> list[int]:
        """How often each was asked."""
        return [len(c.seen) for c in self.controllers]
