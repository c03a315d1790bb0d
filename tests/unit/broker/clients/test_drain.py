"""A master whose group is drained: takes nothing new in the end, owes what it has, and says so."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.drain import DrainReport
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    TopicConfig,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from support.group_view import FakeGroup

from .conftest import PULL, Client

pytestmark = pytest.mark.looptime

SEND: dict[str, Any] = {
    "producerGroup": "p",
    "topic": "TopicTest",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1,
    "flag": 0,
}
COMMIT: dict[str, Any] = {"consumerGroup": "g", "topic": "TopicTest", "queueId": 0}


class Leaving:
    """What the controllers say of the group."""

    drain_began_ms: int | None = None
    is_confirmed = True


class Drained:
    """A client of a master whose group may be drained; clients have 60 s to ask for routes."""

    def __init__(self, group: FakeGroup) -> None:
        self.leaving = Leaving()
        self._group = group

    @cached_property
    def processor(self) -> ClientProcessor:
        """Made in the test: fixtures run on the real clock."""
        return ClientProcessor(
            self._group,
            clock=lambda: asyncio.get_running_loop().time() + 1_700_000_000.0,
            levels=DelayLevels.parse("5s 10s"),
            leaving=self.leaving,
        )

    @cached_property
    def client(self) -> Client:
        return Client(self.processor)

    def begin(self) -> None:
        self.leaving.drain_began_ms = 1
        self.processor.drain.learned()

    async def send(self, topic: str = "TopicTest", **more: object) -> int:
        answer = await self.client.answer(
            RequestCode.SEND_MESSAGE, {**SEND, "topic": topic, **more}, b"x"
        )
        return answer.code

    def heartbeat(self, *, producers: tuple[str, ...] = (), model: str = "CLUSTERING") -> None:
        data = HeartbeatData(
            client_id="c1",
            producer_data_set=[ProducerData(name) for name in producers],
            consumer_data_set=[]
            if producers
            else [
                ConsumerData(
                    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                    consume_type="CONSUME_PASSIVELY",
                    group_name="g",
                    message_model=model,
                    subscription_data_set=[SubscriptionData(topic="TopicTest", sub_string="*")],
                )
            ],
        )
        assert self.client.call(RequestCode.HEART_BEAT, {}, encode_body(data)).code == 0

    async def commit(self, offset: int) -> None:
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        await self.client.answer(code, {**COMMIT, "commitOffset": offset})

    async def report(self) -> DrainReport:
        """After the next look."""
        await asyncio.sleep(1.1)
        report = self.processor.drain.report
        assert report is not None
        return report


@pytest.fixture
async def drained(group: FakeGroup):
    made = Drained(group)
    yield made
    made.processor.close()


async def test_a_group_that_is_not_drained_takes_everything_and_reports_nothing(
    drained: Drained,
) -> None:
    await asyncio.sleep(100)
    assert await drained.send() == ResponseCode.SUCCESS
    assert drained.processor.drain.report is None


async def test_sends_go_on_while_producers_have_not_asked_for_routes(drained: Drained) -> None:
    drained.heartbeat(producers=("p",))
    drained.begin()
    await asyncio.sleep(58)
    assert await drained.send() == ResponseCode.SUCCESS
    assert "still taken" in (await drained.report()).waits_for
    await asyncio.sleep(2)
    assert await drained.send() == ResponseCode.NO_PERMISSION
    assert drained.processor.drain.refused == 1
    assert (await drained.report()).done


async def test_who_sends_without_a_heartbeat_is_heard_too(drained: Drained) -> None:
    drained.begin()
    for _ in range(20):
        await asyncio.sleep(1.5)
        assert await drained.send() == ResponseCode.SUCCESS
    await asyncio.sleep(3.5)
    assert await drained.send() == ResponseCode.NO_PERMISSION


async def test_what_was_begun_goes_on(drained: Drained, group: FakeGroup) -> None:
    group.add_topic(TopicConfig(topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1))
    drained.begin()
    await asyncio.sleep(5)
    assert await drained.send() == ResponseCode.NO_PERMISSION
    half = await drained.send(properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02", sysFlag=4)
    delayed = await drained.send(properties="DELAY\x011\x02")
    assert (half, delayed) == (ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION)
    assert await drained.send("%RETRY%g") == ResponseCode.SUCCESS


async def test_it_waits_for_each_group_that_has_read_here(drained: Drained) -> None:
    for _ in range(3):
        assert await drained.send() == ResponseCode.SUCCESS
    await drained.commit(1)
    drained.begin()
    await asyncio.sleep(3)
    report = await drained.report()
    assert (report.done, report.unread) == (False, 2)
    assert report.waits_for.startswith("2 messages of TopicTest wait for consumer group g")
    drained.heartbeat()
    assert "one member" in (await drained.report()).waits_for
    await drained.commit(3)
    assert await drained.report() == DrainReport(done=True)
    assert (await drained.client.answer(RequestCode.PULL_MESSAGE, PULL)).code == 0


async def test_members_that_never_committed_have_it_all_to_read(drained: Drained) -> None:
    assert await drained.send() == ResponseCode.SUCCESS
    drained.heartbeat()
    drained.begin()
    await asyncio.sleep(3)
    assert (await drained.report()).unread == 1


async def test_broadcasting_members_are_where_they_pulled(drained: Drained) -> None:
    assert await drained.send() == ResponseCode.SUCCESS
    drained.heartbeat(model="BROADCASTING")
    assert (await drained.client.answer(RequestCode.PULL_MESSAGE, PULL)).code == 0
    assert await drained.send() == ResponseCode.SUCCESS
    drained.begin()
    await asyncio.sleep(3)
    assert (await drained.report()).unread == 1
    again = {**PULL, "queueOffset": 1}
    assert (await drained.client.answer(RequestCode.PULL_MESSAGE, again)).code == 0
    assert (await drained.report()).done


async def test_delayed_messages_are_waited_for_and_then_read(drained: Drained) -> None:
    await drained.commit(0)
    assert await drained.send(properties="DELAY\x012\x02") == ResponseCode.SUCCESS
    drained.begin()
    await asyncio.sleep(4)
    report = await drained.report()
    assert (report.parked, report.waits_for) == (1, "1 delayed messages wait for their time")
    await asyncio.sleep(8)
    report = await drained.report()
    assert (report.parked, report.unread) == (0, 1)
    await drained.commit(1)
    assert (await drained.report()).done


async def test_nothing_is_said_to_be_over_before_all_is_confirmed(drained: Drained) -> None:
    drained.leaving.is_confirmed = False
    drained.begin()
    await asyncio.sleep(5)
    assert (await drained.report()).waits_for == "not all that is stored is confirmed yet"
    drained.leaving.is_confirmed = True
    assert (await drained.report()).done


async def test_a_drain_that_ends_opens_the_group_again(drained: Drained) -> None:
    drained.begin()
    await asyncio.sleep(5)
    assert await drained.send() == ResponseCode.NO_PERMISSION
    drained.leaving.drain_began_ms = None
    drained.processor.drain.learned()
    assert drained.processor.drain.report is None
    assert await drained.send() == ResponseCode.SUCCESS
    drained.begin()
    assert await drained.send() == ResponseCode.SUCCESS, "with new time for clients"


async def test_a_mastership_that_begins_in_a_drain_carries_it_on(group: FakeGroup) -> None:
    leaving = Leaving()
    leaving.drain_began_ms = 1
    processor = ClientProcessor(group, leaving=leaving)
    await asyncio.sleep(5)
    assert processor.drain.report == DrainReport(done=True)
    processor.close()
