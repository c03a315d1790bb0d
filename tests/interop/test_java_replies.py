"""Unmodified Java 5.3.3 producers ask, and consumers reply, while masters are killed.

A question whose master is killed may stay without a reply: its producer waits for 3 s and asks
again, as its application decides. What is answered is the answer to that very question, and after
each kill questions are answered as before.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import cluster_with_group, settled
from support.java_programs import JavaProgram, program, until

TOPIC, GROUP, QUEUES = "questions", "answering", 4
PAUSE_MS = 20
KILLS = 2
MORE = 50  # answered before the first kill, and after each one
UNANSWERED_MAX = 4  # for each kill: the one under way, and those that were asked too early

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


def test_replies_come_to_whoever_asked(tmp_path: Path) -> None:
    with cluster_with_group(tmp_path / "local") as cluster:
        names = cluster.name_servers
        cluster.gantry("topics", "create", TOPIC, "--queues", str(QUEUES))
        with (
            program(tmp_path, "reply", names, TOPIC, GROUP) as replies,
            program(tmp_path, "request", names, TOPIC, PAUSE_MS) as a,
            program(tmp_path, "request", names, TOPIC, PAUSE_MS) as b,
        ):
            began = time.monotonic()
            for kill in range(KILLS + 1):
                least = [len(asks.of_kind("REPLY")) + MORE for asks in (a, b)]
                until(
                    lambda least=least: all(
                        len(asks.of_kind("REPLY")) >= count
                        for asks, count in zip((a, b), least, strict=True)
                    ),
                    "questions are answered",
                    *(a, b, replies),
                )
                if kill < KILLS:
                    epoch = cluster.wait_until(settled)["masterEpoch"]
                    cluster.gantry("local", "kill", cluster.master_pod())
                    cluster.wait_until(
                        lambda group, epoch=epoch: settled(group) and group["masterEpoch"] > epoch
                    )
            lasted_s = time.monotonic() - began
            answered = [_told(asks) for asks in (a, b)]
            unanswered = sum(len(asks.of_kind("UNANSWERED")) for asks in (a, b))
    for pairs in answered:
        assert all(text == f"answer-to-{question}" for question, text in pairs)
    print(
        f"\nJAVA REPLIES {sum(map(len, answered))} answered, {unanswered} not, {KILLS} kills,"
        f" {lasted_s:.0f} s"
    )
    assert unanswered <= UNANSWERED_MAX * KILLS * 2


def _told(asks: JavaProgram) -> list[tuple[str, str]]:
    return [(question, text) for question, text, *_ in asks.of_kind("REPLY")]
