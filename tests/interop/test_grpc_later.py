"""What the official gRPC clients send for later, or in a transaction, and a master that is killed.

Java's, Python's and Node's clients have moments and recalls, Go's moments; Python's and Go's have
transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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
from support.java_programs import until
from support.proxies import proxy

BACK_EVERY = 3  # messages for a moment: one of so many is taken back
PYTHON, NODE, _, GO = WITH_OTHERS
TAKEN = "interop-simple"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CliCluster]:
    with cluster_with_topic(tmp_path / "local") as made:
        yield made


@pytest.mark.parametrize("language", [WITH_JAVA, PYTHON, NODE, GO])
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
        recalls = language != "go"
        kept = {key for key in due_ms if not recalls or int(key.removeprefix("key-")) % BACK_EVERY}
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
    assert bool(back) is recalls
    assert not back & came.keys()
    assert late_ms[0] >= 0


@pytest.mark.parametrize("language", [PYTHON, GO])
def test_transactions_end_as_their_producer_says(
    cluster: CliCluster, tmp_path: Path, language: str
) -> None:
    """Every second message is committed; of some nothing is said until the client is asked.

    No proxy is killed: Python's client opens its stream again after five minutes only, and is asked
    nothing before.
    """
    start = partial(client, language, tmp_path)
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
        f"\nGRPC {language} transactions: {len(kept)} committed, {len(left)} of them when they were"
        f" asked for, {len(dropped)} dropped, {len(refused)} failed"
    )
    assert left
    assert not dropped & done(taken).keys()
