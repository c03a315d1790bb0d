"""An unmodified Java client outside of the cluster, with its defaults, over ten kills of masters.

Skipped as a whole where Java or Maven is missing. Nothing here asserts a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from support import java
from support.broker_cluster import eventually
from support.broker_processes import Group
from support.outside_group import Outside
from support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(bool(java.MISSING), reason=f"{' and '.join(java.MISSING)} not installed"),
    pytest.mark.timeout(900),
]

KILLS = 10
TOPIC, PAUSE_MS = "java-outside", "5"


class Probe:
    """The Java client, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[list[str]] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, home: Path, *args: str) -> Probe:
        process = await asyncio.create_subprocess_exec(
            *("java", "-cp", java.clients(), f"-Duser.home={home}", "-Xmx256m"),
            *(*java.SHORT_LIVED, "dev.gantry.interop.Probe", *args),
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(line.decode().split(maxsplit=4))

    def of_kind(self, kind: str) -> list[list[str]]:
        return [line for line in self.said if line[0] == kind]

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._reading
            assert await self.process.wait() == 0

    async def goes_on(self, sends: int = 50) -> None:
        count = len(self.of_kind("ACK"))
        await eventually(lambda: len(self.of_kind("ACK")) > count + sends, "Java goes on")


async def kill_master(group: Group) -> str:
    """Until there is another one; the address of the killed one."""
    master = group.master_ip
    await group.kill(master)
    await eventually(lambda: group.master_ip != master, "another master")
    return master


async def test_a_java_client_outside_outlives_ten_masters(tmp_path: Path) -> None:
    await asyncio.to_thread(java.clients)  # fetched and compiled before anybody waits
    outside = Outside(Group(tmp_path))
    probes: list[Probe] = []
    try:
        await outside.start()
        producer = await Probe.start(tmp_path, "soak", outside.way_in, TOPIC, PAUSE_MS)
        probes.append(producer)
        await producer.goes_on()
        for _ in range(KILLS):
            killed = await kill_master(outside.group)
            await producer.goes_on()
            outside.group.boot(killed)
            await outside.group.settled()
        producer.process.terminate()
        await producer.ended()
        acknowledged = {line[1] for line in producer.of_kind("ACK")}
        assert producer.of_kind("NACK") == []
        come = outside.come
        assert come > 0

        count = str(len(acknowledged))
        consumer = await Probe.start(tmp_path, "lite-pull", outside.way_in, TOPIC, count)
        probes.append(consumer)
        await consumer.ended()
        received = Counter(line[1] for line in consumer.of_kind("MSG"))
        assert acknowledged - set(received) == set()
        assert outside.come > come
    finally:
        for probe in probes:
            if probe.process.returncode is None:
                probe.process.kill()
        await outside.stop()
