"""The metadata of a stand-in quorum: the controllers' own routes over their own state machine."""

from __future__ import annotations

from typing import Any

import aiohttp
from aiohttp import web
from gantry_controller.admin.access import AccessApi
from gantry_controller.admin.api import AdminApi
from gantry_controller.admin.consumer_groups import ConsumerGroupsApi
from gantry_controller.admin.offset_resets import OffsetResetsApi
from gantry_controller.admin.topics import TopicsApi
from gantry_controller.admin.watch import WatchHub
from gantry_controller.metadata.events import (
    ApplyBrokerId,
    DeclareGroup,
    ElectMaster,
    Event,
    LiveMember,
    RegisterBroker,
    RemoveGroup,
)
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.controller_dispatcher import Harness
from support.told_masters import ToldMasters

ROUTES = ("topics", "access", "users", "consumer-groups")


class MetadataDouble:
    """Topics, users and consumer groups of all clusters.

    Attributes:
        asked: method and path of every request, in order.
        masters: of the groups that have one.
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
        self.masters = ToldMasters()
        OffsetResetsApi(api, machine, self.masters.ask).add_to(self._server)
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

    def elect(self, cluster: str, name: str, address: str) -> None:
        """It has a master at ``address``, and two replicas."""
        living = []
        for number in (1, 2, 3):
            member = {"cluster": cluster, "name": name, "broker_id": BrokerId(number)}
            where = address if number == 1 else f"{address}{number}"
            self.apply(ApplyBrokerId(**member, check_code=f"{where};1"))
            self.apply(
                RegisterBroker(
                    **member,
                    address=where,
                    incarnation=str(number),
                    pod_uid=f"pod-{number}",
                    ha_port=10912,
                    last_epoch=Epoch(0),
                )
            )
            living.append(
                LiveMember(
                    broker_id=BrokerId(number),
                    incarnation=str(number),
                    epoch=Epoch(1),
                    max_offset=Offset(10 if number == 1 else 9),
                )
            )
        self.apply(ElectMaster(cluster=cluster, name=name, live=tuple(living)))

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
