"""An outage of a whole group, after which one volume is an older copy, and is started first."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.broker_cluster import BrokerCluster, bodies, eventually, pull_command, send_command


async def send(cluster: BrokerCluster, first: int, count: int) -> list[bytes]:
    client = await cluster.client(cluster.master)
    texts = [b"%d" % number for number in range(first, first + count)]
    for text in texts:
        assert (await client.call(send_command(text))).code == 0
    return texts


async def readable(cluster: BrokerCluster) -> list[bytes]:
    client = await cluster.client(cluster.master)
    found: list[bytes] = []
    while more := bodies(await client.call(pull_command(len(found)))):
        found += more
    return found


async def test_it_is_not_elected_and_the_group_comes_back_by_itself(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        sent = await send(cluster, 0, 10)
        older = cluster.replicas_of()[0]
        number = cluster.number_of(older)
        await older.stop()
        del cluster.brokers[number]
        shutil.copytree(tmp_path / str(number), tmp_path / "copy")
        cluster.boot(number)
        await cluster.settled()
        sent += await send(cluster, 10, 50)
        core = cluster.master.group.core
        assert core is not None
        confirmed = core.log.confirm
        watchman = cluster.controller.watchman
        await eventually(
            lambda: (
                (floor := watchman.floor(cluster.controller.group)) is not None
                and floor.offset >= confirmed
            ),
            "the master has said how far it has confirmed",
        )
        others = [one for one in cluster.brokers if one != number]
        for broker in (*cluster.replicas_of(), cluster.master):  # or one of them is elected first
            await broker.abort()
        cluster.brokers.clear()
        shutil.rmtree(tmp_path / str(number))
        shutil.copytree(tmp_path / "copy", tmp_path / str(number))
        epoch = cluster.controller.group.master_epoch

        cluster.boot(number)
        await eventually(
            lambda: "has confirmed its log" in watchman.why_nobody(cluster.controller.group),
            "it is told why nobody is elected",
        )
        assert cluster.controller.group.master_epoch == epoch
        for one in others:
            cluster.boot(one)
        await cluster.settled()
        assert cluster.number_of(cluster.master) != number
        assert await readable(cluster) == sent
