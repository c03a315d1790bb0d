"""Fronts that read from replicas, by the store links of those."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gantry_broker.front import FrontServer
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import TOPIC, bodies, eventually, pull_command, send_command
from support.loopback_controller import GROUP
from support.off_cluster import OffCluster

COUNT, CONSUMERS = 120, 12


@pytest.fixture
async def cluster(tmp_path: Path):
    async with OffCluster(tmp_path) as made:
        yield made


async def client_of(front: FrontServer) -> RemotingClient:
    return await RemotingClient().connect(f"127.0.0.1:{front.groups[GROUP].port}")


async def with_readers(cluster: OffCluster, front: FrontServer, readers: int = 3) -> None:
    """The topic has one queue with so many readers, and the front reads from all of them."""
    client = await cluster.client(cluster.master)
    shape = {"topic": TOPIC, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    change = {**shape, "attributes": f"+gantry.readers={readers}"}
    assert (await client.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, change))).code == 0
    await eventually(lambda: GROUP in front.groups, "the group is known")
    group = front.groups[GROUP]
    await eventually(lambda: len(group.status()["readsAt"]) == 2, "both replicas are open")


async def sent(client: RemotingClient, first: int, last: int) -> None:
    for number in range(first, last):
        assert (await client.call(send_command(b"%d" % number + bytes(4000)))).code == 0


async def read_all(front: FrontServer, count: int) -> list[int]:
    """What one consumer gets from the beginning on."""
    client, found = await client_of(front), list[int]()
    while len(found) < count:
        answer = await client.call(pull_command(len(found), wait_ms=5_000), timeout_s=10.0)
        assert answer.code in (
            0,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
        ), answer
        found += [int(body.rstrip(b"\0")) for body in bodies(answer)]
    client.close()
    return found


async def test_the_master_reads_its_share_of_a_hot_queue(cluster: OffCluster) -> None:
    async with cluster.front() as front:
        await with_readers(cluster, front)
        group, client = front.groups[GROUP], await client_of(front)
        readers = [asyncio.create_task(read_all(front, COUNT)) for _ in range(CONSUMERS)]
        await sent(client, 0, COUNT)
        for found in await asyncio.gather(*readers):
            assert found == list(range(COUNT))
        as_they_come = dict(group.shares.read_bytes)
        # On a busy machine replicas are late, and the master has what they do not have yet.
        assert as_they_come[0] / sum(as_they_come.values()) < 0.9, as_they_come
        for found in await asyncio.gather(*(read_all(front, COUNT) for _ in range(CONSUMERS))):
            assert found == list(range(COUNT))
        read = {key: size - as_they_come[key] for key, size in group.shares.read_bytes.items()}
        assert len(read) == 3
        assert read[0] / sum(read.values()) <= 0.4, read
        replicas = cluster.replicas_of()
        assert all(one.group.reads.read_bytes > COUNT * 4000 for one in replicas)
        client.close()


async def test_a_replica_that_is_killed_costs_nobody_a_message(cluster: OffCluster) -> None:
    async with cluster.front() as front:
        await with_readers(cluster, front)
        client = await client_of(front)
        await sent(client, 0, COUNT)
        readers = [asyncio.create_task(read_all(front, 2 * COUNT)) for _ in range(CONSUMERS)]
        victim = cluster.number_of(cluster.replicas_of()[0])
        await sent(client, COUNT, COUNT + 10)
        await cluster.brokers.pop(victim).abort()
        await sent(client, COUNT + 10, 2 * COUNT)
        for found in await asyncio.gather(*readers):
            assert found == list(range(2 * COUNT))
        await eventually(
            lambda: len(front.groups[GROUP].status()["readsAt"]) == 1, "one replica is left"
        )
        client.close()


async def test_a_topic_without_readers_is_read_at_the_master(cluster: OffCluster) -> None:
    async with cluster.front() as front:
        await with_readers(cluster, front)
        client = await client_of(front)
        await sent(client, 0, 20)
        change = {"topic": TOPIC, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        change["attributes"] = "+gantry.readers=1"
        assert (await client.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, change))).code == 0
        group = front.groups[GROUP]
        await eventually(
            lambda: group.router.open_aside is not None and not group.replicas,
            "no replica is asked any more",
        )
        before = dict(group.shares.read_bytes)
        assert await read_all(front, 20) == list(range(20))
        after = dict(group.shares.read_bytes)
        assert after.pop(0, 0) >= before.pop(0, 0)
        assert after == before
        client.close()
