"""Fronts that serve a group from its tier, with every broker of it off, and then on again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gantry_broker.front import FrontServer
from gantry_broker.front.core import absence
from gantry_protocol.bodies import decode_body, encode_body
from gantry_protocol.bodies.client import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    SubscriptionData,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import bodies, eventually, pull_command, send_command
from support.loopback_controller import GROUP
from support.off_cluster import OffCluster, from_tier, numbered
from support.patience import PATIENCE_S

COUNT = 150


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are off a moment after their heartbeats' time-out."""
    monkeypatch.setattr(absence, "OFF_AFTER_S", 0.5)
    monkeypatch.setattr("gantry_broker.front.bucket.group.ASK_EVERY_S", 0.1)


@pytest.fixture
async def cluster(tmp_path: Path):
    async with OffCluster(tmp_path) as made:
        yield made


async def client_of(front: FrontServer) -> RemotingClient:
    return await RemotingClient().connect(f"127.0.0.1:{front.groups[GROUP].port}")


async def all_of(client: RemotingClient, offset: int = 0) -> list[bytes]:
    """What a consumer reads from ``offset`` on, up to where nothing more comes."""
    found: list[bytes] = []
    while True:
        answer = await client.call(pull_command(offset), timeout_s=10.0)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            assert answer.ext["nextBeginOffset"] == str(offset)
            return found
        assert answer.code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
        found += bodies(answer)
        offset = int(answer.ext["nextBeginOffset"])


async def committed(client: RemotingClient, offset: int, group: str = "g") -> RemotingCommand:
    ext = {"consumerGroup": group, "topic": "orders", "queueId": "0", "commitOffset": str(offset)}
    return await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, ext))


async def position(client: RemotingClient, group: str = "g") -> RemotingCommand:
    ext = {
        "consumerGroup": group,
        "topic": "orders",
        "queueId": "0",
        "setZeroIfNotFound": "false",
    }
    return await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, ext))


async def test_the_tier_is_served_with_every_broker_off_and_the_group_goes_on(
    cluster: OffCluster,
) -> None:
    await cluster.sent(0, COUNT)
    assert (await committed(await cluster.client(cluster.master), 40)).code == 0
    await eventually(cluster.caught_up, "everything is in the tier")
    await cluster.off()
    async with cluster.front() as front:
        assert not front.ready()[0]
        await from_tier(front)
        assert front.ready()[0]
        client = await client_of(front)
        assert (await position(client)).ext == {"offset": "40"}
        assert (await position(client, "new")).code == ResponseCode.QUERY_NOT_FOUND
        assert await all_of(client) == numbered(0, COUNT)
        ends = {"topic": "orders", "queueId": "0"}
        assert (await client.call(request(RequestCode.GET_MIN_OFFSET, ends))).ext["offset"] == "0"
        highest = await client.call(request(RequestCode.GET_MAX_OFFSET, ends))
        assert highest.ext["offset"] == str(COUNT)
        refused = await committed(client, COUNT)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "try again once the group is back" in (refused.remark or "")
        refused = await client.call(send_command(b"lost?"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        waiting = asyncio.create_task(
            client.call(pull_command(COUNT, wait_ms=30_000), timeout_s=40.0)
        )
        bucket = front.groups[GROUP].bucket
        await eventually(lambda: bucket.processor.parked == 1, "it waits at the head")
        await cluster.on()
        answer = await waiting  # it is sent back to ask again, by whoever serves now
        assert answer.code in (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_NOT_FOUND,
        )
        assert answer.ext["nextBeginOffset"] == str(COUNT)
        await cluster.sent(COUNT, COUNT + 50)
        assert await all_of(client, COUNT) == numbered(COUNT, COUNT + 50)
        assert (await committed(client, COUNT)).code == 0
        assert not bucket.takes_requests
        client.close()


async def test_what_is_not_in_the_tier_is_waited_for_and_nothing_is_missing(
    tmp_path: Path,
) -> None:
    few = {"tier_pack_bytes": 4096, "tier_linger_ms": 600_000}
    async with OffCluster(tmp_path, **few) as cluster, cluster.front() as front:
        group = "front-members"
        await eventually(lambda: GROUP in front.groups, "the group is known")
        bucket = front.groups[GROUP].bucket
        await eventually(lambda: front.groups[GROUP].router.open_aside is not None, "it may answer")
        client = await client_of(front)
        for body in numbered(0, COUNT):
            assert (await client.call(send_command(body))).code == 0
        assert (await client.call(heartbeat(group))).code == 0
        assert await all_of(client) == numbered(0, COUNT)
        assert not bucket.takes_requests
        await eventually(lambda: cluster.chain().end > 3 * 4096, "messages are in the tier")
        waiting = asyncio.create_task(
            client.call(pull_command(COUNT, wait_ms=60_000), timeout_s=70.0)
        )
        await eventually(lambda: front.groups[GROUP].asides.parked == 1, "it waits at the front")
        await cluster.off()
        await from_tier(front)
        other = await client_of(front)
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await all_of(other)):  # where it stands still, its view ends again
                await asyncio.sleep(0.05)
        assert len(found) < COUNT
        assert found == numbered(0, len(found))
        if waiting.done():  # told to ask again, or led on to where it stood
            answer = await waiting
            assert answer.code != 0
            assert answer.ext is None or answer.ext["nextBeginOffset"] == str(COUNT), answer
        held = await client.call(pull_command(COUNT), timeout_s=10.0)  # beyond the head
        assert held.code == ResponseCode.PULL_NOT_FOUND
        assert held.ext["nextBeginOffset"] == str(COUNT)
        assert await members(client, group) == ["client-1"]
        await cluster.on()
        await eventually(lambda: not bucket.takes_requests, "the master serves")
        assert await all_of(other, len(found)) == numbered(len(found), COUNT)
        assert await all_of(other) == numbered(0, COUNT)
        assert await members(client, group) == ["client-1"]  # its heartbeat went to the master
        assert (await waiting).ext["nextBeginOffset"] == str(COUNT)
        status = front.status()["groups"][0]
        assert status["tier"]["isServed"] is False
        assert status["tier"]["reason"] == "the group has a master"
        client.close()
        other.close()


def heartbeat(group: str) -> RemotingCommand:
    wanted = [SubscriptionData(topic="orders", sub_string="*")]
    consumer = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=wanted,
    )
    data = HeartbeatData(client_id="client-1", consumer_data_set=[consumer])
    return request(RequestCode.HEART_BEAT, body=encode_body(data))


async def members(client: RemotingClient, group: str) -> list[str]:
    answer = await client.call(
        request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    )
    return decode_body(ConsumerIdList, answer.body).consumer_id_list


async def test_a_failover_is_no_reason_to_serve_from_the_tier(cluster: OffCluster) -> None:
    await cluster.sent(0, 20)
    await eventually(cluster.caught_up, "everything is in the tier")
    async with cluster.front() as front:
        await eventually(lambda: GROUP in front.groups, "the group is known")
        bucket = front.groups[GROUP].bucket
        await eventually(lambda: bucket.reader is not None, "its tier is followed")
        master = cluster.number_of(cluster.master)
        await cluster.brokers.pop(master).abort()
        await eventually(lambda: any(one.is_master for one in cluster.brokers.values()), "next")
        client = await client_of(front)
        found = await all_of(client)
        while len(found) < 20:  # the next master confirms the last of them in a moment
            found += await all_of(client, len(found))
        assert found == numbered(0, 20)
        assert bucket.opened == 0
        client.close()


async def test_a_front_that_is_told_another_place_reads_nothing(cluster: OffCluster) -> None:
    await cluster.sent(0, 5)
    await eventually(cluster.caught_up, "everything is in the tier")
    await cluster.off()
    async with cluster.front(tier_shards=[]) as front:  # it was declared as "u", and uploads as
        await eventually(lambda: GROUP in front.groups, "the group is known")
        bucket = front.groups[GROUP].bucket
        await eventually(lambda: "0 of 0" in bucket.reason, "there is nothing at that place")
        assert not bucket.takes_requests
