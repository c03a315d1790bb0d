"""Processes without a tier that keep little of their log: room is freed, nobody is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.records import decode_records
from support.broker_cluster import pull_command, send_command
from support.broker_processes import Group
from support.patience import PATIENCE_S

BODY_BYTES = 4000
FILE_BYTES = 64 * 1024
KEPT_BYTES = 2 * FILE_BYTES
PLACE = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}


class SmallGroup(Group):
    """Three processes that keep two files of the log, and the one that is written."""

    env = {  # noqa: RUF012 - replaced, never changed
        "GANTRY_RETENTION_BYTES": str(KEPT_BYTES),
        "GANTRY_LOG_SEGMENT_BYTES": str(FILE_BYTES),
    }

    async def send(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            answer = await self.ask(send_command(b"%06d" % number + bytes(BODY_BYTES)))
            assert answer.code == 0, answer

    async def read_all(self) -> list[int]:
        """The numbers of all messages that are there."""
        queue = {"topic": "orders", "queueId": "0"}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                first = await self.ask(request(RequestCode.GET_MIN_OFFSET, queue))
                offset = int((first.ext or {})["offset"])
                found: list[int] = []
                while (answer := await self.ask(pull_command(offset + len(found)))).code == 0:
                    found += [int(one.body[:6]) for one in decode_records(answer.body or b"")]
                if answer.code == 19:
                    return found
                assert answer.code == 21, answer  # the first of them went meanwhile

    def disk_bytes(self, ip: str) -> int:
        return sum(one.stat().st_blocks * 512 for one in self.log_of(ip).glob("*"))

    def log_of(self, ip: str) -> Path:
        return self.directory / ip / "store" / "commitlog"


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[SmallGroup]:
    made = SmallGroup(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_room_is_freed_and_who_was_away_begins_anew(group: SmallGroup) -> None:
    """What is freed, what consumers see, and a replica that ends below its master's log."""
    await group.send(0, 20)
    committed = {**PLACE, "commitOffset": "17"}
    assert (await group.ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, committed))).code == 0
    away = next(ip for ip in sorted(group.processes) if ip != group.master_ip)
    end = (await group.until(away, lambda found: found["inSync"]))["endOffset"]
    await group.kill(away)
    await group.send(20, 100)
    for ip in set(group.processes) - {away}:
        found = await group.until(ip, lambda found: found["logStart"] > end)
        assert found["endOffset"] - found["logStart"] >= KEPT_BYTES
        assert group.disk_bytes(ip) <= KEPT_BYTES + 4 * FILE_BYTES < found["endOffset"]
    moved = await group.ask(pull_command(0))
    low = int((moved.ext or {})["minOffset"])
    assert (moved.code, (moved.ext or {})["nextBeginOffset"]) == (21, str(low))
    assert await group.read_all() == list(range(low, 120))

    group.boot(away)
    await group.settled()
    assert (await group.until(away, lambda found: found["inSync"]))["logStart"] > end
    former = group.master_ip
    (other,) = set(group.processes) - {away, former}
    await group.kill(other)
    await group.until(former, lambda found: len(found["syncStateSet"]) == 2)
    await group.kill(former)
    await group.until(away, lambda found: found["role"] == "master")
    asked = await group.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, PLACE))
    assert (asked.ext or {})["offset"] == "17"
    kept = await group.read_all()
    assert kept == list(range(kept[0], 120))
    assert len(kept) * BODY_BYTES > KEPT_BYTES / 2
