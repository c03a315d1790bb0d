"""Damaged rows under a running master, with real brokers on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.remoting.client import RemotingClient
from support import logs
from support.broker_cluster import BrokerCluster, bodies, eventually, pull_command, send_command

COUNT = 20


@pytest.fixture
async def members(request: pytest.FixtureRequest) -> int:
    return int(getattr(request, "param", 3))


@pytest.fixture
async def cluster(tmp_path: Path, members: int) -> AsyncIterator[BrokerCluster]:
    async with BrokerCluster(tmp_path, members, min(members, 2)) as made:
        yield made


@pytest.mark.parametrize("members", [3, 1], indirect=True)
async def test_a_master_whose_rows_are_damaged_is_relieved_and_makes_them_again(
    cluster: BrokerCluster, members: int
) -> None:
    former = cluster.master
    client = await cluster.client(former)
    for number in range(COUNT):
        assert (await client.call(send_command(b"%d" % number))).code == 0
    spoilt = former.group
    spoilt.store.save()
    directory = cluster.settings(cluster.number_of(former)).data_dir / "store" / "kv"
    for file in directory.glob("*.sst"):
        logs.flip(file, 25)
    assert (await client.call(pull_command(0))).code == ResponseCode.SYSTEM_ERROR

    await eventually(
        lambda: former.member.group not in (None, spoilt) and former.is_ready, "it is back"
    )
    assert former.member.rebuilt == 1
    await cluster.settled()
    assert former.is_master == (members == 1)
    assert not (directory / "DAMAGED").exists()
    assert not former.task.done()
    for broker in cluster.brokers.values():  # those that do not lead splice to the master
        reader = await RemotingClient().connect(broker.address)
        found = bodies(await reader.call(pull_command(0)))
        assert found == [b"%d" % number for number in range(COUNT)]
        reader.close()
    counts = former.member.remoting.error_answers.counts
    assert [name for name, _ in counts] == ["PULL_MESSAGE"]
