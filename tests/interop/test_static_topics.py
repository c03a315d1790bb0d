"""Upstream's static topics (RIP-21): its own tools make and move them, its own clients use them.

``mqadmin`` 5.3.3 makes a static topic on two groups of ours, and moves its queues while unmodified
Java clients of 5.3.3 with default settings send and consume in order. Nobody is told: clients ask
for routes every 30 seconds, and are served whichever group they ask.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from support import java
from support.java_programs import JavaProgram, program, until
from support.loopback_controller import CLUSTER
from support.two_groups import FAR, NEAR, TwoGroups, answered

TOPIC, GROUP, QUEUES = "static", "interop-static", 4
PAUSE_MS = 10
ENOUGH = 200  # messages in each stage

pytestmark = [
    pytest.mark.java,
    # Upstream's own programs, which are fetched and built with these.
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


async def test_queues_move_under_java_clients_that_pop(tmp_path: Path) -> None:
    """They take from each group what stands there; each tenth message fails at its first try."""
    async with TwoGroups(tmp_path) as cluster:
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        home = tmp_path / "mqadmin"
        with java.Admin(home, cluster.name_server) as admin:
            await asyncio.to_thread(play_pops, home, cluster, admin)


def play_pops(home: Path, cluster: TwoGroups, admin: java.Admin) -> None:
    carried_out(admin("updateStaticTopic", "-c", CLUSTER, "-t", TOPIC, "-qn", str(QUEUES)))
    to = ("-c", CLUSTER, "-t", TOPIC, "-g", GROUP)
    said = admin("setConsumeMode", *to, "-m", "POP", "-q", "0")
    assert "success" in said, said
    names = cluster.name_server
    with (
        program(home, "pop", names, TOPIC, GROUP) as consumer,
        program(home, "soak", names, TOPIC, PAUSE_MS) as producer,
    ):
        wanted = 0
        for brokers, count in ((NEAR, {NEAR: 4}), (f"{NEAR},{FAR}", {NEAR: 2, FAR: 2})):
            wanted += ENOUGH
            until(lambda wanted=wanted: len(got(consumer)) >= wanted, "it consumes", consumer)
            carried_out(admin("remappingStaticTopic", "-b", brokers, "-t", TOPIC))
            until(lambda count=count: leaders(cluster) == count, f"queues are at {count}")
        until(lambda: len(got(consumer)) >= wanted + ENOUGH, "it consumes", consumer)
        producer.process.send_signal(signal.SIGTERM)
        assert producer.process.wait() == 0
        sent = {key for key, *_ in producer.of_kind("ACK")}
        until(lambda: sent <= got(consumer).keys(), "all is consumed", consumer)
        failed = {key for key, *_ in consumer.of_kind("FAILED")}
        ways = {popped for *_, popped in consumer.of_kind("GOT")}
        again = twice(consumer)
    print(f"\nJAVA POP of a static topic: {len(sent)} consumed, {len(failed)} failed once")
    assert ways == {"true"}, "they were popped"
    assert failed, "some came again: the first time they are told as failed"
    assert again == set(), "nothing else comes again"


def twice(consumer: JavaProgram) -> set[str]:
    """The keys of what came more than once."""
    return {key for key, count in got(consumer).items() if count > 1}


def got(consumer: JavaProgram) -> Counter[str]:
    """The keys of what it has been given, and how often."""
    return Counter(key for key, *_ in consumer.of_kind("GOT"))


async def test_queues_of_a_static_topic_move_under_java_clients(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with TwoGroups(tmp_path) as cluster:
        for address in cluster.masters.values():
            await answered(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        home = tmp_path / "mqadmin"
        with java.Admin(home, cluster.name_server) as admin:
            await asyncio.to_thread(play, home, cluster, admin, record_property)


def play(
    home: Path,
    cluster: TwoGroups,
    admin: java.Admin,
    record_property: Callable[[str, object], None],
) -> None:
    carried_out(admin("updateStaticTopic", "-c", CLUSTER, "-t", TOPIC, "-qn", str(QUEUES)))
    assert leaders(cluster) == {NEAR: 2, FAR: 2}
    names = cluster.name_server
    with (
        program(home, "orderly", names, TOPIC, GROUP, 0) as consumer,
        program(home, "soak", names, TOPIC, PAUSE_MS) as producer,
    ):
        wanted = 0
        for brokers, count in ((NEAR, {NEAR: 4}), (f"{NEAR},{FAR}", {NEAR: 2, FAR: 2})):
            wanted += ENOUGH
            sent_and_consumed(producer, consumer, wanted)
            carried_out(admin("remappingStaticTopic", "-b", brokers, "-t", TOPIC))
            until(lambda count=count: leaders(cluster) == count, f"queues are at {count}")
        sent_and_consumed(producer, consumer, wanted + ENOUGH)
        producer.process.send_signal(signal.SIGTERM)
        assert producer.process.wait() == 0
        acknowledged = {key for key, *_ in producer.of_kind("ACK")}
        until(lambda: acknowledged <= consumed(consumer).keys(), "all are consumed", consumer)
        failed = producer.of_kind("NACK")
    offsets: dict[str, list[int]] = {}
    for _, queue, offset, *_ in consumer.of_kind("DONE"):
        offsets.setdefault(queue, []).append(int(offset))
    assert len(offsets) == QUEUES
    for queue, seen in offsets.items():
        firsts = [offset for at, offset in enumerate(seen) if offset not in seen[:at]]
        assert firsts == list(range(len(firsts))), f"{queue} is one row, consumed in order"
    twice = sum(count - 1 for count in consumed(consumer).values())
    record_property("java_static_twice", twice)
    print(f"\nJAVA {len(acknowledged)} acknowledged, {len(failed)} failed, {twice} consumed twice")
    assert not failed
    carried_out(admin("updateStaticTopic", "-c", CLUSTER, "-t", TOPIC, "-qn", str(QUEUES + 2)))
    assert leaders(cluster) == {NEAR: 3, FAR: 3}


def carried_out(said: str) -> None:
    """The tool has named the files with the map before and after, and found no fault."""
    files = re.findall(r"is written to file (\S+\.(?:before|after))", said)
    assert len(files) == 2, said
    assert "Exception" not in said, said
    for file in files:
        Path(file).unlink()


def sent_and_consumed(producer: JavaProgram, consumer: JavaProgram, wanted: int) -> None:
    until(lambda: len(producer.of_kind("ACK")) >= wanted, f"{wanted} are sent", producer)
    until(lambda: len(consumed(consumer)) >= wanted - ENOUGH // 2, "they are consumed", consumer)


def consumed(consumer: JavaProgram) -> Counter[str]:
    return Counter(key for key, *_ in consumer.of_kind("DONE"))


def leaders(cluster: TwoGroups) -> dict[str, int]:
    """How many queues each group takes messages for, as routes say it."""
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    route = json.loads(asyncio.run(answered(cluster.name_server, command)).body)
    counts = {
        name: len(part["currIdMap"]) for name, part in route["topicQueueMappingByBroker"].items()
    }
    return {name: count for name, count in counts.items() if count}
