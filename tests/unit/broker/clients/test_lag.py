"""How far consumer groups are behind, as a serving master tells it."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

import pytest
from gantry_broker.clients import ClientProcessor, lag
from gantry_broker.clients.lag import ConsumerLag, Lag
from gantry_broker.clients.lag_metrics import LagCollector
from gantry_broker.store.contract import FIRST, Learned, QueueOffsets, QueueQuestion
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from gantry_protocol.codes import RequestCode
from support.group_view import FakeGroup

from .conftest import Client

pytestmark = pytest.mark.looptime

TOPIC = "TopicTest"
PAIR = ("g", TOPIC)
AGE = "gantry_broker_consumer_lag_seconds"
MESSAGES = "gantry_broker_consumer_lag_messages"
SEND: dict[str, Any] = {
    "producerGroup": "p",
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1,
    "flag": 0,
}


class Watched:
    """A master whose consumers are watched."""

    def __init__(self, group: FakeGroup) -> None:
        self.group = group

    @cached_property
    def processor(self) -> ClientProcessor:
        """Made in the test: fixtures run on the real clock."""
        return ClientProcessor(self.group, clock=self.now_s)

    @cached_property
    def client(self) -> Client:
        return Client(self.processor)

    @staticmethod
    def now_s() -> float:
        return asyncio.get_running_loop().time() + 1_700_000_000.0

    async def send(self, queue_id: int = 0) -> None:
        answer = await self.client.answer(
            RequestCode.SEND_MESSAGE, {**SEND, "queueId": queue_id}, b"x"
        )
        assert answer.code == 0

    async def commit(self, offset: int, queue_id: int = 0, group: str = "g") -> None:
        where = {"consumerGroup": group, "topic": TOPIC, "queueId": queue_id}
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        await self.client.answer(code, {**where, "commitOffset": offset})

    def heartbeat(self, topic: str = TOPIC, model: str = "CLUSTERING") -> None:
        consumer = ConsumerData(
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            consume_type="CONSUME_PASSIVELY",
            group_name="g",
            message_model=model,
            subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")],
        )
        data = HeartbeatData(client_id="c1", producer_data_set=[], consumer_data_set=[consumer])
        assert self.client.call(RequestCode.HEART_BEAT, {}, encode_body(data)).code == 0

    async def told(self) -> dict[tuple[str, str], int]:
        """Messages, after the next pass."""
        await asyncio.sleep(2 * lag.PASS_EVERY_S)
        return {pair: found.messages for pair, found in self.processor.lag.told.items()}

    def exported(self) -> dict[str, float]:
        """The samples of the group and the topic."""
        collector = LagCollector(lambda: self.processor.lag, self.now_s)
        return {
            sample.name: sample.value
            for family in collector.collect()
            for sample in family.samples
            if sample.labels.get("consumer_group", "g") == "g"
        }


@pytest.fixture
async def watched(group: FakeGroup):
    made = Watched(group)
    yield made
    made.processor.close()


async def test_lag_is_summed_over_queues_and_goes_when_all_is_consumed(watched: Watched) -> None:
    for queue_id in (0, 0, 0, 1):
        await watched.send(queue_id)
    await watched.commit(1)
    await watched.commit(0, queue_id=1)
    assert await watched.told() == {PAIR: 3}
    await watched.commit(3)
    await watched.commit(1, queue_id=1)
    assert await watched.told() == {PAIR: 0}
    assert watched.exported() == {
        MESSAGES: 0,
        AGE: 0,
        "gantry_broker_consumer_lag_left_out": 0,
    }


async def test_age_is_that_of_the_first_message_and_grows_between_passes(
    watched: Watched,
) -> None:
    await watched.send()
    await watched.commit(0)
    assert await watched.told() == {PAIR: 1}
    stored_ms = watched.processor.lag.told[PAIR].oldest_ms
    assert stored_ms == watched.group.store.messages.store_time(TOPIC, 0, 0)
    before = LagCollector(lambda: watched.processor.lag, lambda: stored_ms / 1000 + 60)
    assert [s.value for f in before.collect() if f.name == AGE for s in f.samples] == [60]


async def test_a_message_that_stays_the_first_one_is_looked_up_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.send()
    await watched.commit(0)
    await watched.told()
    messages = watched.group.store.messages
    asked: list[int] = []
    found = messages.store_time

    def noted(topic: str, queue_id: int, offset: int) -> int | None:
        asked.append(offset)
        return found(topic, queue_id, offset)

    monkeypatch.setattr(messages, "store_time", noted)
    await watched.send()
    assert await watched.told() == {PAIR: 2}
    assert asked == []
    await watched.commit(1)
    assert await watched.told() == {PAIR: 1}
    assert asked == [1]


async def test_who_nobody_would_act_for_is_left_out(watched: Watched) -> None:
    await watched.send()
    await watched.commit(0)
    assert await watched.told() == {PAIR: 1}, "nobody is there, which is when it matters"
    watched.heartbeat()
    assert await watched.told() == {PAIR: 1}
    watched.heartbeat(model="BROADCASTING")
    assert await watched.told() == {}
    watched.heartbeat(topic="another")
    assert await watched.told() == {}


async def test_the_longest_behind_come_first_where_there_are_too_many(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "TOLD_MAX", 1)
    monkeypatch.setattr(lag, "SLICE", 1)
    await watched.send()
    await watched.commit(1, group="a")
    await watched.commit(0, group="g")
    assert await watched.told() == {PAIR: 1}
    assert watched.exported()["gantry_broker_consumer_lag_left_out"] == 1


class Tiered:
    """A store whose first records are in the tier only, all but the queue's first one unread."""

    def offsets(self, questions: list[QueueQuestion], done: Learned) -> None:
        stored = {FIRST: 5_000}
        done([QueueOffsets(0, 10, 10, stored.get(question.at)) for question in questions])


class Nobody:
    def group(self, name: str) -> None:
        """No member is there."""


async def test_for_a_message_in_the_tier_the_first_of_its_queue_stands() -> None:
    committed = ConsumerOffsets([("g", TOPIC, 0, 3, 0)])
    watching = ConsumerLag(Tiered(), committed, Nobody())  # type: ignore[arg-type]
    await asyncio.sleep(2 * lag.PASS_EVERY_S)
    assert watching.told == {PAIR: Lag(7, 5_000)}
    watching.close()


async def test_nothing_is_looked_at_after_the_mastership(watched: Watched) -> None:
    await watched.send()
    await watched.commit(0)
    processor = watched.processor
    processor.close()
    await asyncio.sleep(10 * lag.PASS_EVERY_S)
    assert processor.lag.told == {}


def test_the_first_message_of_all_queues_counts() -> None:
    found = Lag()
    for messages, stored_ms in ((2, 70), (1, None), (3, 50), (1, 60)):
        found.add(messages, stored_ms)
    assert found == Lag(7, 50)


def test_a_replica_tells_none() -> None:
    families = LagCollector(lambda: None, lambda: 0.0).collect()
    assert [sample.value for family in families for sample in family.samples] == [0]
