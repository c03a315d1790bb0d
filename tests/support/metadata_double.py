"""The metadata of a stand-in quorum: the controllers' own routes over their own state machine."""

from __future__ import annotations

from typing import Any

import aiohttp
from aiohttp import web
from gantry_controller.admin.access import AccessApi
from gantry_controller.admin.api import AdminApi
from gantry_controller.admin.consumer_groups import ConsumerGroupsApi
from gantry_controller.admin.topics import TopicsApi
from gantry_controller.admin.watch import WatchHub
from gantry_controller.metadata.events import DeclareGroup, Event, RemoveGroup
from gantry_protocol.process.probes import HttpServer
from support.controller_dispatcher import Harness

ROUTES = ("topics", "access", "users", "consumer-groups")


class MetadataDouble:
    """Topics, users and consumer groups of all clusters.

    Attributes:
        asked: method and path of every request, in order.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._harness = Harness()
        machine = self._harness.machine
        hub = WatchHub(machine, self._harness.quorum.read, self._harness.watchman.liveness_changes)
        self._hub = hub
        self._server = HttpServer(ready=lambda: (True, "ok"), token="double")
        api = AdminApi(
            self._harness.quorum,
            machine,
            self._harness.watchman,
            hub,
            describe=lambda: NotImplemented,
            leader_http=lambda: None,
            peers_http=list,
        )
        TopicsApi(api, machine, hub.gate).add_to(self._server)
        ConsumerGroupsApi(api, machine, hub.gate).add_to(self._server)
        AccessApi(api, machine, has_key=True).add_to(self._server)
        self._session: aiohttp.ClientSession | None = None
        self._base = ""

    async def start(self) -> None:
        """Serves on a port of its own."""
        self._base = f"http://127.0.0.1:{await self._server.start('127.0.0.1', 0)}"
        self._session = aiohttp.ClientSession(headers={"Authorization": "Bearer double"})

    async def stop(self) -> None:
        """Ends everything."""
        if self._session is not None:
            await self._session.close()
        self._hub.stop()
        await self._server.stop()
        await self._harness.close()

    @property
    def state(self) -> Any:
        """The metadata."""
        return self._harness.machine.state

    def apply(self, event: Event) -> None:
        """What somebody else does to it."""
        self._harness.apply(event)

    def declare(self, cluster: str, name: str) -> None:
        """There is a broker group."""
        self.apply(
            DeclareGroup(cluster=cluster, name=name, uid=name, replicas=3, min_in_sync_replicas=2)
        )

    def forget(self, cluster: str, name: str) -> None:
        """There is no such broker group any more."""
        self.apply(RemoveGroup(cluster=cluster, name=name, uid=name))

    @property
    def writes(self) -> int:
        """Entries in the log."""
        return self._harness.quorum.index

    async def serve(self, request: web.Request) -> web.Response:
        """Answers as a controller."""
        assert self._session is not None
        self.asked.append(f"{request.method} {request.path_qs}")
        async with self._session.request(
            request.method, self._base + request.path_qs, data=await request.read()
        ) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), content_type="application/json"
            )
