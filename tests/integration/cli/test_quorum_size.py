"""A quorum grows from one to five and shrinks again under load; no other process restarts.

Real controllers, brokers and operator, each a process of a local cluster. Sends are acknowledged
through all of it, the master stays the same, and who was started under another size goes on.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from gantry_cli.client.producer import Producer, SendFailedError
from gantry_cli.client.session import session
from support.cli_cluster import ROOT, CliCluster, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

TOPIC = "resized"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    """A quorum of one, and a group of three."""
    cluster = CliCluster(tmp_path / "local")
    try:
        cluster.gantry("local", "up", "--controller-replicas", "1")
        cluster.gantry_applies((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
        cluster.wait_until(settled)
        yield cluster
    finally:
        cluster.gantry("local", "down", "--purge")


def resize(cluster: CliCluster, size: int) -> None:
    """One edit, and the wait until it is carried out."""
    body = yaml.safe_load((ROOT / "examples/controllergroup.yaml").read_text("utf-8"))
    body["spec"]["replicas"] = size
    cluster.gantry_applies(yaml.safe_dump(body))
    cluster.wait_for(lambda: is_of(cluster, size), f"a quorum of {size}: {told(cluster)}")


def group_of(cluster: CliCluster) -> Any:
    return cluster.object("controllergroup", "gantry") or {"metadata": {}}


def told(cluster: CliCluster) -> Any:
    return group_of(cluster).get("status", {}).get("summary")


def is_of(cluster: CliCluster, size: int) -> bool:
    found = group_of(cluster)
    status = found.get("status") or {}
    members = [(m["nodeId"], m["role"]) for m in status.get("members", ())]
    ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
    return (
        status.get("observedGeneration") == found["metadata"].get("generation")
        and ready == ["True"]
        and members == [(number, "Voter") for number in range(1, size + 1)]
        and sorted(lives(cluster, "controller")) == [f"gantry-controller-{n}" for n in range(size)]
    )


def lives(cluster: CliCluster, component: str) -> dict[str, tuple[str, int]]:
    """By pod: which one it is, and how often its process was started again."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ())),
        )
        for pod in (cluster.object("pods") or {"items": []})["items"]
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") == component
    }


class Sender:
    def __init__(self) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []

    async def run(self, producer: Producer) -> None:
        while True:
            try:
                await producer.send(producer.message(TOPIC, b"probe"))
                self.acknowledged += 1
            except SendFailedError as error:
                self.failed.append(str(error))
            await asyncio.sleep(0.02)


@asynccontextmanager
async def sending(cluster: CliCluster) -> AsyncIterator[Sender]:
    """One message after the other, each sent once."""
    await asyncio.to_thread(cluster.gantry, "topics", "create", TOPIC)
    known = await asyncio.to_thread(cluster.status)
    async with session(known["nameServers"]) as client:
        producer = Producer(client.routes, client.calls, give_up_after_s=0)
        await producer.send(producer.message(TOPIC, b"first"))
        sender = Sender()
        task = asyncio.create_task(sender.run(producer))
        try:
            yield sender
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def leads(cluster: CliCluster) -> int:
    view = json.loads(cluster.shown("controllers", "list", "--json"))
    return int(view["leaderId"])


async def test_one_grows_to_five_and_back_while_a_producer_sends(cluster: CliCluster) -> None:
    brokers = await asyncio.to_thread(lives, cluster, "broker")
    first = await asyncio.to_thread(lives, cluster, "controller")
    group = await asyncio.to_thread(cluster.wait_until, settled)
    async with sending(cluster) as sender:
        for size in (3, 5):
            before = sender.acknowledged
            await asyncio.to_thread(resize, cluster, size)
            assert sender.acknowledged > before
        five = await asyncio.to_thread(lives, cluster, "controller")
        assert first.items() <= five.items(), "who was there goes on"
        # The last one leads, of whom no broker was told when it started: they are heard there.
        await asyncio.to_thread(cluster.gantry, "controllers", "transfer", "5")
        await asyncio.sleep(6)  # twice the silence after which a broker is taken for gone
        assert await asyncio.to_thread(leads, cluster) == 5
        known = await asyncio.to_thread(cluster.wait_until, settled)
        assert known["masterEpoch"] == group["masterEpoch"]
        for size in (3, 1):
            before = sender.acknowledged
            await asyncio.to_thread(resize, cluster, size)
            assert sender.acknowledged > before
            assert (await asyncio.to_thread(lives, cluster, "controller")).items() <= five.items()
        # Those who come now have been members before, and the log of that time.
        await asyncio.to_thread(resize, cluster, 3)
        await asyncio.sleep(6)
        known = await asyncio.to_thread(cluster.wait_until, settled)
    assert not sender.failed, sender.failed[0]
    assert known["masterEpoch"] == group["masterEpoch"], "nobody was taken for gone"
    assert await asyncio.to_thread(lives, cluster, "broker") == brokers


def test_a_member_that_lost_its_disk_founds_no_second_quorum(cluster: CliCluster) -> None:
    """The first one founded it alone, and its settings still say so."""
    resize(cluster, 3)
    known = cluster.status()["groups"]
    cluster.gantry("local", "delete", "pvc", "data-gantry-controller-0")
    cluster.gantry("local", "delete", "pod", "gantry-controller-0")

    def is_back() -> bool:
        text = cluster.asked("controllers", "list", "--json")
        view = json.loads(text) if text else {"peers": []}
        return [peer["counted"] for peer in view["peers"]] == [True] * 3 and view["leaderId"] != 1

    cluster.wait_for(is_back, "it is filled by the others")
    assert [one["name"] for one in cluster.status()["groups"]] == [one["name"] for one in known]
    cluster.wait_for(lambda: is_of(cluster, 3), "all is well")
