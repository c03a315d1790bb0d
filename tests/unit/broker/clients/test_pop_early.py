"""Requests by receipts at a master that still reads what its predecessors wrote."""

from __future__ import annotations

import asyncio
import base64
from functools import partial

import pytest
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.clients.pop import early
from gantry_broker.clients.waiting_room import RoomLimits
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import ResponseCode
from support.late_store import LateStore
from support.pops import GROUP, TOPIC, Consumer, fill, named

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Silent(LateStore):
    """A store that does not say what its queues hold before ``go_on``."""

    def __init__(self, store) -> None:
        super().__init__(store)
        self._asked = []

    def offsets(self, questions, done) -> None:
        self._asked.append(partial(super().offsets, questions, done))

    def go_on(self) -> None:
        asked, self._asked = self._asked, []
        for ask in asked:
            ask()


@pytest.fixture
async def receipt(serve, group) -> str:
    """One of an earlier master; the next one reads its log from a store that is silent."""
    consumer = Consumer(serve())
    fill(group, "a", "b")
    receipt = (await consumer.pop(maxMsgNums=1))["a"]
    group.store = Silent(group.local)
    return receipt


def batch(receipt: str) -> bytes:
    """The body of a batch acknowledgement."""
    start, popped_ms, *_ = receipt.split(" ")
    ack = {
        "c": GROUP, "t": TOPIC, "r": "0", "so": int(start), "q": 0, "rq": 0, "pt": int(popped_ms),
        "it": 10_000, "b": base64.b64encode(b"\1").decode(),
    }  # fmt: skip
    return encode_body({"brokerName": "broker-a", "acks": [ack]})


def asks(consumer: Consumer, receipt: str):
    """Each kind of request that names a receipt."""
    return [
        consumer.ask(200051, named(receipt)),
        consumer.ask(200151, None, batch(receipt)),
        consumer.ask(200053, {**named(receipt), "invisibleTime": 20_000}),
    ]


async def test_what_an_earlier_master_acknowledged_is_answered_so_when_it_was_read(
    serve, group
) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    receipt = (await consumer.pop())["a"]
    assert (await consumer.ack(receipt)).code == 0, "and the answer is lost"
    group.store = Silent(group.local)
    consumer = Consumer(serve())
    asked = asks(consumer, receipt)
    await asyncio.sleep(1)
    assert [answer for _, answer in asked] == [None] * 3
    assert consumer.conn.replies == [], "nobody knows yet"
    group.store.go_on()
    await asyncio.sleep(0.1)
    assert [consumer.answer_to(one).code for one, _ in asked] == [0, 0, ResponseCode.NO_MESSAGE]


async def test_what_comes_before_the_log_was_read_is_done_then(serve, group, receipt) -> None:
    processor = serve()
    consumer = Consumer(processor)
    asked, _ = consumer.ask(200051, named(receipt))
    group.store.go_on()
    await asyncio.sleep(0.1)
    assert consumer.answer_to(asked).code == 0
    assert processor.pops.book.ledger.in_flight == 0
    assert processor.pops.early.room.pulls == 0
    await asyncio.sleep(10)
    assert len(consumer.conn.replies) == 1, "it is answered once"


async def test_nobody_waits_longer_than_clients_do(serve, group, receipt) -> None:
    consumer = Consumer(serve())
    asked = asks(consumer, receipt)
    await asyncio.sleep(2.4)
    assert consumer.conn.replies == []
    await asyncio.sleep(0.2)
    codes = [consumer.answer_to(one).code for one, _ in asked]
    assert codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3, "which does not say that it is undone"
    group.store.go_on()
    await asyncio.sleep(0.1)
    assert len(consumer.conn.replies) == 3


async def test_who_waits_is_bounded(serve, group, receipt, monkeypatch) -> None:
    monkeypatch.setattr(early, "_LIMITS", RoomLimits(pulls=2))
    processor = serve()
    consumer = Consumer(processor)
    codes = [answer and answer.code for _, answer in asks(consumer, receipt)]
    assert codes == [None, None, ResponseCode.SERVICE_NOT_AVAILABLE]
    processor.close()
    codes = [answer.code for _, answer in consumer.conn.replies]
    assert codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2, "this master will never know"


async def test_who_waits_hears_that_the_log_cannot_be_read(serve, group, receipt) -> None:
    consumer = Consumer(serve())
    asked = asks(consumer, receipt)
    group.store.committed.commit("GANTRY_SYS_POP", POP_TOPIC, 0, 1)
    group.store.go_on()
    await asyncio.sleep(0.1)
    for one, _ in asked:
        answer = consumer.answer_to(one)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "No table of what is in flight" in answer.remark
    later = consumer.call(200051, named(receipt))
    assert later.code == ResponseCode.SYSTEM_ERROR, "nor does anybody wait for the next try"


async def test_a_master_that_may_not_write_lets_nobody_wait(serve, group, receipt) -> None:
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "too few in sync")
    answer = Consumer(serve()).call(200051, named(receipt))
    assert (answer.code, answer.remark) == (group.refusal.code, "too few in sync")


async def test_who_comes_before_the_log_is_confirmed_waits_for_it(serve, group, receipt) -> None:
    group.refusal = Refusal(ResponseCode.SYSTEM_BUSY, "not all of the log is confirmed yet")
    consumer = Consumer(serve())
    asked = asks(consumer, receipt)
    await asyncio.sleep(1)
    assert consumer.conn.replies == [], "what is not confirmed yet may acknowledge it"
    group.refusal = None
    group.store.go_on()
    await asyncio.sleep(0.1)
    assert [consumer.answer_to(one).code for one, _ in asked] == [0, 0, ResponseCode.NO_MESSAGE]


async def test_a_busy_master_that_cannot_read_its_log_says_so(serve, group, receipt) -> None:
    group.refusal = Refusal(ResponseCode.SYSTEM_BUSY, "not all of the log is confirmed yet")
    consumer = Consumer(serve())
    group.store.committed.commit("GANTRY_SYS_POP", POP_TOPIC, 0, 1)
    group.store.go_on()
    await asyncio.sleep(0.1)
    codes = [answer.code for _, answer in asks(consumer, receipt)]
    assert codes == [ResponseCode.SYSTEM_ERROR] * 3, "2 would say that nothing was done"


async def test_a_malformed_request_is_refused_alone(serve, group, receipt) -> None:
    consumer = Consumer(serve())
    bad, _ = consumer.ask(200051, {"consumerGroup": GROUP})
    good, _ = consumer.ask(200051, named(receipt))
    oneway, _ = consumer.ask(200051, {"consumerGroup": GROUP}, oneway=True)
    group.store.go_on()
    await asyncio.sleep(0.1)
    assert consumer.answer_to(bad).code == ResponseCode.SYSTEM_ERROR
    assert consumer.answer_to(good).code == 0
    assert consumer.answer_to(oneway) is None


async def test_no_modes_are_told_before_the_log_was_read(serve, group) -> None:
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2}
    assert (await Consumer(serve()).answer(401, None, encode_body(mode))).code == 0
    group.store = Silent(group.local)
    consumer = Consumer(serve())
    assert consumer.call(402).code == ResponseCode.SYSTEM_BUSY, "none would be a lie"
    group.store.go_on()
    await asyncio.sleep(0.1)
    assert b'"popShareQueueNum":2' in consumer.call(402).body
