"""A disk that stops answering without an error, under real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gantry_protocol.errors import RemotingError
from gantry_protocol.records import decode_records
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually, pull_command, send_command
from support.broker_processes import Group


class Producer:
    """Sends numbered bodies to whoever takes them; knows which were acknowledged."""

    def __init__(self, group: Group) -> None:
        self.acknowledged: list[bytes] = []
        self.answers: list[tuple[int, str]] = []
        self._group = group
        self._sent = 0

    async def run(self) -> None:
        client: RemotingClient | None = None
        while True:
            self._sent += 1
            body = b"%d" % self._sent
            try:
                if client is None or client.closed:
                    ips = sorted(self._group.processes)
                    client = await RemotingClient().connect(
                        f"{ips[self._sent % len(ips)]}:10911", 0.5
                    )
                answer = await client.call(send_command(body), 5)
                self.answers.append((answer.code, answer.remark or ""))
                if answer.code == 0:
                    self.acknowledged.append(body)
            except RemotingError:
                if client is not None:
                    client.close()
            await asyncio.sleep(0.01)


async def read_all(group: Group) -> set[bytes]:
    """Every body in the topic, from the master."""
    client = await RemotingClient().connect(f"{group.master_ip}:10911", 2)
    found: set[bytes] = set()
    offset = 0
    while True:
        answer = await client.call(pull_command(offset), 5)
        if answer.code != 0:
            client.close()
            return found
        records = decode_records(answer.body)
        found.update(one.body for one in records)
        offset = int((answer.ext or {})["nextBeginOffset"])


async def status(ip: str) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{ip}:10913/status") as answer,
    ):
        (found,) = [await answer.json()]
        return dict(found)


@pytest.fixture
async def members(request: pytest.FixtureRequest) -> int:
    return int(getattr(request, "param", 3))


@pytest.fixture
async def group(tmp_path: Path, members: int) -> AsyncIterator[Group]:
    made = Group(tmp_path, members)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def producer(group: Group) -> AsyncIterator[Producer]:
    made = Producer(group)
    task = asyncio.create_task(made.run())
    await eventually(lambda: len(made.acknowledged) > 20, "the producer is at work")
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_master_whose_disk_hangs_hands_over(group: Group, producer: Producer) -> None:
    hung, epoch = group.master_ip, group.controller.group.master_epoch
    group.processes[hung].hangs.touch()
    await eventually(lambda: group.controller.group.master_epoch > epoch, "another master")
    assert group.master_ip != hung
    so_far = len(producer.acknowledged)
    await eventually(lambda: len(producer.acknowledged) > so_far + 20, "writes go on")
    said = await status(hung)
    assert said["role"] == "replica"
    assert said["diskWaitedMs"] > 3_000
    assert "the disk does not answer" in group.processes[hung].said
    await eventually(lambda: len(group.controller.group.sync_state_set) == 2, "it is let go")

    group.processes[hung].hangs.unlink()
    await group.settled()
    assert "the disk answers again" in group.processes[hung].said
    assert set(producer.acknowledged) <= await read_all(group)


@pytest.mark.parametrize("members", [1], indirect=True)
async def test_who_has_nobody_to_take_over_keeps_the_role_and_says_so(
    group: Group, producer: Producer
) -> None:
    ip, epoch = group.master_ip, group.controller.group.master_epoch
    group.processes[ip].hangs.touch()
    await eventually(lambda: producer.answers[-1][0] == 14, "writes are refused")
    assert "disk does not answer" in producer.answers[-1][1]
    said = await status(ip)
    assert (said["role"], said["ready"]) == ("master", True)
    assert "stays the master" in said["reason"]
    assert await read_all(group) >= set(producer.acknowledged), "reads go on"

    group.processes[ip].hangs.unlink()
    so_far = len(producer.acknowledged)
    await eventually(lambda: len(producer.acknowledged) > so_far + 20, "writes go on")
    assert group.controller.group.master_epoch == epoch
    assert set(producer.acknowledged) <= await read_all(group)


async def test_a_replica_whose_disk_hangs_is_let_go(group: Group, producer: Producer) -> None:
    hung = next(ip for ip in sorted(group.processes) if ip != group.master_ip)
    epoch = group.controller.group.master_epoch
    group.processes[hung].hangs.touch()
    await eventually(lambda: len(group.controller.group.sync_state_set) == 2, "it is let go")
    so_far = len(producer.acknowledged)
    await eventually(lambda: len(producer.acknowledged) > so_far + 20, "writes go on")
    assert group.controller.group.master_epoch == epoch
    group.processes[hung].hangs.unlink()
    await group.settled()
