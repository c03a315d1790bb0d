"""Brokers with a tier, and fronts that serve it while all of them are off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gantry_broker.front import FrontServer, FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_controller.metadata.events import DeclareFronts, encode_event
from gantry_lab.bench.ports import free_ports
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import RunningBroker, eventually, send_command
from support.loopback_controller import CLUSTER, GROUP
from support.tiered_cluster import UID, TieredCluster

HOSTS = ("127.77.9.1", "127.77.9.2", "127.77.9.3")


class OffCluster(TieredCluster):
    """Brokers with store ports and a tier, and fronts that know where that is."""

    def __init__(self, directory: Path, **tier: object) -> None:
        super().__init__(directory, **tier)
        self.store_port = free_ports(1)[0]

    def settings(self, number: int) -> BrokerSettings:
        more = {"bind": HOSTS[number], "store_port": self.store_port}
        return super().settings(number).model_copy(update=more)

    async def client(self, broker: RunningBroker) -> RemotingClient:
        host = HOSTS[self.number_of(broker)]
        client = await RemotingClient().connect(f"{host}:{broker.member.port}")
        self._clients.append(client)
        return client

    @asynccontextmanager
    async def front(self, **more: Any) -> AsyncIterator[FrontServer]:
        """A front of the cluster, which is told where the tier is."""
        settings: dict[str, Any] = {
            "cluster": CLUSTER,
            "controllers": [self.controller.address],
            "first_port": free_ports(1)[0],
            "http_port": 0,
            "store_port": self.store_port,
            "tier_url": self.bucket.as_uri(),
            "tier_shards": [f"{GROUP}={UID}"],
        }
        server = FrontServer(FrontSettings(**{**settings, **more}))
        stop = asyncio.Event()
        task = asyncio.create_task(server.run(stop))
        try:
            yield server
        finally:
            stop.set()
            await task

    async def off(self) -> None:
        """Every broker is killed."""
        for broker in self.brokers.values():
            await broker.abort()
        self.brokers.clear()

    async def on(self) -> None:
        """They start again, with their volumes."""
        for number in range(self.replicas):
            self.boot(number)
        await self.settled()

    def declare_fronts(self, front: FrontServer) -> None:
        """Clients' routes name this front from now on."""
        wish = DeclareFronts(CLUSTER, "edge", "127.0.0.1", front.settings.first_port, 16)
        self.controller.quorum._apply(encode_event(wish))

    async def sent(self, first: int, last: int) -> None:
        """Messages with these numbers, to queue 0 of the master."""
        client = await self.client(self.master)
        for body in numbered(first, last):
            assert (await client.call(send_command(body))).code == 0


def numbered(first: int, last: int) -> list[bytes]:
    """The bodies of messages with these numbers."""
    return [b"message %d" % number for number in range(first, last)]


async def from_tier(front: FrontServer) -> None:
    """The group is served from its tier."""
    await eventually(lambda: GROUP in front.groups, "the group is known")
    bucket = front.groups[GROUP].bucket
    assert bucket is not None
    await eventually(lambda: bucket.takes_requests, f"it is served from its tier: {bucket.reason}")
