"""The recorded decisions over HTTP, to whoever asks from the pod's own loopback address.

That is the API server's port forwarding, which a person needs a right for. Others get what they
would get from an operator without the path: decisions show specs and objects of every namespace,
and an HTTP port without a token is open to every pod.
"""

from __future__ import annotations

import asyncio
from importlib import metadata
from typing import TYPE_CHECKING, Final

from aiohttp import web
from gantry_protocol.process.probes import DECISIONS_PATH, HttpServer

from gantry_operator.decisions.recorder import DecisionRing, written

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from gantry_operator.metrics import Metrics

ENTITIES_BYTES_MAX: Final = 1024 * 1024


class Decisions:
    """The rings of an operator: one for groups, and one for entities, of which there are many.

    Args:
        metrics: where their sizes are shown.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.groups = DecisionRing(metrics, "groups")
        self.entities = DecisionRing(metrics, "entities", ENTITIES_BYTES_MAX)
        self._turn = asyncio.Lock()

    async def answer(self, request: web.Request) -> web.Response:
        """GET /decisions?namespace=NAME: those about the resources of a namespace, or all."""
        namespace = request.query.get("namespace")
        async with self._turn:  # a copy without secrets costs a processor for a while
            found = [*self.groups.of(namespace), *self.entities.of(namespace)]
            body = await asyncio.to_thread(
                written,
                found,
                version=metadata.version("gantry"),
                dropped=self.groups.dropped + self.entities.dropped,
            )
        return web.Response(body=body, content_type="application/json")

    async def serve(self, http: HttpServer, bind: str, port: int, stack: AsyncExitStack) -> int:
        """Starts the operator's HTTP server with the path, also on the loopback address.

        Args:
            http: not started yet.
            bind: its address.
            port: its port; 0 for a free one.
            stack: stops what was started.

        Returns:
            The port.
        """
        http.add_local_route(DECISIONS_PATH, self.answer)
        port = await http.start(bind, port)
        stack.push_async_callback(http.stop)
        return port
