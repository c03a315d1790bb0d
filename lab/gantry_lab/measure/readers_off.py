"""Consumers of one queue that read a tier through a front, with every broker of the group off.

``PYTHONPATH=tests python -m gantry_lab.measure.readers_off``: three brokers store messages and
upload them to a directory; all three are killed; consumers, each of a group of its own, read the
queue from its beginning through one front, up to the tier's head. Then the brokers start again, and
each consumer gets what is sent since. Prints one JSON object per figure, as benchmarks do. All
processes share the machine's processors, and the store is a directory on its disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.session import Session, session
from gantry_cli.client.topics import create_topic
from gantry_cli.output import print_json
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import send_command
from support.broker_processes import Group

from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import cpu_of

TOPIC = "hot"
BODY_BYTES = 4096
WITHIN_S = 300.0


class Reader:
    """One consumer, and what it has got.

    Attributes:
        received: messages.
        twice: messages that came again.
        missing: messages that were passed over.
    """

    def __init__(self, client: Session, number: int) -> None:
        self.received = self.twice = self.missing = 0
        self._next = 0
        self._consumer = Consumer(
            client.routes,
            client.calls,
            TOPIC,
            self._got,
            group=f"reader-{number}",
            start=Start.EARLIEST,
            suspend_s=10.0,
            commit_interval_s=None,
        )
        self.task = asyncio.create_task(self._consumer.run())

    async def _got(self, item: ReceivedRecord) -> None:
        self.received += 1
        offset = item.position.queue_offset
        self.twice += offset < self._next
        self.missing += max(offset - self._next, 0)
        self._next = max(self._next, offset + 1)


def say(metric: str, unit: str, value: float, digits: int = 0) -> None:
    print_json(line("readers", "all-brokers-off", metric, unit, [value], digits=digits))
    sys.stdout.flush()


async def send(ip: str, count: int) -> None:
    """Messages to the master, many at once."""
    client = await RemotingClient().connect(f"{ip}:10911")
    body = bytes(BODY_BYTES)
    for begin in range(0, count, 64):
        calls = [
            client.call(send_command(body, TOPIC, 0), timeout_s=10.0)
            for _ in range(begin, min(begin + 64, count))
        ]
        assert {answer.code for answer in await asyncio.gather(*calls)} == {0}
    client.close()


async def until_received(readers: list[Reader], count: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while any(reader.received < count for reader in readers):
            await asyncio.sleep(0.02)


async def measure(directory: Path, args: argparse.Namespace) -> None:
    group = Group(directory)
    bucket = directory / "bucket"
    bucket.mkdir()
    tier = {"GANTRY_TIER_URL": bucket.absolute().as_uri()}
    group.env = {
        **tier,
        "GANTRY_TIER_SHARD": "u",  # as which the controller has it declared
        "GANTRY_TIER_LINGER_MS": "500",
        "GANTRY_TIER_PACK_BYTES": str(4 << 20),
        "GANTRY_STORE_PORT": "10914",
        "GANTRY_LOG_SEGMENT_BYTES": str(16 << 20),
    }
    group.front_env = tier
    try:
        await group.start()
        async with session([group.controller.address]) as client:
            await create_topic(client, TOPIC, queues=1, cluster=None)
            await send(group.master_ip, args.messages)
            await group.until(
                group.master_ip,
                lambda status: status["tier"]["committedOffset"] == status["confirmOffset"] > 0,
            )
            ip = f"{group.network}.101"
            group.boot_front(ip)
            await group.fronts_serve()
            group.declare_fronts(ip)
            off_s = time.monotonic()
            for broker in list(group.processes):
                await group.kill(broker)
            await group.serves_from_tier(ip)
            say("served_after", "s", time.monotonic() - off_s, 1)
            front = group.fronts[ip]
            used_s, begun_s = cpu_of(front.process.pid), time.monotonic()
            readers = [Reader(client, number) for number in range(args.consumers)]
            await until_received(readers, args.messages)
            elapsed_s = time.monotonic() - begun_s
            total = sum(reader.received for reader in readers)
            metrics = await front.metrics()
            read_bytes = metrics["gantry_front_tier_read_bytes_total"]
            say("consumers", "1", len(readers))
            say("received_share", "ratio", total / (args.messages * len(readers)), 3)
            say("received", "1/s", total / elapsed_s)
            say("read", "MB/s", read_bytes / elapsed_s / 1e6, 1)
            say("front_cpu", "cores", (cpu_of(front.process.pid) - used_s) / elapsed_s, 2)
            fetched = metrics["gantry_front_tier_fetched_bytes_total"]
            say("fetched_of_read", "ratio", fetched / read_bytes, 3)
            for broker in list(group.processes):
                group.boot(broker)
            await group.settled()
            await group.fronts_serve()
            await send(group.master_ip, args.after)
            await until_received(readers, args.messages + args.after)
            await asyncio.sleep(1.0)
            say("received_after_return", "1", sum(reader.received for reader in readers) - total)
            say("twice", "1", sum(reader.twice for reader in readers))
            say("missing", "1", sum(reader.missing for reader in readers))
            for reader in readers:
                reader.task.cancel()
            await asyncio.gather(*(reader.task for reader in readers), return_exceptions=True)
    finally:
        await group.stop()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=30)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--after", type=int, default=100)
    args = parser.parse_args()
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")
    print_json(machine())
    with tempfile.TemporaryDirectory(dir=".") as directory:
        asyncio.run(measure(Path(directory), args))


if __name__ == "__main__":
    main()
