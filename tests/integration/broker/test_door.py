"""A client whose connection belongs to a door, while brokers end or stand still: real processes."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_protocol.command import RemotingCommand
from gantry_protocol.frame import encode
from gantry_protocol.hosts import split_address
from gantry_protocol.proxy_preamble import UNKNOWN_V1
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import eventually, send_command
from support.broker_processes import Door, Group
from support.client_kills import TOPIC, stored_keys
from support.patience import PATIENCE_S
from support.sends import Load

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    group = Group(tmp_path)
    try:
        await group.start()
        await group.open_doors()
        yield group
    finally:
        await group.stop()


async def all_are_stored_once(group: Group, load: Load) -> None:
    await load.stop()
    load.client.close()
    stored = await stored_keys(f"{group.master_ip}:10911")
    assert Counter(load.codes.values()) == {0: len(load.codes)}
    assert {key: stored[key] for key in load.codes} == dict.fromkeys(load.codes, 1)
    assert set(stored.values()) == {1}


async def test_a_client_outlives_the_brokers_that_are_killed(group: Group) -> None:
    """Two masters one after the other, the first beside its own door."""
    first = group.master_ip
    load = Load(await RemotingClient().connect(group.doors[first].address))
    await load.goes_on()
    group.processes[first].process.kill()
    await load.goes_on()
    second = group.master_ip
    assert second != first
    group.boot(first)
    await group.settled()
    group.processes[second].process.kill()
    await load.goes_on()
    await all_are_stored_once(group, load)


async def test_what_a_killed_master_did_not_answer_is_answered_by_the_next_one(
    group: Group,
) -> None:
    """It is sent to a master that stands still, so it is unanswered when that one is killed."""
    master = group.master_ip
    client = await RemotingClient().connect(group.doors[master].address)
    assert (await client.call(send_command(b"before", TOPIC), PATIENCE_S)).code == 0
    group.processes[master].process.send_signal(signal.SIGSTOP)
    sending = asyncio.create_task(client.call(send_command(b"amid", TOPIC), PATIENCE_S))
    await given(group.doors[master])
    assert not sending.done()
    group.processes[master].process.kill()
    answer: RemotingCommand = await sending
    assert answer.code == 0
    assert not client.closed
    client.close()
    assert await stored_keys(f"{group.master_ip}:10911") == {"before": 1, "amid": 1}
    assert await metric(group.doors[master], "splice_sends_given_again_total") == 1


async def test_a_client_notices_nothing_of_a_replica_that_stands_still(group: Group) -> None:
    still = next(ip for ip in group.processes if ip != group.master_ip)
    load = Load(await RemotingClient().connect(group.doors[still].address))
    await load.goes_on()
    group.processes[still].process.send_signal(signal.SIGSTOP)
    await load.goes_on()
    group.processes[still].process.send_signal(signal.SIGCONT)
    await all_are_stored_once(group, load)


async def test_a_master_that_stands_still_is_left_for_the_next_one(group: Group) -> None:
    """No connection to it is lost: the controllers say that there is another one."""
    master = group.master_ip
    load = Load(await RemotingClient().connect(group.doors[master].address))
    await load.goes_on()
    group.processes[master].process.send_signal(signal.SIGSTOP)
    await eventually(lambda: group.master_ip != master, "another master")
    await load.goes_on()
    group.processes[master].process.send_signal(signal.SIGCONT)
    await group.settled()
    await all_are_stored_once(group, load)


async def test_a_master_that_answers_nobody_is_doubted(group: Group) -> None:
    """Without controllers, which would name another one."""
    master = group.master_ip
    door = group.doors[master]
    client = await RemotingClient().connect(door.address)
    assert (await client.call(send_command(b"before", TOPIC), PATIENCE_S)).code == 0
    await group.controller.stop()
    while (await door.status() or {})["inDoubt"]:  # of a master that answered late
        await asyncio.sleep(0.05)
    group.processes[master].process.send_signal(signal.SIGSTOP)
    sending = asyncio.create_task(client.call(send_command(b"amid", TOPIC), PATIENCE_S))
    while not (await door.status() or {})["inDoubt"]:
        await asyncio.sleep(0.05)
    assert not sending.done()
    sending.cancel()
    client.close()


async def test_who_was_passed_on_before_is_not_passed_on_again(group: Group) -> None:
    """Doors that lead to each other would go round in circles."""
    host, port = split_address(group.doors[group.master_ip].address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(UNKNOWN_V1 + encode(send_command(b"round", TOPIC)))
    assert await reader.read() == b""
    writer.close()
    client = await RemotingClient().connect(f"{group.master_ip}:10911")
    assert (await client.call(send_command(b"direct", TOPIC), PATIENCE_S)).code == 0
    client.close()
    assert await stored_keys(f"{group.master_ip}:10911") == {"direct": 1}


async def test_it_is_ready_from_the_first_master_on_and_ends_when_told(tmp_path: Path) -> None:
    group = Group(tmp_path)
    await group.controller.start()
    group.controller.declare()
    ip = group.network + ".1"
    door = group.doors[ip] = Door(tmp_path, ip, group.controller.address)
    try:
        while (status := await door.status()) is None or not status["controllers"]:
            await asyncio.sleep(0.05)
        assert not await door.ready()
        for number in range(1, 4):
            group.boot(f"{group.network}.{number}")
        await group.settled()
        while not await door.ready():
            await asyncio.sleep(0.05)
        client = await RemotingClient().connect(door.address)
        assert (await client.call(send_command(b"x", TOPIC), PATIENCE_S)).code == 0
        for process in group.processes.values():
            process.process.kill()
        while (await door.status() or {})["spliced"]:
            await asyncio.sleep(0.05)
        assert await door.ready()
        door.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(door.process.wait, PATIENCE_S) == 0
        await eventually(lambda: client.closed, "its connections end")
    finally:
        await group.stop()


async def metric(door: Door, name: str) -> float:
    _, text = await door.get("/metrics")
    (line,) = [one for one in text.splitlines() if one.startswith(f"gantry_door_{name} ")]
    return float(line.rpartition(" ")[2])


async def given(door: Door) -> None:
    """Until it keeps something that it has passed on."""
    while not await metric(door, "splice_kept_bytes"):
        await asyncio.sleep(0.02)
