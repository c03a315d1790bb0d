"""The official gRPC clients, unmodified, at two of Gantry's proxies: one is killed, and the master.

What was acknowledged to the producer is consumed by a push consumer and by a simple consumer. Again
comes only what failed, and what was in flight when something was killed. Clients in Java, Python,
Node, Go, and Rust, which has no push consumer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support.cli_cluster import CliCluster
from support.grpc_programs import (
    CALM_S,
    PAUSE_MS,
    TOPIC,
    WITH_JAVA,
    WITH_OTHERS,
    client,
    cluster_with_topic,
    done,
    kill_master,
)
from support.java_programs import JavaProgram, until
from support.proxies import proxy

PUSHED, TAKEN, ORDERED = "interop-push", "interop-simple", "interop-in-order"
MESSAGE_GROUPS = 8
IN_FLIGHT_MAX = 64  # of a consumer, at each kill
GO = WITH_OTHERS[-1]
ONE_ENDPOINT = ("node", "rust")
"""Languages whose client takes one address: its proxy comes back there, as behind a Service."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    with cluster_with_topic(tmp_path / "local") as made:
        yield made


def _missed(sent: set[str], consumers: list[JavaProgram]) -> list[list[str]]:
    """By consumer, what it has not consumed."""
    return [sorted(sent - done(one).keys()) for one in consumers]


@pytest.mark.parametrize("language", [WITH_JAVA, *WITH_OTHERS])
def test_clients_lose_nothing_to_killed_proxies_and_masters(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    start = partial(client, language, tmp_path)
    consuming = {"simple": TAKEN} if language == "rust" else {"push": PUSHED, "simple": TAKEN}
    ports = free_ports(2)
    with ExitStack() as stack:
        doomed = stack.enter_context(proxy(cluster, ports))
        endpoints = f"127.0.0.1:{ports[0]}"
        if language not in ONE_ENDPOINT:
            others = free_ports(2)
            stack.enter_context(proxy(cluster, others))
            endpoints += f";127.0.0.1:{others[0]}"
        consumers = [
            stack.enter_context(start(role, endpoints, TOPIC, group))
            for role, group in consuming.items()
        ]
        producer = stack.enter_context(start("produce", endpoints, TOPIC, PAUSE_MS))
        until(
            lambda: min(len(one.of_kind("DONE")) for one in consumers) > 50,
            "all consume",
            *(*consumers, producer),
        )
        kill_master(cluster)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        if language in ONE_ENDPOINT:
            stack.enter_context(proxy(cluster, ports))
        acknowledged = len(producer.of_kind("ACK"))
        time.sleep(CALM_S)
        until(lambda: len(producer.of_kind("ACK")) > acknowledged, "it goes on", producer)
        producer.process.kill()
        producer.reader.join(CALM_S)
        sent = {key for key, *_ in producer.of_kind("ACK")}
        refused = producer.of_kind("NACK")
        missed = partial(_missed, sent, consumers)
        until(lambda: not any(missed()), lambda: f"{missed()} are consumed", *consumers)
        failed = {key for one in consumers for key, *_ in one.of_kind("FAILED")}
        unsure = [len(one.of_kind("UNSURE")) for one in consumers]
        again = [sum(n > 1 for n in done(one).values()) for one in consumers]
    print(
        f"\nGRPC {language} {len(sent)} acknowledged and consumed by {' and '.join(consuming)},"
        f" {len(refused)} refused, {len(failed)} failed once, {unsure} maybe acknowledged,"
        f" {again} came again"
    )
    assert bool(failed) is ("push" in consuming)
    assert max(again + unsure) <= 2 * IN_FLIGHT_MAX
    assert not refused or language in ONE_ENDPOINT


@pytest.mark.parametrize("language", [GO])
def test_message_groups_keep_their_order_past_killed_proxies_and_masters(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    """A message comes for the first time only behind all that its group was sent before."""
    start = partial(client, language, tmp_path)
    cluster.gantry("groups", "create", ORDERED, "--in-order")
    ports, others = free_ports(2), free_ports(2)
    endpoints = f"127.0.0.1:{ports[0]};127.0.0.1:{others[0]}"
    with (
        proxy(cluster, ports) as doomed,
        proxy(cluster, others),
        start("simple", endpoints, TOPIC, ORDERED) as taken,
        start("ordered", endpoints, TOPIC, PAUSE_MS) as producer,
    ):
        until(lambda: len(taken.of_kind("DONE")) > 50, "it consumes", taken, producer)
        kill_master(cluster)
        doomed.send_signal(signal.SIGKILL)
        acknowledged = len(producer.of_kind("ACK"))
        time.sleep(CALM_S)
        until(lambda: len(producer.of_kind("ACK")) > acknowledged, "it goes on", producer)
        producer.process.kill()
        producer.reader.join(CALM_S)
        sent = {key for key, *_ in producer.of_kind("ACK")}
        until(lambda: sent <= done(taken).keys(), "all are consumed", taken)
        came = list(dict.fromkeys(key for key, *_ in taken.of_kind("GOT")))
    numbers = [int(key.removeprefix("key-")) for key in came]
    for group in range(MESSAGE_GROUPS):
        of_group = [number for number in numbers if number % MESSAGE_GROUPS == group]
        assert len(of_group) > 1
        assert of_group == sorted(of_group)
    print(f"\nGRPC {language} in order: {len(sent)} acknowledged, {len(came)} came")
