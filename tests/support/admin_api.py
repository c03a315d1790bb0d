"""The admin API of one harness, and a client that holds its token."""

import json
from typing import Any

import aiohttp
from gantry_controller.admin.api import AdminApi
from gantry_controller.admin.watch import WatchHub
from support.controller_dispatcher import CLUSTER, NAME, Harness
from support.told_masters import ToldMasters

GROUP = f"/v1/groups/{CLUSTER}/{NAME}"
WISH = {"uid": "u1", "replicas": 3, "minInSyncReplicas": 2, "routeAddress": "10.96.0.7:10911"}
LEADER = "http://other:9880"


class Api:
    """The API of one harness and a client that holds the token."""

    def __init__(
        self,
        harness: Harness,
        session: aiohttp.ClientSession,
        hub: WatchHub,
        api: AdminApi,
        masters: ToldMasters,
    ) -> None:
        self.harness = harness
        self.session = session
        self.hub = hub
        self.api = api
        self.masters = masters

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.request(
            method, path, data=None if body is None else data
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def three_in_sync(self) -> None:
        assert (await self.call("PUT", GROUP, WISH))[0] == 200
        for broker_id in (1, 2, 3):
            self.harness.join(broker_id, incarnation=f"i{broker_id}", podUid=f"p{broker_id}")
            self.harness.heartbeat(broker_id, incarnation=f"i{broker_id}")
        assert self.harness.elect(1, incarnation="i1").code == 0
        self.harness.alter(1, 1, b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":1}')
