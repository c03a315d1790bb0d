"""Clients outside of the cluster, which reach brokers by node ports only: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.broker_cluster import eventually
from support.broker_processes import Group
from support.client_kills import TOPIC, stored_keys
from support.outside_group import GROUP_PORT, Outside

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    found = Outside(Group(tmp_path))
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


async def gantry(*args: str) -> dict[str, Any]:
    """The summary that a command prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gantry_cli", *args, "--json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "GANTRY_NAMESERVERS": ""},
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


async def test_each_client_is_led_by_the_way_that_it_came_in(outside: Outside) -> None:
    master = outside.group.master_ip
    assert await outside.route(outside.group.controller.address) == {"0": f"{master}:10911"}
    assert await outside.route(outside.way_in) == {"0": f"{outside.nodes[master].ip}:{GROUP_PORT}"}

    inside = outside.group.controller.address
    sent = await gantry("produce", TOPIC, "--count", "50", "--nameserver", inside)
    assert (sent["acknowledged"], outside.come) == (50, 0)

    sent = await gantry("produce", TOPIC, "--count", "50", "--nameserver", outside.way_in)
    assert sent["acknowledged"] == 50
    assert outside.come > 0
    stored = await stored_keys(f"{outside.group.master_ip}:10911")
    assert sum(stored.values()) == 100


async def test_a_client_outside_goes_on_when_the_master_and_its_node_are_lost(
    outside: Outside,
) -> None:
    """First the master's process, whose door keeps the client; then a whole node with its pod."""
    sending = asyncio.create_task(
        gantry(
            *("produce", TOPIC, "--count", "1500", "--rate", "150", "--patience", "60"),
            *("--nameserver", outside.way_in),
        )
    )
    await eventually(lambda: outside.come > 0, "it is connected")
    first = outside.group.master_ip
    await outside.group.kill(first)
    await eventually(lambda: outside.group.master_ip != first, "another master")
    outside.group.boot(first)
    await outside.group.settled()
    second = outside.group.master_ip
    assert await outside.route(outside.way_in) == {"0": f"{outside.nodes[second].ip}:{GROUP_PORT}"}

    assert not sending.done()
    outside.nodes[second].lose()
    outside.group.doors[second].process.kill()
    await outside.group.kill(second)
    await eventually(lambda: outside.group.master_ip != second, "a third master")
    third = outside.group.master_ip
    assert await outside.route(outside.way_in) == {"0": f"{outside.nodes[third].ip}:{GROUP_PORT}"}
    sent = await sending
    assert (sent["acknowledged"], sent["failed"]) == (1500, 0)
    assert outside.nodes[third].come > 0, "perhaps since it was master before"
    stored = await stored_keys(f"{outside.group.master_ip}:10911")
    assert len(stored) == 1500
