"""Requests of POP that wait: who is woken by what, and how often somebody looks."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import SubscriptionGroupConfig
from gantry_protocol.codes import ResponseCode
from support.late_store import LateStore
from support.pops import GROUP, POP, TOPIC, Consumer, fill, receipts

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Looks:
    """Counts how often a processor looks for messages; beyond a thousand times it finds none.

    Time stands still for who looks without a rest, so a test would never end.
    """

    def __init__(self, processor, monkeypatch) -> None:
        self.count = 0
        self._take = processor.pops.taking.take
        self._polls = processor.pops.polls
        monkeypatch.setattr(processor.pops.taking, "take", self.take)

    def take(self, *args):
        self.count += 1
        if self.count == 1000:
            self._polls.close()
        return self._take(*args)


async def test_who_waits_for_a_blocked_queue_looks_now_and_then(serve, group, monkeypatch) -> None:
    one, two = Consumer(processor := serve()), Consumer(processor)
    looks = Looks(processor, monkeypatch)
    fill(group, "a", "b", queue_id=1)
    found = await one.pop(invisibleTime=100, order="true")
    await one.change(found["b"], 5_000)
    asked, _ = two.ask(200050, {**POP, "order": "true", "pollTime": 15_000})
    await asyncio.sleep(0.2)
    looks.count = 0
    await asyncio.sleep(1)
    assert 1 <= looks.count <= 20
    await asyncio.sleep(5)
    assert list(receipts(two.answer_to(asked))) == ["a", "b"]


async def test_who_waits_for_a_topic_of_dead_letters_looks_now_and_then(
    serve, group, monkeypatch
) -> None:
    consumer = Consumer(processor := serve())
    looks = Looks(processor, monkeypatch)
    group.consumers._configs[GROUP] = SubscriptionGroupConfig(GROUP, retry_max_times=0)
    group.topic_refusal = Refusal(ResponseCode.SYSTEM_BUSY, "no controllers")
    fill(group, "a")
    await consumer.pop(invisibleTime=50)
    asked, _ = consumer.ask(200050, {**POP, "pollTime": 15_000})
    await asyncio.sleep(0.2)
    looks.count = 0
    await asyncio.sleep(1)
    assert 1 <= looks.count <= 20
    fill(group, "b")
    await asyncio.sleep(0.01)
    assert list(receipts(consumer.answer_to(asked))) == ["b"], "what arrives is found at once"


async def test_a_message_that_is_given_back_wakes_who_waits(serve, group) -> None:
    one, two = Consumer(processor := serve()), Consumer(processor)
    fill(group, "a", "b", queue_id=1)
    fill(group, "c")
    found = await one.pop(order="true", invisibleTime=100)
    await one.change(found["b"], 30_000)
    hidden = await one.change(found["c"], 30_000)
    asked, _ = two.ask(200050, {**POP, "order": "true", "pollTime": 15_000})
    await asyncio.sleep(5)
    fields = found["c"].split(" ")
    fields[1], fields[2] = hidden.ext["popTime"], hidden.ext["invisibleTime"]
    assert (await one.change(" ".join(fields), 0)).code == 0
    await asyncio.sleep(0.01)
    assert list(receipts(two.answer_to(asked))) == ["c"], "it does not wait for the rest of a"


async def test_who_waits_for_one_queue_is_not_behind_who_waits_for_another(serve, group) -> None:
    one, two = Consumer(processor := serve()), Consumer(processor)
    first, _ = one.ask(200050, {**POP, "queueId": 0, "pollTime": 15_000})
    second, _ = two.ask(200050, {**POP, "queueId": 1, "pollTime": 15_000})
    await asyncio.sleep(0.05)
    assert one.call(200055, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}).ext == {
        "pollingNum": "2"
    }
    fill(group, "a", queue_id=1)
    await asyncio.sleep(0.1)
    assert list(receipts(two.answer_to(second))) == ["a"]
    assert one.answer_to(first) is None
    fill(group, "b")
    await asyncio.sleep(0.1)
    assert list(receipts(one.answer_to(first))) == ["b"]


async def test_an_acknowledgement_wakes_who_waits_for_its_queue(serve, group) -> None:
    one, two, three = (Consumer(processor := serve()), *(Consumer(processor) for _ in range(2)))
    fill(group, "a", "b")
    ordered = {**POP, "order": "true", "maxMsgNums": 1, "pollTime": 15_000}
    receipt = (await one.pop(order="true", maxMsgNums=1))["a"]
    other, _ = two.ask(200050, {**ordered, "queueId": 1})
    asked, _ = three.ask(200050, {**ordered, "queueId": 0})
    await asyncio.sleep(1)
    assert (await one.ack(receipt)).code == 0
    await asyncio.sleep(0.01)
    assert list(receipts(three.answer_to(asked))) == ["b"]
    assert two.answer_to(other) is None


@pytest.mark.parametrize("first", [0, -1])
async def test_who_finds_a_queue_taken_is_woken_when_it_is_free(serve, group, first: int) -> None:
    group.store = LateStore(group.local)
    one, two = Consumer(processor := serve()), Consumer(processor)
    await asyncio.sleep(0.1)
    fill(group, "a", "b")
    ext = {**POP, "pollTime": 15_000, "maxMsgNums": 1}
    asked = [
        (one, one.ask(200050, {**ext, "queueId": first})[0]),
        (two, two.ask(200050, {**ext, "queueId": -1 - first})[0]),
    ]
    await asyncio.sleep(0.1)
    answers = [consumer.answer_to(request) for consumer, request in asked]
    assert sorted(body for answer in answers for body in receipts(answer)) == ["a", "b"]


@pytest.mark.parametrize("later_s", [0.0015, 0.0045, 0.0075])
async def test_what_arrives_while_a_pop_looks_is_found(serve, group, later_s: float) -> None:
    group.store = LateStore(group.local)
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    await consumer.pop()  # and the next one begins at queue 1
    asked, _ = consumer.ask(200050, {**POP, "pollTime": 15_000})
    await asyncio.sleep(later_s)
    fill(group, "a", queue_id=1)
    await asyncio.sleep(0.1)
    assert list(receipts(consumer.answer_to(asked))) == ["a"]
