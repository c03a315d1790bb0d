"""Every broker is killed, a front serves the tier to `gantry consume`, and they come back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from support.broker_cluster import TOPIC, eventually, send_command
from support.broker_processes import Group
from support.foreign_clients import started
from support.patience import PATIENCE_S

BEFORE, AFTER = 300, 50

pytestmark = pytest.mark.timeout(300)


async def sent(group: Group, first: int, last: int) -> None:
    for number in range(first, last):
        answer = await group.ask(send_command(b"message %d" % number))
        assert answer.code == 0


async def test_one_consumer_reads_through_the_outage_each_message_once(tmp_path: Path) -> None:
    group = Group(tmp_path)
    tier = {"GANTRY_TIER_URL": (tmp_path / "bucket").as_uri()}
    (tmp_path / "bucket").mkdir()
    group.env = {
        **tier,
        "GANTRY_TIER_SHARD": "u",  # as which the controllers have it declared
        "GANTRY_TIER_LINGER_MS": "200",
        "GANTRY_STORE_PORT": "10914",
    }
    group.front_env = tier
    try:
        await group.start()
        await sent(group, 0, BEFORE)
        uploaded = await group.until(
            group.master_ip,
            lambda status: status["tier"]["committedOffset"] == status["confirmOffset"] > 0,
        )
        for ip in list(group.processes):
            await group.kill(ip)
        ip = f"{group.network}.101"
        group.boot_front(ip)
        group.declare_fronts(ip)
        row = await group.serves_from_tier(ip)
        assert row["tier"]["readableOffset"] == uploaded["tier"]["committedOffset"]
        command = [sys.executable, "-m", "gantry_cli", "consume", TOPIC, "--json"]
        names = ["--nameserver", group.controller.address, "--from", "committed"]
        async with started([*command, *names]) as lines:
            await eventually(lambda: len(lines) >= BEFORE, "all of the tier has come", PATIENCE_S)
            for ip in list(group.processes):
                group.boot(ip)
            await sent(group, BEFORE, BEFORE + AFTER)
            total = BEFORE + AFTER
            await eventually(lambda: len(lines) >= total, "what came since, too", PATIENCE_S)
            await asyncio.sleep(1.0)  # nothing comes twice
            bodies = [json.loads(line)["body"] for line in lines]
        assert bodies == [f"message {number}" for number in range(total)]
    finally:
        await group.stop()
