"""A group whose brokers, volumes and controllers are gone begins again from its tier."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from gantry_broker.tier.core.values import State
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.records import decode_record
from gantry_protocol.tier.chain import TAKE_EPOCHS
from support.broker_cluster import TOPIC, bodies, eventually, pull_command, send_command
from support.from_tier import GroupFromTier
from support.loopback_controller import GROUP
from support.patience import PATIENCE_S
from support.pops import POP, named, receipts
from support.tiered_cluster import UID, TieredCluster
from support.transactions import COMMIT, HEARTBEAT, claim, half

LATER, DELAY_MS = "later", 4_000
INVISIBLE_MS = 3_000


def texts(ext: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in ext.items()
    }


def pop_command() -> RemotingCommand:
    own = {"topic": TOPIC, "queueId": 0, "invisibleTime": INVISIBLE_MS, "bornTime": _now_ms()}
    return request(RequestCode.POP_MESSAGE, texts({**POP, **own}))


def _now_ms() -> int:
    return int(time.time() * 1000)


def commit_command(offset: int) -> RemotingCommand:
    ext = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


def committed_command() -> RemotingCommand:
    ext = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
    return request(RequestCode.QUERY_CONSUMER_OFFSET, ext)


async def send(cluster: TieredCluster, first: int, last: int) -> list[bytes]:
    client = await cluster.client(cluster.master)
    texts = [b"%d" % number for number in range(first, last)]
    for text in texts:
        assert (await client.call(send_command(text))).code == 0
    return texts


async def readable(cluster: TieredCluster) -> list[tuple[int, bytes]]:
    """All messages of the queue with their offsets."""
    client = await cluster.client(cluster.master)
    found: list[tuple[int, bytes]] = []
    while True:
        answer = await client.call(pull_command(len(found)))
        more = bodies(answer)
        if not more:
            return found
        first = decode_record(answer.body, 0).queue_offset
        found += [(first + place, body) for place, body in enumerate(more)]


async def lost_group(directory: Path) -> tuple[list[bytes], Path]:
    """A group that wrote, uploaded all of it, and is gone with its volumes; what was sent."""
    (directory / "old").mkdir()
    async with TieredCluster(directory / "old") as cluster:
        sent = await send(cluster, 0, 200)
        client = await cluster.client(cluster.master)
        assert (await client.call(commit_command(120))).code == 0
        await cluster.master.stop()  # what consumers committed is written now, and nothing more
        cluster.brokers = {
            number: one for number, one in cluster.brokers.items() if not one.task.done()
        }
        await eventually(
            lambda: any(one.is_master for one in cluster.brokers.values()), "another one takes over"
        )
        await eventually(cluster.caught_up, "everything confirmed is in the tier")
        bucket = directory / "bucket"
    shutil.move(directory / "old" / "bucket", bucket)
    shutil.rmtree(directory / "old")
    return sent, bucket


async def test_everything_up_to_the_end_of_the_tier_is_there_again(tmp_path: Path) -> None:
    sent, bucket = await lost_group(tmp_path)
    async with GroupFromTier(tmp_path / "new", bucket) as cluster:
        copied = cluster.chain()
        assert await readable(cluster) == list(enumerate(sent))
        client = await cluster.client(cluster.master)
        answer = await client.call(committed_command())
        assert (answer.ext or {})["offset"] == "120"
        more = await send(cluster, 200, 260)
        await eventually(cluster.caught_up, "what came since is in the tier, too")
        assert await readable(cluster) == list(enumerate(sent + more))
        chain = cluster.chain()
        assert (chain.owner, chain.shard) == ("new", UID)
        assert chain.packs[: len(copied.packs)] == copied.packs
        assert chain.pair.epoch > copied.pair.epoch - 1 >= TAKE_EPOCHS
        log = cluster.master.group.store.log
        assert cluster.tiered_log() == log.read(log.log_start, log.end)

        replica = cluster.replicas_of()[0]
        number = cluster.number_of(replica)
        await replica.stop()
        shutil.rmtree(tmp_path / "new" / str(number))
        cluster.boot(number)
        await cluster.settled()
        filled = cluster.brokers[number].group
        assert filled.store.log.read(log.log_start, log.end) == log.read(log.log_start, log.end)
        assert cluster.chain().taken_v == chain.taken_v


async def test_a_former_group_that_still_lives_uploads_no_more(tmp_path: Path) -> None:
    """It serves on; neither its master nor the next one changes what the new group has."""
    (tmp_path / "old").mkdir()
    async with TieredCluster(tmp_path / "old") as old:
        sent = await send(old, 0, 50)
        await eventually(old.caught_up, "everything confirmed is in the tier")
        async with GroupFromTier(tmp_path / "new", old.bucket) as new:
            more = await send(new, 50, 80)
            await send(old, 100, 120)
            await eventually(new.caught_up, "the new group uploads")
            await eventually(
                lambda: old.uploader.status.state is State.FENCED, "the former master is fenced"
            )
            former = old.master
            await former.stop()
            del old.brokers[old.number_of(former)]
            await old.settled()
            await eventually(
                lambda: old.uploader.status.state is State.FENCED, "and so is its successor"
            )
            await send(old, 120, 130)
            more += await send(new, 80, 90)
            await eventually(new.caught_up, "the new group goes on")
            assert await readable(new) == list(enumerate(sent + more))
            log = new.master.group.store.log
            assert new.tiered_log() == log.read(log.log_start, log.end)


async def test_a_second_group_is_refused(tmp_path: Path) -> None:
    _, bucket = await lost_group(tmp_path)
    async with GroupFromTier(tmp_path / "new", bucket) as first:
        chain = first.chain()
        second = GroupFromTier(tmp_path / "second", bucket, "second")
        second.awaits_copies = False
        async with second:
            await eventually(
                lambda: all(
                    "belongs to group new" in broker.member.ready()[1]
                    for broker in second.brokers.values()
                ),
                "all of its brokers say why they wait",
            )
            assert not second.controller.group.master_id
        assert (first.chain().owner, first.chain().taken_v) == ("new", chain.taken_v)


async def test_what_was_under_way_goes_on(tmp_path: Path) -> None:
    """A message in somebody's hands, one that is not due yet, and a transaction that is open."""
    (tmp_path / "old").mkdir()
    async with TieredCluster(tmp_path / "old") as old:
        client = await old.client(old.master)
        for body in (b"acknowledged", b"in hand"):
            assert (await client.call(send_command(body))).code == 0
        held = receipts(await client.call(pop_command()))
        assert list(held) == ["acknowledged", "in hand"]
        receipt = held["acknowledged"].replace("broker-a", GROUP)
        ack = request(RequestCode.ACK_MESSAGE, texts({**named(receipt), "topic": TOPIC}))
        assert (await client.call(ack)).code == 0
        due = send_command(b"due later", LATER)
        assert due.ext is not None
        due.ext["i"] = f"TIMER_DELAY_MS\x01{DELAY_MS}\x02"
        sent_ms = time.time() * 1000
        assert (await client.call(due)).code == 0
        assert (await client.call(request(RequestCode.HEART_BEAT, None, HEARTBEAT))).code == 0
        opened = request(RequestCode.SEND_MESSAGE_V2, texts(half(topic=LATER, queue_id=0)), b"half")
        opened = await client.call(opened)
        assert opened.code == 0, opened.remark
        await eventually(old.caught_up, "everything confirmed is in the tier")
        bucket = tmp_path / "bucket"
    shutil.move(tmp_path / "old" / "bucket", bucket)
    shutil.rmtree(tmp_path / "old")
    async with GroupFromTier(tmp_path / "new", bucket) as new:
        client = await new.client(new.master)
        popped: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            while not popped:
                answer = await client.call(pop_command())
                popped = {} if answer.code else receipts(answer)
        assert list(popped) == ["in hand"]
        ended = request(RequestCode.END_TRANSACTION, texts(claim(opened, COMMIT, topic=LATER)))
        assert (await client.call(ended)).code == 0
        found: dict[bytes, float] = {}
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < 2:
                answer = await client.call(pull_command(len(found), LATER, wait_ms=500))
                now_ms = time.time() * 1000
                found |= dict.fromkeys(bodies(answer), now_ms)
        assert found.keys() == {b"due later", b"half"}
        assert found[b"due later"] >= sent_ms + DELAY_MS
