"""Unmodified Java push consumers of 5.3.3 consume by POP while their master is killed.

``mqadmin setConsumeMode`` has the group pop, so clients that leave balancing to the broker do. Each
tenth message fails at its first try. What was acknowledged to the producer is consumed; again comes
only what failed, and what was in flight when its master was killed.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import cluster_with_group, settled
from support.java_programs import JavaProgram, program, until

TOPIC, GROUP, QUEUES = "popped", "interop-pop", 4
PAUSE_MS = 10
CALM_S = 8.0  # before each kill, and after the last one
IN_FLIGHT_MAX = 64  # of two members, as far as they may be worked on when a master is killed

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


def test_messages_are_popped_acknowledged_and_tried_again(tmp_path: Path) -> None:
    with (
        cluster_with_group(tmp_path / "local") as cluster,
        java.Admin(tmp_path / "mqadmin", cluster.name_servers) as admin,
    ):
        names = cluster.name_servers
        cluster.gantry("topics", "create", TOPIC, "--queues", str(QUEUES))
        to = ("-c", "gantry", "-t", TOPIC, "-g", GROUP)
        said = admin("setConsumeMode", *to, "-m", "POP", "-q", "0")
        assert "success" in said, said
        with (
            program(tmp_path, "pop", names, TOPIC, GROUP) as a,
            program(tmp_path, "pop", names, TOPIC, GROUP) as b,
            program(tmp_path, "soak", names, TOPIC, PAUSE_MS) as producer,
        ):
            until(lambda: min(map(len, map(got, (a, b)))) > 50, "both consume", a, b, producer)
            epoch = cluster.wait_until(settled)["masterEpoch"]
            time.sleep(CALM_S)
            cluster.gantry("local", "kill", cluster.master_pod())
            cluster.wait_until(
                lambda group, epoch=epoch: settled(group) and group["masterEpoch"] > epoch
            )
            time.sleep(CALM_S)
            producer.process.send_signal(signal.SIGTERM)
            producer.reader.join(CALM_S)
            sent = {key for key, *_ in producer.of_kind("ACK")}
            until(lambda: sent <= got(a).keys() | got(b).keys(), "all is consumed", a, b)
            failed = {key for one in (a, b) for key, *_ in one.of_kind("FAILED")}
            again = {key for key, count in (got(a) + got(b)).items() if count > 1}
            ways = {popped for one in (a, b) for *_, popped in one.of_kind("GOT")}
            tried = [int(tries) for one in (a, b) for *_, tries, _ in one.of_kind("GOT")]
    print(
        f"\nJAVA POP {len(sent)} acknowledged and consumed, {len(failed)} failed once,"
        f" {len(again)} came again"
    )
    assert ways == {"true"}, "they were popped"
    assert failed
    assert max(tried) >= 1
    assert len(again) <= IN_FLIGHT_MAX


def got(consumer: JavaProgram) -> Counter[str]:
    """The keys of what it has consumed, and how often."""
    return Counter(key for key, *_ in consumer.of_kind("GOT"))
