"""What administrators ask a broker: progress, listings, itself, and questions passed on."""

from __future__ import annotations

import asyncio
import json

import pytest
from gantry_broker.clients.admin_metrics import AdminCollector
from gantry_broker.clients.passing import MAX_UNDER_WAY
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.traffic import Traffic
from gantry_broker.store.contract import ReadLimits, Refusal
from gantry_protocol.bodies import MessageQueue, decode_queue_table
from gantry_protocol.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.stats import OffsetWrapper
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.records.ids import offset_msg_id
from support import stores

from .conftest import PULL


def fill(group, queue_id: int = 0) -> None:
    group.messages.newest_ms = 0
    sent = [stores.message("TopicTest", queue_id) for _ in range(9)]
    stores.put(group.messages, *sent, now_ms=1234)
    stores.confirm(group.messages)


def join(client, *topics: str, name: str = "c1", group: str = "g") -> None:
    data = ConsumerData(group, subscription_data_set=[SubscriptionData(topic) for topic in topics])
    producers = [ProducerData("p")]
    body = HeartbeatData(name, producer_data_set=producers, consumer_data_set=[data])
    client.call(34, None, encode_body(body))


def progress(client, **ext: str) -> dict[MessageQueue, OffsetWrapper]:
    return decode_queue_table(client.call(208, {"consumerGroup": "g", **ext}).body, OffsetWrapper)


def queue(number: int) -> MessageQueue:
    return MessageQueue("broker-a", number, "TopicTest")


# ---- progress


async def test_progress_of_every_queue_also_of_those_without_a_commit(client, group) -> None:
    fill(group)
    group.store.committed.commit("g", "TopicTest", 0, 7)
    group.store.committed.commit("g", "Gone", 0, 1)
    for ext in ({}, {"topic": ""}, {"topic": "TopicTest"}):
        table = progress(client, **ext)
        assert table[queue(0)] == OffsetWrapper(9, 7, 1234, 7)
        assert [table[queue(number)].broker_offset for number in (1, 2, 3)] == [0, 0, 0]
        assert len(table) == 4
    assert progress(client, topic="Nope") == {}


async def test_a_group_that_has_committed_nothing_waits_for_all_that_is_there(
    client, group
) -> None:
    fill(group)
    join(client, "TopicTest")
    assert progress(client)[queue(0)] == OffsetWrapper(9, 0, 0, 0)


async def test_what_its_members_do_not_want_any_more_is_no_lag(client, group) -> None:
    fill(group)
    group.store.committed.commit("g", "TopicTest", 0, 7)
    join(client, "Other")
    assert progress(client) == {}


async def test_what_was_pulled_and_not_committed_is_in_flight(client, group) -> None:
    fill(group)
    group.store.committed.commit("g", "TopicTest", 0, 2)
    client.call(11, {**PULL, "queueOffset": 2, "maxMsgNums": 4})
    assert progress(client)[queue(0)].pull_offset == 6
    client.ask(15, {**PULL, "commitOffset": 9}, oneway=True)
    assert progress(client)[queue(0)].pull_offset == 9, "never behind what is consumed"
    reset = {"topic": "TopicTest", "group": "g", "timestamp": -1, "isForce": True}
    client.call(222, {**reset, "queueId": 0, "offset": 2})
    assert progress(client)[queue(0)].pull_offset == 2, "what was pulled before is not in flight"


def test_who_has_not_pulled_for_longest_is_forgotten_first() -> None:
    pulled = PulledOffsets(max_kept=2)
    for group in ("a", "b", "a", "c"):
        pulled.note(group, "t", 0, 1)
    assert [pulled.offset(group, "t", 0) for group in "abc"] == [1, None, 1]


async def test_all_offsets_groups_and_topics(client, group) -> None:
    group.store.committed.commit("g", "TopicTest", 3, 7)
    join(client, "Other", group="live")
    assert json.loads(client.call(43).body) == {"offsetTable": {"TopicTest@g": {"3": 7}}}
    assert json.loads(client.call(300, {"topic": "TopicTest"}).body) == {"groupList": ["g"]}
    assert json.loads(client.call(300, {"topic": "Other"}).body) == {"groupList": ["live"]}
    assert json.loads(client.call(343, {"group": "g"}).body) == {"topicList": ["TopicTest"]}
    assert json.loads(client.call(343, {"group": "live"}).body) == {"topicList": ["Other"]}


def test_rates_are_those_of_the_last_turn_and_of_longer_windows() -> None:
    traffic = Traffic(100.0)
    for turn in range(1, 13):
        traffic.put("t", 50)
        traffic.got("g", "t", 100)
        traffic.turn(100.0 + 10 * turn)
    assert (traffic.put_rate("t"), traffic.got_rate("g")) == (5.0, 10.0)
    traffic.turn(230.0)
    assert (traffic.put_rate("t"), traffic.got_rate("g")) == (0.0, 0.0), "nothing in this turn"
    put, got = traffic.rates()
    assert put == pytest.approx([0.0, 250 / 60, 600 / 130])
    assert got == pytest.approx([0.0, 500 / 60, 1200 / 130])
    traffic.turn(230.0)  # a clock that stands still


# ---- topics and connections


async def test_topics_have_a_version_that_changes_only_with_them(client, group) -> None:
    first, again = (json.loads(client.call(21).body) for _ in range(2))
    assert first == again
    assert first["topicConfigTable"]["TopicTest"]["readQueueNums"] == 4
    assert client.call(21).ext == {"totalTopicNum": "1"}
    client.call(17, {**PULL, "topic": "New", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
    later = json.loads(client.call(21).body)
    assert later["dataVersion"]["counter"] > first["dataVersion"]["counter"]
    assert sorted(later["topicConfigTable"]) == ["New", "TopicTest"]


async def test_a_topic_is_deleted_with_what_belongs_to_it(client, group) -> None:
    fill(group)
    group.store.committed.commit("g", "TopicTest", 0, 7)
    assert client.call(215, {"topic": "TopicTest"}).code == 0
    assert client.call(202, {"topic": "TopicTest"}).code == 17
    assert client.call(11, PULL).code == 17
    assert client.call(30, {"topic": "TopicTest", "queueId": 0}).ext == {"offset": "9"}
    assert json.loads(client.call(43).body) == {"offsetTable": {}}


@pytest.mark.parametrize("topic", ["", "a b", "GANTRY_SYS_OFFSETS", "TBW102"])
async def test_topics_nobody_may_delete(client, topic: str) -> None:
    assert client.call(215, {"topic": topic}).code == 29


async def test_a_deletion_is_refused_with_the_groups_reason(client, group) -> None:
    group.topic_refusal = Refusal(ResponseCode.SYSTEM_BUSY, "no controller")
    assert client.call(215, {"topic": "TopicTest"}).remark == "no controller"
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "leaving")
    assert client.call(215, {"topic": "TopicTest"}).remark == "leaving"


async def test_producers(client) -> None:
    assert client.call(204, {"producerGroup": "p"}).code == 1
    join(client, "TopicTest")
    (found,) = json.loads(client.call(204, {"producerGroup": "p"}).body)["connectionSet"]
    assert (found["clientId"], found["clientAddr"]) == ("c1", "10.1.1.1:5000")


# ---- the broker itself


async def test_runtime_has_what_tools_read_and_only_texts(client) -> None:
    table = json.loads(client.call(28).body)["table"]
    assert table["brokerVersionDesc"].startswith("GANTRY_")
    assert table["putTps"] == table["getTransferredTps"] == "0.00 0.00 0.00"
    assert table["sendThreadPoolQueueSize"] == "0"
    assert all(isinstance(value, str) for value in table.values())


async def test_settings_are_shown_and_nothing_is_changed_in_silence(client) -> None:
    shown = client.call(26).body.decode()
    assert "brokerName=broker-a\n" in shown
    assert "listenPort=10911\n" in shown
    answer = client.call(25, None, b"brokerPermission=4\n")
    assert answer.code == 16
    assert "brokerPermission does not change while brokers run" in answer.remark
    answer = client.call(25, None, b"brokerConfigPath=/etc/passwd")
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")


# ---- questions to members

ASK: dict[str, object] = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": False}


async def test_a_question_reaches_the_member_and_its_answer_the_asker(client, connect) -> None:
    join(client, "TopicTest")
    asker = connect()
    asked, answer = asker.ask(307, ASK)
    assert answer is None
    question = client.conn.sent[-1]
    assert question.code == 307
    assert question.ext["clientId"] == "c1"
    assert question.ext["brokerName"] == "broker-a"
    told = reply(question, 0, None, None, b'{"properties":{}}')
    assert not client.processor.answered(asker.conn, told), "only the member may answer"
    assert client.processor.answered(client.conn, told)
    assert asker.conn.answer_to(asked).body == told.body
    assert not client.processor.answered(client.conn, told), "once"


async def test_a_member_consumes_one_message_on_request(client, connect, group) -> None:
    fill(group)
    join(client, "TopicTest")
    body = group.messages.get("TopicTest", 0, 0, ReadLimits(1, 1 << 20)).body
    offset = int.from_bytes(body[28:36])
    message_id = offset_msg_id("10.0.0.2", 10911, offset)
    connect().ask(309, {**ASK, "msgId": message_id})
    assert client.conn.sent[-1].body == body
    assert connect().call(309, {**ASK, "msgId": "zz"}).code == 29
    nowhere = offset_msg_id("10.0.0.2", 10911, offset + 1)
    assert "there is no message" in connect().call(309, {**ASK, "msgId": nowhere}).remark


async def test_who_is_not_there_or_leaves_is_offline(client, connect) -> None:
    asker = connect()
    assert asker.call(307, ASK).code == 206
    join(client, "TopicTest")
    asked, _ = asker.ask(307, ASK)
    client.processor.connection_closed(client.conn)
    assert asker.conn.answer_to(asked).code == 206


async def test_who_does_not_answer_is_given_up(client, connect, monkeypatch) -> None:
    monkeypatch.setattr(client.processor.passing, "_within_s", 0.0)
    join(client, "TopicTest")
    asker = connect()
    asked, _ = asker.ask(307, ASK)
    await _turns()
    assert asker.conn.answer_to(asked).code == 207


async def test_questions_under_way_are_bounded(client, connect) -> None:
    join(client, "TopicTest")
    asker = connect()
    for _ in range(MAX_UNDER_WAY):
        assert asker.ask(307, ASK)[1] is None
    assert asker.call(307, ASK).code == 2
    client.processor.connection_closed(asker.conn)
    assert connect().ask(307, ASK)[1] is None, "the questions of who left are forgotten"


async def test_metrics_of_what_is_under_way(client, connect) -> None:
    join(client, "TopicTest")
    connect().ask(307, ASK)
    client.call(11, PULL)
    client.call(222, {"topic": "TopicTest", "group": "g", "timestamp": -1, "queueId": 0})
    client.processor.passing.expired, client.processor.passing.refused = 2, 1
    found = {
        sample.name: sample.value
        for metric in AdminCollector(lambda: client.processor).collect()
        for sample in metric.samples
        if not sample.labels
    }
    assert found == {
        "gantry_broker_offset_resets_total": 1,
        "gantry_broker_offset_writes_failed_total": 0,
        "gantry_broker_committed_offsets": len(client.processor.committed),
        "gantry_broker_committed_offsets_expired_total": 0,
        "gantry_broker_pulled_offsets": 0,
        "gantry_broker_consumer_questions": 1,
        "gantry_broker_replies_waiting": 0,
        "gantry_broker_passed_again_sends": 0,
        "gantry_broker_drain_refused_total": 0,
    }
    assert all(
        sample.value == 0
        for metric in AdminCollector(lambda: None).collect()
        for sample in metric.samples
    )


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("code", [27, 306, 329])
async def test_nothing_is_left_to_clean(client, code: int) -> None:
    """``mqadmin cleanExpiredCQ``, ``deleteExpiredCommitLog``: the retention does it by itself."""
    assert client.call(code, None).code == ResponseCode.SUCCESS
