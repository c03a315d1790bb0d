"""Priorities: the queue that they choose, and the order in which POP hands messages out."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients.plain_sends import PlainSender, send_header
from gantry_protocol.bodies import SubscriptionGroupConfig, TopicConfig
from gantry_protocol.command import request
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.records import BatchMessage, decode_properties, encode_batch
from gantry_protocol.records.properties import PRIORITY, encode_properties
from gantry_protocol.settings.priority import PRIORITY_FACTOR
from support.pops import GROUP, TOPIC, Consumer

from .test_send import V2

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

URGENT = {"message.type": "PRIORITY"}


@pytest.fixture(autouse=True)
def topic(group) -> None:
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4, attributes=URGENT)
    group.add_topic(config)


async def send(client, body: str, level: object, **more: str):
    properties = encode_properties({PRIORITY: str(level), **more})
    return await client.answer(310, {**V2, "i": properties}, body.encode())


def stored(group, topic: str = TOPIC) -> list[tuple[int, str | None]]:
    """The queue and the priority of each message."""
    return [
        (record.queue_id, decode_properties(record.properties).get(PRIORITY))
        for records in group.appended
        for record in records
        if record.topic == topic
    ]


# ---- sends


@pytest.mark.parametrize(
    ("level", "queue_id"), [(0, 0), (2, 2), (3, 3), (4, 3), (2**31 - 1, 3)], ids=str
)
async def test_a_priority_is_a_queue_and_the_last_one_takes_all_above(
    serve, group, level: int, queue_id: int
) -> None:
    answer = await send(Consumer(serve()), "a", level)
    assert (answer.code, answer.ext["queueId"]) == (0, str(queue_id))
    assert stored(group) == [(queue_id, str(level))]


@pytest.mark.parametrize("level", ["-1", "high", "1" * 11, "²"])
async def test_what_is_no_priority_is_not_stored_as_one(serve, group, level: str) -> None:
    answer = await send(Consumer(serve()), "a", level)
    assert (answer.code, answer.ext["queueId"]) == (0, "1"), "where the sender wants it"
    assert stored(group) == [(1, None)]


@pytest.mark.parametrize(
    "more",
    [{"DELAY": "1"}, {"TRAN_MSG": "true", "PGROUP": "pg"}, {"__SHARDINGKEY": "k"}],
    ids=["delayed", "half", "of a message group"],
)
async def test_a_message_of_another_kind_has_no_priority(serve, group, more) -> None:
    answer = await send(Consumer(serve()), "a", 3, **more)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")
    records = [record for records in group.appended for record in records]
    assert not any(PRIORITY in decode_properties(record.properties) for record in records)


async def test_a_priority_does_not_choose_among_queues_of_a_map() -> None:
    config = TopicConfig(
        topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4, attributes={MAPPED: "true"}
    )
    header = send_header(request(310, {name: str(value) for name, value in V2.items()}))
    assert PlainSender._queue_of(header, config, {PRIORITY: "3"}) == 1


async def test_a_batch_stays_where_it_is_sent(serve, group) -> None:
    body = encode_batch([BatchMessage(b"a", encode_properties({PRIORITY: "3"}))])
    answer = await Consumer(serve()).answer(320, {**V2, "i": "", "m": "true"}, body)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")


# ---- pops


async def test_the_most_urgent_message_comes_first(serve, group) -> None:
    consumer = Consumer(serve())
    for level in (1, 0, 3, 2, 3):
        await send(consumer, f"{level}", level)
        await asyncio.sleep(0)
    came = [body for _ in range(4) for body in await consumer.pop(maxMsgNums=1)]
    assert came == ["3", "3", "2", "1"]
    assert list(await consumer.pop()) == ["0"]


async def test_whatever_comes_later_overtakes_what_is_less_urgent(serve, group) -> None:
    consumer = Consumer(serve())
    for name in ("a", "b", "c"):
        await send(consumer, name, 0)
    assert list(await consumer.pop(maxMsgNums=1)) == ["a"]
    await send(consumer, "urgent", 1)
    assert list(await consumer.pop(maxMsgNums=2)) == ["urgent", "b"]


async def test_a_message_that_comes_again_keeps_its_priority_at_the_next_master(
    serve, group
) -> None:
    consumer = Consumer(serve())
    await send(consumer, "urgent", 3)
    assert list(await consumer.pop()) == ["urgent"]
    for name in ("a", "b"):
        await send(consumer, name, 1)
    consumer = Consumer(serve())
    await asyncio.sleep(10.1)
    await send(consumer, "next", 3)
    assert list(await consumer.pop(maxMsgNums=3)) == ["urgent", "next", "a"]


async def test_a_topic_of_another_kind_is_popped_from_all_queues_in_turn(serve, group) -> None:
    group.add_topic(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
    consumer = Consumer(serve())
    for level in range(4):
        await send(consumer, f"{level}", level)
    first = [next(iter(await consumer.pop(maxMsgNums=1))) for _ in range(4)]
    assert first == ["0", "1", "2", "3"]


async def test_in_order_nothing_overtakes(serve, group) -> None:
    consumer = Consumer(serve())
    for level in range(4):
        await send(consumer, f"{level}", level)
    first = [next(iter(await consumer.pop(maxMsgNums=1, order="true"))) for _ in range(4)]
    assert first == ["0", "1", "2", "3"]


async def test_a_group_that_says_so_leaves_nothing_for_good(serve, group) -> None:
    attributes = {PRIORITY_FACTOR: "50"}
    group.consumers._configs[GROUP] = SubscriptionGroupConfig(GROUP, attributes=attributes)
    consumer = Consumer(serve())
    await send(consumer, "patient", 0)
    came: list[str] = []
    for number in range(20):
        for at in range(2):
            await send(consumer, f"{number} {at}", 3)
        came += await consumer.pop(maxMsgNums=1)
    assert "patient" in came
    assert len(came) == 20
