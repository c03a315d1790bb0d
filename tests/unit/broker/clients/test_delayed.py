"""Delayed messages: parked by a send, delivered by the clock, as the log says and no other way."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
import uvloop
from gantry_broker.clients import ClientProcessor, delivery, recall
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.delay_metrics import DelayCollector
from gantry_broker.store.contract import ReadLimits, Refusal
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import RecordError
from gantry_protocol.recall import RecallHandle
from gantry_protocol.records import MessageRecord, decode_properties, decode_record
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from msgspec.structs import replace
from support.group_view import FakeConnection, FakeGroup
from support.patience import PATIENCE_S

LEVELS = DelayLevels.parse("30ms 60ms 5s")
SEND = {"a": "pg", "b": "TopicTest", "c": "TBW102", "d": "4", "f": "0", "g": "17", "h": "0"}


class Mastership:
    """One mastership over a group's store, with short delays."""

    def __init__(self, group: FakeGroup, processor: ClientProcessor | None = None) -> None:
        self.group = group
        self.conn = FakeConnection()
        self.processor = processor or ClientProcessor(group, levels=LEVELS)

    def send(self, body: bytes, level: int, queue_id: int = 1, **changes: str):
        properties = f"DELAY\x01{level}\x02TAGS\x01TagA\x02"
        asked = request(310, {**SEND, "e": str(queue_id), "i": properties, **changes}, body)
        answer = self.processor(self.conn, asked)
        return answer if answer is not None else self.conn.answer_to(asked)

    def send_for(self, body: bytes, delay_ms: int, key: str = "K1"):
        """A message for a moment so far from now."""
        return self.send(body, 0, i=f"TIMER_DELAY_MS\x01{delay_ms}\x02UNIQ_KEY\x01{key}\x02")

    def recall(self, handle: str, topic: str = "TopicTest"):
        asked = request(370, {"topic": topic, "recallHandle": handle, "producerGroup": "pg"})
        answer = self.processor(self.conn, asked)
        return answer if answer is not None else self.conn.answer_to(asked)

    def steps(self) -> list[int]:
        """Where messages for a moment have waited, in the order of the log: ms."""
        parked = self.records(SCHEDULE_TOPIC)
        return [int(decode_properties(one.properties)["__GANTRY_DELAY_MS"]) for one in parked]

    def delivered(self) -> list[bytes]:
        """Bodies that reached TopicTest, in the order of the log."""
        return [record.body for record in self.records("TopicTest")]

    def records(self, topic: str) -> list[MessageRecord]:
        return [
            record for records in self.group.appended for record in records if record.topic == topic
        ]

    def progress(self, level: int) -> int | None:
        return self.group.store.committed.query(PROGRESS_GROUP, SCHEDULE_TOPIC, level - 1)

    async def until(self, count: int) -> None:
        """Until so many messages were delivered."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.delivered()) < count:
                await asyncio.sleep(0.002)


@pytest.fixture
def group(tmp_path: Path):
    made = FakeGroup(tmp_path)
    made.now_ms = int(time.time() * 1000)
    made.add_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4))
    yield made
    made.messages.log.close()


@pytest.fixture
async def mastership(group: FakeGroup):
    made = Mastership(group)
    yield made
    made.processor.close()


async def test_a_delayed_message_is_parked_and_answered_as_asked_for(mastership, group) -> None:
    answer = mastership.send(b"first", 3)
    answer = mastership.send(b"x", 3, queue_id=2)
    assert answer.code == 0
    # The requested queue, the place where it waits.
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", "1")
    (_, parked) = mastership.records(SCHEDULE_TOPIC)
    assert (parked.queue_id, parked.queue_offset) == (2, 1)
    found = decode_record(group.messages.view(parked.physical_offset))
    assert answer.ext["msgId"].endswith(f"{found.physical_offset:016X}")
    properties = decode_properties(found.properties)
    assert properties["REAL_TOPIC"] == "TopicTest"
    assert properties["REAL_QID"] == "2"
    assert properties["DELAY"] == "3"
    await asyncio.sleep(0.01)
    assert mastership.delivered() == []
    assert mastership.processor.delivery.pending() == {3: 2}
    codes = frozenset({found.store_timestamp + 5_000})
    entry = group.messages.get(SCHEDULE_TOPIC, 2, 1, ReadLimits(1, 1 << 20), codes)
    assert entry.count == 1, "the entry's code is the delivery time"


async def test_a_level_beyond_the_highest_is_the_highest(mastership) -> None:
    mastership.send(b"x", 99)
    (parked,) = mastership.records(SCHEDULE_TOPIC)
    assert parked.queue_id == 2
    assert decode_properties(parked.properties)["DELAY"] == "3"


async def test_a_client_cannot_say_where_a_parked_message_goes(mastership) -> None:
    forged = "DELAY\x011\x02REAL_TOPIC\x01GANTRY_SYS_TOPICS\x02__GANTRY_DELAY_MS\x010\x02"
    mastership.send(b"x", 1, i=forged)
    (parked,) = mastership.records(SCHEDULE_TOPIC)
    properties = decode_properties(parked.properties)
    assert properties["REAL_TOPIC"] == "TopicTest"
    assert properties["__GANTRY_DELAY_MS"] == "30"
    for name in ("DELAY", "REAL_TOPIC", "__GANTRY_DELAY_MS"):
        assert f"\x02{parked.properties}".count(f"\x02{name}\x01") == 1
    await mastership.until(1)


async def test_it_arrives_after_its_delay_as_it_was_sent(mastership, group) -> None:
    sent_s = time.monotonic()
    mastership.send(b"x", 1)
    await mastership.until(1)
    assert time.monotonic() - sent_s >= 0.030
    (found,) = mastership.records("TopicTest")
    assert (found.queue_id, found.born_timestamp, found.body) == (1, 17, b"x")
    properties = decode_properties(found.properties)
    # The text keeps what upstream's keeps, and delivery does not park it again.
    assert properties["DELAY"] == "1"
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("TopicTest", "1")
    assert (properties["TAGS"], properties["CLUSTER"]) == ("TagA", "DefaultCluster")
    assert "__GANTRY_DELAY_MS" not in properties
    assert mastership.processor.delivery.pending() == {}


async def test_messages_and_progress_are_one_append(mastership, group) -> None:
    for number in range(3):
        mastership.send(b"%d" % number, 1)
    await mastership.until(3)
    appends = [records for records in group.appended if records[0].topic != SCHEDULE_TOPIC]
    assert appends
    for records in appends:
        *messages, progress = [record.topic for record in records]
        assert {*messages} == {"TopicTest"}
        assert progress == "GANTRY_SYS_OFFSETS", "behind them: a log that breaks off loses nothing"
    assert mastership.delivered() == [b"0", b"1", b"2"]
    assert mastership.progress(1) == 3


async def test_a_new_mastership_goes_on_where_the_log_says(mastership, group) -> None:
    mastership.send(b"done", 1)
    await mastership.until(1)
    mastership.send(b"later", 2)
    mastership.processor.close()
    await asyncio.sleep(0.08)
    assert mastership.delivered() == [b"done"], "a closed processor delivers nothing"
    group.messages.drop_mastership()
    group.messages.take_mastership()
    again = Mastership(group)
    await again.until(2)
    assert again.delivered() == [b"done", b"later"]
    again.processor.close()


async def test_an_append_that_is_not_confirmed_in_time_is_not_made_again(mastership, group) -> None:
    mastership.send(b"x", 1)
    group.holding = True
    await mastership.until(1)
    group.give_up()
    await asyncio.sleep(0.15)
    assert mastership.delivered() == [b"x"]
    assert mastership.progress(1) == 1, "a state written now says so, too"


async def test_what_was_refused_is_tried_again_and_holds_up_no_other_level(
    mastership, group
) -> None:
    mastership.send(b"slow", 1)
    mastership.send(b"fast", 2)
    group.refusal = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    await asyncio.sleep(0.1)
    assert mastership.delivered() == []
    assert mastership.processor.delivery.refused > 0
    assert mastership.processor.delivery.overdue_s()[1] == 0.0, "nothing was read yet"
    group.refusal = None
    await mastership.until(2)
    assert sorted(mastership.delivered()) == [b"fast", b"slow"]  # both may be overdue by now
    assert mastership.progress(1) == mastership.progress(2) == 1


async def test_a_message_to_a_deleted_topic_is_passed_over(mastership, group) -> None:
    group.add_topic(TopicConfig(topic_name="Doomed", read_queue_nums=1, write_queue_nums=1))
    mastership.send(b"gone", 1, queue_id=0, b="Doomed")
    mastership.send(b"next", 1)
    group.store.topics._topics.pop("Doomed")
    await mastership.until(1)
    assert mastership.delivered() == [b"next"]
    assert mastership.processor.delivery.passed_over == 1
    assert mastership.progress(1) == 2


async def test_levels_of_an_earlier_table_are_delivered_too(mastership, group) -> None:
    mastership.send(b"x", 2)
    mastership.processor.close()
    fewer = ClientProcessor(group, levels=DelayLevels.parse("10s"))
    await mastership.until(1)
    fewer.close()


async def test_metrics(mastership, group) -> None:
    families = {one.name: one for one in DelayCollector(lambda: None).collect()}
    assert families["gantry_broker_delay_pending"].samples == []
    mastership.send(b"x", 1)
    mastership.send(b"y", 3)
    await mastership.until(1)
    collector = DelayCollector(lambda: mastership.processor.delivery)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }
    assert found["gantry_broker_delay_pending", "3"] == 1
    assert found["gantry_broker_delay_overdue_seconds", "3"] == 0
    assert found["gantry_broker_delay_messages_total", "delivered"] == 1


@pytest.mark.parametrize("call", ["offsets", "read"])
async def test_a_store_that_refuses_is_asked_again(mastership, group, monkeypatch, call) -> None:
    monkeypatch.setattr(delivery, "ASK_AGAIN_MS", 10)
    refusals = []

    def refuses(wanted, done) -> None:
        refusals.append(wanted)
        done(Refusal(ResponseCode.SYSTEM_BUSY, "not now"))

    mastership.processor.close()
    monkeypatch.setattr(group.store, call, refuses)
    again = Mastership(group)
    again.send(b"x", 1)
    await asyncio.sleep(0.05)
    assert again.delivered() == []
    assert 0 < len(refusals) < 10
    monkeypatch.undo()
    await again.until(1)
    again.processor.close()


def test_on_the_event_loop_of_the_processes(group) -> None:
    async def run() -> None:
        mastership = Mastership(group)
        for level in (2, 1, 1):
            mastership.send(b"%d" % level, level)
        await mastership.until(3)
        assert mastership.delivered() == [b"1", b"1", b"2"]
        mastership.processor.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_what_passes_between_two_clocks_makes_nothing_early(group, monkeypatch) -> None:
    """A process may lose its processor between them, and whole ms leave something out."""
    seen = []

    class Seen(delivery.Schedule):
        def __init__(self, levels, now_ms, wall_ms) -> None:
            super().__init__(levels, now_ms, wall_ms)
            seen.append((now_ms, wall_ms))

    def slow_clock() -> float:
        time.sleep(0.01)
        return time.time()

    monkeypatch.setattr(delivery, "Schedule", Seen)
    loop = asyncio.get_running_loop()
    for clock in (slow_clock, time.time):
        steady_s, wall_s = loop.time(), time.time()
        ClientProcessor(group, levels=LEVELS, clock=clock).close()
        began_ms, began_wall_ms = seen[-1]
        assert began_ms - steady_s * 1000 >= began_wall_ms - wall_s * 1000


async def test_what_was_not_delivered_is_not_noted_as_delivered(
    mastership: Mastership, group: FakeGroup
) -> None:
    """A state that is written meanwhile would say so, and a trim would take the message."""
    assert mastership.send(b"later", 1).code == 0
    group.append_error = RecordError("no")
    async with asyncio.timeout(PATIENCE_S):
        while not mastership.processor.delivery.refused:
            await asyncio.sleep(0.002)
    assert mastership.progress(1) in (None, 0)
    group.append_error = None
    await mastership.until(1)


async def test_a_delivery_that_ends_after_its_mastership_counts_nothing(
    mastership: Mastership, group: FakeGroup
) -> None:
    """Its append is confirmed when another master has taken the level up."""
    found = mastership.processor.delivery
    mastership.send(b"x", 1)
    group.holding = True
    await mastership.until(1)
    mastership.processor.close()
    group.confirm()
    assert found.delivered == 0
    assert found.pending() == {1: 1}, "as it was when the mastership ended"


async def test_a_message_for_a_moment_waits_in_steps_and_arrives_as_it_was_sent(mastership) -> None:
    sent_s, sent_ms = time.monotonic(), int(time.time() * 1000)
    answer = mastership.send_for(b"x", 1_150)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")
    await asyncio.sleep(0.01)
    assert sum(mastership.processor.delivery.pending().values()) == 1
    await mastership.until(1)
    assert 1.150 <= time.monotonic() - sent_s < 5
    assert mastership.steps()[0] == 1_000
    assert sum(mastership.steps()[1:]) in (0, 100, 200), "less if the first was late"
    (found,) = mastership.records("TopicTest")
    assert (found.queue_id, found.born_timestamp, found.body) == (1, 17, b"x")
    properties = decode_properties(found.properties)
    assert properties["TIMER_DELAY_MS"] == "1150"
    assert int(properties["TIMER_OUT_MS"]) == pytest.approx(sent_ms + 1_150, abs=1_000)
    assert "__GANTRY" not in found.properties
    assert "DELAY" not in properties
    assert mastership.processor.delivery.delivered == 1, "a step is no delivery"
    assert mastership.processor.delivery.pending() == {}


async def test_a_moment_that_is_over_is_now(mastership) -> None:
    answer = mastership.send(b"x", 0, i="TIMER_DELIVER_MS\x011\x02")
    assert answer.code == 0
    assert "recallHandle" not in answer.ext
    assert mastership.delivered() == [b"x"]


async def test_a_consumer_that_sends_it_back_does_not_have_it_wait_again(mastership) -> None:
    copy = f"TIMER_DELIVER_MS\x01{2**42}\x02TIMER_OUT_MS\x01{2**42}\x02"
    assert mastership.send(b"x", 0, i=copy).code == 0
    assert mastership.delivered() == [b"x"]


async def test_a_new_mastership_goes_on_with_the_next_step(mastership, group) -> None:
    mastership.send_for(b"x", 350)
    mastership.processor.close()
    group.messages.drop_mastership()
    group.messages.take_mastership()
    again = Mastership(group)
    await again.until(1)
    assert again.steps()[0] == 400
    assert again.delivered() == [b"x"]
    again.processor.close()


async def test_messages_for_one_moment_share_an_append(mastership, group) -> None:
    for number in range(3):
        mastership.send_for(b"%d" % number, 300, f"K{number}")
    await mastership.until(3)
    appends = [records for records in group.appended if records[0].topic == "TopicTest"]
    assert sum(len(records) - 1 for records in appends) == 3
    assert all(records[-1].topic == "GANTRY_SYS_OFFSETS" for records in appends)


async def test_what_was_taken_back_is_not_delivered(mastership, group) -> None:
    handle = mastership.send_for(b"back", 2_000).ext["recallHandle"]
    mastership.send_for(b"stays", 2_100, "K2")
    answer = mastership.recall(handle)
    assert (answer.code, answer.ext) == (0, {"msgId": "K1"})
    assert mastership.recall(handle).code == 0, "who heard no answer asks again"
    await mastership.until(1)
    assert mastership.delivered() == [b"stays"]
    assert mastership.processor.recalls.taken_back == 1
    assert len(mastership.processor.recalls) == 1, "the log may hold it twice"
    assert mastership.processor.delivery.passed_over == 0


async def test_a_recall_outlives_its_master(mastership, group) -> None:
    handle = mastership.send_for(b"back", 2_000).ext["recallHandle"]
    assert mastership.recall(handle).code == 0
    mastership.processor.close()
    group.messages.drop_mastership()
    group.messages.take_mastership()
    again = Mastership(group)
    again.send_for(b"stays", 2_100, "K2")
    await again.until(1)
    assert again.delivered() == [b"stays"]
    again.processor.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": "Other"}, "topic not match"),
        ({"broker_name": "elsewhere"}, "broker service not match"),
        ({"due_ms": 1}, "timestamp invalid"),
        ({"due_ms": 10**14}, "timestamp invalid"),
        ({"unique_key": "a/b"}, "invalid handle"),
        ({"unique_key": ""}, "invalid handle"),
    ],
)
async def test_a_handle_of_something_else_is_refused(mastership, changes, words) -> None:
    made = RecallHandle.unpack(mastership.send_for(b"x", 60_000).ext["recallHandle"])
    answer = mastership.recall(replace(made, **changes).pack())
    assert (answer.code, answer.remark) == (604, f"recall failed, {words}")
    assert len(mastership.processor.recalls) == 0


async def test_a_handle_that_nobody_made_is_refused(mastership) -> None:
    for text in ("v1", "é", "djEgYQ==", "A" * 2_000):
        answer = mastership.recall(text)
        assert (answer.code, answer.remark) == (604, "recall failed, invalid handle")
    handle = mastership.send_for(b"x", 60_000).ext["recallHandle"]
    assert mastership.recall(handle, topic="nowhere").code == ResponseCode.TOPIC_NOT_EXIST


async def test_recalls_of_what_never_came_are_forgotten(mastership, group, monkeypatch) -> None:
    """By the steady clock, and not while a timer is late: it may be that one."""
    made = RecallHandle.unpack(mastership.send_for(b"x", 60_000).ext["recallHandle"])
    forgotten = replace(made, unique_key="nobody")
    recalls, deliveries = mastership.processor.recalls, mastership.processor.delivery
    assert mastership.recall(forgotten.pack()).code == 0
    await asyncio.sleep(0.01)
    deliveries._forget_recalls()
    assert len(recalls) == 1, "its time is not over"
    monkeypatch.setattr(recall, "KEPT_S", -3_600.0)
    assert mastership.recall(forgotten.pack()).code == 0
    monkeypatch.setattr(deliveries._schedule, "overdue_ms", lambda number, now_ms: 1)
    deliveries._forget_recalls()
    assert len(recalls) == 1, "what is late may still come"
    monkeypatch.undo()
    deliveries._forget_recalls()
    assert len(recalls) == 0
    assert group.store.committed.of_queues(recall.TOPIC, {0}) == []


async def test_recalls_are_bounded(mastership, monkeypatch) -> None:
    handle = mastership.send_for(b"x", 60_000).ext["recallHandle"]
    monkeypatch.setattr(recall, "ROWS_MAX", 0)
    assert mastership.recall(handle).code == ResponseCode.SYSTEM_BUSY


async def test_metrics_of_timers(mastership) -> None:
    handle = mastership.send_for(b"x", 60_000).ext["recallHandle"]
    mastership.send_for(b"y", 10_000, "K2")
    mastership.recall(handle)
    await asyncio.sleep(0.01)
    collector = DelayCollector(lambda: mastership.processor.delivery)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }
    assert found["gantry_broker_delay_pending", "timer"] == 2
    assert found["gantry_broker_delay_overdue_seconds", "timer"] == 0
    assert found["gantry_broker_delay_recalls",] == 1


async def test_a_clock_that_jumps_moves_no_moment_within_a_mastership(group) -> None:
    clock_s = time.time()
    processor = ClientProcessor(group, levels=LEVELS, clock=lambda: clock_s)
    found = Mastership(group, processor)
    found.send_for(b"x", 1_450)
    clock_s += 3_600
    began_s = time.monotonic()
    await found.until(1)
    assert time.monotonic() - began_s >= 1.4, "two steps"
    processor.close()


async def test_a_message_that_is_sent_anew_after_a_recall_is_another_one(mastership, group) -> None:
    """Java's keeps its unique key, and may be sent for another moment, or to another topic."""
    group.add_topic(TopicConfig(topic_name="Other", read_queue_nums=4, write_queue_nums=4))
    moment = int(time.time() * 1000) + 2_000
    asked = "TIMER_DELIVER_MS\x01{}\x02UNIQ_KEY\x01K1\x02"
    handle = mastership.send(b"back", 0, i=asked.format(moment)).ext["recallHandle"]
    assert mastership.recall(handle).code == 0
    assert mastership.send(b"again", 0, i=asked.format(moment + 10)).code == 0
    assert mastership.send(b"there", 0, i=asked.format(moment), b="Other").code == 0
    await mastership.until(1)
    async with asyncio.timeout(PATIENCE_S):
        while not mastership.records("Other"):
            await asyncio.sleep(0.002)
    assert mastership.delivered() == [b"again"]
    assert mastership.processor.recalls.taken_back == 1


async def test_a_recall_that_was_refused_leaves_nothing(mastership, group) -> None:
    handle = mastership.send_for(b"x", 60_000).ext["recallHandle"]
    group.append_error = RecordError("no")
    assert mastership.recall(handle).code == ResponseCode.SYSTEM_ERROR
    assert len(mastership.processor.recalls) == 0
    group.append_error = None
    assert mastership.recall(handle).code == 0
    group.append_error = RecordError("no")
    assert mastership.recall(handle).code == ResponseCode.SYSTEM_ERROR
    assert len(mastership.processor.recalls) == 1, "the first one was answered"


async def test_a_level_takes_the_moment_off(mastership) -> None:
    """Else it would wait for it wherever it goes after its delay; and it may be none."""
    mastership.send(b"x", 1, i="DELAY\x011\x02TIMER_DELIVER_MS\x01soon\x02")
    await mastership.until(1)
    (found,) = mastership.records("TopicTest")
    assert "TIMER" not in found.properties


async def test_names_that_look_like_ours_are_nothing(mastership) -> None:
    forged = "DELAY\x011\x02a__GANTRY_LEFT_MS\x011\x02TIMER_OUT_MS\x01x\x02"
    answer = mastership.send(b"x", 1, i=forged)
    assert answer.code == 0
    assert "recallHandle" not in answer.ext
    await mastership.until(1)
