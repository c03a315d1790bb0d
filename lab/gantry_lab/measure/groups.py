"""The cost of hundreds of groups in three processes: `make measure-groups`.

Prints one JSON object per figure, as benchmarks do. Three more processes are the controllers'
quorum, each of which syncs every write; everything is on one machine.

Three times over a broker process, each in its turn, is killed and started again while a client
writes to every group. A client is connected with a process that stays, so what is measured is what
the cluster needs, and not how long a client looks for another address.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from gantry_cli.output import print_json
from gantry_protocol.errors import RemotingError
from gantry_protocol.process.descriptors import raise_limit
from gantry_protocol.remoting.client import RemotingClient
from support import many_groups
from support.broker_cluster import eventually, send_command
from support.many_groups import ManyGroups, parse_metrics
from support.real_quorum import RealQuorum

from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import cpu_of, rss_mb

IDLE_S = 20.0
CALM_S = 5.0  # after the start, before anything is measured
RUNS = 3  # in each another process is killed
WRITES_PER_S = 1000  # to all groups together
RETRY_S = 0.005
AROUND_S = 1.0  # the time around a move in which its gap is looked for
EVEN_WITHIN_S = 600.0
WRITING_WITHIN_S = 300.0  # hundreds of clients that connect at once

Note = Callable[..., None]


def say(metric: str, unit: str, values: list[float]) -> None:
    digits = {"ms": 0, "MB": 0, "1": 1, "s": 1}.get(unit, 3)
    print_json(line("groups", "many", metric, unit, values, digits=digits))
    sys.stdout.flush()


async def idle(cluster: ManyGroups) -> None:
    pids = [process.process.pid for process in cluster.processes.values()]
    assert cluster.quorum is not None
    controllers = cluster.quorum.quorum
    await controllers.leader()
    with cluster.quorum.unwatched():
        before, began = [cpu_of(pid) for pid in pids], time.monotonic()
        led, followed = controllers.cpu_s() or (0.0, 0.0)
        await asyncio.sleep(IDLE_S)
        took = time.monotonic() - began
        used = [(cpu_of(pid) - was) / took for pid, was in zip(pids, before, strict=True)]
        leads, follows = controllers.cpu_s() or (0.0, 0.0)
    say("idle_broker_cpu", "s/s", used)
    say("idle_leader_cpu", "s/s", [(leads - led) / took])
    say("idle_follower_cpu", "s/s", [(follows - followed) / took / 2])
    say("rss_mb", "MB", [rss_mb(pid) for pid in pids])
    say("threads", "1", [len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids])
    say("descriptors", "1", [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids])


async def writes(cluster: ManyGroups) -> None:
    """One message to each group, a few at a time, twice; how many syncs did they share?"""
    for names in (cluster.names, cluster.names):
        gate = asyncio.Semaphore(64)

        async def one(name: str, gate: asyncio.Semaphore = gate) -> None:
            async with gate:
                await cluster.send(name, 5)

        await asyncio.gather(*(one(name) for name in names))
    shared = []
    for ip in cluster.ips:
        metrics = parse_metrics(await cluster.get(ip, "/metrics"))
        commits = metrics["gantry_broker_group_commits_total", ()]
        shared.append(commits / metrics["gantry_broker_disk_syncs_total", ()])
    say("commits_per_sync", "1", shared)


class GroupClient:
    """One client of one group, which sends a small message again and again through ``ip``.

    Attributes:
        acks: when each send began, and when it was acknowledged.
    """

    def __init__(self, cluster: ManyGroups, name: str, ip: str) -> None:
        self.acks: list[tuple[float, float]] = []
        self._address = f"{ip}:{cluster.port(name)}"
        self._pause_s = len(cluster.names) / WRITES_PER_S

    async def run(self) -> None:
        while True:
            client = RemotingClient()
            with suppress(RemotingError):
                await client.connect(self._address, 1.0)
                while True:
                    began = time.monotonic()
                    answer = await client.call(send_command(b"a small message"), 3.0)
                    if answer.code == 0:
                        self.acks.append((began, time.monotonic()))
                        await asyncio.sleep(self._pause_s)
                    else:
                        await asyncio.sleep(RETRY_S)
            client.close()
            await asyncio.sleep(RETRY_S)

    def has_written_since(self, since: float) -> bool:
        """Whether a send that began then or later was acknowledged."""
        return bool(self.acks) and self.acks[-1][0] >= since

    def again_ms(self, since: float) -> float:
        """From ``since`` until the first such send was acknowledged."""
        return next((ended - since) * 1000 for began, ended in self.acks if began >= since)

    def gap_ms(self, since: float, until: float) -> float:
        """The longest time between two acknowledgements that any of this time lies in."""
        ends = [ended for _, ended in self.acks]
        pairs = pairwise(ends)
        return max((b - a) * 1000 for a, b in pairs if b >= since and a <= until)


async def written_to(
    cluster: ManyGroups, ip: str, work: Callable[[dict[str, GroupClient]], Awaitable[None]]
) -> None:
    """``work``, with a client of each group that writes all the time through ``ip``."""
    writers = {name: GroupClient(cluster, name, ip) for name in cluster.names}
    tasks = [asyncio.create_task(writer.run()) for writer in writers.values()]
    try:
        await eventually(
            lambda: all(one.acks for one in writers.values()), "all write", WRITING_WITHIN_S
        )
        await work(writers)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def failovers(cluster: ManyGroups) -> None:
    """Kill each process in its turn, and wait until masters are even again."""
    found: dict[tuple[str, str], list[float]] = {}

    def note(metric: str, unit: str, *values: float) -> None:
        found.setdefault((metric, unit), []).extend(values)

    for turn in range(RUNS):
        killed, stays = cluster.ips[turn % 3], cluster.ips[(turn + 1) % 3]

        async def work(writers: dict[str, GroupClient], killed: str = killed) -> None:
            await failover(cluster, killed, writers, note)

        await written_to(cluster, stays, work)
    for (metric, unit), values in found.items():
        say(metric, unit, values)


async def failover(
    cluster: ManyGroups, killed: str, writers: dict[str, GroupClient], note: Note
) -> None:
    lost = [name for name in cluster.names if cluster.master_ip(name) == killed]
    cluster.processes[killed].process.kill()
    began = time.monotonic()
    elected: dict[str, float] = {}
    while len(elected) < len(lost) or not all(
        one.has_written_since(began) for one in writers.values()
    ):
        for name in lost:
            if name not in elected and cluster.master_ip(name) not in ("", killed):
                elected[name] = (time.monotonic() - began) * 1000
        await asyncio.sleep(0.005)
    again = [writers[name].again_ms(began) for name in lost]
    note("groups_lost", "1", len(lost))
    note("elected_ms", "ms", *elected.values())
    note("written_again_ms", "ms", *again)
    note("all_written_again_ms", "ms", max(again))
    began = time.monotonic()
    cluster.boot(killed)
    await back_and_even(cluster, killed, began, writers, note)


async def back_and_even(
    cluster: ManyGroups, returned: str, began: float, writers: dict[str, GroupClient], note: Note
) -> None:
    """Until the process is in every set, and then leads as many groups as the others."""
    masters = {name: cluster.master_ip(name) for name in cluster.names}
    moved: dict[str, float] = {}
    back: float | None = None
    while back is None or not is_even(cluster):
        now = time.monotonic()
        assert now - began < EVEN_WITHIN_S, "masters do not become even"
        if back is None and cluster.in_place(returned, cluster.names):
            back = now - began
        for name, before in masters.items():
            master = cluster.master_ip(name)
            if master not in ("", before):
                assert name not in moved, f"{name} moved twice"
                masters[name], moved[name] = master, now
        await asyncio.sleep(0.02)
    note("back_s", "s", back)
    note("even_s", "s", time.monotonic() - began)
    note("masters_moved", "1", len(moved))
    await asyncio.sleep(AROUND_S)
    for name, at in moved.items():
        note("move_gap_ms", "ms", writers[name].gap_ms(at - AROUND_S, at + AROUND_S))


def is_even(cluster: ManyGroups) -> bool:
    led = Counter(cluster.master_ip(name) for name in cluster.names)
    counts = [led[ip] for ip in cluster.ips]
    return sum(counts) == len(cluster.names) and max(counts) - min(counts) <= 1


async def handover(cluster: ManyGroups) -> None:
    leaving = cluster.ips[1]
    led = [name for name in cluster.names if cluster.master_ip(name) == leaving]
    process = cluster.processes[leaving]
    process.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    await eventually(
        lambda: all(cluster.master_ip(name) != leaving for name in led), "all handed over", 30
    )
    say("groups_handed_over", "1", [len(led)])
    say("handover_ms", "ms", [(time.monotonic() - began) * 1000])
    code = await asyncio.to_thread(process.exit_code)
    say("exit_s", "s", [time.monotonic() - began])
    assert code == 0, code


async def main(count: int) -> None:
    raise_limit()
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")  # brokers of tests show no key
    many_groups.SETTLE_WITHIN_S = 300.0
    before = machine()
    say("groups", "1", [count])
    with tempfile.TemporaryDirectory() as directory:
        cluster = ManyGroups(Path(directory), count, RealQuorum(Path(directory)))
        began = time.monotonic()
        try:
            await cluster.start()
            say("boot_s", "s", [time.monotonic() - began])
            spread = Counter(cluster.master_ip(name) for name in cluster.names)
            say("masters", "1", [float(spread[ip]) for ip in cluster.ips])
            await asyncio.sleep(CALM_S)
            await idle(cluster)
            await writes(cluster)
            await failovers(cluster)
            await handover(cluster)
            print_json({"bench": "groups", "machine": before})
        finally:
            await cluster.stop()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
