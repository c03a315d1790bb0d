"""Delays and retries in groups of three: masters are killed, messages arrive once it is time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import MessageRecord, decode_properties, decode_records
from support.broker_cluster import pull_command, send_command
from support.broker_processes import Group
from support.patience import PATIENCE_S

SHORT_MS, LONG_MS = 50, 1_500


def delayed(body: bytes, level: int) -> RemotingCommand:
    command = send_command(body)
    assert command.ext is not None
    command.ext["i"] = f"DELAY\x01{level}\x02"
    return command


class Delays(Group):
    """Three processes with short delays."""

    env = {  # noqa: RUF012 - replaced, never changed
        "GANTRY_DELAY_LEVELS": f"{SHORT_MS}ms {LONG_MS}ms"
    }

    async def read(self, holds: Callable[[list[MessageRecord]], bool]) -> list[MessageRecord]:
        """All messages of the topic's queue, once they are as they should be."""
        found: list[MessageRecord] = []
        async with asyncio.timeout(PATIENCE_S):
            while not holds(found):
                answer = await self.ask(pull_command(len(found), wait_ms=500))
                found += decode_records(answer.body or b"")
        return found

    async def lose_master(self) -> str:
        """SIGKILL to the master."""
        ip = self.master_ip
        await self.kill(ip)
        return ip


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Delays]:
    made = Delays(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_delayed_messages_survive_their_master_and_arrive_once_it_is_time(group) -> None:
    assert (await group.ask(send_command(b"now"))).code == 0
    sent_ms = {}
    for number in range(20):
        body = b"%d" % number
        sent_ms[body] = int(time.time() * 1000)
        assert (await group.ask(delayed(body, 2))).code == 0
    await group.lose_master()
    found = await group.read(lambda found: len(found) >= 21)
    bodies = [one.body for one in found]
    assert bodies == [b"now", *sent_ms], "each once, in their order"
    for one in found[1:]:
        assert one.store_timestamp >= sent_ms[one.body] + LONG_MS
        assert decode_properties(one.properties)["DELAY"] == "2"


async def test_masters_die_amid_deliveries_and_nothing_is_lost(group) -> None:
    assert (await group.ask(send_command(b"now"))).code == 0
    sent = []
    for number in range(150):
        body = b"%d" % number
        answer = await group.ask(delayed(body, 1))
        assert answer.code in (0, 12)
        sent.append(body)
        if number in (40, 90):
            group.boot(await group.lose_master())
            if number == 40:
                await group.settled()
    found = await group.read(lambda found: {*sent} <= {one.body for one in found})
    counts = Counter(one.body for one in found)
    # A client that was not answered sends again; the second copy was parked as a message of its
    # own. What is there twice is near one of the two kills.
    twice = [body for body, count in counts.items() if count > 1]
    assert len(twice) <= 20, twice


async def test_what_is_parked_is_kept_though_the_tier_has_it(tmp_path: Path) -> None:
    group = Delays(tmp_path)
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    group.env = {
        "GANTRY_DELAY_LEVELS": "12s",
        "GANTRY_TIER_URL": bucket.as_uri(),
        "GANTRY_TIER_SHARD": "2f6c1b9e-group",
        "GANTRY_TIER_PACK_BYTES": "32768",
        "GANTRY_TIER_LINGER_MS": "100",
        "GANTRY_TIER_LOCAL_BYTES": "0",
        "GANTRY_LOG_SEGMENT_BYTES": str(64 * 1024),
    }
    try:
        await group.start()
        assert (await group.ask(send_command(b"first"))).code == 0
        assert (await group.ask(delayed(b"parked", 1))).code == 0
        for _ in range(6):
            assert (await group.ask(send_command(bytes(40_000)))).code == 0
        for ip in group.processes:  # any of them may be the next master
            pinned = await group.until(ip, lambda found: "is read from" in _kept(found))
            assert pinned["logStart"] == 0
        await group.lose_master()
        found = await group.read(lambda found: found[-1:] != [] and found[-1].body == b"parked")
        assert len(found) == 8
        await group.until(group.master_ip, lambda found: found["logStart"] > 0)
    finally:
        await group.stop()


def _kept(status: dict[str, Any]) -> str:
    return str((status["tier"] or {}).get("keptReason") or "")
