"""Logs of containers over HTTP: as a part of the own API server, or of a kubelet's own port.

A real API server fetches logs from the kubelet. The port is on loopback, where every user of the
machine reaches it; the rule protected here: only processes of this very user are answered, which
the kernel's table of connections tells.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web
from gantry_protocol.process.listening import bind

from gantry_local.kubelet import logs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_TABLE: Final = Path("/proc/net/tcp")
_PATH: Final = "/containerLogs/{namespace}/{pod}/{container}"
Address = tuple[str, int]


async def answer(
    files: logs.Logs, request: web.Request, namespace: str, pod: str, container: str
) -> web.StreamResponse:
    """A container's log as the query asks for it (``tailLines``, ``previous``, ``follow``)."""
    query = request.query
    lines = query.get("tailLines")
    wanted = int(lines) if lines is not None and lines.isdigit() else None
    if query.get("previous") == "true":
        path = files.previous(namespace, pod, container)
        return web.Response(body=logs.tail(path, wanted), content_type="text/plain")
    path = files.current(namespace, pod, container)
    if query.get("follow") != "true":
        return web.Response(body=logs.tail(path, wanted), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    async for chunk in logs.follow(path, wanted):
        await response.write(chunk)
    return response


def owner_of(table: str, local: Address, remote: Address) -> int | None:
    """The user of the socket from ``local`` to ``remote``, by a table as /proc/net/tcp is."""
    ends = (_hexadecimal(local), _hexadecimal(remote))
    for line in table.splitlines()[1:]:
        fields = line.split()
        if tuple(fields[1:3]) == ends:
            return int(fields[7])
    return None


def _hexadecimal(address: Address) -> str:
    octets = bytes(int(part) for part in reversed(address[0].split(".")))
    return f"{octets.hex().upper()}:{address[1]:04X}"


class LogServer:
    """The kubelet's port.

    Args:
        files: The logs.
    """

    def __init__(self, files: logs.Logs) -> None:
        self._files = files
        self._runner: web.AppRunner | None = None

    async def start(self, certificate: Path, key: Path) -> int:
        """Listen on a free port of loopback with this certificate; returns the port."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get(_PATH, self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trust.load_cert_chain(certificate, key)
        listener = bind("127.0.0.1", 0, purpose="logs")
        await web.SockSite(self._runner, listener, ssl_context=trust).start()
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Listen no longer."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise web.HTTPForbidden
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        table = _TABLE.read_text(encoding="ascii")
        if owner_of(table, peer[:2], own[:2]) != os.getuid():
            raise web.HTTPForbidden(text="logs are for the cluster's owner only")
        return await handler(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        place = request.match_info
        return await answer(
            self._files, request, place["namespace"], place["pod"], place["container"]
        )
