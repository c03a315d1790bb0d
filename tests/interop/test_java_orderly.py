"""Unmodified Java consumers of 5.3.3 consume queues in order while their master is killed.

Clients are led to brokers, or to fronts, one of which is killed instead of a second master.
Two members of a consumer group share the queues of one topic. Each queue has one owner at any time:
no two messages of a queue are worked on at once, by whichever thread of whichever process, and none
is seen for the first time before all that are in front of it. What was acknowledged is consumed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from support import java
from support.cli_cluster import cluster_with_group, settled
from support.java_programs import JavaProgram, program, until

TOPIC, GROUP, QUEUES = "in-order", "interop-orderly", 4
PAUSE_MS, TAKES_MS = 10, 5
KILLS = 2
CALM_S = 10.0  # before each kill, and after the last one
WITHIN_S = 300.0  # whatever is waited for

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


class Work(NamedTuple):
    """One message, as a consumer was at it; times in ms of the machine's clock."""

    queue: str
    begin: int
    end: int
    offset: int
    key: str
    by: str


def worked(*consumers: JavaProgram) -> list[Work]:
    """What they did, by queue in the order in which they began."""
    return sorted(
        Work(queue, int(begin), int(end), int(offset), key, str(number))
        for number, consumer in enumerate(consumers)
        for key, queue, offset, begin, end in consumer.of_kind("DONE")
    )


@pytest.mark.parametrize("fronted", [False, True], ids=["brokers", "fronts"])
def test_each_queue_is_consumed_by_one_thread_and_in_order(
    tmp_path: Path, record_property: Callable[[str, object], None], fronted: bool
) -> None:
    with cluster_with_group(tmp_path / "local", fronted=fronted) as cluster:
        cluster.gantry("topics", "create", TOPIC, "--queues", str(QUEUES))
        names = cluster.name_servers
        with (
            program(tmp_path, "orderly", names, TOPIC, GROUP, TAKES_MS) as a,
            program(tmp_path, "orderly", names, TOPIC, GROUP, TAKES_MS) as b,
            program(tmp_path, "soak", names, TOPIC, PAUSE_MS) as producer,
        ):
            until(lambda: min(map(len, map(worked, (a, b)))) > 50, "both consume", a, b, producer)
            epoch = cluster.wait_until(settled)["masterEpoch"]
            for _ in range(KILLS - fronted):
                time.sleep(CALM_S)
                cluster.gantry("local", "kill", cluster.master_pod())
                epoch = cluster.wait_until(
                    lambda group, epoch=epoch: settled(group) and group["masterEpoch"] > epoch
                )["masterEpoch"]
            time.sleep(CALM_S)
            if fronted:
                cluster.gantry("local", "kill", cluster.busiest_front())
                time.sleep(CALM_S)
            producer.process.send_signal(signal.SIGTERM)
            producer.reader.join(WITHIN_S)
            sent = {key for key, *_ in producer.of_kind("ACK")}
            until(lambda: sent <= {item.key for item in worked(a, b)}, "all is consumed", a, b)
            found = worked(a, b)
    by_queue: dict[str, list[Work]] = {}
    for item in found:
        by_queue.setdefault(item.queue, []).append(item)
    moves = repeats = 0
    pause_ms = 0
    for queue, items in by_queue.items():
        at_once = [pair for pair in pairwise(items) if pair[1].begin < pair[0].end]
        assert not at_once, f"two at once in {queue}: {at_once[:3]}"
        first = list({item.offset: None for item in items})
        assert first == sorted(first), f"{queue} is out of order"
        moves += sum(one.by != other.by for one, other in pairwise(items))
        repeats += len(items) - len(first)
        pause_ms = max([pause_ms, *(other.begin - one.end for one, other in pairwise(items))])
    print(
        f"\nJAVA {len(sent)} acknowledged, {len(found)} consumed in order from {len(by_queue)}"
        f" queues, {repeats} more than once, {moves} changes of owner; longest pause of a queue"
        f" {pause_ms / 1000:.1f} s"
    )
    record_property("java_orderly_pause_ms", pause_ms)
    assert len(by_queue) == QUEUES
    assert {item.by for item in found} == {"0", "1"}
