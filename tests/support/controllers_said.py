"""A quorum of one over HTTP that says about one group whatever a test wants."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web
from gantry_protocol.admin import GroupList, GroupView, MemberView, QuorumView, WatchEvent
from gantry_protocol.process.probes import HttpServer, always_live

TOKEN = "secret"


class ControllersSaid:
    """The admin API of a leader that knows the group `orders`: broker 1 is its master."""

    def __init__(self) -> None:
        self.group = GroupView(
            cluster="gantry",
            name="orders",
            replicas=2,
            master_broker_id=1,
            master_epoch=3,
            sync_state_set=[2, 1],
            sync_state_set_epoch=5,
            members=[
                MemberView(broker_id=n, address="a:1", pod_uid=f"pod-{n}", alive=True, in_sync=True)
                for n in (1, 2)
            ],
        )
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self._server = HttpServer(ready=always_live, token=TOKEN)
        self._server.add_route("GET", "/v1/groups", self._groups)
        self._server.add_route("GET", "/v1/quorum", self._quorum)
        self._server.add_route("GET", "/v1/watch", self._watch)
        self.address = ""

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    async def stop(self) -> None:
        await self._server.stop()

    def tell(self, epoch: int, master: int) -> None:
        """One line of the watch stream."""
        self._events.put_nowait(
            WatchEvent(index=1, group="orders", master_epoch=epoch, master_broker_id=master)
        )

    async def _groups(self, _: web.Request) -> web.Response:
        return _json(GroupList(index=1, groups=[self.group]).to_json())

    async def _quorum(self, _: web.Request) -> web.Response:
        view = QuorumView(
            cluster_uid="u",
            node_id=1,
            name="gantry-controller-0",
            term=1,
            role="leader",
            leader_id=1,
            leader_name="gantry-controller-0",
            commit_index=1,
            applied_index=1,
            peers=[],
        )
        return _json(view.to_json())

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            event = WatchEvent(index=1, heartbeat=True)
            with suppress(TimeoutError):
                event = await asyncio.wait_for(self._events.get(), 0.5)
            await response.write(event.to_json().encode() + b"\n")


def _json(text: str) -> web.Response:
    return web.json_response(text=text)
