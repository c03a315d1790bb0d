"""Filters in SQL where messages are pulled and popped: what comes, and where a reader goes on."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients import filtered
from gantry_broker.store.contract import QueueRead, Refusal
from gantry_protocol.bodies import TopicConfig, encode_body
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.records import decode_records
from support import stores
from support.group_view import FakeGroup
from support.pops import GROUP, POP, Consumer, receipts

from .conftest import PULL

SQL = {"expressionType": "SQL92", "subscription": "v > 4"}
PULL_SQL = {**PULL, **SQL}
WAITING = {**PULL_SQL, "sysFlag": 6, "suspendTimeoutMillis": 15_000}
BY_HEARTBEAT = {**PULL_SQL, "sysFlag": 0}
POP_SQL = {"expType": "SQL92", "exp": "v > 4"}


def fill(group: FakeGroup, *values: object, topic: str = "TopicTest") -> None:
    """A message for each value of the property ``v``, which is its body, too."""
    for value in values:
        record = stores.message(topic, 0, f"{value}".encode(), properties=f"v\x01{value}\x02")
        stores.put(group.messages, record)
    stores.confirm(group.messages)


def bodies(answer) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


def place(answer) -> tuple[int, int]:
    return answer.code, int(answer.ext["nextBeginOffset"])


def beat(client, *wanted: SubscriptionData) -> None:
    consumers = [ConsumerData("g", subscription_data_set=list(wanted))]
    body = encode_body(HeartbeatData("c1", consumer_data_set=consumers))
    assert client.call(RequestCode.HEART_BEAT, None, body).code == 0


def by_sql(sql: str, version: int = 1, **more: object) -> SubscriptionData:
    return SubscriptionData("TopicTest", sql, sub_version=version, expression_type="SQL92", **more)


# ---- pulls


@pytest.mark.parametrize("code", [11, 361])
async def test_only_what_passes_comes(client, group, code) -> None:
    fill(group, 3, 5, 4, 6, "none", 1)
    answer = client.call(code, PULL_SQL)
    assert (bodies(answer), place(answer)) == ([b"5", b"6"], (0, 6))


async def test_nothing_that_passes_is_20_and_goes_on(client, group) -> None:
    fill(group, 1, 2, 3)
    answer = client.call(11, {**WAITING, "sysFlag": 4})
    assert (place(answer), answer.body) == ((20, 3), b"")
    assert place(client.call(11, {**PULL_SQL, "queueOffset": 3})) == (19, 3)


async def test_the_subscription_of_the_heartbeat_is_used(client, group) -> None:
    fill(group, 3, 5)
    beat(client, by_sql("v > 4"))
    assert bodies(client.call(11, BY_HEARTBEAT)) == [b"5"]
    assert client.call(11, {**BY_HEARTBEAT, "subVersion": 2}).code == 25
    beat(client, by_sql("v < 4", version=2))
    assert bodies(client.call(11, {**BY_HEARTBEAT, "subVersion": 2})) == [b"3"]


async def test_a_heartbeat_with_what_is_no_filter_is_refused_when_it_pulls(client, group) -> None:
    fill(group, 5)
    beat(client, by_sql("v >"))
    answer = client.call(11, BY_HEARTBEAT)
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "line 1, column 4" in answer.remark
    beat(client, by_sql("v >", version=2, class_filter_mode=True))
    assert bodies(client.call(11, {**BY_HEARTBEAT, "subVersion": 2})) == [b"5"]


async def test_a_group_with_a_filter_gets_all_of_its_retries(client, group) -> None:
    retries = "%RETRY%g"
    group.add_topic(TopicConfig(retries, read_queue_nums=1, write_queue_nums=1))
    fill(group, 1, 5, topic=retries)
    beat(client, by_sql("v > 4"), SubscriptionData(retries, "*", sub_version=1))
    assert bodies(client.call(11, {**BY_HEARTBEAT, "topic": retries})) == [b"1", b"5"]


async def test_as_many_come_as_are_asked_for_and_the_rest_is_not_lost(client, group) -> None:
    fill(group, *[1] * 40, 5, 6, 2, 7, 8)
    answer = client.call(11, {**PULL_SQL, "maxMsgNums": 3})
    assert (bodies(answer), place(answer)) == ([b"5", b"6", b"7"], (0, 44))
    answer = client.call(11, {**PULL_SQL, "maxMsgNums": 3, "queueOffset": 44})
    assert (bodies(answer), place(answer)) == ([b"8"], (0, 45))


async def test_one_pull_looks_at_a_bounded_number_and_a_reader_gets_to_the_end(
    client, group
) -> None:
    fill(group, *[1] * 2_000, 5)
    offset, looks = 0, []
    for _ in range(10):
        answer = client.call(11, {**PULL_SQL, "queueOffset": offset})
        code, offset = place(answer)
        looks.append((code, offset))
    assert looks[:3] == [(20, 832), (20, 1_664), (0, 2_001)]
    assert looks[3] == (19, 2_001)
    large = " OR ".join(["v > 4"] * 100)
    assert place(client.call(11, {**PULL_SQL, "subscription": large})) == (20, 32 + 109)


async def test_one_pull_reads_a_bounded_number_of_bytes(client, group) -> None:
    for _ in range(8):
        stores.put(group.messages, stores.message("TopicTest", 0, bytes(300_000)))
    stores.confirm(group.messages)
    assert place(client.call(11, PULL_SQL)) == (20, 1 + 3)


@pytest.fixture
def reads(group: FakeGroup, monkeypatch: pytest.MonkeyPatch):
    """What the store is asked, and what it says instead to the second question."""
    asked: list[QueueRead] = []
    instead: list[object] = []
    read = group.store.read

    def noting(wanted, done) -> None:
        asked.append(wanted)
        if len(asked) == 2 and instead:
            done(instead[0])
        else:
            read(wanted, done)

    monkeypatch.setattr(group.store, "read", noting)
    return asked, instead


async def test_what_was_looked_at_counts_also_when_the_rest_cannot_be_read(
    client, group, reads
) -> None:
    fill(group, *[1] * 50)
    reads[1].append(Refusal(ResponseCode.SYSTEM_ERROR, "damaged"))
    assert place(client.call(11, PULL_SQL)) == (20, 32)
    assert len(reads[0]) == 2
    reads[1].clear()
    assert place(client.call(11, {**PULL_SQL, "queueOffset": 32})) == (20, 50)
    assert [wanted.codes for wanted in reads[0]] == [None] * 3


async def test_a_slow_store_is_asked_once(client, group, reads, monkeypatch) -> None:
    fill(group, *[1] * 50)
    monkeypatch.setattr(filtered, "LATE_S", 0.0)
    assert place(client.call(11, PULL_SQL)) == (20, 32)
    assert len(reads[0]) == 1


async def test_a_pull_waits_for_what_passes(client, group, processor) -> None:
    asked, answer = client.ask(11, WAITING)
    fill(group, 1, 2)
    assert (answer, processor.parked_pulls) == (None, 1)
    fill(group, 3, 5)
    answer = client.conn.answer_to(asked)
    assert (bodies(answer), place(answer)) == ([b"5"], (0, 4))


async def test_more_than_one_look_sees_ends_the_waiting(client, group, processor) -> None:
    """Otherwise what passes, further back, would wait for another message or the time's end."""
    for changes in ({}, {"expressionType": "TAG", "subscription": "Z"}):
        client.conn.replies.clear()
        begin = group.messages.max_offset("TopicTest", 0)
        asked, _ = client.ask(11, {**WAITING, **changes, "queueOffset": begin})
        fill(group, *[1] * 1_000)
        assert processor.parked_pulls == 0
        code, offset = place(client.conn.answer_to(asked))
        assert (code, begin + 800 <= offset < begin + 1_000) == (20, True)


# ---- pops


async def test_only_what_passes_is_popped_and_the_rest_is_done(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, 5, 1, 6, 2)
    found = await consumer.pop(**POP_SQL)
    assert list(found) == ["5", "6"]
    assert await consumer.pop(**POP_SQL) == {}
    for receipt in found.values():
        assert (await consumer.ack(receipt)).code == 0
    assert group.store.committed.query(GROUP, "TopicTest", 0) == 4


@pytest.mark.looptime
async def test_what_was_popped_comes_again_and_nothing_else(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, 1, 5, 2)
    assert list(await consumer.pop(**POP_SQL)) == ["5"]
    await asyncio.sleep(10.1)
    assert list(await consumer.pop(**POP_SQL)) == ["5"]


@pytest.mark.looptime
@pytest.mark.parametrize(
    "wanted", [POP_SQL, {"expType": "TAG", "exp": "Z"}], ids=["by SQL", "by tags"]
)
async def test_a_pop_that_waits_gets_past_what_its_filter_leaves(serve, group, wanted) -> None:
    consumer = Consumer(serve())
    fill(group, *[1] * 3_000)
    last = stores.message("TopicTest", 0, b"last", properties="v\x019\x02TAGS\x01Z\x02")
    stores.put(group.messages, last)
    stores.confirm(group.messages)
    asked, _ = consumer.ask(200050, {**POP, **wanted, "pollTime": 15_000})
    await asyncio.sleep(1)
    assert list(receipts(consumer.answer_to(asked))) == ["last"]


async def test_a_pop_of_a_few_takes_no_more_and_loses_none(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, *[1] * 40, 5, 6, 7)
    assert list(await consumer.pop(**POP_SQL, maxMsgNums=2)) == ["5", "6"]
    assert list(await consumer.pop(**POP_SQL, maxMsgNums=2)) == ["7"]
