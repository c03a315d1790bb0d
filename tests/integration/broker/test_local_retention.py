"""Processes that keep little of their log: everything is still read, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.records import decode_records
from support.broker_cluster import eventually, pull_command, send_command
from support.broker_processes import NOT_NOW, Group

BODY_BYTES = 1000
SEGMENT_BYTES = 64 * 1024
NOT_CONFIRMED = 12  # stored; a busy machine's replicas were late
PLACE = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}


class TieredGroup(Group):
    """Three processes that keep as little of the log as they may."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        bucket = directory / "bucket"
        bucket.mkdir()
        self.env = {
            "GANTRY_TIER_URL": bucket.as_uri(),
            "GANTRY_TIER_SHARD": "2f6c1b9e-group",
            "GANTRY_TIER_PACK_BYTES": "32768",
            "GANTRY_TIER_LINGER_MS": "100",
            "GANTRY_TIER_LOCAL_BYTES": "0",
            "GANTRY_LOG_SEGMENT_BYTES": str(SEGMENT_BYTES),
        }
        self.sent: list[bytes] = []

    async def send(self, count: int) -> None:
        """Messages of one queue; each is acknowledged before the next, so none is there twice."""
        for _ in range(count):
            body = b"%06d" % len(self.sent) + b"." * BODY_BYTES
            command = send_command(body)
            command.ext["i"] = f"UNIQ_KEY\x01{len(self.sent):032X}\x02"  # so once, if repeated
            answer = await self.ask(command, again=NOT_NOW | {NOT_CONFIRMED})
            assert answer.code == 0, answer
            self.sent.append(body)

    async def read(self, topic: str = "orders", offset: int = 0) -> list[bytes]:
        """Everything from ``offset`` on, as a consumer gets it."""
        bodies: list[bytes] = []
        while True:
            answer = await self.ask(pull_command(offset, topic))
            if answer.code == 19:
                return bodies
            assert answer.code in (0, 20), answer
            records = decode_records(answer.body or b"")
            assert [one.queue_offset for one in records] == list(
                range(offset, offset + len(records))
            )
            assert int((answer.ext or {})["minOffset"]) == 0
            bodies += [one.body for one in records]
            offset = int((answer.ext or {})["nextBeginOffset"])

    async def trimmed(self, ip: str, above: int = 0) -> dict[str, Any]:
        """The status, once the log of ``ip`` begins above ``above``."""
        return await self.until(ip, lambda found: found["logStart"] > above)

    async def in_sync(self, ip: str) -> dict[str, Any]:
        """The status, once ``ip`` is in the set."""
        return await self.until(ip, lambda found: found["inSync"])


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[TieredGroup]:
    made = TieredGroup(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_nothing_is_lost_and_nothing_forgotten_below_the_local_log(
    group: TieredGroup,
) -> None:
    early = await group.ask(send_command(b"early", topic="early"))
    assert early.code == 0
    await group.send(40)
    committed = {**PLACE, "commitOffset": "17"}
    assert (await group.ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, committed))).code == 0
    await group.send(260)
    for ip in group.processes:
        await group.trimmed(ip)
    assert await group.read() == group.sent

    killed = group.master_ip
    start = (await group.trimmed(killed))["logStart"]
    await group.kill(killed)
    await group.send(200)
    assert group.master_ip != killed
    await group.trimmed(group.master_ip, start)
    assert await group.read() == group.sent
    group.boot(killed)
    await group.settled()

    empty = next(ip for ip in group.processes if ip != group.master_ip)
    await group.kill(empty)
    shutil.rmtree(group.directory / empty)
    group.boot(empty)
    assert (await group.trimmed(empty, start))["brokerId"] > 3, "an empty volume is a new member"
    await group.in_sync(empty)
    master = group.master_ip
    others = [ip for ip in group.processes if ip not in (master, empty)]
    for ip in (*others, master):  # nobody is left to hand over to but the one that was empty
        group.processes[ip].process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(group.processes[ip].exit_code)
    await eventually(lambda: group.master_ip == empty, "the one that was empty leads")
    for ip in (*others, master):
        group.boot(ip)
        await group.in_sync(ip)

    await knows_everything(group)
    await group.send(20)
    assert await group.read() == group.sent

    for ip in group.processes:
        await group.kill(ip)
    for ip in group.processes:
        group.boot(ip)
    await group.settled()
    await knows_everything(group)
    assert await group.read() == group.sent
    await group.send(20)
    assert await group.read(offset=len(group.sent) - 30) == group.sent[-30:]


async def knows_everything(group: TieredGroup) -> None:
    """What was said only in parts of the log that nobody has on a disk any more."""
    offset = await group.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, PLACE))
    assert (offset.ext or {})["offset"] == "17"
    assert await group.read("early") == [b"early"]
    end = await group.ask(request(RequestCode.GET_MAX_OFFSET, {"topic": "early", "queueId": "0"}))
    assert (end.ext or {})["offset"] == "1"
    assert (await group.ask(send_command(b"later", topic="early", queue_id=1))).code == 0
