"""Groups and members that go, on real processes: out of the routes, and back where they were."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
import yaml
from gantry_cli.client.producer import Producer
from gantry_cli.client.session import session
from support.cli_cluster import ROOT, CliCluster, Group, settled
from support.patience import PATIENCE_S

TOPIC = "t"
MESSAGES = 30


def manifest(name: str, replicas: int) -> str:
    body = yaml.safe_load((ROOT / "examples/brokergroup.yaml").read_text("utf-8"))
    body["metadata"]["name"] = name
    body["spec"]["replicas"] = replicas
    body["spec"]["drain"] = {"deadlineSeconds": 0}  # it goes at once
    return yaml.safe_dump(body)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    """The group orders of three, and beside it one of one."""
    found = CliCluster(tmp_path_factory.mktemp("cluster") / "local")
    try:
        found.gantry("local", "up")
        found.gantry_applies(manifest("beside", 1))
        found.gantry_applies(manifest("orders", 3))
        found.wait_until(settled)
        yield found
    finally:
        found.gantry("local", "down", "--purge")


def ids(group: Group) -> list[int]:
    return [member["brokerId"] for member in group["members"]]


def consumed(cluster: CliCluster) -> int:
    args = ("consume", TOPIC, "--group", "reader", "--from", "earliest", "--idle", "3")
    return len(cluster.gantry(*args).splitlines())


async def produce_through_the_deletion(cluster: CliCluster, name_servers: list[str]) -> None:
    """Messages on both groups; then the deletion, with every message after it acknowledged."""
    async with session(name_servers) as client:
        producer = Producer(client.routes, client.calls, give_up_after_s=60)
        for number in range(MESSAGES):
            await producer.send(producer.message(TOPIC, f"message {number}".encode()))
        assert consumed(cluster) == MESSAGES
        groups = {queue.broker_name for queue in (await client.routes.fetch(TOPIC)).writable}
        assert groups == {"beside", "orders"}
        cluster.gantry("local", "delete", "bg", "orders")
        async with asyncio.timeout(PATIENCE_S):
            while "orders" in groups:
                await producer.send(producer.message(TOPIC, b"meanwhile"))
                route = await client.routes.fetch(TOPIC)
                groups = {queue.broker_name for queue in route.writable}
        sent = [await producer.send(producer.message(TOPIC, b"beside")) for _ in range(8)]
    assert {result.position.broker_name for result in sent} == {"beside"}


def test_a_deleted_group_leaves_the_routes_and_comes_back(cluster: CliCluster) -> None:
    """Producers go on with the others, and nothing that the group held is lost."""
    cluster.gantry("topics", "create", TOPIC)
    before = cluster.wait_until(settled)
    asyncio.run(produce_through_the_deletion(cluster, cluster.status()["nameServers"]))
    assert "RETIRED" in cluster.gantry("status")
    rows = json.loads(cluster.gantry("offsets", "show", "reader", "--json"))
    assert {row["broker_group"] for row in rows} == {"beside"}
    assert "reader" in cluster.gantry("groups", "list")
    assert "is not retired" in cluster.run("forget", "beside", "--yes").stderr
    cluster.gantry_applies(manifest("orders", 3))
    after = cluster.wait_until(lambda group: settled(group) and not group["retired"])
    assert ids(after) == ids(before)
    assert after["masterEpoch"] >= before["masterEpoch"]
    assert consumed(cluster) >= MESSAGES + 8


def test_a_replica_that_was_scaled_away_is_forgotten_and_may_return(cluster: CliCluster) -> None:
    cluster.wait_until(settled)
    cluster.gantry_applies(manifest("orders", 2))
    cluster.wait_until(lambda group: settled(group) and len(group["members"]) == 2)
    cluster.gantry_applies(manifest("orders", 3))  # its volume was kept
    cluster.wait_until(lambda group: settled(group) and len(group["members"]) == 3)
