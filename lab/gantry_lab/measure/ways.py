"""The cost of each way to the master: ``python -m gantry_lab.measure.ways``.

Senders straight at the master, through a replica, through the door beside the master, through a
front and through two, in turns, since other programs may use the machine meanwhile. Each has one
request outstanding, of 1 KiB.
Prints one JSON object per figure, as benchmarks do; CPU is per message. All processes share
the machine's processors, which a group on machines of its own does not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from gantry_cli.client.routes import Queue
from gantry_cli.output import print_json
from gantry_controller.metadata.events import CreateTopic, encode_event
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import send_command
from support.broker_processes import Group
from support.loopback_controller import CLUSTER, GROUP

from gantry_lab.bench.broker.throughput import TOPIC
from gantry_lab.bench.broker.work import Sends
from gantry_lab.bench.load import FrameLoad
from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import cpu_of, peak_mb, rss_mb

QUEUES = 8
SENDERS = (1, 16, 32, 64)
UNITS = {"messages_per_s": "1/s", "p50_ms": "ms", "p99_ms": "ms", "master_cpu_us": "us"}
UNITS["way_cpu_us"] = "us"


class LargeGroup(Group):
    """With files as in production."""

    env = {  # noqa: RUF012 - replaced, never changed
        "GANTRY_LOG_SEGMENT_BYTES": str(1 << 28),
        "GANTRY_STORE_PORT": "10914",
    }


def say(case: str, metric: str, unit: str, values: list[float], digits: int = 1) -> None:
    print_json(line("ways", case, metric, unit, values, digits=digits))
    sys.stdout.flush()


async def window(
    addresses: list[str], senders: int, seconds: float, master: int, ways: list[int]
) -> dict[str, float]:
    queues = [Queue(GROUP, number, addresses[0]) for number in range(QUEUES)]
    led = [addresses[number % len(addresses)] for number in range(senders)]
    load = await asyncio.to_thread(FrameLoad, Sends(TOPIC, queues, senders), led, senders)
    used: list[tuple[float, float]] = []

    def note() -> None:
        used.append((cpu_of(master), sum(map(cpu_of, ways))))

    try:
        seen = await load.window(1.0, seconds, note)
    finally:
        load.close()
    (master_s, way_s), (master_end_s, way_end_s) = used
    per_message = 1e6 / seen.messages
    return {
        "messages_per_s": seen.messages / seen.seconds,
        "p50_ms": seen.p_ms(0.5),
        "p99_ms": seen.p_ms(0.99),
        "master_cpu_us": (master_end_s - master_s) * per_message,
        "way_cpu_us": (way_end_s - way_s) * per_message,
    }


async def measure(directory: Path, rounds: int, seconds: float) -> None:
    group = LargeGroup(directory)
    try:
        await group.start()
        await group.open_doors()
        await group.open_fronts(2)
        topic = Topic(read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
        group.controller.quorum._apply(
            encode_event(CreateTopic(cluster=CLUSTER, name=GROUP, topic=TOPIC, config=topic))
        )
        master = group.master_ip
        replica = next(ip for ip in group.processes if ip != master)
        door = group.doors[master]
        pid = group.processes[master].process.pid
        fronts = [front.address for front in group.fronts.values()]
        pids = [front.process.pid for front in group.fronts.values()]
        ways: dict[str, tuple[list[str], list[int]]] = {
            "master": ([f"{master}:10911"], []),
            "replica": ([f"{replica}:10911"], [group.processes[replica].process.pid]),
            "door": ([door.address], [door.process.pid]),
            "front": (fronts[:1], pids[:1]),
            "fronts": (fronts, pids),
        }
        say("door", "rss_idle", "MB", [rss_mb(door.process.pid)])
        client = await RemotingClient().connect(f"{master}:10911")
        while (await client.call(send_command(b"x", TOPIC, QUEUES - 1))).code:
            await asyncio.sleep(0.1)
        client.close()
        for senders in SENDERS:
            found: dict[str, list[dict[str, float]]] = defaultdict(list)
            for _ in range(rounds):
                for name, (addresses, way) in ways.items():
                    found[name].append(await window(addresses, senders, seconds, pid, way))
            straight = found["master"]
            for name, runs in found.items():
                shares = [
                    run["master_cpu_us"] / alone["master_cpu_us"]
                    for run, alone in zip(runs, straight, strict=True)
                ]
                say(f"{name}-{senders}", "master_cpu_ratio", "ratio", shares, 2)
                for metric, unit in UNITS.items():
                    values = [run[metric] for run in runs]
                    say(f"{name}-{senders}", metric, unit, values, 2 if unit == "ms" else 0)
        say("door", "rss_peak", "MB", [peak_mb(door.process.pid)])
        say("front", "rss_peak", "MB", [peak_mb(pids[0])])
    finally:
        await group.stop()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")
    print_json(machine())
    with tempfile.TemporaryDirectory(dir=".") as directory:
        asyncio.run(measure(Path(directory), args.rounds, args.seconds))


if __name__ == "__main__":
    main()
