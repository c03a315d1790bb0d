"""The share of bytes that a master reads for many consumers of one queue.

``PYTHONPATH=tests python -m gantry_lab.measure.readers`` lets consumers, each of a group of its
own, read one queue of a group of three members: first as messages come, then all that there is from
the beginning, with the master alone and with readers. With ``--fronts 2`` they read through so many
fronts, which divide their reads themselves. Prints one JSON object per figure, as benchmarks do.
All processes share the machine's processors.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.session import Session, session
from gantry_cli.client.topics import create_topic
from gantry_cli.output import print_json
from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.settings.readers import READERS
from support.broker_cluster import send_command
from support.broker_processes import Group

from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import cpu_of

TOPIC = "hot"
BODY_BYTES = 4096


class Crowd:
    """Consumers of one queue.

    Attributes:
        received: messages that all of them got together.
        late_ms: from a message's store time to each consumer.
    """

    def __init__(self, client: Session, count: int, start: Start) -> None:
        self.received = 0
        self.late_ms: list[float] = []
        self._consumers = [
            Consumer(
                client.routes,
                client.calls,
                TOPIC,
                self._got,
                group=f"crowd-{time.monotonic_ns()}-{number}",
                start=start,
                suspend_s=10.0,
                commit_interval_s=None,
            )
            for number in range(count)
        ]
        self._tasks = [asyncio.create_task(item.run()) for item in self._consumers]

    async def _got(self, item: ReceivedRecord) -> None:
        self.received += 1
        self.late_ms.append(time.time() * 1000 - item.record.store_timestamp)

    def forget(self) -> None:
        """Count from now on."""
        self.received, self.late_ms = 0, []
        for consumer in self._consumers:
            consumer.read_bytes.clear()

    async def close(self) -> Counter[int]:
        """By broker id, the bytes that they were given."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return sum((item.read_bytes for item in self._consumers), Counter[int]())


class AtFronts:
    """The bytes that fronts read, at the master (0) and at replicas, since it was made."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._before = Counter[int]()

    async def begin(self) -> None:
        """Count from now on."""
        self._before = await self._now()

    async def read(self) -> Counter[int]:
        """Bytes since then, by member."""
        return await self._now() - self._before

    async def _now(self) -> Counter[int]:
        found = Counter[int]()
        for front in self._group.fronts.values():
            metrics = await front.metrics()
            for at, member in (("master", MASTER_ID), ("replicas", 1)):
                found[member] += int(metrics[f'gantry_front_pulled_bytes_total{{at="{at}"}}'])
        return found


def say(case: str, metric: str, unit: str, value: float, digits: int = 3) -> None:
    print_json(line("readers", case, metric, unit, [value], digits=digits))
    sys.stdout.flush()


def share(read: Counter[int]) -> float:
    return read[MASTER_ID] / max(sum(read.values()), 1)


async def send(address: str, rate: float, seconds: float) -> None:
    """Messages at a steady rate."""
    client = await RemotingClient().connect(address)
    body, end_s = bytes(BODY_BYTES), time.monotonic() + seconds
    due_s = time.monotonic()
    while time.monotonic() < end_s:
        assert (await client.call(send_command(body, TOPIC, 0))).code == 0
        due_s += 1 / rate
        await asyncio.sleep(max(due_s - time.monotonic(), 0))
    client.close()


async def case(group: Group, client: Session, readers: int, args: argparse.Namespace) -> None:
    """Both kinds of reading with so many readers."""
    await create_topic(client, TOPIC, queues=1, cluster=None, attributes={READERS: str(readers)})
    await asyncio.sleep(2.0)  # routes, and replicas that begin to serve
    address = f"{group.master_ip}:10911"
    pid = group.processes[group.master_ip].process.pid
    fronts = AtFronts(group)
    crowd = Crowd(client, args.consumers, Start.LATEST)
    await send(address, args.rate, 3.0)
    crowd.forget()
    await fronts.begin()
    used_s = cpu_of(pid)
    await send(address, args.rate, args.seconds)
    used_s = cpu_of(pid) - used_s
    await asyncio.sleep(0.5)
    late_ms, received = sorted(crowd.late_ms), crowd.received
    name = f"tail-{readers}"
    read = await crowd.close()
    say(name, "master_share", "ratio", share(await fronts.read() if group.fronts else read))
    say(name, "received", "1/s", received / args.seconds, 0)
    say(name, "master_cpu", "cores", used_s / args.seconds)
    say(name, "p50_ms", "ms", late_ms[len(late_ms) // 2], 1)
    say(name, "p99_ms", "ms", late_ms[len(late_ms) * 99 // 100], 1)

    await fronts.begin()
    crowd = Crowd(client, args.consumers, Start.EARLIEST)
    begun_s = time.monotonic()
    await asyncio.sleep(args.seconds)
    elapsed_s, received = time.monotonic() - begun_s, crowd.received
    name = f"catch-up-{readers}"
    read = await crowd.close()
    say(name, "master_share", "ratio", share(await fronts.read() if group.fronts else read))
    say(name, "received", "1/s", received / elapsed_s, 0)


async def measure(directory: Path, args: argparse.Namespace) -> None:
    group = Group(directory)
    try:
        if args.fronts:
            group.env = {"GANTRY_STORE_PORT": "10914"}
        await group.start()
        if args.fronts:
            await group.open_fronts(args.fronts)
            group.declare_fronts(next(iter(group.fronts)))
        async with session([group.controller.address]) as client:
            for readers in args.readers:
                await case(group, client, readers, args)
    finally:
        await group.stop()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=30)
    parser.add_argument("--readers", type=int, nargs="+", default=[0, 3])
    parser.add_argument("--fronts", type=int, default=0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")
    print_json(machine())
    with tempfile.TemporaryDirectory(dir=".") as directory:
        asyncio.run(measure(Path(directory), args))


if __name__ == "__main__":
    main()
