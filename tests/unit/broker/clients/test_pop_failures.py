"""POP where something else fails: a read, a topic, a dead letter that does not fit, no room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_broker.clients import ClientProcessor, offset_age
from gantry_broker.clients.core.pop.records import QueueId
from gantry_broker.clients.newcomers import NewcomerBudget
from gantry_broker.clients.pop.book import BURIED_BYTES
from gantry_broker.store.contract import QueueRead, Read, Refusal, Store, WasRead
from gantry_broker.store.tables import offsets
from gantry_protocol.bodies import SubscriptionGroupConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import RecordError
from gantry_protocol.records import MAX_PROPERTIES_BYTES, MessageRecord
from support.pops import GROUP, POP, TOPIC, Consumer, fill, receipts
from support.transactions import read_queue

from .conftest import Jumping

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def tries(group, count: int) -> None:
    """So often a message of the consumer group is tried again."""
    group.consumers._configs[GROUP] = SubscriptionGroupConfig(GROUP, retry_max_times=count)


class Damaged:
    """A store that cannot read queue 1 of the topic, as long as `is_so`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_so = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, wanted: Read, done: WasRead) -> None:
        is_there = isinstance(wanted, QueueRead) and (wanted.topic, wanted.queue_id) == (TOPIC, 1)
        if self.is_so and is_there:
            done(Refusal(ResponseCode.SYSTEM_ERROR, "the file is damaged"))
        else:
            self._store.read(wanted, done)


@pytest.mark.parametrize("before", range(4))
async def test_a_queue_that_cannot_be_read_keeps_nothing_of_others(
    serve, group, before: int
) -> None:
    group.store = store = Damaged(group.local)
    tries(group, 0)
    processor = serve()
    consumer = Consumer(processor)
    for _ in range(before):  # pops begin at another queue each
        await consumer.pop(consumerGroup="other", maxMsgNums=1)
    store.is_so = True
    fill(group, "sound")
    fill(group, "unreadable", queue_id=1)
    assert list(await consumer.pop()) == ["sound"]
    held = processor.pops.book.ledger.queues[QueueId(GROUP, TOPIC, 0)].held
    assert [item.message.count for item in held.values()] == [1]
    answer = await consumer.answer(200050, POP)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the file is damaged")
    assert read_queue(group.messages, "%DLQ%g") == []
    store.is_so = False
    assert list(receipts(await consumer.answer(200050, POP))) == ["unreadable"]


# ---- dead letters that do not fit


def fill_large(group) -> str:
    """Store a message whose properties take all the room that there is for them."""
    properties = f"k\x01{'v' * (MAX_PROPERTIES_BYTES - 3)}\x02"
    record = MessageRecord(topic=TOPIC, body=b"large", properties=properties)
    group.store.append([record], lambda outcome: None)
    return properties


async def test_a_dead_letter_without_room_for_properties_keeps_its_own(serve, group) -> None:
    tries(group, 0)
    processor = serve()
    consumer = Consumer(processor)
    properties = fill_large(group)
    assert list(await consumer.pop(queueId=0, invisibleTime=50)) == ["large"]
    for _ in range(2):  # the first one finds that there is no topic for it
        await asyncio.sleep(0.1)
        assert await consumer.pop(queueId=0) == {}
    await asyncio.sleep(0.1)
    (dead,) = read_queue(group.messages, "%DLQ%g")
    assert (dead.body, dead.properties, dead.reconsume_times) == (b"large", properties, 1)
    assert group.store.committed.query(GROUP, TOPIC, 0) == 1


async def test_a_large_dead_letter_holds_up_nobody(serve, group) -> None:
    tries(group, 0)
    processor = serve()
    one, two = Consumer(processor), Consumer(processor)
    fill_large(group)
    fill(group, "other", queue_id=1)
    receipt = (await two.pop(consumerGroup="good", queueId=1))["other"]
    await one.pop(queueId=0, invisibleTime=50)
    one.ask(200050, {**POP, "queueId": 0, "pollTime": 15_000})
    await asyncio.sleep(0.06)
    assert (await two.ack(receipt, consumerGroup="good")).code == 0
    await asyncio.sleep(0.1)
    assert [record.body for record in read_queue(group.messages, "%DLQ%g")] == [b"large"]
    assert processor.pops.book.refused == 0


async def test_a_dead_letter_that_no_record_can_carry_is_done(serve, group, monkeypatch) -> None:
    tries(group, 0)
    processor = serve()
    consumer = Consumer(processor)
    fill_large(group)
    await consumer.pop(queueId=0, invisibleTime=50)
    await asyncio.sleep(0.1)

    def refuse(record: MessageRecord) -> bytes:
        raise RecordError("it does not fit")

    monkeypatch.setattr("gantry_broker.clients.pop.taking.encode", refuse)
    for _ in range(2):
        assert await consumer.pop(queueId=0) == {}
        await asyncio.sleep(0.1)
    assert group.store.committed.query(GROUP, TOPIC, 0) == 1
    assert (processor.pops.taking.gone, processor.pops.taking.buried) == (1, 0)


# ---- no room for offsets


async def test_a_group_without_room_for_its_offset_is_refused(serve, group, monkeypatch) -> None:
    processor = serve()
    consumer = Consumer(processor)
    fill(group, "a", "b")
    await consumer.pop(queueId=0, maxMsgNums=1)
    await asyncio.sleep(1)
    monkeypatch.setattr(offsets, "OFFSETS_MAX", len(group.store.committed))
    before = len(group.appended)
    for _ in range(3):
        answer = await consumer.answer(200050, {**POP, "consumerGroup": "late", "queueId": 0})
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "no room" in answer.remark
    await asyncio.sleep(1)
    assert len(group.appended) == before
    assert all(queue.group == GROUP for queue in processor.pops.book.ledger.queues)
    assert list(await consumer.pop(queueId=0)) == ["b"], "who has an offset goes on"


async def test_pops_of_new_groups_are_bounded_and_those_of_known_ones_are_not(serve, group) -> None:
    processor = serve()
    processor.new_groups._own = NewcomerBudget(2, 0.001)
    consumer = Consumer(processor)
    fill(group, "a")
    for name in ("g0", "g1"):
        assert list(await consumer.pop(consumerGroup=name)) == ["a"]
    answer = await consumer.answer(200050, {**POP, "consumerGroup": "g2"})
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "too many new groups" in answer.remark
    assert group.store.committed.of_group("g2") == []
    for name in ("g0", "g1"):
        assert await consumer.pop(consumerGroup=name) == {}
    assert processor.new_groups.refused == 1
    assert list(await Consumer(processor).pop(consumerGroup="g2")) == ["a"]


# ---- clients that are no members


@pytest.mark.parametrize("is_used", [True, False], ids=["popped", "left alone"])
async def test_offsets_of_a_group_that_only_pops_stay(group, monkeypatch, is_used: bool) -> None:
    monkeypatch.setattr(offset_age, "HOUR_S", 10.0)
    processor = ClientProcessor(group, clock=Jumping(), offsets_kept_hours=48)
    consumer = Consumer(processor)
    fill(group, "a", "b")
    for receipt in (await consumer.pop()).values():
        await consumer.ack(receipt)
    for _ in range(60):
        await asyncio.sleep(10.0)
        if is_used:
            await consumer.pop()
    kept = group.store.committed.query(GROUP, TOPIC, 0)
    processor.close()
    assert kept == (2 if is_used else None)


# ---- no topic for dead letters


async def test_dead_letters_wait_in_the_log_for_their_topic(serve, group) -> None:
    tries(group, 0)
    processor = serve()
    consumer = Consumer(processor)
    bodies = [f"{at:05}" * 6_000 for at in range(60)]
    fill(group, *bodies)
    for _ in range(8):
        await consumer.pop(queueId=0, invisibleTime=1_000)
    group.holding_topics = True
    await asyncio.sleep(1)
    consumer.ask(200050, {**POP, "queueId": 0, "pollTime": 60_000})
    await asyncio.sleep(10)
    assert [topic.topic_name for topic in group.created] == ["%DLQ%g"]
    before = len(group.appended)
    group.release_topics()
    await asyncio.sleep(1)
    dead = read_queue(group.messages, "%DLQ%g")
    assert sorted(record.body.decode() for record in dead) == bodies
    sizes = [sum(len(record.body) for record in records) for records in group.appended[before:]]
    assert max(sizes) <= BURIED_BYTES + 2 * len(bodies[0])  # one beyond it, and the rest's records


async def test_a_refused_topic_is_asked_for_now_and_then(serve, group) -> None:
    tries(group, 0)
    processor = serve()
    consumer = Consumer(processor)
    fill(group, "a", "b", queue_id=1)
    await consumer.pop(invisibleTime=50)
    await asyncio.sleep(0.1)
    asked = []

    def refuse(topic, done, *, if_absent: bool) -> None:
        asked.append(topic.topic_name)
        done(Refusal(ResponseCode.SYSTEM_BUSY, "no controllers"))

    group.create_topic, create = refuse, group.create_topic
    for _ in range(20):
        await consumer.pop()
    consumer.ask(200050, {**POP, "pollTime": 15_000})
    await asyncio.sleep(5)
    assert 3 <= len(asked) <= 7
    group.create_topic = create
    await asyncio.sleep(2)
    assert [record.body for record in read_queue(group.messages, "%DLQ%g")] == [b"b", b"a"]
