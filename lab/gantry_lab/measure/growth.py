"""A cluster that grows from two broker groups to four and shrinks to one, under load.

``python -m gantry_lab.measure.growth``: two groups, then two more that are added, then three that
are drained and go, one after the other. Unmodified Java clients with default settings send to a
mapped topic and to a plain one, and consume both in order, all along. For each step prints which
part of the mapped queues moved, and the longest time between two acknowledgements of each producer
until the cluster is at rest again and routes are old everywhere; at the end what was lost, failed
and out of order. The clients and all servers share the machine's processors.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import aiohttp
from gantry_cli.output import print_json
from gantry_protocol.admin import GroupView, QueueMapsView
from support.java_programs import JavaProgram, program
from support.loopback_controller import CLUSTER
from support.two_groups import FAR, NEAR, TwoGroups

from gantry_lab.bench.results import line, machine

MAPPED, PLAIN = "mapped", "plain"
QUEUES = 24
PAUSE_MS = 5  # between two messages
ROUTES_S = 35.0  # by then a client with default settings has asked for routes again
STEP_S = 600.0
ADDED = ("g-third", "g-fourth")
LEAVING = ("g-third", NEAR, "g-fourth")


class Growth:
    """One run; see the module."""

    def __init__(self, cluster: TwoGroups, home: Path, clients: ExitStack) -> None:
        names = cluster.name_server

        def start(*args: object) -> JavaProgram:
            return clients.enter_context(program(home, *args))

        self._cluster = cluster
        self.consumers = {
            topic: start("orderly", names, topic, f"readers-{topic}", 0)
            for topic in (MAPPED, PLAIN)
        }
        self.producers = {topic: start("soak", names, topic, PAUSE_MS) for topic in (MAPPED, PLAIN)}

    async def step(self, case: str, change: Coroutine[object, object, None]) -> None:
        """Carries out ``change`` and prints the figures of it."""
        before, begun_s = await self._places(), time.monotonic()
        await change
        done_s = time.monotonic() - begun_s
        await asyncio.sleep(ROUTES_S)
        after = await self._places()
        moved = sum(old != new for old, new in zip(before, after, strict=True))
        self._say(case, "took_s", "s", done_s, digits=1)
        self._say(case, "moved_queues", "1", moved)
        self._say(case, "moved_share", "1", moved / len(before), digits=2)
        for topic, producer in self.producers.items():
            times = [float(told[-1]) for told in producer.of_kind("ACK")]
            times = [at for at in times if at >= begun_s * 1000 - 1000]
            gap, at_ms = max((later - at, at) for at, later in pairwise(times))
            self._say(case, f"{topic}_gap_ms", "ms", gap)
            self._say(case, f"{topic}_gap_began_s", "s", at_ms / 1000 - begun_s, digits=1)

    async def add(self, name: str) -> None:
        """One group more, until it has its share and messages of both topics."""
        await self._cluster.start(name)
        await self._until(lambda maps: maps.load.get(name, 0) > 0, f"{name} has queues")
        await self._at_rest()

    async def remove(self, name: str) -> None:
        """One group less, by a drain."""
        path = f"/v1/groups/{CLUSTER}/{name}"
        assert await self._cluster.admin("PUT", f"{path}/drain", {}) == 200
        async with asyncio.timeout(STEP_S):
            while True:
                view = GroupView.model_validate_json(await self._read(path))
                if all(member.drain and member.drain.done for member in view.members):
                    break
                await asyncio.sleep(0.5)
        await self._at_rest()
        assert await self._cluster.admin("POST", f"{path}/retire", {"uid": name}) == 200
        self._cluster.end(name)

    async def judge(self) -> None:
        """Ends the producers, waits until all is consumed, and prints what went wrong."""
        for topic, producer in self.producers.items():
            producer.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(producer.process.wait)
            consumer = self.consumers[topic]
            acknowledged = {key for key, *_ in producer.of_kind("ACK")}
            async with asyncio.timeout(STEP_S):
                while not acknowledged <= {key for key, *_ in consumer.of_kind("DONE")}:
                    await asyncio.sleep(0.5)
            rows: dict[str, list[int]] = {}
            for _, queue, offset, *_ in consumer.of_kind("DONE"):
                rows.setdefault(queue, []).append(int(offset))
            seen = sum(map(len, rows.values()))
            self._say(topic, "acknowledged", "1", len(acknowledged))
            self._say(topic, "failed", "1", len(producer.of_kind("NACK")))
            self._say(topic, "lost", "1", 0)  # or it would still be waited for
            self._say(
                topic, "consumed_again", "1", seen - sum(len(set(row)) for row in rows.values())
            )
            self._say(topic, "out_of_order", "1", sum(map(out_of_order, rows.values())))

    def _say(self, case: str, metric: str, unit: str, value: float, *, digits: int = 0) -> None:
        print_json(line("growth", case, metric, unit, [value], digits=digits))
        sys.stdout.flush()

    async def maps(self) -> QueueMapsView:
        path = f"/v1/clusters/{CLUSTER}/queues?topic={MAPPED}"
        return QueueMapsView.model_validate_json(await self._read(path))

    async def _read(self, path: str) -> bytes:
        """What the leader says; while a new one is elected, what it says then."""
        async with asyncio.timeout(STEP_S):
            while True:
                with suppress(aiohttp.ClientError):
                    return await self._cluster.read(path)
                await asyncio.sleep(0.2)

    async def _places(self) -> list[str]:
        (topic,) = (await self.maps()).topics
        return [queue.segments[-1].group for queue in topic.detail]

    async def _at_rest(self) -> None:
        await self._until(lambda maps: not maps.topics[0].moving, "no queue moves")

    async def _until(self, holds: Callable[[QueueMapsView], bool], what: str) -> None:
        try:
            async with asyncio.timeout(STEP_S):
                while not holds(await self.maps()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise TimeoutError(f"not within {STEP_S} s: {what}") from None


def out_of_order(offsets: list[int]) -> int:
    """Messages that were first seen after a later one of their queue, or whose queue has a gap.

    What comes again, after a client has lost its lock, does not count.
    """
    firsts = list(dict.fromkeys(offsets))
    return sum(at != offset for at, offset in enumerate(firsts))


async def run(directory: Path) -> None:
    """The whole of it."""
    async with TwoGroups(directory) as cluster:
        wish = {"queues": QUEUES}
        while await cluster.admin("PUT", f"/v1/clusters/{CLUSTER}/queues/{MAPPED}", wish) != 200:
            await asyncio.sleep(0.5)
        await cluster.create_topic(PLAIN, {NEAR: 4, FAR: 4})
        with ExitStack() as clients:
            growth = await asyncio.to_thread(Growth, cluster, directory, clients)
            while not all(len(one.of_kind("ACK")) > 100 for one in growth.producers.values()):
                await asyncio.sleep(0.5)
            await asyncio.sleep(ROUTES_S)
            for number, name in enumerate(ADDED):
                await growth.step(f"{number + 2}-to-{number + 3}", growth.add(name))
            for number, name in enumerate(LEAVING):
                await growth.step(f"{4 - number}-to-{3 - number}", growth.remove(name))
            await growth.judge()


def main() -> None:
    """See the module."""
    os.environ.setdefault("GANTRY_ALLOW_UNAUTHENTICATED", "true")
    print_json({"bench": "growth", "machine": machine()})
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


if __name__ == "__main__":
    main()
