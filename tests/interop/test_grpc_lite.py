"""Lite topics: the official Java client's lite push consumer, unmodified; the master is killed.

What was acknowledged to the producer of each lite topic is consumed by the client that subscribes
to it, batch after batch of the lite topic; again comes only what failed, and what was in flight.
Nobody subscribes anew to anything: the subscriptions are in the log.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support.cli_cluster import CliCluster
from support.grpc_programs import CALM_S, WITH_JAVA, client, cluster_with_topic, done, kill_master
from support.java_programs import JavaProgram, until
from support.proxies import proxy

PARENT, GROUP, ALONE = "sessions", "interop-lite", "interop-alone"
LITES, PAUSE_MS = 12, 20
IN_FLIGHT_MAX = 64  # of a consumer, at the kill
BATCH = 32  # messages of one lite topic that a client has at once

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    with cluster_with_topic(tmp_path / "local") as made:
        made.gantry("topics", "create", PARENT, "--type", "lite", "--lite-expires", "60")
        made.gantry("groups", "create", GROUP, "--lite-of", PARENT)
        made.gantry("groups", "create", ALONE, "--lite-of", PARENT, "--lite-exclusive")
        yield made


def _missed(sent: set[str], consumers: list[JavaProgram]) -> list[str]:
    found = {key for one in consumers for key in done(one)}
    return sorted(sent - found)


def _first_attempts(consumer: JavaProgram) -> dict[str, list[int]]:
    """By lite topic, the numbers of messages as they came for the first time."""
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for key, *_ in consumer.of_kind("GOT"):
        lite, _, number = key.partition("/")
        found[lite].setdefault(int(number))
    return {lite: list(numbers) for lite, numbers in found.items()}


def _has(consumer: JavaProgram) -> set[str]:
    words = consumer.of_kind("HAS")
    return set(words[-1][0].split(",")) if words and words[-1] else set()


@pytest.mark.parametrize("language", [WITH_JAVA])
def test_lite_consumers_lose_nothing_to_a_killed_master(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    names = [f"lite-{number}" for number in range(LITES)]
    shares = [",".join(names[0::2]), ",".join(names[1::2])]
    with ExitStack() as stack:
        ports = free_ports(2)
        stack.enter_context(proxy(cluster, ports))
        endpoint = f"127.0.0.1:{ports[0]}"
        consumers = [
            stack.enter_context(
                client(language, tmp_path / f"c{number}", "lite", endpoint, PARENT, GROUP, share)
            )
            for number, share in enumerate(shares)
        ]
        producer = stack.enter_context(
            client(language, tmp_path, "lite-produce", endpoint, PARENT, LITES, PAUSE_MS)
        )
        until(
            lambda: min(len(one.of_kind("DONE")) for one in consumers) > 50,
            "both consume",
            *(*consumers, producer),
        )
        kill_master(cluster)
        acknowledged = len(producer.of_kind("ACK"))
        time.sleep(CALM_S)
        until(lambda: len(producer.of_kind("ACK")) > acknowledged, "it goes on", producer)
        producer.process.kill()
        producer.reader.join(CALM_S)
        sent = {key for key, *_ in producer.of_kind("ACK")}
        missed = partial(_missed, sent, consumers)
        until(lambda: not missed(), lambda: f"{missed()} are consumed", *consumers)
        failed = {key for one in consumers for key, *_ in one.of_kind("FAILED")}
        again = [sum(n > 1 for n in done(one).values()) for one in consumers]
        for one in consumers:
            assert not one.of_kind("STRANGE")
            for lite, numbers in _first_attempts(one).items():
                late = [n for at, n in enumerate(numbers) if abs(at - n) >= BATCH]
                assert not late, (lite, numbers)  # the client works on those of a batch at once
    print(
        f"\nLITE {language} {len(sent)} in {LITES} lite topics acknowledged and consumed,"
        f" {len(producer.of_kind('NACK'))} refused, {len(failed)} failed once, {again} came again"
    )
    assert failed
    assert max(again) <= IN_FLIGHT_MAX
    assert not producer.of_kind("NACK")


@pytest.mark.parametrize("language", [WITH_JAVA])
def test_a_lite_topic_goes_to_the_client_that_subscribes_last(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    with ExitStack() as stack:
        ports = free_ports(2)
        stack.enter_context(proxy(cluster, ports))
        endpoint = f"127.0.0.1:{ports[0]}"
        start = partial(client, language)
        one = stack.enter_context(
            start(tmp_path / "c1", "lite", endpoint, PARENT, ALONE, "lite-0,lite-1")
        )
        until(lambda: _has(one) == {"lite-0", "lite-1"}, "it has both", one)
        two = stack.enter_context(start(tmp_path / "c2", "lite", endpoint, PARENT, ALONE, "lite-1"))
        until(lambda: _has(one) == {"lite-0"}, "it is told that it has lost one", one, two)
        producer = stack.enter_context(
            start(tmp_path, "lite-produce", endpoint, PARENT, 2, PAUSE_MS)
        )
        until(
            lambda: min(len(item.of_kind("DONE")) for item in (one, two)) > 20,
            "both consume",
            *(one, two, producer),
        )
        assert all(re.match("lite-0/", key) for key in done(one))
        assert all(re.match("lite-1/", key) for key in done(two))
