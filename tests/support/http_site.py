"""The HTTP port of a controller with a member's certificate, in this process, and two routes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from gantry_protocol.member_tls.asking import FileTrust
from gantry_protocol.member_tls.http import HttpCover
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.process.probes import HttpServer
from support.certificates import MemberAuthority, Pair

URI = "gantry://mq/controller"
TOKEN = {"Authorization": "Bearer secret"}
LARGE = b"x" * 900_000


class Site:
    """See the module.

    Attributes:
        tokens: that were shown, with each request that came through.
    """

    def __init__(self, directory: Path, mode: str, uri: str = URI) -> None:
        self.authority = MemberAuthority(directory)
        settings = self.authority.settings("c-0", uri, mode=mode)
        assert settings.member_tls_cert_file is not None
        assert settings.member_tls_key_file is not None
        self.pair = Pair(settings.member_tls_cert_file, settings.member_tls_key_file)
        self.tls = MemberTls(settings)
        self.tokens: list[str] = []
        self.server = HttpServer(
            ready=lambda: (True, "serving"),
            token="secret",
            cover=HttpCover(self.tls) if self.tls.is_on else None,
        )
        self.server.add_route("POST", "/v1/echo", self._echo)
        self.server.add_route("GET", "/v1/stream", self._stream)
        self.port = 0

    async def context(self) -> ssl.SSLContext:
        """Of somebody who believes the controllers of the domain."""
        return await FileTrust(self.authority.file, "mq").context(fresh=False)

    async def ask(
        self, method: str, path: str, *, tls: ssl.SSLContext | None = None, **more: Any
    ) -> tuple[int, bytes]:
        """One request on a connection of its own."""
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, ssl=tls or True, **more) as answer,
        ):
            return answer.status, await answer.read()

    async def _echo(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers["Authorization"])
        return web.Response(body=await request.read())

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"a line\n")
                await asyncio.sleep(0.01)
        return response


@contextlib.asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Site]:
    site.port = await site.server.start("127.0.0.1", 0)
    try:
        yield site
    finally:
        await site.server.stop()
