"""The cost of hundreds of groups in three processes: `make measure-groups`.

Prints one JSON object per figure, as benchmarks do. Three more processes are the controllers'
quorum, each of which syncs every write; everything is on one machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gantry_cli.output import print_json
from gantry_protocol.process.descriptors import raise_limit
from support import many_groups
from support.broker_cluster import eventually
from support.many_groups import ManyGroups, parse_metrics
from support.real_quorum import RealQuorum

from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import cpu_of, rss_mb

IDLE_S = 20.0
CALM_S = 5.0  # after the start, before anything is measured


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


async def failover(cluster: ManyGroups) -> None:
    killed = cluster.ips[0]
    lost = [name for name in cluster.names if cluster.master_ip(name) == killed]
    cluster.processes[killed].process.kill()
    began = time.monotonic()
    gaps: dict[str, float] = {}
    while len(gaps) < len(lost):
        for name in lost:
            if name not in gaps and cluster.master_ip(name) != killed:
                gaps[name] = (time.monotonic() - began) * 1000
        await asyncio.sleep(0.002)
    say("groups_lost", "1", [len(lost)])
    say("elected_ms", "ms", list(gaps.values()))
    cluster.boot(killed)
    began = time.monotonic()
    await cluster.settled()
    say("back_s", "s", [time.monotonic() - began])


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
            say("masters", "1", list(map(float, spread.values())))
            await asyncio.sleep(CALM_S)
            await idle(cluster)
            await writes(cluster)
            await failover(cluster)
            await handover(cluster)
            print_json({"bench": "groups", "machine": before})
        finally:
            await cluster.stop()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
