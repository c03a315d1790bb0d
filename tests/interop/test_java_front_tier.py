"""An unmodified Java consumer of 5.3.3 reads the tier with every broker off, and then goes on.

It is started while nobody but a front is there, with a committed offset that the tier knows. It
gets every message from there on, waits at the head, and gets what comes once the group is back:
each message once, in the order of its queue. What it has done it commits to the next master.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from support import java
from support.broker_cluster import TOPIC, eventually
from support.java_programs import JavaProgram, program
from support.off_cluster import OffCluster, from_tier

WITHIN_S = 120.0
MESSAGES, COMMITTED = 100, 10

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


def offsets(consumer: JavaProgram) -> list[int]:
    """Of the messages of queue 0."""
    return [int(offset) for _, _, offset in consumer.of_kind("GOT")]


async def test_a_java_consumer_reads_the_tier_of_a_group_that_is_off(tmp_path: Path) -> None:
    async with OffCluster(tmp_path) as cluster:
        await cluster.sent(0, MESSAGES)
        client = await cluster.client(cluster.master)
        ext = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0"}
        commit = {**ext, "commitOffset": str(COMMITTED)}
        assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))).code == 0
        await eventually(cluster.caught_up, "everything is in the tier")
        await cluster.off()
        async with cluster.front() as front:
            cluster.declare_fronts(front)
            await from_tier(front)
            args = (tmp_path / "home", "member", cluster.controller.address, TOPIC, "readers")
            with program(*args) as consumer:

                def got(last: int) -> bool:
                    return len(set(offsets(consumer))) >= last - COMMITTED

                await eventually(lambda: got(MESSAGES), "all of the tier has come", WITHIN_S)
                await cluster.on()
                await cluster.sent(MESSAGES, MESSAGES + 50)
                await eventually(lambda: got(MESSAGES + 50), "and what came since", WITHIN_S)
                found = cluster.master.group.store.offsets
                await eventually(
                    lambda: found.query("readers", TOPIC, 0) == MESSAGES + 50,
                    "it commits to the next master",
                    WITHIN_S,
                )
                assert sorted(offsets(consumer)) == list(range(COMMITTED, MESSAGES + 50))
