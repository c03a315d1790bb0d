"""POP as clients see it: 200050, 200051, 200053, 200054, 200151, and what a next master knows."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.core.pop.assignment import AssignmentQuestion, shares
from gantry_broker.clients.core.pop.records import POP_TOPIC, ModeSet
from gantry_broker.log import DiskFullError
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import MessageRecord, decode_records
from support.group_view import FakeConnection, FakeGroup
from support.late_store import LateStore
from support.transactions import read_queue

from .conftest import Client

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

START_S = 1_700_000_000.0
TOPIC, GROUP = "TopicTest", "g"
POP: dict[str, object] = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": -1,
    "maxMsgNums": 32,
    "invisibleTime": 10_000,
    "pollTime": 0,
    "bornTime": 0,
    "initMode": 0,
    "expType": "TAG",
    "exp": "*",
    "order": "false",
}


class Jumping:
    """A wall clock that goes with the loop's and can be set."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return START_S + self.ahead_s + asyncio.get_running_loop().time()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[FakeGroup]:
    made = FakeGroup(tmp_path)
    made.add_topic(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
    yield made
    made.messages.log.close()


Serve = Callable[..., ClientProcessor]


@pytest.fixture
async def serve(group: FakeGroup) -> Iterator[Serve]:
    """Begins a mastership on what the log holds; time passes with the loop's."""
    made: list[ClientProcessor] = []

    def begin(clock: Callable[[], float] | None = None) -> ClientProcessor:
        while made:
            made.pop().close()
        made.append(ClientProcessor(group, clock or Jumping()))
        return made[-1]

    yield begin
    for processor in made:
        processor.close()


class Consumer(Client):
    """Pops, and gives receipts as Java clients make them of an answer."""

    async def pop(self, **changes: object) -> dict[str, str]:
        """The bodies of what was popped, and the receipt of each."""
        _, answer = await self.later(200050, {**POP, **changes})
        return {} if answer.code == ResponseCode.POLLING_TIMEOUT else receipts(answer)

    async def later(
        self, code: int, ext: dict[str, object] | None = None, body: bytes = b""
    ) -> tuple[RemotingCommand, RemotingCommand]:
        """The request, and its answer, which may come in a later turn."""
        asked, answer = self.ask(code, ext, body)
        for _ in range(20):
            if answer is not None:
                return asked, answer
            await asyncio.sleep(0)
            answer = self.answer_to(asked)
        raise AssertionError("no answer")

    def answer_to(self, asked: RemotingCommand) -> RemotingCommand | None:
        return next((found for to, found in self.conn.replies if to is asked), None)

    async def ack(self, receipt: str, **changes: object) -> RemotingCommand:
        return (await self.later(200051, {**named(receipt), **changes}))[1]

    async def change(self, receipt: str, invisible_ms: int) -> RemotingCommand:
        ext = {**named(receipt), "invisibleTime": invisible_ms}
        return (await self.later(200053, ext))[1]


def named(receipt: str) -> dict[str, object]:
    """The header of an acknowledgement."""
    fields = receipt.split(" ")
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": fields[6],
        "offset": fields[7],
        "extraInfo": receipt,
    }


def receipts(answer: RemotingCommand) -> dict[str, str]:
    """Bodies to receipts, as ``MQClientAPIImpl.processPopResponse`` makes them."""
    assert answer.code == 0, answer
    starts = _by_queue(answer.ext["startOffsetInfo"])
    offsets = _by_queue(answer.ext["msgOffsetInfo"])
    found = {}
    for record in decode_records(answer.body):
        key = f"0 {record.queue_id}"
        assert str(record.queue_offset) in offsets[key].split(",")
        found[record.body.decode()] = (
            f"{starts[key]} {answer.ext['popTime']} {answer.ext['invisibleTime']}"
            f" {answer.ext['reviveQid']} 0 broker-a {record.queue_id} {record.queue_offset}"
        )
    return found


def _by_queue(text: str) -> dict[str, str]:
    return {" ".join(part.split(" ")[:2]): part.split(" ")[2] for part in text.split(";")}


def fill(group: FakeGroup, *bodies: str, queue_id: int = 0, tags: str = "") -> None:
    """Store messages."""
    properties = f"TAGS\x01{tags}\x02" if tags else ""
    for body in bodies:
        record = MessageRecord(
            topic=TOPIC, queue_id=queue_id, body=body.encode(), properties=properties
        )
        group.store.append([record], lambda outcome: None)


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
        _, answer = await consumer.later(200050, POP)
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
    answer = (await consumer.later(200051, {**ext, "extraInfo": receipt}))[1]
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


async def test_filters_that_are_none_by_tags_are_refused_in_words(serve, group) -> None:
    consumer = Consumer(serve())
    answer = consumer.call(200050, {**POP, "expType": "SQL92", "exp": "a > 1"})
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "SQL92" in answer.remark


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


async def test_a_new_group_begins_where_it_says(serve, group) -> None:
    consumer = Consumer(serve())
    fill(group, "old")
    assert await consumer.pop(initMode=1, queueId=0) == {}
    fill(group, "new")
    assert list(await consumer.pop(initMode=1, queueId=0)) == ["new"]
    assert list(await consumer.pop(consumerGroup="other")) == ["old", "new"]


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
    _, answer = await consumer.later(200050, {**POP, "order": "true"})
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
    assert (await consumer.later(200151, None, body))[1].code == 0
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
    answer = (await consumer.later(200054, {**ask, "pollTime": 0}))[1]
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
    await asyncio.sleep(1)
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


# ---- the next master


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
    answer = (await consumer.later(200050, POP))[1]
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
    assert (await consumer.later(200050, POP))[1].code == ResponseCode.SERVICE_NOT_AVAILABLE
    group.append_error = None
    assert list(await consumer.pop()) == ["a", "b"]


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
    assert isinstance(consumer.conn, FakeConnection)


# ---- modes


def set_mode(mode: str, share: int = 0, topic: str = TOPIC) -> bytes:
    return encode_body(
        {"topic": topic, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": share}
    )


def question(client_id: str, strategy: str = "AVG") -> bytes:
    return encode_body(
        {
            "topic": TOPIC,
            "consumerGroup": GROUP,
            "clientId": client_id,
            "strategyName": strategy,
            "messageModel": "CLUSTERING",
        }
    )


def assigned(answer: RemotingCommand) -> list[tuple[int, str]]:
    found = json.loads(answer.body).get("messageQueueAssignments", [])
    return [(item["messageQueue"]["queueId"], item["mode"]) for item in found]


@pytest.mark.parametrize(
    ("mode", "topic", "code"),
    [
        ("PULL", TOPIC, 0),
        ("POP", TOPIC, 0),
        ("PUSH", TOPIC, ResponseCode.INVALID_PARAMETER),
        ("POP", "Nope", ResponseCode.TOPIC_NOT_EXIST),
        ("POP", "%RETRY%g", ResponseCode.NO_PERMISSION),
    ],
)
async def test_the_mode_of_a_group_is_set(serve, group, mode: str, topic: str, code: int) -> None:
    consumer = Consumer(serve())
    assert (await consumer.later(401, None, set_mode(mode, topic=topic)))[1].code == code


async def test_the_next_master_knows_the_mode(serve, group) -> None:
    consumer = Consumer(serve())
    await consumer.later(401, None, set_mode("POP", 2))
    consumer = Consumer(serve())
    await asyncio.sleep(0.1)
    told = json.loads(consumer.call(402).body)["messageRequestModeMap"]
    assert told[TOPIC][GROUP] == {
        "topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 2,
    }  # fmt: skip


def know_masters(group: FakeGroup) -> None:
    """The maps were read: there are two broker groups."""
    group.queues.maps._listeners["broker-a"] = lambda topics: None
    group.queues.maps.masters = {"broker-a": "127.0.0.1:1", "broker-b": "127.0.0.1:2"}


async def test_members_of_a_group_that_pops_get_any_queue_of_all_groups(serve, group) -> None:
    consumer = Consumer(serve())
    know_masters(group)
    join(consumer, "c1")
    assert assigned(consumer.call(400, None, question("c1"))) == 2 * [
        (at, "PULL") for at in range(4)
    ]
    await consumer.later(401, None, set_mode("POP"))
    assert assigned(consumer.call(400, None, question("c1"))) == [(-1, "POP"), (-1, "POP")]
    assert assigned(consumer.call(400, None, question("c1", "MACHINE"))) == 2 * [(-1, "POP")]


async def test_nobody_is_assigned_anything_that_nobody_knows(serve, group) -> None:
    consumer = Consumer(serve())
    join(consumer, "c1")
    assert consumer.call(400, None, question("c1")).body == b"{}", "the other groups"
    know_masters(group)
    assert consumer.call(400, None, question("c1", "MACHINE")).body == b"{}"
    assert assigned(consumer.call(400, None, question("stranger"))) == []
    asked = encode_body({"topic": TOPIC, "consumerGroup": "empty", "clientId": "c1"})
    assert consumer.call(400, None, asked).body == b"{}", "the group has no member"


def join(consumer: Consumer, client_id: str) -> None:
    """Become a member."""
    data = {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [
            {"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
             "expressionType": "TAG", "classFilterMode": False}
        ],
    }  # fmt: skip
    body = {"clientID": client_id, "consumerDataSet": [data], "producerDataSet": []}
    assert consumer.call(34, None, encode_body(body)).code == 0


@pytest.mark.parametrize(
    ("strategy", "at", "found"),
    [
        ("AVG", 0, [0, 1]),
        ("AVG", 1, [2]),
        ("AVG", 2, [3]),
        ("AVG_BY_CIRCLE", 0, [0, 3]),
        ("AVG_BY_CIRCLE", 2, [2]),
    ],
)
async def test_shares_of_those_who_pull(strategy: str, at: int, found: list[int]) -> None:
    asked = AssignmentQuestion(TOPIC, GROUP, f"c{at}", strategy)
    queues = [MessageQueue("broker-a", queue_id, TOPIC) for queue_id in range(4)]
    share = shares(asked, None, queues, ["c0", "c1", "c2"])
    assert [queue.queue_id for queue in share] == found


@pytest.mark.parametrize(
    ("members", "share", "at", "found"),
    [
        (4, 1, 0, [0, 1]),
        (4, 1, 3, [3, 0]),
        (4, 2, 0, [0, 1, 2]),
        (4, 3, 0, [-1]),
        (8, 1, 5, [1]),
    ],
)
async def test_members_that_pop_share_queues(
    members: int, share: int, at: int, found: list[int]
) -> None:
    asked = AssignmentQuestion(TOPIC, GROUP, f"c{at}")
    mode = ModeSet(TOPIC, GROUP, True, share)
    queues = [MessageQueue("broker-a", queue_id, TOPIC) for queue_id in range(4)]
    names = [f"c{number}" for number in range(members)]
    assert [queue.queue_id for queue in shares(asked, mode, queues, names)] == found
