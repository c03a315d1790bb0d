"""Replicas that answer pulls: from what is confirmed, while they are in touch, and no others."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import (
    TOPIC,
    BrokerCluster,
    RunningBroker,
    bodies,
    eventually,
    pull_command,
    send_command,
)

RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY


async def set_readers(cluster: BrokerCluster, readers: str) -> RemotingCommand:
    client = await cluster.client(cluster.master)
    ext = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+gantry.readers={readers}",
    }
    return await client.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))


async def sent(cluster: BrokerCluster, *messages: bytes) -> None:
    client = await cluster.client(cluster.master)
    for message in messages:
        assert (await client.call(send_command(message))).code == ResponseCode.SUCCESS


def served(broker: RunningBroker) -> int:
    return broker.group.reads.served


def suggested(answer: RemotingCommand) -> int:
    assert answer.ext is not None
    return int(answer.ext["suggestWhichBrokerId"])


async def client_at(cluster: BrokerCluster, replica: RunningBroker) -> RemotingClient:
    """A client that is led to the master already; before that, nothing is answered at replicas."""
    client = await cluster.client(replica)
    ext = {"topic": TOPIC, "queueId": "0"}
    assert (await client.call(request(RequestCode.GET_MAX_OFFSET, ext))).code == 0
    return client


async def open_readers(cluster: BrokerCluster) -> list[RunningBroker]:
    """Replicas, once each of them has all messages and answers pulls."""
    replicas = cluster.replicas_of()
    end = cluster.master.group.store.max_offset(TOPIC, 0)
    await eventually(
        lambda: all(
            one.group.reads.is_open and one.group.store.max_offset(TOPIC, 0) == end
            for one in replicas
        ),
        "replicas serve reads",
    )
    return replicas


@pytest.fixture
async def cluster(tmp_path: Path):
    async with BrokerCluster(tmp_path) as made:
        yield made


async def test_a_replica_answers_what_it_has_and_the_master_the_rest(
    cluster: BrokerCluster,
) -> None:
    assert (await set_readers(cluster, "3")).code == 0
    await sent(cluster, *(b"m%d" % number for number in range(40)))
    replica = (await open_readers(cluster))[0]
    me = replica.group.core.me
    client = await client_at(cluster, replica)
    first = await client.call(pull_command(0))
    assert (bodies(first), suggested(first)) == ([b"m%d" % number for number in range(32)], me)
    assert served(replica) == 1
    beyond = await client.call(pull_command(99))  # only the master moves an offset
    assert (beyond.code, beyond.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "40")
    at_end = await client.call(pull_command(40))  # it cannot wait, and there may be more
    assert at_end.code == ResponseCode.PULL_NOT_FOUND
    assert served(replica) == 1


async def test_a_pull_waits_at_the_replica_until_a_message_is_confirmed(
    cluster: BrokerCluster,
) -> None:
    await set_readers(cluster, "3")
    await sent(cluster, b"one")
    replica = (await open_readers(cluster))[0]
    client = await client_at(cluster, replica)
    waiting = asyncio.create_task(client.call(pull_command(1, wait_ms=15_000), timeout_s=20))
    await eventually(lambda: replica.group.reads.parked == 1, "it waits there")
    await sent(cluster, b"two")
    answer = await waiting
    assert bodies(answer) == [b"two"]
    assert (served(replica), replica.group.reads.parked) == (1, 0)


async def test_without_readers_a_replica_passes_every_pull_on(cluster: BrokerCluster) -> None:
    await sent(cluster, b"one")
    replica = cluster.replicas_of()[0]
    client = await cluster.client(replica)
    answer = await client.call(pull_command(0))
    assert (bodies(answer), suggested(answer)) == ([b"one"], 0)
    assert not replica.group.reads.is_open


async def test_readers_are_taken_back_while_a_consumer_reads(cluster: BrokerCluster) -> None:
    await set_readers(cluster, "3")
    await sent(cluster, b"one")
    replica = (await open_readers(cluster))[0]
    client = await client_at(cluster, replica)
    waiting = asyncio.create_task(client.call(pull_command(1, wait_ms=15_000), timeout_s=20))
    await eventually(lambda: replica.group.reads.parked == 1, "it waits there")
    assert (await set_readers(cluster, "1")).code == 0
    answer = await waiting
    assert (answer.code, answer.ext["nextBeginOffset"], suggested(answer)) == (RETRY, "1", 0)
    answer = await client.call(pull_command(0))
    assert (bodies(answer), suggested(answer)) == ([b"one"], 0)
    assert served(replica) == 1


async def test_consumers_are_divided_among_the_members(cluster: BrokerCluster) -> None:
    await set_readers(cluster, "3")
    await sent(cluster, *(b"m%d" % number for number in range(4)))
    await open_readers(cluster)
    places = Counter[int]()
    for _ in range(9):
        client = await cluster.client(cluster.master)
        places[suggested(await client.call(pull_command(0)))] += 1
    ids = {broker.group.core.me for broker in cluster.replicas_of()}
    assert places == Counter({0: 3, **dict.fromkeys(ids, 3)})


async def test_a_replica_that_leaves_sends_its_consumers_to_the_master(
    cluster: BrokerCluster,
) -> None:
    await set_readers(cluster, "3")
    await sent(cluster, b"one")
    replica = (await open_readers(cluster))[0]
    client = await client_at(cluster, replica)
    waiting = asyncio.create_task(client.call(pull_command(1, wait_ms=15_000), timeout_s=20))
    await eventually(lambda: replica.group.reads.parked == 1, "it waits there")
    await replica.stop()
    answer = await waiting
    assert (answer.code, answer.ext["nextBeginOffset"], suggested(answer)) == (RETRY, "1", 0)


async def test_a_pull_that_waits_at_the_next_master_is_served_by_it(
    cluster: BrokerCluster,
) -> None:
    """Nobody is told to go elsewhere, and no message is skipped or comes twice."""
    await set_readers(cluster, "3")
    await sent(cluster, b"one")
    replicas = await open_readers(cluster)
    waiting = []
    for replica in replicas:
        client = await client_at(cluster, replica)
        asked = client.call(pull_command(1, wait_ms=20_000), timeout_s=25)
        waiting.append(asyncio.create_task(asked))
        await eventually(lambda one=replica: one.group.reads.parked == 1, "it waits there")
    await cluster.master.abort()
    await eventually(lambda: any(one.is_master for one in replicas), "another master serves")
    master = next(one for one in replicas if one.is_master)
    await eventually(lambda: master.group.writes.accepting() is None, "it takes writes")
    client = await RemotingClient().connect(master.address)
    assert (await client.call(send_command(b"two"))).code == ResponseCode.SUCCESS
    client.close()
    for answer in await asyncio.gather(*waiting):
        assert bodies(answer) == [b"two"]


async def test_more_readers_than_members_are_refused(cluster: BrokerCluster) -> None:
    answer = await set_readers(cluster, "4")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "4 members are to serve its reads, and g has 3" in (answer.remark or "")
