"""Unmodified Java consumers of 5.3.3 read where the master sends them, and come back from there.

Consumers with default settings, each of a group of its own, read one topic of a group of three
brokers. A replica that serves some of them is killed: by their next route, half a minute later at
most, they go on elsewhere. Each of them gets every message once, in the order of its queue.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from support import java
from support.broker_cluster import TOPIC, BrokerCluster, RunningBroker, eventually, send_command
from support.java_programs import JavaProgram, program

CONSUMERS = 3
WITHIN_S = 120.0
MESSAGES = 60

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


def offsets(consumer: JavaProgram) -> list[int]:
    """Of the messages of queue 0."""
    return [int(offset) for _, _, offset in consumer.of_kind("GOT")]


def served(broker: RunningBroker) -> int:
    return broker.group.reads.served


async def send(cluster: BrokerCluster, count: int) -> None:
    client = await cluster.client(cluster.master)
    for number in range(count):
        assert (await client.call(send_command(b"message %d" % number))).code == 0
        await asyncio.sleep(0.05)


async def test_java_consumers_follow_the_suggestion_and_come_back(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path / "brokers") as cluster:
        client = await cluster.client(cluster.master)
        shape = {"topic": TOPIC, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        change = {**shape, "attributes": "+gantry.readers=3"}
        assert (await client.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, change))).code == 0
        await send(cluster, 1)
        with ExitStack() as stack:
            started: list[JavaProgram] = []
            names = cluster.controller.address

            def got(count: int) -> bool:
                return all(len(set(offsets(consumer))) == count for consumer in started)

            for number in range(CONSUMERS):  # one start at a time is enough for a small machine
                args = (tmp_path, "member", names, TOPIC, f"readers-{number}")
                started.append(stack.enter_context(program(*args)))
                await eventually(lambda: got(1), "the first message has come", WITHIN_S)
            await send(cluster, MESSAGES)
            await eventually(lambda: got(MESSAGES + 1), "all have come", WITHIN_S)
            victim = max(cluster.replicas_of(), key=served)
            taken = {number: served(one) for number, one in cluster.brokers.items()}
            assert served(victim) > MESSAGES / 2, taken
            await victim.abort()
            await send(cluster, MESSAGES)
            await eventually(lambda: got(2 * MESSAGES + 1), "all have come again", WITHIN_S)
            for consumer in started:
                assert sorted(offsets(consumer)) == list(range(2 * MESSAGES + 1))
