"""A disk that is full under the master alone, and under all, with real brokers on loopback."""

from __future__ import annotations

from pathlib import Path

from gantry_broker.replica.stall import STAYS_FULL
from gantry_broker.retention.disk_space import Usage
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from support.broker_cluster import (
    TOPIC,
    BrokerCluster,
    RunningBroker,
    eventually,
    pull_command,
    send_command,
)

GROUP_OF_CONSUMERS = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}


def fill(broker: RunningBroker, used_percent: float) -> None:
    """What its disk says from now on."""
    shared = broker.member._shared
    assert shared is not None
    shared.disk_space._look = lambda _: Usage(used_percent, 1)
    shared.disk_space.look()


def has_heirs(master: RunningBroker) -> bool:
    assert master.group.writes.mastership is not None
    return bool(master.group.writes.mastership.heirs_with_room())


async def test_a_master_without_room_gives_way_and_takes_nothing_back(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        for broker in cluster.brokers.values():
            fill(broker, 10)
        former, epoch = cluster.master, cluster.controller.group.master_epoch
        client = await cluster.client(former)
        assert (await client.call(send_command(b"x"))).code == 0
        commit = request(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**GROUP_OF_CONSUMERS, "commitOffset": "1"}
        )
        assert (await client.call(commit)).code == 0
        fill(former, 95)
        await eventually(lambda: cluster.controller.group.master_epoch > epoch, "another master")
        await cluster.settled()
        assert not former.is_master
        full = "its disk is nearly full"
        await eventually(lambda: former.group.disk_reason == full, "and says why")

        heir = cluster.master
        client = await cluster.client(heir)
        assert (await client.call(send_command(b"y"))).code == 0
        asked = request(RequestCode.QUERY_CONSUMER_OFFSET, GROUP_OF_CONSUMERS)
        assert ((await client.call(asked)).ext or {})["offset"] == "1", "it was in memory only"

        epoch = cluster.controller.group.master_epoch
        for broker in cluster.replicas_of():
            fill(broker, 95)
        await eventually(lambda: not has_heirs(heir), "they have said so")
        fill(heir, 95)
        await eventually(lambda: heir.group.disk_reason == STAYS_FULL, "nobody is asked")
        answer = await client.call(send_command(b"z"))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.call(pull_command(0))).code == 0, "reads go on"
        assert cluster.controller.group.master_epoch == epoch
        fill(heir, 80)
        await eventually(lambda: not heir.group.disk_reason, "there is room")
        assert (await client.call(send_command(b"z"))).code == 0
