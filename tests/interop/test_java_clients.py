"""Unmodified Java clients of RocketMQ 5.3.3, with default settings, against a local cluster.

Skipped as a whole where Java or Maven is missing; `make interop` runs it. Nothing here asserts a
time: the gap of the kill test is printed, and written to the test report.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import CliCluster, cluster_with_group, settled

pytestmark = [
    pytest.mark.java,
    # Upstream's own programs, which are fetched and built with these.
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliCluster]:
    with cluster_with_group(tmp_path_factory.mktemp("cluster") / "local") as found:
        yield found


@pytest.fixture(scope="module")
def classpath() -> str:
    """The compiled probe and the clients it needs, fetched by Maven."""
    return java.clients()


class Probe:
    """One Java client: a command line, and the lines it prints."""

    def __init__(self, classpath: str, home: Path, *args: str) -> None:
        self._process = subprocess.Popen(
            [
                *("java", "-cp", classpath, f"-Duser.home={home}", "-Xmx256m", *java.SHORT_LIVED),
                *("dev.gantry.interop.Probe", *args),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> Iterator[list[str]]:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                yield line.split(maxsplit=4)
        assert self._process.wait() == 0

    def of_kind(self, kind: str) -> list[list[str]]:
        return [line for line in self.lines() if line[0] == kind]


@pytest.fixture
def probe(classpath: str, tmp_path: Path) -> Callable[..., Probe]:
    def start(*args: object) -> Probe:
        return Probe(classpath, tmp_path, *map(str, args))

    return start


@pytest.mark.parametrize("consumer", ["lite-pull", "pull"])
def test_what_a_java_producer_sends_a_java_consumer_receives(
    cluster: CliCluster, probe: Callable[..., Probe], consumer: str
) -> None:
    topic = f"java-{consumer}"
    said = [*probe("produce", cluster.name_servers, topic, 200, 0).lines()]
    assert [line for line in said if line[0] == "NACK"] == []
    acknowledged = [line for line in said if line[0] == "ACK"]
    assert len(acknowledged) == 200
    received = probe(consumer, cluster.name_servers, topic, 200).of_kind("MSG")
    assert sorted(line[1] for line in received) == sorted(line[1] for line in acknowledged)
    assert {line[1]: line[2:4] for line in received} == {
        line[1]: line[2:4] for line in acknowledged
    }
    assert {line[4].strip() for line in received} == {f"message {n}" for n in range(200)}


def test_what_a_java_consumer_cannot_consume_ends_among_the_dead_letters(
    cluster: CliCluster, probe: Callable[..., Probe]
) -> None:
    topic = "java-retry"
    lines = [*probe("retry", cluster.name_servers, topic, 2).lines()]
    (sent,) = (line for line in lines if line[0] == "SENT")
    tries = [line for line in lines if line[0] == "TRY"]
    assert sent[1] == "SEND_OK"
    assert [line[2] for line in tries] == ["0", "1", "2"]
    assert {line[4].strip() for line in tries} == {topic}, "never the retry topic"
    times_ms = [int(line[3]) for line in tries]
    assert all(after - at >= 1_000 for at, after in pairwise(times_ms)), "level 1 is a second"
    (dead,) = probe("pull", cluster.name_servers, "%DLQ%interop-retry", 1).of_kind("MSG")
    assert dead[4].strip() == "message 0"


def test_java_producer_goes_on_when_the_master_is_killed(
    cluster: CliCluster,
    probe: Callable[..., Probe],
    record_property: Callable[[str, object], None],
) -> None:
    topic, count = "java-kill", 600
    before = cluster.wait_until(settled)
    victim = cluster.master_pod()
    acknowledged: list[list[str]] = []
    refused: list[list[str]] = []
    for line in probe("produce", cluster.name_servers, topic, count, 10).lines():
        if line[0] == "ACK":
            acknowledged.append(line)
        elif line[0] == "NACK":
            refused.append(line)
        if len(acknowledged) == 200 and victim:
            cluster.gantry("local", "kill", victim)
            victim = ""
    times_ms = [int(line[4]) for line in acknowledged]
    gap_ms = max(after - at for at, after in pairwise(times_ms))
    record_property("java_gap_ms", gap_ms)
    print(f"\nJAVA gap {gap_ms} ms, {len(acknowledged)} acknowledged, {len(refused)} not")
    assert len(acknowledged) > 500
    after = cluster.wait_until(settled)
    assert after["masterEpoch"] > before["masterEpoch"]
    received = probe("lite-pull", cluster.name_servers, topic, len(acknowledged)).of_kind("MSG")
    assert {line[1] for line in acknowledged} <= {line[1] for line in received}
