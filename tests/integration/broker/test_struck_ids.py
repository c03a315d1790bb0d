"""Members whose ids an administrator struck from the record come back as others, with their logs.

Nothing that was acknowledged is lost by it, not even if a whole group is struck.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gantry_controller.metadata.events import AdoptGroup, encode_event
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.types import Epoch
from support.broker_cluster import (
    BrokerCluster,
    bodies,
    eventually,
    pull_command,
    send_command,
)
from support.loopback_controller import CLUSTER, GROUP, LoopbackController
from support.patience import PATIENCE_S


async def strike(cluster: BrokerCluster, *ids: int, living: bool = True) -> RemotingCommand:
    """1011, with the processes of those who live if that is wanted."""
    client = await RemotingClient().connect(cluster.controller.address)
    ext = {
        "clusterName": CLUSTER,
        "brokerName": GROUP,
        "brokerControllerIdsToClean": ";".join(map(str, ids)),
        "isCleanLivingBroker": "true",
    }
    if living:
        ext["gantryLiving"] = ";".join(
            f"{member.broker_id}={member.incarnation}"
            for member in cluster.controller.group.members
        )
    try:
        return await client.call(request(RequestCode.CLEAN_BROKER_DATA, ext))
    finally:
        client.close()


async def send(cluster: BrokerCluster, *texts: bytes) -> None:
    client = await cluster.client(cluster.master)
    for text in texts:
        assert (await client.call(send_command(text))).code == 0


async def readable(cluster: BrokerCluster) -> list[bytes]:
    client = await cluster.client(cluster.master)
    found: list[bytes] = []
    while more := bodies(await client.call(pull_command(len(found)))):
        found += more
    return found


def ids(cluster: BrokerCluster) -> list[int]:
    return [member.broker_id for member in cluster.controller.group.members]


async def test_who_lives_is_not_struck_by_a_general_wish(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        before = cluster.controller.group
        for chosen in ((), (1,), (1, 2, 3)):
            answer = await strike(cluster, *chosen, living=False)
            assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert cluster.controller.group == before


@pytest.mark.parametrize("who", ["replica", "master"])
async def test_a_struck_member_comes_back_as_another(tmp_path: Path, who: str) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        await send(cluster, b"before")
        struck = cluster.master if who == "master" else cluster.replicas_of()[0]
        assert struck.group.core is not None
        was = struck.group.core.me
        assert (await strike(cluster, was)).code == 0
        await eventually(lambda: ids(cluster)[-1] == 4, "it has taken a new id")
        await cluster.settled()
        assert was not in ids(cluster)
        assert struck.member.begun_anew == 1
        await send(cluster, b"after")
        assert await readable(cluster) == [b"before", b"after"]


async def test_a_member_struck_while_it_was_away_comes_back_as_another(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        away = cluster.replicas_of()[0]
        number = cluster.number_of(away)
        assert away.group.core is not None
        was = away.group.core.me
        await away.stop()
        del cluster.brokers[number]
        await send(cluster, b"without it")
        async with asyncio.timeout(PATIENCE_S):  # until the controllers take it for gone
            while (await strike(cluster, was, living=False)).code != 0:
                await asyncio.sleep(0.05)
        cluster.boot(number)
        await eventually(lambda: ids(cluster)[-1] == 4, "it has taken a new id")
        await cluster.settled()
        assert await readable(cluster) == [b"without it"]


async def test_a_group_struck_as_a_whole_loses_nothing(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        await send(cluster, b"one", b"two")
        epoch = cluster.controller.group.master_epoch
        assert (await strike(cluster)).code == 0
        await eventually(lambda: ids(cluster) == [4, 5, 6], "all have taken new ids")
        await cluster.settled()
        assert cluster.controller.group.master_epoch > epoch
        await send(cluster, b"three")
        assert await readable(cluster) == [b"one", b"two", b"three"]


async def test_the_furthest_of_a_struck_group_is_its_next_master(tmp_path: Path) -> None:
    """Of those who come back first, one has missed what the others acknowledged."""
    async with BrokerCluster(tmp_path) as cluster:
        late = cluster.replicas_of()[0]
        number = cluster.number_of(late)
        await late.stop()
        await eventually(
            lambda: len(cluster.controller.group.sync_state_set) == 2, "it is out of the set"
        )
        del cluster.brokers[number]
        await send(cluster, b"one", b"two")
        others = dict(cluster.brokers)
        for broker in others.values():
            await broker.stop()
        cluster.brokers.clear()
        assert (await strike(cluster)).code == 0
        cluster.boot(number)
        await eventually(lambda: len(ids(cluster)) == 1, "who missed them is there first")
        for one in others:
            cluster.boot(one)
        await cluster.settled()
        assert cluster.number_of(cluster.master) != number
        assert await readable(cluster) == [b"one", b"two"]


async def test_a_quorum_that_knows_nothing_of_a_group_adopts_it(tmp_path: Path) -> None:
    """Controllers without their volumes refuse brokers of later epochs until a person says so."""
    async with BrokerCluster(tmp_path) as cluster:
        await send(cluster, b"one", b"two")
        others = list(cluster.brokers)
        for broker in cluster.brokers.values():
            await broker.stop()
        cluster.brokers.clear()
        await cluster.controller.stop()
        cluster.controller = LoopbackController()
        await cluster.controller.start()
        cluster.controller.declare(3, 2)
        for one in others:
            cluster.boot(one)
        controller = cluster.controller
        await eventually(
            lambda: len(controller.watchman.claims(controller.group)) == 3, "all copies knock"
        )
        assert controller.group.master_id is None
        claims = controller.watchman.claims(controller.group)
        event = AdoptGroup(
            cluster=CLUSTER,
            name=GROUP,
            epoch=max(claim.epoch for claim in claims.values()),
            expected_epoch=Epoch(0),
        )
        assert controller.quorum._apply(encode_event(event)).ok
        await cluster.settled()
        await send(cluster, b"three")
        assert await readable(cluster) == [b"one", b"two", b"three"]
