"""A doctor's probe of real brokers and doors, by way of an API server's port forwarding."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_operator import names
from gantry_operator.support.findings import Diagnosis, Level
from gantry_operator.support.material import Material
from gantry_operator.support.probe import ProbeWanted, planned, probe
from gantry_operator.support.round_trip import BODY_BYTES, TOPIC
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import bodies, eventually, pull_command, send_command
from support.broker_processes import Group
from support.patience import PATIENCE_S
from support.probed_pods import ForwardingApi, forwarding, one_group

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    group = Group(tmp_path)
    try:
        await group.start()
        await group.open_doors()
        yield group
    finally:
        await group.stop()


@pytest.fixture
async def api(tmp_path: Path, group: Group) -> AsyncIterator[ForwardingApi]:
    """Pod 0 is the master."""
    async with forwarding(tmp_path) as api:
        replicas = [ip for ip in sorted(group.processes) if ip != group.master_ip]
        addresses = [group.master_ip, *replicas]
        api.pods = {f"orders-broker-{n}": ip for n, ip in enumerate(addresses)}
        yield api


async def probed(api: ForwardingApi, material: Material) -> list[Diagnosis]:
    plan = planned(material, None, NOW)
    return await probe(api, "mq", plan, ProbeWanted(window_s=0.1), lambda _: None)


async def asked(address: str, command: RemotingCommand) -> RemotingCommand:
    client = await RemotingClient().connect(address)
    try:
        return await client.call(command, PATIENCE_S)
    finally:
        client.close()


async def test_a_group_is_measured_and_gets_one_message(group: Group, api: ForwardingApi) -> None:
    """By way of the door of a replica, from which the message goes on to the master."""
    for _ in range(3):
        assert (await group.ask(send_command(b"of a client"))).code == 0
    *disks, send = await probed(api, one_group(door=True))
    assert {one.check for one in disks} == {"syncs"}
    assert len(disks) == 3
    for disk in disks:
        assert " the p99 of a sync is at most " in disk.message, disks
        assert "since it began" in disk.message, "there were few in that time"
    assert send.check == "send"
    assert f"orders: {BODY_BYTES} bytes through the door of orders-broker-1" in send.message
    assert "; it was read " in send.message
    assert ("orders-broker-1", str(names.DOOR_PORT)) in api.forwarded
    await eventually(lambda: not api.open, "no way is left open")
    answer = await asked(f"{group.master_ip}:10911", pull_command(0, TOPIC))
    (body,) = bodies(answer)
    assert (len(body), body[:13]) == (BODY_BYTES, b"gantry probe "), "one message, and no more"


async def test_a_group_without_doors_gets_it_at_its_master(
    group: Group, api: ForwardingApi
) -> None:
    *_, send = await probed(api, one_group())
    assert "bytes through orders-broker-0 to topic" in send.message
    assert "; it was read " in send.message
    assert ("orders-broker-0", str(names.BROKER_REMOTING_PORT)) in api.forwarded


async def test_a_pod_that_is_gone_is_a_finding_and_the_others_are_measured(
    group: Group, api: ForwardingApi
) -> None:
    await group.kill(api.pods["orders-broker-2"])
    found = {one.message.split()[0]: one for one in await probed(api, one_group(door=True))}
    gone = found["orders-broker-2"]
    assert gone.level is Level.WARN
    assert "is not measured: " in gone.message
    assert "was not passed on" in gone.message
    assert " the p99 of a sync is " in found["orders-broker-1:"].message
    assert "; it was read " in found["orders:"].message, "two of three are enough for a send"
