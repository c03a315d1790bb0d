"""Unmodified Java consumers of 5.3.3 that filter by SQL, while their master is killed.

Push, lite pull and POP, each with an expression of its own over one topic: each gets every message
that passes, and nothing else. A push consumer with an expression that is none does not start.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from support import java
from support.broker_cluster import TOPIC, BrokerCluster, eventually, send_command
from support.java_programs import JavaProgram, program

WITHIN_S = 120.0
MESSAGES = 300  # each time
POPS = "filters-pop"

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


async def send(cluster: BrokerCluster, start: int) -> None:
    client = await cluster.client(cluster.master)
    for number in range(start, start + MESSAGES):
        command = send_command(b"%d" % number)
        assert command.ext is not None
        command.ext["i"] = f"v\x01{number}\x02kind\x01{'ab'[number % 2]}\x02"
        assert (await client.call(command)).code == 0


def offsets(consumer: JavaProgram) -> set[int]:
    """Of the messages that it has; each is its own number."""
    pulled = {int(offset) for _, _, offset, _ in consumer.of_kind("MSG")}
    return pulled | {int(offset) for _, _, offset, *_ in consumer.of_kind("GOT")}


async def test_java_consumers_get_what_passes_and_nothing_else(tmp_path: Path) -> None:
    java.clients()  # which may compile them, and the cluster would stand still meanwhile
    async with BrokerCluster(tmp_path / "brokers") as cluster:
        client = await cluster.client(cluster.master)
        shape = {"topic": TOPIC, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        assert (await client.call(request(RequestCode.UPDATE_AND_CREATE_TOPIC, shape))).code == 0
        mode = {"topic": TOPIC, "consumerGroup": POPS, "mode": "POP", "popShareQueueNum": 0}
        command = request(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
        assert (await client.call(command)).code == 0
        await send(cluster, 0)
        names = cluster.controller.address
        with ExitStack() as stack:

            def start(*args: object) -> JavaProgram:
                return stack.enter_context(program(tmp_path, args[0], names, TOPIC, *args[1:]))

            bad = start("member", "filters-none", "v >")
            push = start("member", "filters-push", "v BETWEEN 200 AND 400 AND kind = 'a'")
            lite = start("lite-pull", 2 * MESSAGES, "v >= 250 AND kind IN ('b', 'c')")
            pop = start("pop", POPS, "v NOT IN ('0', '2') AND kind <> 'b'")
            wanted = {
                push: {number for number in range(200, 401) if number % 2 == 0},
                lite: {number for number in range(250, 2 * MESSAGES) if number % 2 == 1},
                pop: set(range(4, 2 * MESSAGES, 2)),
            }

            def have(end: int) -> bool:
                return all(
                    offsets(one) == {number for number in numbers if number < end}
                    for one, numbers in wanted.items()
                )

            await eventually(lambda: have(MESSAGES), "the first ones have come", WITHIN_S)
            await eventually(lambda: bad.process.poll() is not None, "it gives up", WITHIN_S)
            assert "CODE: 23" in bad.told()
            assert "line 1, column 4" in bad.told()
            await cluster.brokers.pop(cluster.number_of(cluster.master)).abort()
            await cluster.settled()
            await send(cluster, MESSAGES)
            await eventually(lambda: have(2 * MESSAGES), "the others, too", WITHIN_S)
            assert {popped for *_, popped in pop.of_kind("GOT")} == {"true"}
