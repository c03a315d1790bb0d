"""A FrontGroup on real processes: clients are led there, through a roll, and back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from gantry_cli.client.producer import Producer
from gantry_cli.client.session import session
from gantry_protocol.process.config import fingerprint
from support.cli_cluster import ROOT, CliCluster, fronts, settled
from support.patience import PATIENCE_S

TOPIC = "t"
MESSAGES = 40
GIVE_UP_S = 20.0
POLL_S = 0.3


def group_of(name: str, replicas: int) -> str:
    body = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
    body["metadata"]["name"] = name
    body["spec"]["replicas"] = replicas
    return yaml.safe_dump(body)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    """Two broker groups, before there are fronts."""
    found = CliCluster(tmp_path_factory.mktemp("cluster") / "local")
    try:
        found.gantry("local", "up")
        found.gantry_applies(group_of("beside", 1))
        found.gantry_applies(group_of("orders", 3))
        found.wait_until(settled)
        yield found
    finally:
        found.gantry("local", "down", "--purge")


class Sending:
    """Messages one after the other, for as long as a stage lasts."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[str] = []

    async def run(self) -> None:
        while True:
            body = f"message {len(self.acknowledged)}"
            await self._producer.send(self._producer.message(TOPIC, body.encode()))
            self.acknowledged.append(body)
            await asyncio.sleep(0.01)

    @asynccontextmanager
    async def meanwhile(self) -> AsyncIterator[None]:
        """Sends; one that is not acknowledged at last fails the test."""
        task = asyncio.create_task(self.run())
        before = len(self.acknowledged)
        try:
            yield
            async with asyncio.timeout(PATIENCE_S):
                while len(self.acknowledged) < before + MESSAGES:
                    await asyncio.sleep(POLL_S)
                    if task.done():
                        break
        finally:
            task.cancel()
            (error,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(error, asyncio.CancelledError):
            raise AssertionError("a message was not acknowledged") from error


async def until(check: Any, what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(check):
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


async def ways(client: Any) -> dict[str, str]:
    """The address of each broker group by the topic's route."""
    return {
        queue.broker_name: queue.address for queue in (await client.routes.fetch(TOPIC)).writable
    }


async def to_fronts_and_back(cluster: CliCluster) -> list[str]:
    """The messages that were acknowledged."""
    async with session(cluster.status()["nameServers"]) as client:
        sending = Sending(Producer(client.routes, client.calls, give_up_after_s=GIVE_UP_S))
        own = await ways(client)
        assert set(own) == {"beside", "orders"}
        # There: clients that have the old routes are served as well.
        async with sending.meanwhile():
            await asyncio.to_thread(cluster.gantry_applies, fronts())
            await until(cluster.fronts_are_ready, "the fronts are Ready")
        service = await asyncio.to_thread(cluster.object, "services", "clients-front")
        host = service["spec"]["clusterIP"]
        led = await ways(client)
        assert set(led.values()) == {f"{host}:10950", f"{host}:10951"}
        async with asyncio.timeout(PATIENCE_S):
            while sum((await asyncio.to_thread(cluster.front_served)).values()) < MESSAGES:
                async with sending.meanwhile():
                    await client.routes.fetch(TOPIC)
        # Settings that fronts apply while running.
        async with sending.meanwhile():
            await asyncio.to_thread(_apply_live, cluster)
        # A roll.
        before = set(await asyncio.to_thread(cluster.front_pods))
        async with sending.meanwhile():
            await asyncio.to_thread(cluster.gantry_applies, fronts(roll="once"))
            await until(lambda: not before & set(cluster.front_pods()), "all are replaced")
            await until(cluster.fronts_are_ready, "the new ones are Ready")
        assert await ways(client) == led
        # And back.
        async with sending.meanwhile():
            await asyncio.to_thread(cluster.gantry, "local", "delete", "fg", "clients")
            await until(lambda: not cluster.front_pods(), "the fronts are gone")
        assert await ways(client) == own
        return sending.acknowledged


def _apply_live(cluster: CliCluster) -> None:
    """Another age of connections comes into force at the same fronts, and is foretold."""
    pods = cluster.front_pods()
    before = cluster.object("deployments", "clients-front")["metadata"]["generation"]
    body = yaml.safe_load(fronts())
    body["spec"]["connectionAgeSeconds"] = 7
    file = cluster.directory / "fronts.yaml"
    file.write_text(yaml.safe_dump(body))
    kubeconfig = str(cluster.directory / "kubeconfig")
    told = cluster.gantry("kube", "plan", "-f", str(file), "--kubeconfig", kubeconfig)
    assert "Change settings connection_age_s: applied while running, no pod restarts." in told
    cluster.gantry_applies(file.read_text())
    deadline_s = time.monotonic() + PATIENCE_S
    while {front["settings"] for front in cluster.front_statuses().values()} != {_file(cluster)}:
        assert time.monotonic() < deadline_s, cluster.front_statuses()
        time.sleep(POLL_S)
    assert cluster.front_pods() == pods
    assert cluster.object("deployments", "clients-front")["metadata"]["generation"] == before


def _file(cluster: CliCluster) -> str:
    """The fingerprint of the file that the fronts are to have."""
    text = cluster.object("configmaps", "clients-front")["data"]["gantry.toml"]
    assert 'connection_age_s = "7"' in text
    return fingerprint(text.encode())


def test_clients_are_led_to_fronts_and_back_and_lose_no_send(cluster: CliCluster) -> None:
    cluster.gantry("topics", "create", TOPIC)
    acknowledged = asyncio.run(to_fronts_and_back(cluster))
    args = ("consume", TOPIC, "--from", "earliest", "--idle", "3", "--json")
    found = [json.loads(line)["body"] for line in cluster.gantry(*args).splitlines()]
    assert set(acknowledged) <= set(found)
