"""POP as clients see it: 200050, 200051, 200053, 200054, 200151."""

from __future__ import annotations

import asyncio
import base64

import pytest
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_protocol.bodies import SubscriptionGroupConfig
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import decode_records
from support.pops import GROUP, POP, TOPIC, Consumer, fill, receipts
from support.transactions import read_queue

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_what_is_popped_is_invisible_until_its_time_is_over(serve, group) -> None:
    one, two = Consumer(processor := serve()), Consumer(processor)
    fill(group, "a", "b")
    assert list(await one.pop()) == ["a", "b"]
    assert await two.pop() == {}
    await asyncio.sleep(9.9)
    assert await two.pop() == {}
    await asyncio.sleep(0.2)
    assert list(await two.pop()) == ["a", "b"]


async def test_what_is_acknowledged_does_not_come_again(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", "c")
    found = await consumer.pop()
    assert (await consumer.ack(found["b"])).code == 0
    await asyncio.sleep(10.1)
    again = await consumer.pop()
    assert list(again) == ["a", "c"]
    for receipt in again.values():
        assert (await consumer.ack(receipt)).code == 0
    await asyncio.sleep(10.1)
    assert await consumer.pop() == {}
    assert group.store.committed.query(GROUP, TOPIC, 0) == 3


async def test_the_offset_of_the_group_is_that_of_the_first_message_in_flight(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", "c")
    found = await consumer.pop()
    await consumer.ack(found["c"])
    assert group.store.committed.query(GROUP, TOPIC, 0) == 0
    await consumer.ack(found["a"])
    assert group.store.committed.query(GROUP, TOPIC, 0) == 1
    await consumer.ack(found["b"])
    assert group.store.committed.query(GROUP, TOPIC, 0) == 3


async def test_a_message_says_how_often_it_was_tried(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    for tries in range(3):
        answer = await consumer.answer(200050, POP)
        (record,) = decode_records(answer.body)
        assert record.reconsume_times == tries
        await asyncio.sleep(10.1)


async def test_an_acknowledgement_that_repeats_is_answered_as_done(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    receipt = (await consumer.pop())["a"]
    assert [(await consumer.ack(receipt)).code for _ in range(2)] == [0, 0]


async def test_a_receipt_is_over_when_its_message_was_handed_out_again(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    first = (await consumer.pop())["a"]
    await asyncio.sleep(10.1)
    second = (await consumer.pop())["a"]
    answer = await consumer.ack(first)
    assert answer.code == ResponseCode.NO_MESSAGE
    assert "handed out again" in answer.remark
    assert (await consumer.ack(second)).code == 0


@pytest.mark.parametrize(
    ("receipt", "code"),
    [
        ("", ResponseCode.MESSAGE_ILLEGAL),
        ("0 1 2 0 0 broker-a 0", ResponseCode.MESSAGE_ILLEGAL),
        ("0 x 10000 0 0 broker-a 0 0", ResponseCode.MESSAGE_ILLEGAL),
        ("0 1 10000 0 1 broker-a 0 0", ResponseCode.MESSAGE_ILLEGAL),  # of a retry topic
        ("0 1 10000 0 0 broker-b 0 0", ResponseCode.MESSAGE_ILLEGAL),
        ("0 1 10000 0 0 broker-a 0 1", ResponseCode.MESSAGE_ILLEGAL),  # of another message
        (f"0 {10**30} 10000 0 0 broker-a 0 0", ResponseCode.MESSAGE_ILLEGAL),
        ("0 1 10000 0 0 broker-a 0 0", ResponseCode.NO_MESSAGE),  # forged: never given
    ],
)
async def test_receipts_that_are_none_change_nothing(serve, group, receipt, code) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    await consumer.pop()
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "offset": 0}
    answer = await consumer.answer(200051, {**ext, "extraInfo": receipt})
    assert answer.code == code
    assert answer.remark
    await asyncio.sleep(10.1)
    assert list(await consumer.pop()) == ["a"]


async def test_a_message_that_was_not_handed_out_cannot_be_acknowledged(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b")
    await consumer.pop(maxMsgNums=1)
    answer = await consumer.ack("0 1 10000 0 0 broker-a 0 1")
    assert answer.code == ResponseCode.NO_MESSAGE
    assert list(await consumer.pop()) == ["b"]


async def test_a_message_stays_hidden_for_as_long_as_its_consumer_says(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    receipt = (await consumer.pop())["a"]
    answer = await consumer.change(receipt, 30_000)
    assert (answer.code, answer.ext["invisibleTime"], answer.ext["reviveQid"]) == (0, "30000", "0")
    assert (await consumer.ack(receipt)).code == ResponseCode.NO_MESSAGE
    await asyncio.sleep(29.9)
    assert await consumer.pop() == {}
    fields = receipt.split(" ")
    fields[1], fields[2] = answer.ext["popTime"], answer.ext["invisibleTime"]
    assert (await consumer.change(" ".join(fields), 0)).code == 0
    assert list(await consumer.pop()) == ["a"]


async def test_a_renewed_message_stays_hidden_and_its_receipt_good(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    receipt = (await consumer.pop())["a"]
    for _ in range(3):
        await asyncio.sleep(8)
        assert (await consumer.change(receipt, 10_000, gantryRenew="true")).code == 0
    await asyncio.sleep(9.9)
    assert await consumer.pop() == {}
    assert (await consumer.ack(receipt)).code == 0
    assert (await consumer.change(receipt, 10_000, gantryRenew="true")).code != 0


async def test_a_message_that_is_renewed_no_more_comes_again(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    receipt = (await consumer.pop())["a"]
    await asyncio.sleep(8)
    await consumer.change(receipt, 10_000, gantryRenew="true")
    await asyncio.sleep(10.1)
    assert list(await consumer.pop()) == ["a"]
    late = await consumer.change(receipt, 10_000, gantryRenew="true")
    assert late.code == ResponseCode.NO_MESSAGE


async def test_a_pop_waits_for_a_message(serve, group) -> None:
    consumer = Consumer(serve())
    await consumer.pop()
    asked, answer = consumer.ask(200050, {**POP, "pollTime": 15_000})
    await asyncio.sleep(1)
    assert answer is None
    assert consumer.answer_to(asked) is None
    fill(group, "a")
    await asyncio.sleep(0.01)
    assert list(receipts(consumer.answer_to(asked))) == ["a"]


async def test_a_pop_waits_for_a_message_to_become_visible(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    await consumer.pop()
    asked, _ = consumer.ask(200050, {**POP, "pollTime": 15_000})
    await asyncio.sleep(9.9)
    assert consumer.answer_to(asked) is None
    await asyncio.sleep(0.2)
    assert list(receipts(consumer.answer_to(asked))) == ["a"]


async def test_a_pop_that_waited_in_vain_is_told_so(serve, group) -> None:
    consumer = Consumer(serve())
    asked, _ = consumer.ask(200050, {**POP, "pollTime": 5_000, "bornTime": 1})
    await asyncio.sleep(4.9)
    assert consumer.answer_to(asked) is None
    await asyncio.sleep(0.2)
    assert consumer.answer_to(asked).code == ResponseCode.POLLING_TIMEOUT


async def test_one_message_wakes_one_of_many(serve, group) -> None:
    processor = serve()
    consumers = [Consumer(processor) for _ in range(5)]
    asked = [consumer.ask(200050, {**POP, "pollTime": 15_000})[0] for consumer in consumers]
    await asyncio.sleep(0.1)
    fill(group, "a")
    fill(group, "b", queue_id=1)
    await asyncio.sleep(0.1)
    answers = [consumer.answer_to(one) for consumer, one in zip(consumers, asked, strict=True)]
    found = [body for answer in answers if answer for body in receipts(answer)]
    assert sorted(found) == ["a", "b"]
    assert answers[0] is not None, "who waited longest comes first"
    assert answers[2:] == [None] * 3


async def test_what_one_leaves_wakes_the_next(serve, group) -> None:
    processor = serve()
    consumers = [Consumer(processor) for _ in range(3)]
    ext = {**POP, "pollTime": 15_000, "maxMsgNums": 1}
    asked = [consumer.ask(200050, ext)[0] for consumer in consumers]
    await asyncio.sleep(0.1)
    group.holding = True
    fill(group, "a", "b")
    group.holding = False
    group.confirm()
    await asyncio.sleep(0.1)
    answers = [consumer.answer_to(one) for consumer, one in zip(consumers, asked, strict=True)]
    assert [list(receipts(answer)) for answer in answers[:2]] == [["a"], ["b"]]
    assert answers[2] is None


async def test_a_connection_that_closes_waits_no_more(serve, group) -> None:
    processor = serve()
    gone, there = Consumer(processor), Consumer(processor)
    gone.ask(200050, {**POP, "pollTime": 15_000})
    asked, _ = there.ask(200050, {**POP, "pollTime": 15_000})
    gone.conn.closed = True
    processor.connection_closed(gone.conn)
    fill(group, "a")
    await asyncio.sleep(0.1)
    assert list(receipts(there.answer_to(asked))) == ["a"]
    assert len(processor.pops.polls) == 0


async def test_only_what_the_filter_wants_is_handed_out(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", tags="Blue")
    fill(group, "c", tags="Red")
    assert list(await consumer.pop(exp="Red")) == ["c"]
    await asyncio.sleep(10.1)
    assert list(await consumer.pop(exp="Red")) == ["c"], "what was passed over is done"


@pytest.mark.parametrize(
    ("kind", "words"), [("CLASS", "'CLASS'"), ("SQL92", "line 1, column 4")], ids=str
)
@pytest.mark.parametrize("code", [200050, 200054])
async def test_filters_that_are_none_are_refused_in_words(serve, code, kind, words) -> None:
    answer = Consumer(serve()).call(code, {**POP, "expType": kind, "exp": "a >"})
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert words in answer.remark


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": 2**62}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "nobody"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": POP_TOPIC}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_pops_that_cannot_be_served_are_refused(serve, group, changes, code) -> None:
    answer = Consumer(serve()).call(200050, {**POP, **changes})
    assert answer.code == code
    assert answer.remark


async def test_a_new_group_begins_where_it_says(serve, group, monkeypatch) -> None:
    monkeypatch.setattr("gantry_broker.clients.offsets._YOUNG_QUEUE_BYTES", 0)
    consumer = Consumer(serve())
    fill(group, "old")
    assert await consumer.pop(initMode=1, queueId=0) == {}
    fill(group, "new")
    assert list(await consumer.pop(initMode=1, queueId=0)) == ["new"]
    assert list(await consumer.pop(consumerGroup="other")) == ["old", "new"]


async def test_a_new_group_skips_nothing_of_a_young_queue(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "old")
    assert list(await consumer.pop(initMode=1, queueId=0)) == ["old"]


async def test_a_queue_in_order_waits_for_its_batch(serve, group) -> None:
    one, two = Consumer(processor := serve()), Consumer(processor)
    fill(group, "a", "b", "c")
    found = await one.pop(order="true", maxMsgNums=2)
    assert list(found) == ["a", "b"]
    assert all(receipt.split(" ")[3] == "999" for receipt in found.values())
    assert await two.pop(order="true") == {}
    await one.ack(found["a"])
    assert await two.pop(order="true") == {}
    await one.ack(found["b"])
    assert list(await two.pop(order="true")) == ["c"]


async def test_a_queue_in_order_goes_on_with_what_was_not_done(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", "c")
    found = await consumer.pop(order="true", maxMsgNums=2)
    await consumer.ack(found["a"])
    await asyncio.sleep(10.1)
    answer = await consumer.answer(200050, {**POP, "order": "true"})
    assert list(receipts(answer)) == ["b"]
    assert answer.ext["orderCountInfo"] == "0 qo0%1 1"


async def test_the_same_attempt_gets_the_same_batch(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b")
    tries = {"order": "true", "maxMsgNums": 1}
    assert list(await consumer.pop(**tries, attemptId="x")) == ["a"]
    assert await consumer.pop(**tries, attemptId="y") == {}
    assert list(await consumer.pop(**tries, attemptId="x")) == ["a"]


async def test_many_are_acknowledged_at_once(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, *"abcdefghijkl")
    found = await consumer.pop()
    start, popped_ms, *_ = found["a"].split(" ")
    bits = bytes([0b1111_1110, 0b0000_1111])  # all but the first
    ack = {
        "c": GROUP, "t": TOPIC, "r": "0", "so": int(start), "q": 0, "rq": 0, "pt": int(popped_ms),
        "it": 10_000, "b": base64.b64encode(bits).decode(),
    }  # fmt: skip
    body = encode_body({"brokerName": "broker-a", "acks": [ack]})
    assert (await consumer.answer(200151, None, body)).code == 0
    await asyncio.sleep(10.1)
    assert list(await consumer.pop()) == ["a"]


async def test_a_notification_comes_with_the_message_and_takes_nothing(serve, group) -> None:
    consumer = Consumer(serve())
    ask = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "pollTime": 15_000, "bornTime": 0}
    asked, _ = consumer.ask(200054, ask)
    await asyncio.sleep(0.1)
    assert consumer.answer_to(asked) is None
    fill(group, "a")
    await asyncio.sleep(0.1)
    assert consumer.answer_to(asked).ext == {"hasMsg": "true", "pollingFull": "false"}
    assert list(await consumer.pop()) == ["a"]
    answer = await consumer.answer(200054, {**ask, "pollTime": 0})
    assert answer.ext["hasMsg"] == "false"


async def test_a_message_that_was_tried_often_enough_goes_to_the_dead_letters(serve, group) -> None:
    consumer = Consumer(serve())
    group.consumers._configs[GROUP] = SubscriptionGroupConfig(GROUP, retry_max_times=1)
    fill(group, "a", "b")
    for _ in range(2):
        found = await consumer.pop()
        assert list(found) == ["a", "b"]
        await asyncio.sleep(10.1)
    await consumer.ack(found["b"])
    await consumer.pop()
    await asyncio.sleep(1)  # there is a topic for it then
    assert await consumer.pop() == {}
    await asyncio.sleep(0.1)
    assert await consumer.pop() == {}
    assert [record.body for record in read_queue(group.messages, "%DLQ%g")] == [b"a"]
    assert group.store.committed.query(GROUP, TOPIC, 0) == 2


async def test_a_reset_is_followed(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", "c")
    for receipt in (await consumer.pop()).values():
        await consumer.ack(receipt)
    group.store.committed.commit(GROUP, TOPIC, 0, 1)
    assert list(await consumer.pop()) == ["b", "c"]
    group.store.committed.commit(GROUP, TOPIC, 0, 3)
    await asyncio.sleep(10.1)
    assert await consumer.pop() == {}
