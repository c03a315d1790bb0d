"""What a restart leaves of clients' work."""

from __future__ import annotations

from pathlib import Path

from support.broker_cluster import BrokerCluster
from support.store_kinds import User


async def test_messages_offsets_and_topics_are_there_after_a_restart(tmp_path: Path) -> None:
    who = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    async with BrokerCluster(tmp_path, replicas=1, min_in_sync=1) as cluster:
        user = User(await cluster.client(cluster.master))
        for number in range(50):
            assert (await user.send(b"%d" % number, "T")).code == 0
        await user.call(15, {**who, "commitOffset": 17})
        await cluster.master.stop()
        cluster.boot(0)
        await cluster.settled()
        user = User(await cluster.client(cluster.master))
        assert (await user.call(14, who)).ext == {"offset": "17"}
        assert [record.body for record in await user.read("T")] == [b"%d" % n for n in range(50)]
        assert (await user.send(b"50", "T")).ext["queueOffset"] == "50"
