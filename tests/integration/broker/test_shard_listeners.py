"""Shards at a listener: what the operator declares leads clients outside to each shard's master.

Controllers and brokers are real, and so is what the operator plans; relays stand for node ports.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.models import BrokerGroup, ControllerGroup
from gantry_operator.plan.actions import Declare
from gantry_operator.plan.observed import BrokerObserved
from gantry_protocol.admin import GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared
from gantry_protocol.command import request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tls.process import NO_TLS, Tls
from support.broker_cluster import send_command
from support.broker_processes import Process, own_network
from support.controller_quorum import CLUSTER, Quorum
from support.cut_off import Relay
from support.loopback_controller import KEY
from support.patience import PATIENCE_S, STARTS_WITHIN_S
from unit.operator.world import brokers, controllers, of_type, planned, pod, shard_world

SHARDS, REPLICAS = 2, 3
NAMES = [f"orders_{n}" for n in range(SHARDS)]
OF_ALL, OWN = 30100, 31000  # the first node port of the group, and of the first replica
LISTENER = {"name": "outside", "type": "NodePort", "allowPlain": True}


class NodePort(Relay):
    """A port of a node, which leads to some Ready pod."""

    def lead_to(self, ip: str) -> None:
        self._to = ip, self._to[1]


class World:
    """Three processes with a member of each shard, each on a node of its own.

    Args:
        directory: of everything.
        listener: as it is wished.
        env: more settings of the brokers.
        quorum: more settings of the controller.
    """

    def __init__(
        self,
        directory: Path,
        listener: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **quorum: Any,
    ) -> None:
        self._listener, self._env = listener or LISTENER, env or {}
        self.quorum = Quorum(
            directory, size=1, listeners="outside=0", quorum_key_file=KEY.file, **quorum
        )
        self.ips = [f"{own_network()}.{number}" for number in (1, 2, 3)]
        self.processes: list[Process] = []
        self.views: dict[str, GroupView | NotDeclared] = dict.fromkeys(NAMES, NotDeclared())
        self._of_all: dict[tuple[int, int], NodePort] = {}
        self._own: list[NodePort] = []
        self._directory = directory

    async def start(self) -> None:
        await self.quorum.start()
        await self.quorum.led()
        await self.declare()
        for ordinal, ip in enumerate(self.ips):
            self.processes.append(self._process(ordinal, ip))
            for index in range(SHARDS):
                port = self.target(index)
                self._of_all[ordinal, index] = of_all = NodePort((self._other(ordinal), port))
                await of_all.start(ip, OF_ALL + index)
                own = NodePort((ip, port))
                await own.start(ip, OWN + 100 * ordinal + index)
                self._own.append(own)

    def target(self, index: int) -> int:
        """The port of pods where the listener's Services lead, for a shard."""
        made = broker_objects(
            self._wish, self._controllers, image="i", replicas=REPLICAS, shards=SHARDS
        )
        service = names.listener_service("orders", "outside")
        (ports,) = [one["spec"]["ports"] for one in made if one["metadata"]["name"] == service]
        target: int | str = ports[index]["targetPort"]
        (container,) = made[-1]["spec"]["template"]["spec"]["containers"]
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        return target if isinstance(target, int) else named[target]

    def _other(self, ordinal: int) -> str:
        """A pod that is not on that node, since any may be led to."""
        return self.ips[(ordinal + 1) % REPLICAS]

    def _process(self, ordinal: int, ip: str) -> Process:
        return Process(
            self._directory / ip,
            self.quorum.remoting(1),
            GANTRY_NAME=f"orders-broker-{ordinal}",
            GANTRY_POD_UID=f"uid-{ordinal}",
            GANTRY_GROUP="",
            GANTRY_GROUPS=names.shards("orders", SHARDS),
            GANTRY_BIND=ip,
            GANTRY_REMOTING_PORT=str(names.FIRST_SHARD_PORT),
            GANTRY_HA_PORT="10912",
            GANTRY_HTTP_PORT="10913",
            **self._env,
        )

    async def stop(self) -> None:
        for process in self.processes:
            process.process.kill()
            process.process.wait()
        for relay in (*self._of_all.values(), *self._own):
            await relay.stop()
        await self.quorum.stop()

    def kill(self, ordinal: int) -> None:
        """A process ends; node ports lead to pods that are Ready."""
        self.processes[ordinal].process.kill()
        for (node, _), relay in self._of_all.items():
            if self._other(node) == self.ips[ordinal]:
                relay.lead_to(self.ips[node])

    # ---- the operator

    @property
    def _wish(self) -> BrokerGroup:
        return brokers(shards=SHARDS, clients={"listeners": [self._listener]})

    @property
    def _controllers(self) -> ControllerGroup:
        return controllers(clients={"listeners": [self._listener]})

    def _seen(self) -> BrokerObserved:
        pods = tuple(pod(n, role=None, shards=SHARDS, host_ip=ip) for n, ip in enumerate(self.ips))
        views = {n: self.views[name] for n, name in enumerate(NAMES)}
        seen = shard_world(
            SHARDS, group=self._wish, controllers=self._controllers, pods=pods, views=views
        )
        for ordinal in (None, *range(REPLICAS)):
            service = names.listener_service("orders", "outside", ordinal)
            first = OF_ALL if ordinal is None else OWN + 100 * ordinal
            for index, port in enumerate(seen.objects["Service", service]["spec"]["ports"]):
                port["nodePort"] = first + index
        return seen

    async def declare(self) -> None:
        """Tell the controllers what the operator would."""
        async with self.quorum.http(await self.quorum.led()) as session:
            for action in of_type(planned(self._seen()), Declare):
                body = action.declaration.model_dump(mode="json", by_alias=True)
                path = f"/v1/groups/{CLUSTER}/{action.group}"
                async with session.put(path, json=body) as response:
                    assert response.status in (200, 201), await response.text()

    async def look(self) -> None:
        """See what the controllers know of the shards."""
        async with self.quorum.http(await self.quorum.led()) as session:
            for name in NAMES:
                async with session.get(f"/v1/groups/{CLUSTER}/{name}") as response:
                    self.views[name] = GroupView.model_validate_json(await response.read())

    async def until_whole(self) -> None:
        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                await self.look()
                if all(
                    isinstance(view, GroupView) and len(view.sync_state_set) == REPLICAS
                    for view in self.views.values()
                ):
                    return
                await asyncio.sleep(0.1)

    async def master(self, name: str) -> int:
        """The ordinal of the process that is the shard's master; -1 for nobody's."""
        await self.look()
        view = self.views[name]
        assert isinstance(view, GroupView)
        uids = (m.pod_uid for m in view.members if m.broker_id == view.master_broker_id)
        return next((int(uid.removeprefix("uid-")) for uid in uids if uid), -1)

    # ---- a client outside

    async def route(self, tls: Tls = NO_TLS) -> dict[str, str]:
        """The addresses of masters, as a client is told that comes in by the listener."""
        controller = await self.quorum.led()
        client = RemotingClient(tls=tls)
        await client.connect(f"127.0.0.1:{controller.ports['listener-outside']}")
        try:
            answer = await client.call(request(105, {"topic": "TBW102"}), PATIENCE_S)
        finally:
            client.close()
        if answer.code != 0:
            return {}
        found: dict[str, Any] = json.loads(answer.body)
        return {one["brokerName"]: one["brokerAddrs"]["0"] for one in found["brokerDatas"]}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def sent_to(address: str, tls: Tls = NO_TLS) -> str:
    """The shard that takes a message there, once one does."""
    async with asyncio.timeout(PATIENCE_S):
        for number in itertools.count():
            client = RemotingClient(tls=tls)
            try:
                await client.connect(address, 3.0)
                answer = await client.call(send_command(f"{number}".encode()), 3.0)
                if answer.code == 0:
                    assert answer.ext is not None
                    stored_at = int(answer.ext["msgId"][8:16], 16)  # the port of the master
                    return names.shard("orders", stored_at - names.FIRST_SHARD_PORT)
            except RemotingError:
                pass
            finally:
                client.close()
            await asyncio.sleep(0.05)
    raise AssertionError


async def test_each_shard_is_reached_at_the_node_of_its_master(world: World) -> None:
    await world.until_whole()
    assert await world.route() == {}, "no address inside is told"
    await world.declare()
    masters = {name: await world.master(name) for name in NAMES}
    wanted = {
        name: f"{world.ips[masters[name]]}:{OF_ALL + index}" for index, name in enumerate(NAMES)
    }
    assert await world.route() == wanted
    for name, address in wanted.items():
        assert await sent_to(address) == name

    killed = masters[NAMES[0]]
    world.kill(killed)
    for name in NAMES:
        async with asyncio.timeout(PATIENCE_S):
            while await world.master(name) in (-1, killed):
                await asyncio.sleep(0.05)
    now = {name: await world.master(name) for name in NAMES}
    route = await world.route()
    assert route == {
        name: f"{world.ips[now[name]]}:{OF_ALL + index}" for index, name in enumerate(NAMES)
    }
    for name, address in route.items():
        assert await sent_to(address) == name
