"""Requests of POP that wait: who is woken by what, and how often somebody looks."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import SubscriptionGroupConfig
from gantry_protocol.codes import ResponseCode
from support.pops import GROUP, POP, Consumer, fill, receipts

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
