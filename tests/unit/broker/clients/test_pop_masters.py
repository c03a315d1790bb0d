"""POP between the log and its masters: what the next one knows, and appends that fail."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.log import DiskFullError
from gantry_broker.store.contract import Refusal
from gantry_broker.store.tables.resets import forget_group
from gantry_protocol.bodies import SubscriptionGroupConfig, TopicConfig
from gantry_protocol.codes import ResponseCode
from support.late_store import LateStore
from support.pops import GROUP, POP, TOPIC, Consumer, fill, named, receipts
from support.transactions import read_queue

from .conftest import Jumping

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_the_next_master_knows_what_is_in_flight(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", "c")
    found = await consumer.pop(maxMsgNums=2)
    await consumer.ack(found["a"])
    await asyncio.sleep(4)
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    assert list(await consumer.pop()) == ["c"]
    assert (await consumer.ack(found["b"])).code == 0, "a receipt outlives the master that gave it"
    await asyncio.sleep(10.1)
    assert list(await consumer.pop()) == ["c"]


async def test_the_next_master_knows_where_a_group_began_of_which_two_pop_at_once(
    serve, group
) -> None:
    processor = serve()
    consumer = Consumer(processor)
    fill(group, "a", "b")
    first, second = await asyncio.gather(consumer.pop(maxMsgNums=1), consumer.pop(maxMsgNums=1))
    processor.close()
    group.store.committed.forget_pending()  # what is in no record dies with the master
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    for body, receipt in (first | second).items():
        assert (await consumer.ack(receipt)).code == 0, body
    assert await consumer.pop() == {}, "all are done"


async def test_an_acknowledgement_moves_no_offset_that_somebody_else_has_set(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b", "c")
    found = await consumer.pop(maxMsgNums=2)
    first = group.store.committed.query(GROUP, TOPIC, 0)
    group.store.committed.commit(GROUP, TOPIC, 0, first + 3)  # by pulling
    assert (await consumer.ack(found["a"])).code == 0
    assert group.store.committed.query(GROUP, TOPIC, 0) == first + 3
    assert await consumer.pop() == {}


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
async def test_whatever_the_clock_of_the_next_master_says_no_message_is_stuck(
    serve, group, ahead_s: float
) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    await consumer.pop()
    await asyncio.sleep(4)
    clock = Jumping()
    clock.ahead_s = ahead_s
    consumer = Consumer(serve(clock))
    await asyncio.sleep(10.1)
    receipt = (await consumer.pop())["a"]
    assert (await consumer.ack(receipt)).code == 0


async def test_a_table_stands_for_the_records_before_it(serve, group) -> None:
    processor = serve()
    consumer = Consumer(processor)
    fill(group, "a", "b", "c")
    found = await consumer.pop(maxMsgNums=2)
    await consumer.ack(found["a"])
    await asyncio.sleep(301)
    await asyncio.sleep(1)
    assert processor.pops.book.tables == 1
    first = group.store.committed.query("GANTRY_SYS_POP", POP_TOPIC, 0)
    assert first == len(read_queue(group.messages, POP_TOPIC)) - 1
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    assert list(await consumer.pop()) == ["b", "c"]


# ---- appends that fail


async def test_what_could_not_be_stored_was_not_popped(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b")
    await consumer.pop(maxMsgNums=1)
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "too few in sync")
    answer = await consumer.answer(200050, POP)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    group.refusal = None
    assert list(await consumer.pop()) == ["b"]


async def test_an_append_that_fails_takes_back_everything_that_was_built_on_it(
    serve, group
) -> None:
    processor = serve()
    one, two = Consumer(processor), Consumer(processor)
    fill(group, "a", "b", "c")
    kept = (await one.pop(maxMsgNums=1))["a"]
    group.append_error = DiskFullError("no room")
    asked = [
        one.ask(200051, named(kept))[0],
        one.ask(200050, {**POP, "maxMsgNums": 1})[0],
        two.ask(200050, POP)[0],
    ]
    await asyncio.sleep(0.1)
    answers = [one.answer_to(asked[0]), one.answer_to(asked[1]), two.answer_to(asked[2])]
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
    group.append_error = None
    assert (await one.ack(kept)).code == 0, "it is in flight as it was"
    assert list(await two.pop()) == ["b", "c"], "nobody got them"
    assert group.store.committed.query(GROUP, TOPIC, 0) == 1


async def test_a_reset_that_could_not_be_recorded_is_followed_later(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b")
    for receipt in (await consumer.pop()).values():
        await consumer.ack(receipt)
    group.store.committed.commit(GROUP, TOPIC, 0, 0)
    group.append_error = DiskFullError("no room")
    assert (await consumer.answer(200050, POP)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    group.append_error = None
    assert list(await consumer.pop()) == ["a", "b"]


async def test_what_a_refused_table_forgets_is_remembered(serve, group) -> None:
    processor = serve()
    consumer = Consumer(processor)
    fill(group, "a", "b")
    fill(group, "z", queue_id=1)
    found = await consumer.pop(queueId=0)
    other = (await consumer.pop(queueId=1, consumerGroup="good"))["z"]
    in_flight = processor.pops.book.ledger.in_flight
    forget_group(group.store.committed, GROUP)
    group.append_error = DiskFullError("no room")
    asked = [
        consumer.ask(200051, {**named(other), "consumerGroup": "good"})[0],
        consumer.ask(200051, named(found["a"]))[0],
    ]
    processor.pops.book._wants_table = True
    await asyncio.sleep(0.1)
    answers = [consumer.answer_to(one) for one in asked]
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert processor.pops.book.ledger.in_flight == in_flight
    group.append_error = None
    assert (await consumer.ack(found["a"])).code == 0, "it is in flight as it was"
    assert (await consumer.ack(other, consumerGroup="good")).code == 0
    processor = serve()
    await asyncio.sleep(0.1)
    assert all(not queue.held for queue in processor.pops.book.ledger.queues.values())


async def test_nothing_is_answered_before_it_is_confirmed(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    await consumer.pop(queueId=1)
    group.holding = True
    popped, _ = consumer.ask(200050, POP)
    await asyncio.sleep(0.1)
    assert consumer.answer_to(popped) is None
    group.confirm()
    receipt = receipts(consumer.answer_to(popped))["a"]
    acked = [consumer.ask(200051, named(receipt))[0] for _ in range(2)]
    await asyncio.sleep(0.1)
    assert [consumer.answer_to(one) for one in acked] == [None, None], "also not the second one"
    group.confirm()
    await asyncio.sleep(0.1)
    group.confirm()
    assert [consumer.answer_to(one).code for one in acked] == [0, 0]


async def test_what_nobody_knows_is_answered_so_and_stays_hidden(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    await consumer.pop(queueId=1)
    group.holding = True
    popped, _ = consumer.ask(200050, POP)
    await asyncio.sleep(0.1)
    group.give_up()
    assert consumer.answer_to(popped).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    group.holding = False
    group.confirm()
    assert await consumer.pop() == {}
    await asyncio.sleep(10.1)
    assert list(await consumer.pop()) == ["a"]


async def test_those_of_one_turn_share_an_append(serve, group) -> None:
    processor = serve()
    consumers = [Consumer(processor) for _ in range(8)]
    fill(group, *"abcdefgh")
    await consumers[0].pop(queueId=1)
    before = len(read_queue(group.messages, POP_TOPIC))
    for consumer in consumers:
        consumer.ask(200050, {**POP, "maxMsgNums": 1})
    await asyncio.sleep(0.1)
    assert len(read_queue(group.messages, POP_TOPIC)) == before + 1


async def test_dead_letters_stand_before_offsets_and_those_before_events(serve, group) -> None:
    consumer = Consumer(serve())
    group.consumers._configs[GROUP] = SubscriptionGroupConfig(GROUP, retry_max_times=0)
    fill(group, "a")
    await consumer.pop()
    await asyncio.sleep(10.1)
    for _ in range(2):  # the first one finds that there is no topic for it
        await consumer.pop()
        await asyncio.sleep(0.1)
    wanted = ["%DLQ%g", "GANTRY_SYS_OFFSETS", POP_TOPIC]
    assert wanted in [[record.topic for record in records] for records in group.appended]


async def test_an_offset_is_ahead_of_its_events_if_the_log_was_cut_between_them(
    serve, group
) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b")
    await consumer.pop()
    group.store.committed.commit(GROUP, TOPIC, 0, 1)  # as a cut append leaves it
    consumer = Consumer(serve())
    await asyncio.sleep(10.1)
    assert list(await consumer.pop()) == ["b"]


@pytest.mark.parametrize("order", ["false", "true"])
async def test_what_is_acknowledged_while_it_is_read_is_not_handed_out(
    serve, group, order: str
) -> None:
    group.store = LateStore(group.local)
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    fill(group, "a", "b")
    asked, _ = consumer.ask(200050, {**POP, "order": order, "queueId": 0})
    await asyncio.sleep(0.1)
    receipt = receipts(consumer.answer_to(asked))["a"]
    await asyncio.sleep(10.1)
    asked, _ = consumer.ask(200050, {**POP, "order": order, "queueId": 0})
    assert (await consumer.ack(receipt)).code == 0
    await asyncio.sleep(0.1)
    if order == "true":  # the queue is looked at again
        assert consumer.answer_to(asked).code == ResponseCode.POLLING_TIMEOUT
    else:
        assert list(receipts(consumer.answer_to(asked))) == ["b"]


async def test_a_first_pop_that_is_read_when_the_mastership_ends_records_nothing(
    serve, group
) -> None:
    group.store = LateStore(group.local)
    processor = serve()
    consumer = Consumer(processor)
    await asyncio.sleep(0.1)
    fill(group, "a")
    asked, _ = consumer.ask(200050, POP)
    processor.close()
    await asyncio.sleep(0.1)
    assert consumer.answer_to(asked).code == ResponseCode.POLLING_TIMEOUT
    assert read_queue(group.messages, POP_TOPIC) == []


async def test_a_topic_that_is_created_again_begins_anew(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a", "b")
    for receipt in (await consumer.pop()).values():
        await consumer.ack(receipt)
    group.delete_topic(TOPIC, lambda refusal: None)
    assert consumer.call(200050, POP).code == ResponseCode.TOPIC_NOT_EXIST
    group.add_topic(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
    fill(group, "new")
    assert list(await consumer.pop()) == ["new"]


async def test_closing_answers_those_who_wait(serve, group) -> None:
    processor = serve()
    consumer = Consumer(processor)
    asked, _ = consumer.ask(200050, {**POP, "pollTime": 15_000})
    processor.close()
    assert consumer.answer_to(asked).code == ResponseCode.POLLING_TIMEOUT


async def test_nothing_is_handed_out_by_a_master_that_lacks_the_table(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "a")
    await consumer.pop()
    await consumer.pop(consumerGroup="other")
    group.store.committed.commit("GANTRY_SYS_POP", POP_TOPIC, 0, 1)
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    answer = await consumer.answer(200050, POP)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "No table of what is in flight" in answer.remark
    assert "Restore this broker" in answer.remark
    group.store.committed.commit("GANTRY_SYS_POP", POP_TOPIC, 0, 0)
    await asyncio.sleep(1)
    assert await consumer.pop() == {}, "it was read again, and the message is in flight"
