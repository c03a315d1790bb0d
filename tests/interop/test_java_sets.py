"""Unmodified Java clients of two generations do everything applications do, while masters die.

One program per version (``Sets.java``) runs all at once: synchronous, asynchronous, one-way, batch,
ordered and delayed sends and transactions; push consumers (concurrent, orderly, broadcasting, by
tag), a lite pull consumer, one that never succeeds. Meanwhile the master is killed twice, and
before each time its replicas stand still until it answers that it stored what nobody confirms. What
was acknowledged must have come to everybody who is to get it, in order where order was asked for;
nothing that was rolled back may ever be seen. No time is asserted but that nothing comes too early.
The same is asked of clients of 5.3.3 that are led to fronts, while a front and the master die.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support import java
from support.cli_cluster import CliCluster, cluster_with_group, settled

VERSIONS = ("5.3.3", "4.9.8")
THROUGH_FRONTS = "5.3.3 through fronts"
SENT_MIN = 30  # of every kind
PATIENCE_S = 120  # a transaction that nobody ended is asked for after a while, a retry waits 10 s
CALM_S = 3  # before each kill, and after the last
WAITING_S = 0.5  # after which every sender waits for an answer
ASKED_SOON = {"transaction_timeout_s": "3", "transaction_check_interval_s": "5"}
DELAYS_MS = {"1": 1000, "2": 5000}
TIMER_SLACK_MS = 1000  # upstream's clocks: what is due within the same second may come

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]


class Run:
    """What one program printed.

    Attributes:
        cut: connections of its ended, with answers that were under way.
    """

    def __init__(self, version: str, lines: list[list[str]], *, cut: bool = False) -> None:
        self.prefix = f"v{version[0]}"
        self.lines = lines
        self.cut = cut
        self.acknowledged: dict[str, dict[str, int]] = defaultdict(dict)
        self.received: dict[str, dict[str, list[tuple[str, int, int]]]] = defaultdict(dict)
        self.outcomes: dict[str, str] = {}
        self.facts: dict[str, list[list[str]]] = defaultdict(list)
        for kind, *rest in lines:
            match kind:
                case "ACK":
                    self.acknowledged[rest[0]][rest[1]] = int(rest[2])
                case "GOT":
                    who, topic, key, times, millis = rest
                    places = self.received[who].setdefault(key, [])
                    places.append((topic, int(times), int(millis)))
                case "TX":
                    self.outcomes[rest[0]] = rest[1]
                case "FACT":
                    self.facts[rest[0]].append(rest[1:])

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def seen_by(self, who: str, name: str) -> set[str]:
        """Keys of one topic that a consumer got."""
        topic = self.topic(name)
        got = self.received[who].items()
        return {key for key, places in got if any(place[0] == topic for place in places)}


def _started(version: str, directory: Path, name_servers: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *("java", "-cp", java.clients(version), f"-Duser.home={directory}"),
            *("-Xmx256m", *java.SHORT_LIVED, "dev.gantry.interop.Sets"),
            *(name_servers, f"v{version[0]}", str(PATIENCE_S)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Both versions at once against one group whose master is killed twice."""
    with cluster_with_group(tmp_path_factory.mktemp("sets") / "local", **ASKED_SOON) as cluster:
        homes = {version: tmp_path_factory.mktemp("java") for version in VERSIONS}
        lines = _lines(cluster, homes, _kill_twice)
        yield {version: Run(version, found) for version, found in lines.items()}


@pytest.fixture(scope="module")
def run_through_fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One of two fronts is killed, and then the master."""
    state_dir = tmp_path_factory.mktemp("sets") / "local"
    with cluster_with_group(state_dir, fronted=True, **ASKED_SOON) as cluster:
        version, home = VERSIONS[0], tmp_path_factory.mktemp("java")
        lines = _lines(cluster, {version: home}, _kill_front_and_master)
        assert sum(cluster.front_served().values()) > SENT_MIN
        yield Run(version, lines[version], cut=True)


def _lines(
    cluster: CliCluster,
    homes: dict[str, Path],
    strike: Callable[[CliCluster, list[subprocess.Popen[str]]], None],
) -> dict[str, list[list[str]]]:
    """What the program of each version printed, with ``strike`` meanwhile."""
    started = {
        version: _started(version, home, cluster.name_servers) for version, home in homes.items()
    }
    lines: dict[str, list[list[str]]] = {version: [] for version in started}
    readers = []
    for version, program in started.items():
        reader = threading.Thread(target=_read, args=(program, lines[version]))
        reader.start()
        readers.append(reader)
    try:
        _until_started(lines)
        strike(cluster, list(started.values()))
        for program in started.values():
            _stop_sending(program)
        for reader in readers:
            reader.join(PATIENCE_S + 60)
    finally:
        for program in started.values():
            _stop_sending(program)
            program.kill()
            program.wait()
        for reader in readers:
            reader.join()
    return lines


def _read(program: subprocess.Popen[str], lines: list[list[str]]) -> None:
    assert program.stdout is not None
    with program.stdout:
        lines.extend(line.split() for line in program.stdout)


def _stop_sending(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.close()


def _until_started(lines: dict[str, list[list[str]]]) -> None:
    deadline_s = time.monotonic() + 120
    while not all(["FACT", "started"] in [one[:2] for one in found] for found in lines.values()):
        assert time.monotonic() < deadline_s, "a program does not find its topics"
        time.sleep(0.2)


def _kill_front_and_master(cluster: CliCluster, _: list[subprocess.Popen[str]]) -> None:
    time.sleep(CALM_S)
    cluster.gantry("local", "kill", cluster.busiest_front())
    time.sleep(CALM_S)
    epoch = cluster.wait_until(settled)["masterEpoch"]
    cluster.gantry("local", "kill", cluster.master_pod())
    cluster.wait_until(lambda group: settled(group) and group["masterEpoch"] > epoch)
    time.sleep(CALM_S)


def _kill_twice(cluster: CliCluster, programs: list[subprocess.Popen[str]]) -> None:
    epoch = cluster.wait_until(settled)["masterEpoch"]
    for _ in range(2):
        time.sleep(CALM_S)
        _leave_unconfirmed(cluster, programs)
        time.sleep(CALM_S)
        cluster.gantry("local", "kill", cluster.master_pod())
        epoch = cluster.wait_until(
            lambda group, epoch=epoch: settled(group) and group["masterEpoch"] > epoch
        )["masterEpoch"]
    time.sleep(CALM_S)


def _leave_unconfirmed(cluster: CliCluster, programs: list[subprocess.Popen[str]]) -> None:
    """Have sends answered "stored, not confirmed", and programs hear it when all is well again.

    As on a busy machine. A transaction that its client then rolls back is rolled back; it would not
    be while there are too few replicas.
    """
    _, replicas = cluster.broker_pods()
    try:
        for pod in replicas:
            cluster.shown("local", "kill", "--signal", "stop", pod)
        time.sleep(WAITING_S)
        for program in programs:
            program.send_signal(signal.SIGSTOP)
        cluster.wait_until(lambda group: len(group["syncStateSet"]) == 1)
    finally:
        for pod in replicas:
            cluster.shown("local", "kill", "--signal", "cont", pod)
    try:
        cluster.wait_until(lambda group: len(group["syncStateSet"]) > 1)
    finally:
        for program in programs:
            program.send_signal(signal.SIGCONT)
    cluster.wait_until(settled)


@pytest.fixture(params=(*VERSIONS, THROUGH_FRONTS))
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = (
        request.getfixturevalue("run_through_fronts")
        if request.param == THROUGH_FRONTS
        else request.getfixturevalue("runs")[request.param]
    )
    assert found.lines, "it printed nothing"
    assert found.lines[-1] == ["DONE"], found.lines[-1]
    return found


def test_everything_that_was_acknowledged_has_come_to_everybody(run: Run) -> None:
    assert run.facts["missing"] == []
    assert run.facts["spoiled"] == []
    for who, names in {
        "push1": ("sync", "async", "batch", "delay"),
        "cast1": ("cast",),
        "cast2": ("cast",),
        "orderly1": ("order",),
        "lite": ("sync",),
    }.items():
        for name in names:
            sent = set(run.acknowledged[run.topic(name)])
            assert len(sent) > SENT_MIN, f"{name}: only {len(sent)} were acknowledged"
            assert sent <= run.seen_by(who, name)


def test_ordered_messages_come_in_their_order(run: Run) -> None:
    """What comes for the first time never comes after a later one of its key.

    A send that failed with its connection may still be on its way when the next one is stored.
    """
    first: dict[str, list[int]] = defaultdict(list)
    promised = run.acknowledged[run.topic("order")].keys()
    for key, places in run.received["orderly1"].items():
        if run.cut and key not in promised:
            continue
        _, _, kind, number = key.rsplit("-", 3)
        first[kind].append((places[0][2], int(number)))  # type: ignore[arg-type]
    assert len(first) > 4
    for kind, arrivals in first.items():
        in_order = [number for _, number in arrivals]
        assert all(a < b for a, b in pairwise(in_order)), kind


def test_tags_are_filtered(run: Run) -> None:
    seen = run.seen_by("tags1", "sync")
    even = {
        key for key in run.acknowledged[run.topic("sync")] if int(key.rsplit("-", 1)[1]) % 2 == 0
    }
    assert even <= seen
    assert all(int(key.rsplit("-", 1)[1]) % 2 == 0 for key in seen)


def test_delayed_messages_do_not_come_early(run: Run) -> None:
    for key, sent_ms in run.acknowledged[run.topic("delay")].items():
        level = key.rsplit("-", 2)[1][1:]
        arrived_ms = min(place[2] for place in run.received["push1"][key])
        assert arrived_ms >= sent_ms + DELAYS_MS.get(level, 0) - TIMER_SLACK_MS, key


def test_what_failed_once_comes_again(run: Run) -> None:
    failed = {fact[0] for fact in run.facts["failed"]}
    assert failed
    for key in failed:
        assert max(times for _, times, _ in run.received["push1"][key]) >= 1, key


def test_transactions_end_as_their_producer_said(run: Run) -> None:
    seen = run.seen_by("push1", "tx")
    committed = {key for key, outcome in run.outcomes.items() if outcome == "COMMIT"}
    rolled_back = {key for key, outcome in run.outcomes.items() if outcome == "ROLLBACK"}
    assert committed
    assert rolled_back
    assert committed <= seen
    assert not rolled_back & seen
    assert run.facts["checked"], "nobody was asked about a transaction that was left open"


def test_what_fails_twice_becomes_a_dead_letter(run: Run) -> None:
    """The consumer allows one retry; what it has refused twice is found where dead letters are."""
    times: dict[str, set[int]] = defaultdict(set)
    for key, count in run.facts["refused"]:
        times[key].add(int(count))
    dead = {key for key, _ in run.facts["dead"]}
    assert set().union(*times.values()) == {0, 1}
    assert {key for key, counts in times.items() if 1 in counts} >= dead
    assert len(dead) > SENT_MIN


def test_positions_and_queries_agree(run: Run) -> None:
    ((sought, got),) = run.facts["sought"]
    assert got == sought
    ((offset, by_time),) = run.facts["by-time"]
    assert int(by_time) <= int(offset)
    ((committed,),) = run.facts["committed"]
    assert int(committed) > int(sought)
    ((key, viewed),) = run.facts["viewed"]
    assert viewed == key
    ((queried,),) = run.facts["queried"]
    assert int(queried) >= 1
