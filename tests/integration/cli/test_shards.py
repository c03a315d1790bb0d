"""A BrokerGroup with shards on real processes, under load: a kill, a roll, more, and fewer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from gantry_cli.client.producer import Producer
from gantry_cli.client.session import Session, session
from gantry_operator import names
from support.cli_cluster import ROOT, CliCluster, Group, settled
from support.patience import PATIENCE_S

NAME = "payments"
TOPIC = "t"
MESSAGES = 60
POLL_S = 0.3


def manifest(**spec: Any) -> str:
    body = yaml.safe_load((ROOT / "examples/brokergroup-shards.yaml").read_text("utf-8"))
    body["spec"] |= spec
    return yaml.safe_dump(body)


class Shards:
    """The cluster, as its resource and its controllers show it."""

    def __init__(self, cluster: CliCluster) -> None:
        self.cluster = cluster

    def wish(self, **spec: Any) -> None:
        self.cluster.gantry_applies(manifest(**spec))

    def resource(self) -> dict[str, Any]:
        found = self.cluster.object("bg", NAME)
        return {} if found is None else found

    def is_ready(self, count: int) -> bool:
        """Whether the resource is as its present spec wishes, with so many shards."""
        body = self.resource()
        status = body.get("status") or {}
        current = status.get("observedGeneration") == body.get("metadata", {}).get("generation")
        ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
        return bool(
            current and ready == ["True"] and status["shards"]["ready"] == f"{count}/{count}"
        )

    def groups(self) -> dict[str, Group]:
        """Those that are not retired."""
        found = json.loads(self.cluster.shown("status", "--json"))["groups"]
        return {group["name"]: group for group in found if not group["retired"]}

    def pods(self) -> dict[str, str]:
        """Names and uids."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.cluster.object("pods")["items"]
            if pod["metadata"]["name"].startswith(f"{NAME}-broker-")
        }

    def busiest_pod(self) -> str:
        """The one with most masters."""
        masters = self.resource()["status"]["shards"]["masters"]
        return str(max(masters, key=lambda one: one["masters"])["pod"])

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await asyncio.to_thread(holds):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"never: {what}; {self.resource().get('status')}") from None


class Load:
    """Messages to all queues, one after the other; each must be acknowledged at last."""

    def __init__(self, client: Session) -> None:
        self._client = client
        self._producer = Producer(client.routes, client.calls, give_up_after_s=30)
        self.acknowledged: set[str] = set()

    @asynccontextmanager
    async def meanwhile(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._send())
        try:
            yield
            enough = len(self.acknowledged) + MESSAGES
            async with asyncio.timeout(PATIENCE_S):
                while len(self.acknowledged) < enough and not task.done():
                    await asyncio.sleep(POLL_S)
        finally:
            task.cancel()
            (error,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(error, asyncio.CancelledError):
            raise AssertionError("a message was not acknowledged") from error

    async def _send(self) -> None:
        while True:
            body = f"message {len(self.acknowledged)}"  # it is sent again if it failed
            await self._producer.send(self._producer.message(TOPIC, body.encode()))
            self.acknowledged.add(body)
            await asyncio.sleep(0.01)

    async def addresses(self) -> dict[str, str]:
        """Where clients write to each group."""
        route = await self._client.routes.fetch(TOPIC)
        return {queue.broker_name: queue.address for queue in route.writable}


@pytest.fixture
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    """Three shards in three pods."""
    cluster = CliCluster(tmp_path_factory.mktemp("cluster") / "local")
    found = Shards(cluster)
    try:
        cluster.gantry("local", "up")
        found.wish(shards=3)
        cluster.wait_for(lambda: found.is_ready(3), "three shards are ready")
        cluster.gantry("topics", "create", TOPIC)
        yield found
    finally:
        cluster.gantry("local", "down", "--purge")


def named(count: int) -> set[str]:
    return {names.shard(NAME, index) for index in range(count)}


async def test_no_acknowledged_message_is_lost_whatever_becomes_of_shards(shards: Shards) -> None:
    cluster = shards.cluster
    assert set(await asyncio.to_thread(shards.groups)) == named(3)
    async with session((await asyncio.to_thread(cluster.status))["nameServers"]) as client:
        load = Load(client)
        service = (await asyncio.to_thread(cluster.object, "service", NAME))["spec"]["clusterIP"]
        assert await load.addresses() == {
            name: f"{service}:{names.shard_port(name)}" for name in named(3)
        }

        async with load.meanwhile():
            killed = await asyncio.to_thread(shards.busiest_pod)
            await asyncio.to_thread(cluster.gantry, "local", "kill", killed)
        await shards.until(lambda: shards.is_ready(3), "all is well after a kill")

        before = set((await asyncio.to_thread(shards.pods)).values())
        wish: dict[str, Any] = {"template": {"metadata": {"annotations": {"roll": "once"}}}}
        async with load.meanwhile():
            await asyncio.to_thread(shards.wish, shards=3, **wish)
            await shards.until(
                lambda: before.isdisjoint(shards.pods().values()) and shards.is_ready(3),
                "every pod is replaced",
            )

        async with load.meanwhile():
            await asyncio.to_thread(shards.wish, shards=4, **wish)
            await shards.until(lambda: shards.is_ready(4), "there are four shards")
            four = await asyncio.to_thread(shards.groups)
            assert set(four) == named(4)
            assert all(map(settled, four.values()))
            async with asyncio.timeout(PATIENCE_S):
                while set(await load.addresses()) != named(4):
                    await asyncio.sleep(POLL_S)
        assert (await load.addresses())[names.shard(NAME, 3)] == f"{service}:11103"

        read = await asyncio.to_thread(consumed, cluster)
        async with load.meanwhile():
            await asyncio.to_thread(shards.wish, shards=2, **wish)
            await shards.until(lambda: drain_of(shards) is not None, "a drain is told")
        assert set(await asyncio.to_thread(shards.groups)) == named(4), (
            "what nobody has read keeps its shard"
        )
        read |= await asyncio.to_thread(consumed, cluster)
        await shards.until(lambda: shards.is_ready(2), "there are two shards")
        assert set(await asyncio.to_thread(shards.groups)) == named(2)
        async with load.meanwhile():
            async with asyncio.timeout(PATIENCE_S):
                while set(await load.addresses()) != named(2):
                    await asyncio.sleep(POLL_S)
    read |= await asyncio.to_thread(consumed, cluster)
    assert load.acknowledged - read == set()


def drain_of(shards: Shards) -> Any:
    return (shards.resource().get("status") or {}).get("drain")


def consumed(cluster: CliCluster) -> set[str]:
    """What one consumer group has not read before, in all queues."""
    args = ("consume", TOPIC, "--group", "reader", "--from", "committed", "--idle", "3")
    return set(cluster.gantry(*args).splitlines())
