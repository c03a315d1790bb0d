"""The official gRPC clients, unmodified, at two of Gantry's proxies: one is killed, and the master.

What was acknowledged to the producer is consumed by a push consumer and by a simple consumer. Again
comes only what failed, and what was in flight when something was killed. Clients in Java, Python,
which has transactions, too, Node, and Rust, which has no push consumer.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import pytest
from gantry_lab.bench.ports import free_ports
from support import java
from support.cli_cluster import CliCluster, cluster_with_group, settled
from support.foreign_clients import GRPC_CLIENTS, missing
from support.java_programs import JavaProgram, process_of, running, until
from support.proxies import proxy

TOPIC, QUEUES, PAUSE_MS = "spoken", 4, 20
BACK_EVERY = 3  # messages for a moment: one of so many is taken back
PUSHED, TAKEN = "interop-push", "interop-simple"
CALM_S = 5.0  # before a kill, and after it
IN_FLIGHT_MAX = 64  # of a consumer, at each kill

pytestmark = pytest.mark.timeout(900)

ONE_ENDPOINT = ("node", "rust")
"""Languages whose client takes one address: its proxy comes back there, as behind a Service."""

with_java = pytest.param(
    "java",
    marks=[
        pytest.mark.java,
        pytest.mark.skipif(
            bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"
        ),
    ],
)
with_others = [
    pytest.param(language, marks=pytest.mark.skipif(bool(reason), reason=reason))
    for language, reason in zip(GRPC_CLIENTS, map(missing, GRPC_CLIENTS), strict=True)
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    with cluster_with_group(tmp_path / "local", transaction_check_interval_s="1") as made:
        made.gantry("topics", "create", TOPIC, "--queues", str(QUEUES))
        yield made


@pytest.mark.parametrize("language", [with_java, *with_others])
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
        until(
            lambda: all(sent <= done(one).keys() for one in consumers),
            "all is consumed",
            *consumers,
        )
        failed = {key for one in consumers for key, *_ in one.of_kind("FAILED")}
        again = [sum(n > 1 for n in done(one).values()) for one in consumers]
    print(
        f"\nGRPC {language} {len(sent)} acknowledged and consumed by {' and '.join(consuming)},"
        f" {len(refused)} refused, {len(failed)} failed once, {again} came again"
    )
    assert bool(failed) is ("push" in consuming)
    assert max(again) <= 2 * IN_FLIGHT_MAX
    assert not refused or language in ONE_ENDPOINT


@pytest.mark.parametrize("language", [with_java, *with_others[:2]])
def test_messages_come_at_their_moments_unless_they_are_taken_back(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    """A master dies with what waits for its moment, and with what was taken back."""
    start = partial(client, language, tmp_path)
    ports = free_ports(2)
    endpoint = f"127.0.0.1:{ports[0]}"
    with (
        proxy(cluster, ports),
        start("simple", endpoint, TOPIC, TAKEN) as taken,
        start("later", endpoint, TOPIC, PAUSE_MS) as producer,
    ):
        until(lambda: len(taken.of_kind("DONE")) > 20, "it consumes", taken, producer)
        kill_master(cluster)
        producer.process.kill()
        producer.reader.join(CALM_S)
        due_ms = {key: int(moment) for key, moment in producer.of_kind("LATER")}
        back = {key for key, *_ in producer.of_kind("BACK")}
        refused = len(producer.of_kind("NACK"))
        kept = {key for key in due_ms if int(key.removeprefix("key-")) % BACK_EVERY}
        until(lambda: kept <= done(taken).keys(), "what was not taken back comes", taken)
        time.sleep(CALM_S)
        came = dict.fromkeys(done(taken))
        late_ms = [
            at_ms - due_ms[line[1]]
            for line, at_ms in zip(taken.lines, taken.read_at_ms, strict=True)
            if line[0] == "GOT" and line[2] == "1" and line[1] in due_ms
        ]
    late_ms.sort()
    print(
        f"\nGRPC {language} moments: {len(kept)} came, {len(back)} taken back, {refused} refused;"
        f" late by {late_ms[len(late_ms) // 2]:.0f} ms in the middle, {late_ms[-1]:.0f} ms at most"
    )
    assert back
    assert not back & came.keys()
    assert late_ms[0] >= 0


def test_transactions_end_as_their_producer_says(cluster: CliCluster, tmp_path: Path) -> None:
    """Every second message is committed; of some nothing is said until the client is asked.

    No proxy is killed: Python's client opens its stream again after five minutes only, and is asked
    nothing before.
    """
    start = partial(client, "python", tmp_path)
    ports = free_ports(2)
    endpoint = f"127.0.0.1:{ports[0]}"
    with (
        proxy(cluster, ports),
        start("simple", endpoint, TOPIC, TAKEN) as taken,
        start("transact", endpoint, TOPIC, PAUSE_MS) as producer,
    ):
        until(lambda: len(taken.of_kind("DONE")) > 20, "it consumes", taken, producer)
        kill_master(cluster)
        left = {key for key, *_ in producer.of_kind("LEFT")}
        until(
            lambda: left <= {key for key, *_ in producer.of_kind("CHECKED")},
            "what is undecided is asked for",
            producer,
        )
        kept = {key for key, *_ in producer.of_kind("ACK")} | left
        until(lambda: kept <= done(taken).keys(), "what is committed is consumed", taken, producer)
        dropped = {key for key, *_ in producer.of_kind("DROPPED")}
        refused = {key for key, *_ in producer.of_kind("NACK")}
    print(
        f"\nGRPC transactions {len(kept)} committed, {len(left)} of them when they were asked for,"
        f" {len(dropped)} dropped, {len(refused)} failed"
    )
    assert left
    assert not dropped & done(taken).keys()


def kill_master(cluster: CliCluster) -> None:
    """Kill it amid calm, and wait until its group is whole again."""
    epoch = cluster.wait_until(settled)["masterEpoch"]
    time.sleep(CALM_S)
    cluster.gantry("local", "kill", cluster.master_pod())
    cluster.wait_until(lambda group: settled(group) and group["masterEpoch"] > epoch)
    time.sleep(CALM_S)


def client(
    language: str, home: Path, role: str, *args: object
) -> AbstractContextManager[JavaProgram]:
    """A process of the program in ``java_grpc``, ``python_grpc``, or another of these."""
    place = home / role
    if language == "java":
        program = "dev.gantry.interop.Grpc"
        return running(place, java.grpc_clients(), "-Xmx96m", program, role, *args)
    return process_of(place, *GRPC_CLIENTS[language](), role, *args, settings={"HOME": str(place)})


def done(consumer: JavaProgram) -> Counter[str]:
    """The keys of what it has consumed, and how often."""
    return Counter(key for key, *_ in consumer.of_kind("DONE"))
