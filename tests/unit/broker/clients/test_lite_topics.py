"""Lite topics as clients see them: 200070, 200071, and what is sent to them."""

from __future__ import annotations

import asyncio
import json

import pytest
from gantry_broker.clients.lite import expiring, popping, rules, subscribing
from gantry_broker.clients.pop import book as pop_book
from gantry_broker.clients.pop.taking import Taking
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import RecordError
from support.lites import GROUP, PARENT, LiteConsumer, fill, make_parent, queue, set_group

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


@pytest.fixture(autouse=True)
def lite(group):
    make_parent(group)
    set_group(group)


async def test_a_client_gets_the_messages_of_what_it_subscribes_to(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a", "b")
    fill(group, "a", "1", "2")
    fill(group, "b", "3")
    fill(group, "c", "4")
    found = await consumer.pop()
    assert {body: lite for body, (lite, _) in found.items()} == {"1": "a", "2": "a", "3": "b"}


async def test_what_was_there_before_the_subscription_is_given(serve, group) -> None:
    consumer = LiteConsumer(serve())
    fill(group, "a", "1", "2")
    await consumer.add("a")
    assert list(await consumer.pop()) == ["1", "2"]


async def test_a_lite_topic_gives_its_next_batch_when_the_last_one_is_done(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1", "2")
    found = await consumer.pop()
    fill(group, "a", "3")
    assert await consumer.pop() == {}
    assert (await consumer.ack(found["1"])).code == 0
    assert await consumer.pop() == {}
    assert (await consumer.ack(found["2"])).code == 0
    assert list(await consumer.pop()) == ["3"]


async def test_a_slow_lite_topic_holds_up_itself_only(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a", "b")
    fill(group, "a", "1")
    assert list(await consumer.pop()) == ["1"]
    fill(group, "a", "2")
    fill(group, "b", "3")
    assert list(await consumer.pop()) == ["3"]


async def test_one_that_waits_is_answered_when_a_message_comes(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    waiting = asyncio.create_task(consumer.pop(pollTime=20_000))
    await asyncio.sleep(5)
    assert not waiting.done()
    fill(group, "a", "1")
    assert list(await waiting) == ["1"]


async def test_one_that_waits_is_answered_when_its_client_subscribes(serve, group) -> None:
    consumer = LiteConsumer(serve())
    fill(group, "a", "1")
    waiting = asyncio.create_task(consumer.pop(pollTime=20_000))
    await asyncio.sleep(1)
    await consumer.add("a")
    assert list(await waiting) == ["1"]


async def test_what_is_not_done_comes_again_to_one_that_waits(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1")
    await consumer.pop()
    waiting = asyncio.create_task(consumer.pop(pollTime=20_000))
    await asyncio.sleep(9.9)
    assert not waiting.done()
    await asyncio.sleep(0.3)
    assert list(await waiting) == ["1"]


async def test_the_invisible_time_can_be_changed(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1")
    found = await consumer.pop()
    assert (await consumer.change(found["1"], 1)).code == 0
    await asyncio.sleep(0.5)
    assert list(await consumer.pop()) == ["1"]
    assert (await consumer.ack(found["1"])).code == ResponseCode.NO_MESSAGE, "it is over"


async def test_what_is_tried_too_often_is_among_the_dead_letters_and_no_lite_topic(
    serve, group
) -> None:
    set_group(group, tries=1)
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1")
    for _try in range(2):
        assert list(await consumer.pop()) == ["1"]
        await asyncio.sleep(10.1)
    for _pop in range(2):  # the first has the topic for dead letters made
        assert await consumer.pop() == {}
        await asyncio.sleep(0.1)
    assert group.messages.max_offset(f"%DLQ%{GROUP}", 0) == 1
    assert group.store.lite_count("") == 1


# ---- a new master


async def test_subscriptions_and_what_is_in_flight_outlive_the_master(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a", "b", "c")
    await consumer.subscribe("PARTIAL_REMOVE", "c")
    fill(group, "a", "1")
    fill(group, "b", "2")
    found = await consumer.pop()
    await consumer.ack(found["2"])
    fill(group, "b", "3")
    fill(group, "c", "4")
    after = LiteConsumer(serve())
    await asyncio.sleep(0.1)  # it reads what the last one wrote
    assert list(await after.pop()) == ["3"], "1 is in flight, 2 is done, c is not subscribed to"
    assert (await after.ack(found["1"])).code == 0
    fill(group, "a", "5")
    assert list(await after.pop()) == ["5"]


async def test_what_comes_behind_a_change_of_master_wakes_who_waits(serve, group) -> None:
    await LiteConsumer(serve()).add("a")
    after = LiteConsumer(serve())
    waiting = asyncio.create_task(after.pop(pollTime=20_000))
    await asyncio.sleep(1)
    fill(group, "a", "1")
    assert list(await waiting) == ["1"]


async def test_a_message_in_flight_comes_again_at_the_next_master(serve, group) -> None:
    first = LiteConsumer(serve())
    await first.add("a")
    fill(group, "a", "1")
    await first.pop()
    after = LiteConsumer(serve())
    waiting = asyncio.create_task(after.pop(pollTime=20_000))
    await asyncio.sleep(9)
    assert not waiting.done()
    await asyncio.sleep(2)
    assert list(await waiting) == ["1"]


async def test_lite_topics_of_which_nothing_is_in_flight_are_in_no_table(
    serve, group, monkeypatch
) -> None:
    monkeypatch.setattr(pop_book, "TABLE_BYTES", 1)
    consumer = LiteConsumer(processor := serve())
    await consumer.add("a", "b")
    fill(group, "a", "1")
    fill(group, "b", "2")
    found = await consumer.pop()
    assert (await consumer.ack(found["1"])).code == 0
    fill(group, "a", "3")
    third = await consumer.pop()
    await consumer.ack(third["3"])
    await consumer.add("busy")
    for number in range(20):  # until what stands behind a table weighs four times as much
        fill(group, "busy", f"busy{number}")
        await consumer.ack((await consumer.pop())[f"busy{number}"])
    known = {item.topic for item in processor.pops.book.ledger.queues}
    assert queue("a") not in known
    assert queue("b") in known
    assert (await consumer.ack(third["3"])).code == 0, "it is done, and was before"
    after = LiteConsumer(serve())
    await asyncio.sleep(0.1)
    assert (await after.ack(third["3"])).code == 0
    fill(group, "a", "4")
    assert list(await after.pop()) == ["4"], "and nothing of before, 2 is in flight"


@pytest.mark.parametrize("slice_s", [popping.SLICE_S, 0.0], ids=["in-time", "late"])
async def test_many_clients_that_look_through_all_they_take_leave_others_their_turns(
    serve, group, monkeypatch, slice_s: float
) -> None:
    monkeypatch.setattr(popping, "LOOKS", 4)
    monkeypatch.setattr(popping, "SLICE_S", slice_s)
    processor = serve()
    clients = [LiteConsumer(processor, f"c{number}") for number in range(20)]
    for client in clients:
        await client.add(*(f"{client.name}-{number}" for number in range(40)))
    fill(group, "c7-11", "1")
    turns, look, loop = [], popping.LitePopping._may_find, asyncio.get_running_loop()
    is_over = True

    def turn_over() -> None:
        nonlocal is_over
        is_over = True

    def counted(self, *args):
        nonlocal is_over
        if is_over:
            is_over = False
            turns.append(0)
            loop.call_soon(turn_over)
        turns[-1] += 1
        return look(self, *args)

    monkeypatch.setattr(popping.LitePopping, "_may_find", counted)
    found = await asyncio.gather(*(client.pop() for client in clients))
    assert [list(bodies) for bodies in found if bodies] == [["1"]]
    assert sum(turns) == 19 * 40 + 1, "who has a message need not look through the rest first"
    assert max(turns) <= popping.LOOKS


async def test_one_client_at_a_time_looks_through_what_it_takes(serve, group, monkeypatch) -> None:
    monkeypatch.setattr(popping, "LOOKS", 4)
    processor = serve()
    clients = [LiteConsumer(processor, f"c{number}") for number in range(20)]
    for client in clients:
        await client.add(*(f"{client.name}-{number}" for number in range(40)))
        fill(group, f"{client.name}-0", client.name)  # which it looks at last
    for item in processor.lite.book.registry.clients.values():
        item.pending.clear()
    asked = [asyncio.create_task(client.pop()) for client in clients]
    await asyncio.sleep(12 * popping.SLICE_S)
    assert [task.done() for task in asked].count(True) == 1
    assert [list(found) for found in await asyncio.gather(*asked)] == [[c.name] for c in clients]


async def test_who_is_told_to_look_again_while_he_looks_begins_anew(
    serve, group, monkeypatch
) -> None:
    monkeypatch.setattr(popping, "LOOKS", 4)
    consumer = LiteConsumer(processor := serve())
    await consumer.add(*map(str, range(40)))
    asked = asyncio.create_task(consumer.pop())
    await asyncio.sleep(popping.SLICE_S)
    for item in processor.lite.book.registry.clients.values():
        processor.lite.popping.look_again(item)
    assert await asked == {}
    fill(group, "7", "1")
    assert list(await consumer.pop()) == ["1"]


async def test_a_lite_topic_that_is_being_taken_from_is_not_forgotten_by_a_table(
    serve, group, monkeypatch
) -> None:
    read = Taking._read

    def read_later(self, *args):
        yield 0.05  # as long as a disk takes: the table is written meanwhile
        return (yield from read(self, *args))

    monkeypatch.setattr(Taking, "_read", read_later)
    consumer = LiteConsumer(processor := serve())
    await consumer.add("a")
    for number in range(3):  # the first one is new, others are known, with nothing in flight
        fill(group, "a", str(number))
        processor.pops.book._wants_table = True
        found = await consumer.pop()
        assert list(found) == [str(number)]
        assert (await consumer.ack(found[str(number)])).code == 0
    after = LiteConsumer(serve())
    await asyncio.sleep(0.1)
    assert await after.pop() == {}, "all are done"


async def test_the_log_is_needed_from_the_oldest_whole_record_on(serve, group, monkeypatch) -> None:
    from gantry_broker.clients.lite import book

    monkeypatch.setattr(book, "BEHIND_BYTES", 20_000)
    processor = serve()
    one, two = LiteConsumer(processor), LiteConsumer(processor, "c2")
    await one.add("kept")
    for number in range(150):
        await two.subscribe("PARTIAL_ADD", f"x{number}")
        await two.subscribe("PARTIAL_REMOVE", f"x{number}")
    await two.add("b")
    assert processor.lite.book.renewed > 2
    needed = group.store.committed.query("GANTRY_SYS_LITE", "GANTRY_SYS_LITE", 0)
    assert needed > 100
    processor = serve()
    await asyncio.sleep(0.1)
    after = processor.lite.book.registry
    assert {key[1]: set(item.names) for key, item in after.clients.items()} == {
        "c1": {"kept"},
        "c2": {"b"},
    }
    assert after.count == 2


async def test_a_subscription_is_there_though_it_is_not_confirmed_in_time(serve, group) -> None:
    consumer = LiteConsumer(processor := serve())
    await consumer.add("a")
    group.holding = True
    asked = asyncio.create_task(consumer.subscribe("PARTIAL_ADD", "b"))
    await asyncio.sleep(0.1)
    assert processor.lite.book.registry.count == 1, "nothing is so before it is stored"
    group.give_up()
    assert (await asked).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    group.holding = False
    fill(group, "b", "1")
    assert list(await consumer.pop()) == ["1"]


async def test_a_subscription_that_is_not_stored_is_not_there(serve, group) -> None:
    consumer = LiteConsumer(processor := serve())
    await consumer.add("a")
    group.append_error = RecordError("it does not fit")
    assert (await consumer.subscribe("PARTIAL_ADD", "b")).code == ResponseCode.SYSTEM_ERROR
    group.append_error = None
    assert set(processor.lite.book.registry.clients[GROUP, "c1"].names) == {"a"}


async def test_what_is_left_by_who_waits_to_look_at_it_is_not_given(serve, group) -> None:
    consumer = LiteConsumer(processor := serve())
    await consumer.add("a", "b")
    fill(group, "b", "1")
    for item in processor.lite.book.registry.clients.values():
        item.pending.clear()
    others = processor.lite.popping._pace.slice(object())
    next(others)
    with pytest.raises(StopIteration):
        next(others)  # somebody else looks
    asked = asyncio.create_task(consumer.pop())
    await asyncio.sleep(0.1)
    assert not asked.done()
    assert (await consumer.subscribe("PARTIAL_REMOVE", "b")).code == 0
    processor.lite.popping._pace.over(processor.lite.popping._pace._holder)
    assert await asked == {}


async def test_what_was_left_before_it_was_looked_at_is_not_given(serve, group) -> None:
    consumer = LiteConsumer(serve())
    for name in "abc":
        fill(group, name, name)
    await consumer.add("a", "b", "c")
    (given,) = await consumer.pop(maxMsgNum=1)
    rest = [name for name in "abc" if name != given]
    assert (await consumer.subscribe("PARTIAL_REMOVE", rest[0])).code == 0
    assert list(await consumer.pop()) == [rest[1]]


# ---- more than one client


async def test_clients_of_a_group_share_and_groups_do_not(serve, group) -> None:
    processor = serve()
    set_group(group, "others")
    one, two = LiteConsumer(processor), LiteConsumer(processor, "c2")
    other = LiteConsumer(processor, "c3", "others")
    for consumer in (one, two, other):
        await consumer.add("a")
    fill(group, "a", "1")
    assert list(await one.pop()) == ["1"]
    assert await two.pop() == {}
    assert list(await other.pop()) == ["1"]


async def test_in_an_exclusive_group_the_last_that_subscribes_has_it(serve, group) -> None:
    set_group(group, sub_model="Exclusive")
    processor = serve()
    one, two = LiteConsumer(processor), LiteConsumer(processor, "c2")
    await one.add("a", "b")
    await two.add("a")
    (told,) = one.conn.sent
    assert (told.code, told.ext["liteTopic"], told.ext["clientId"]) == (200073, "a", "c1")
    fill(group, "a", "1")
    fill(group, "b", "2")
    assert list(await one.pop()) == ["2"]
    assert list(await two.pop()) == ["1"]


async def test_who_has_lost_a_lite_topic_does_not_take_it_back_by_its_usual_word(
    serve, group
) -> None:
    set_group(group, sub_model="Exclusive")
    processor = serve()
    one, two = LiteConsumer(processor), LiteConsumer(processor, "c2")
    await one.add("a")
    await two.add("a")
    one.conn.sent.clear()
    assert (await one.subscribe("COMPLETE_ADD", "a", "b")).code == 0
    assert [told.ext["liteTopic"] for told in one.conn.sent] == ["a"]
    registry = processor.lite.book.registry
    assert set(registry.clients[GROUP, "c1"].names) == {"b"}
    assert set(registry.clients[GROUP, "c2"].names) == {"a"}


async def test_a_wildcard_group_gets_all_lite_topics_also_those_before_it(serve, group) -> None:
    set_group(group, sub_wildcard="true")
    processor = serve()
    fill(group, "old", "1")
    group.messages._dispatcher.store()
    consumer = LiteConsumer(processor)
    assert (await consumer.subscribe("PARTIAL_ADD", "x")).code == ResponseCode.ILLEGAL_OPERATION
    assert (await consumer.subscribe("COMPLETE_ADD")).code == 0
    fill(group, "new", "2")
    assert list(await consumer.pop()) == ["2"]
    assert list(await consumer.pop()) == ["1"]
    after = LiteConsumer(serve())
    await asyncio.sleep(0.1)
    fill(group, "newer", "3")
    assert list(await after.pop()) == ["3"]


# ---- what clients say again and again


async def test_a_complete_word_that_changes_nothing_writes_nothing(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a", "b")
    group.appended.clear()
    assert (await consumer.subscribe("COMPLETE_ADD", "b", "a")).code == 0
    assert group.appended == []


async def test_a_complete_word_is_all_that_a_client_takes(serve, group) -> None:
    consumer = LiteConsumer(processor := serve())
    await consumer.add("a", "b")
    await consumer.subscribe("COMPLETE_ADD", "b", "c")
    assert set(processor.lite.book.registry.clients[GROUP, "c1"].names) == {"b", "c"}
    await consumer.subscribe("COMPLETE_REMOVE")
    assert processor.lite.book.registry.clients == {}
    assert processor.lite.book.registry.count == 0


async def test_a_silent_client_is_given_up_and_one_that_pops_is_not(serve, group) -> None:
    processor = serve()
    one, two = LiteConsumer(processor), LiteConsumer(processor, "c2")
    await one.add("a")
    await two.add("a")
    for _step in range(int(subscribing.SILENT_S / 10) + 2):
        await asyncio.sleep(10)
        await two.pop()
    assert list(processor.lite.book.registry.clients) == [(GROUP, "c2")]
    assert processor.lite.subscribing.silent == 1


# ---- refusals


async def test_a_client_takes_no_more_lite_topics_than_its_group_allows(serve, group) -> None:
    set_group(group, sub_client_quota="2")
    consumer = LiteConsumer(serve())
    await consumer.add("a", "b")
    assert (await consumer.subscribe("PARTIAL_ADD", "a")).code == 0
    for action, names in (("PARTIAL_ADD", "c"), ("COMPLETE_ADD", "abc")):
        answer = await consumer.subscribe(action, *names)
        assert answer.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, answer
    assert (await consumer.subscribe("COMPLETE_ADD", "b", "c")).code == 0


async def test_a_group_of_another_topic_is_refused(serve, group) -> None:
    processor = serve()
    set_group(group, "elsewhere", bind_topic="TopicTest")
    for name, code in (
        ("elsewhere", ResponseCode.INVALID_PARAMETER),
        ("unknown", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ):
        consumer = LiteConsumer(processor, group=name)
        assert (await consumer.subscribe("PARTIAL_ADD", "a")).code == code
        assert (await consumer.answer(200070, consumer.ext())).code == code


async def test_a_name_that_is_none_and_a_word_that_is_none_are_refused(serve) -> None:
    consumer = LiteConsumer(serve())
    answer = await consumer.subscribe("PARTIAL_ADD", "a$b")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (await consumer.subscribe("TAKE", "a")).code == ResponseCode.ILLEGAL_OPERATION
    assert (await consumer.answer(200071, {})).code == ResponseCode.ILLEGAL_OPERATION


def send(topic: str, properties: str) -> dict[str, object]:
    return {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        "properties": properties,
    }


async def test_a_message_for_a_lite_topic_is_sent_to_a_parent_of_type_lite(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    named = "__LITE_TOPIC\x01a\x02"
    assert (await consumer.answer(10, send(PARENT, named), b"1")).code == 0
    for topic, properties in (
        ("TopicTest", named),
        (PARENT, "__LITE_TOPIC\x01a b\x02"),
        (PARENT, named + "DELAY\x013\x02"),
        (PARENT, named + "TRAN_MSG\x01true\x02PGROUP\x01p\x02"),
    ):
        answer = await consumer.answer(10, send(topic, properties), b"2")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, (topic, properties)
    assert list(await consumer.pop()) == ["1"]


async def test_there_are_no_more_lite_topics_than_the_bound(serve, group, monkeypatch) -> None:
    from gantry_broker.clients import send as sending

    monkeypatch.setattr(sending, "LITE_TOPICS_MAX", 2)
    consumer = LiteConsumer(serve())
    fill(group, "a", "1")
    fill(group, "b", "2")
    for name, code in (("c", ResponseCode.LMQ_QUOTA_EXCEEDED), ("a", 0)):
        answer = await consumer.answer(10, send(PARENT, f"__LITE_TOPIC\x01{name}\x02"), b"x")
        assert answer.code == code, answer


# ---- ends


async def test_a_lite_topic_ends_its_time_after_its_last_message(serve, group) -> None:
    make_parent(group, expiration=1)
    processor = serve(lambda: group.now_ms / 1000)
    consumer = LiteConsumer(processor)
    await consumer.add("a", "b")
    fill(group, "a", "1")
    await consumer.ack((await consumer.pop())["1"])
    group.now_ms += 59_000
    fill(group, "b", "2")
    group.messages._dispatcher.store()
    await asyncio.sleep(2 * expiring.SWEEP_S)
    assert group.store.lite_count(PARENT) == 2
    group.now_ms += 5_000
    await asyncio.sleep(2 * expiring.SWEEP_S)
    assert group.store.lite_count(PARENT) == 1
    assert group.store.lite_end(queue("a")) is None
    assert group.store.committed.query(GROUP, queue("a"), 0) is None
    assert processor.lite.expiry.ended == 1


async def test_what_comes_after_the_end_is_given_to_who_subscribes(serve, group) -> None:
    make_parent(group, expiration=1)
    consumer = LiteConsumer(serve(lambda: group.now_ms / 1000))
    await consumer.add("a")
    fill(group, "a", "1")
    await consumer.ack((await consumer.pop())["1"])
    group.messages._dispatcher.store()
    group.now_ms += 70_000
    await asyncio.sleep(2 * expiring.SWEEP_S)
    assert group.store.lite_count(PARENT) == 0
    fill(group, "a", "2")
    assert list(await consumer.pop()) == ["2"]


async def test_a_lite_topic_without_an_expiration_stays(serve, group) -> None:
    fill(group, "a", "1")
    group.messages._dispatcher.store()
    serve(lambda: group.now_ms / 1000)
    group.now_ms += 10**10
    await asyncio.sleep(3 * expiring.SWEEP_S)
    assert group.store.lite_count(PARENT) == 1


# ---- where a client begins


@pytest.mark.parametrize(
    ("option", "bodies"),
    [
        ({"type": "POLICY", "value": 1}, ["1", "2", "3"]),
        ({"type": "POLICY", "value": 2}, ["3"]),
        ({"type": "POLICY", "value": 0}, ["2", "3"]),
    ],
)
async def test_a_client_says_where_it_begins(serve, group, option, bodies) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1")
    await consumer.ack((await consumer.pop())["1"])
    fill(group, "a", "2")
    await consumer.subscribe("PARTIAL_REMOVE", "a")
    answer = await consumer.subscribe("PARTIAL_ADD", "a", offsetOption=option)
    assert answer.code == 0
    fill(group, "a", "3")
    assert list(await consumer.pop()) == bodies


async def test_a_group_may_begin_anew_after_it_ended(serve, group) -> None:
    set_group(group, sub_reset_offset_unsubscribe="true")
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1")
    await consumer.ack((await consumer.pop())["1"])
    await consumer.subscribe("PARTIAL_REMOVE", "a")
    await consumer.add("a")
    assert list(await consumer.pop()) == ["1"]


# ---- questions


async def test_questions_about_lite_topics(serve, group) -> None:
    consumer = LiteConsumer(serve())
    await consumer.add("a")
    fill(group, "a", "1", "2")
    fill(group, "b", "3")
    info = json.loads((await consumer.answer(200074)).body)
    assert info["currentLmqNum"] == 2
    assert info["liteSubscriptionCount"] == 1
    assert info["groupMeta"] == {PARENT: [GROUP]}
    parent = json.loads((await consumer.answer(200075, {"topic": PARENT})).body)
    assert (parent["liteTopicCount"], parent["ttl"]) == (2, -1)
    ext = {"parentTopic": PARENT, "liteTopic": "a"}
    topic = json.loads((await consumer.answer(200076, ext)).body)
    assert topic["subscriber"] == [{"clientId": "c1", "group": GROUP}]
    assert topic["topicOffset"]["maxOffset"] == group.messages.max_offset(queue("a"), 0)
    ext = {"parentTopic": PARENT, "group": GROUP, "clientId": "c1"}
    client = json.loads((await consumer.answer(200077, ext)).body)
    assert (client["liteTopicCount"], client["liteTopicSet"]) == (1, ["a"])
    await consumer.pop()
    topics = json.loads((await consumer.answer(343, {"group": GROUP})).body)
    assert topics["topicList"] == [PARENT]
    assert b"LMQ" not in (await consumer.answer(43)).body
    refused = await consumer.answer(200075, {"topic": "TopicTest"})
    assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_figures_wait_for_what_the_last_master_left(serve, group) -> None:
    group.holding = True
    fill(group, "a", "1")
    consumer = LiteConsumer(serve())
    ext = {"parentTopic": PARENT, "liteTopic": "a"}
    asked = [
        asyncio.create_task(consumer.answer(200075, {"topic": PARENT})),
        asyncio.create_task(consumer.answer(200076, ext)),
    ]
    await asyncio.sleep(0.5)
    assert not any(task.done() for task in asked), "its producer may have been acknowledged"
    group.confirm()
    parent, topic = [json.loads((await task).body) for task in asked]
    assert parent["liteTopicCount"] == 1
    assert topic["topicOffset"]["maxOffset"] == group.messages.max_offset(queue("a"), 0)


async def test_figures_are_refused_while_nothing_is_confirmed(serve, group) -> None:
    group.holding = True
    fill(group, "a", "1")
    answer = await LiteConsumer(serve()).answer(200075, {"topic": PARENT})
    assert answer.code == ResponseCode.SYSTEM_BUSY


async def test_a_pop_takes_a_few_of_many_lite_topics_and_the_next_goes_on(
    serve, group, monkeypatch
) -> None:
    monkeypatch.setattr(popping, "LOOKS", 5)
    consumer = LiteConsumer(serve())
    names = [f"s{number}" for number in range(100)]
    await consumer.add(*names)
    for name in names:
        fill(group, name, name)
    consumer = LiteConsumer(serve())
    await asyncio.sleep(0.1)
    found: list[str] = []
    while came := await consumer.pop():
        found += came
    assert sorted(found) == sorted(names)
    assert len(names) < rules.CLIENT_QUOTA_DEFAULT
