"""What administrators look at, list-wise changes, and groups that begin where others are."""

from __future__ import annotations

import json

import pytest
from gantry_broker.clients import inspection
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.traffic import NAME_CHARS, NAMES_MAX, TAKEN_MAX, Traffic
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import MessageQueue, decode_body, decode_queue_table
from gantry_protocol.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.stats import OffsetWrapper, encode_queue_map
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import reply
from gantry_protocol.records import SCHEDULE_TOPIC, tags_code
from support import stores

from .conftest import PULL

T = "TopicTest"


def fill(group, *, tag: str | None = None) -> None:
    group.messages.newest_ms = 0
    sent = [stores.message(T, 0, tag=tag) for _ in range(9)]
    stores.put(group.messages, *sent, now_ms=1_000)
    stores.confirm(group.messages)


def join(client, *topics: str, name: str = "c1", group: str = "g") -> None:
    data = ConsumerData(group, subscription_data_set=[SubscriptionData(topic) for topic in topics])
    client.call(34, None, encode_body(HeartbeatData(name, consumer_data_set=[data])))


def shown(client, code: int, **ext: object) -> dict:
    answer = client.call(code, ext)
    assert answer.code == 0, answer.remark
    return decode_body(dict, answer.body)


# ---- 317


async def test_progress_of_all_groups(client, group) -> None:
    fill(group)
    group.store.committed.commit("g", T, 0, 7)
    group.store.committed.commit(PROGRESS_GROUP, SCHEDULE_TOPIC, 0, 3)
    join(client, T, name="c2", group="live")
    answer = client.call(317, {"isOrder": False})
    table = decode_body(dict, answer.body)
    assert [list(one) for one in table["consumeStatsList"]] == [["g"], ["live"]]
    (stats,) = table["consumeStatsList"][0]["g"]
    rows = decode_queue_table(encode_body(stats), OffsetWrapper)
    assert rows[MessageQueue("broker-a", 0, T)] == OffsetWrapper(9, 7, 1_000, 7)
    assert len(rows) == 4
    assert (table["totalDiff"], table["totalInflightDiff"]) == (2 + 9, 0)
    assert table["brokerAddr"].endswith(":10911")
    only_ordered = shown(client, 317, isOrder=True)
    assert only_ordered["consumeStatsList"] == [{"g": []}, {"live": []}]


async def test_progress_of_too_many_is_refused(client, group, monkeypatch) -> None:
    monkeypatch.setattr(inspection, "QUEUES_MAX", 3)
    group.store.committed.commit("g", T, 0, 7)
    answer = client.call(317, {"isOrder": False})
    assert (answer.code, "4 queues are too many" in answer.remark) == (2, True)


# ---- 303


async def test_the_time_span_of_a_group(client, group) -> None:
    fill(group)
    group.messages.newest_ms = 0
    stores.put(group.messages, stores.message(T, 0), now_ms=5_000)
    stores.confirm(group.messages)
    group.store.committed.commit("g", T, 0, 9)
    spans = shown(client, 303, topic=T, group="g")["consumeTimeSpanSet"]
    first, second = spans[0], spans[1]
    assert first["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": T}
    assert (first["minTimeStamp"], first["maxTimeStamp"]) == (1_000, 5_000)
    assert first["consumeTimeStamp"] == 1_000
    assert first["delayTime"] > 0
    assert (second["minTimeStamp"], second["maxTimeStamp"], second["delayTime"]) == (-1, -1, 0)
    assert client.call(303, {"topic": "Nope", "group": "g"}).code == 17


# ---- 321


async def test_entries_of_a_queue(client, group) -> None:
    fill(group, tag="red")
    join(client, T)
    ask = {"topic": T, "queueId": 0, "index": 7, "count": 100, "consumerGroup": "g"}
    found = shown(client, 321, **ask)
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 9)
    seventh, eighth = found["queueData"]
    assert eighth["physicOffset"] == seventh["physicOffset"] + seventh["physicSize"]
    assert seventh["tagsCode"] == tags_code("red")
    assert found["subscriptionData"]["topic"] == T
    assert shown(client, 321, **{**ask, "consumerGroup": "x"})["filterData"] == (
        "x@TopicTest is not online!"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"queueId": 4}, 1),
        ({"topic": "Nope"}, 1),
        ({"count": 0}, 29),
        ({"count": 257}, 29),
        ({"index": -1}, 29),
    ],
)
async def test_entries_that_cannot_be_shown(client, change, code: int) -> None:
    assert client.call(321, {"topic": T, "queueId": 0, "index": 0, "count": 1, **change}).code == (
        code
    )


# ---- who is there


async def test_a_subscription(client) -> None:
    join(client, T)
    found = shown(client, 345, topic=T, group="g")
    assert found["subscriptionData"]["subString"] == "*"
    assert "subscriptionData" not in shown(client, 345, topic=T, group="x")


async def test_producers_of_all_groups(client) -> None:
    body = b'{"clientID":"c","producerDataSet":[{"groupName":"p"},{"groupName":"q"}]}'
    client.call(34, None, body)
    table = shown(client, 328)["data"]
    assert sorted(table) == ["p", "q"]
    (found,) = table["p"]
    assert (found["clientId"], found["remoteIP"]) == ("c", "10.1.1.1:5000")


async def test_where_members_are(client, connect) -> None:
    join(client, T)
    other = connect()
    join(other, T, name="c2")
    asker = connect()
    asked, answer = asker.ask(223, {"topic": T, "group": "g"})
    assert answer is None
    table = encode_queue_map({MessageQueue("broker-a", 1, T): 5})
    (question,) = [one for one in client.conn.sent if one.code == 221]
    assert question.ext == {"topic": T, "group": "g"}
    client.processor.answered(
        client.conn, reply(question, body=b'{"consumerTable":{},"messageQueueTable":%b}' % table)
    )
    assert asker.conn.replies == []
    other.processor.connection_closed(other.conn)
    body = asker.conn.answer_to(asked).body
    assert body == b'{"consumerTable":{"c1":%b}}' % table, "as Java writes it; c2 is gone"


async def test_every_member_is_asked_where_it_is(client, connect) -> None:
    members = {"c1": client, "c2": connect(), "c3": connect()}
    for name, member in members.items():
        join(member, T, name=name)
    asker = connect()
    asked, _ = asker.ask(223, {"topic": T, "group": "g"})
    for number, member in enumerate(members.values()):
        assert asker.conn.replies == []
        (question,) = [one for one in member.conn.sent if one.code == 221]
        table = encode_queue_map({MessageQueue("broker-a", 1, T): number})
        member.processor.answered(
            member.conn, reply(question, body=b'{"messageQueueTable":%b}' % table)
        )
    for name in members:
        assert b'"%b":{' % name.encode() in asker.conn.answer_to(asked).body


async def test_where_one_member_is(client, connect) -> None:
    join(client, T)
    asker = connect()
    asked, _ = asker.ask(223, {"topic": T, "group": "g", "clientAddr": "c1"})
    (question,) = [one for one in client.conn.sent if one.code == 221]
    client.processor.answered(client.conn, reply(question, body=b"no JSON"))
    assert asker.conn.answer_to(asked).body == b'{"consumerTable":{}}'
    nobody = asker.call(223, {"topic": T, "group": "g", "clientAddr": "c9"})
    assert (nobody.code, "No Any Consumer online" in nobody.remark) == (1, True)


# ---- how much goes through


async def test_stats_of_a_topic(client) -> None:
    ask = {"statsName": "TOPIC_PUT_NUMS", "statsKey": T}
    assert shown(client, 315, **ask)["statsDay"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}
    unknown = client.call(315, {**ask, "statsKey": "Nope"})
    assert (unknown.code, unknown.remark) == (1, "The stats <TOPIC_PUT_NUMS> <Nope> not exist")
    assert client.call(315, {**ask, "statsName": "COLOUR"}).code == 1


def test_windows_of_traffic() -> None:
    traffic = Traffic(0.0)
    for turn in range(1, 9_001):  # 25 hours
        traffic.put("t", 10)
        traffic.got("g", "t", 20)
        traffic.turn(10.0 * turn)
    minute, hour, day = traffic.moved("t")
    assert (minute.messages, minute.rate) == (60, 1.0)
    assert (hour.rate, day.rate) == (1.0, 1.0)
    assert 3_600 <= hour.seconds <= 4_200
    assert 86_400 <= day.seconds <= 90_000
    assert traffic.moved("t@g")[0].rate == 2.0
    assert traffic.moved("x")[0].messages == 0


def test_what_is_taken_at_a_front_is_added_at_its_master() -> None:
    front, master = Traffic(0.0), Traffic(0.0)
    for _ in range(3):
        front.put("t", 1)
        front.got("g", "t", 2)
    master.put("t", 1)
    master.turn(10.0)
    master.add(*front.take())
    assert front.take() == ({}, {}), "each is told once"
    assert master.totals() == (4, 6)
    master.turn(20.0)
    assert (master.put_rate("t"), master.got_rate("g")) == (0.3, 0.6)
    assert master.totals() == (4, 6)


def test_what_is_taken_at_once_is_bounded() -> None:
    front = Traffic(0.0)
    for number in range(TAKEN_MAX + 1):
        front.put(f"t{number}", 1)
    front.got("g" * (NAME_CHARS + 1), "t", 1)
    assert [len(part) for part in front.take()] == [TAKEN_MAX, 0]
    assert front.take() == ({f"t{TAKEN_MAX}": 1}, {})


def test_names_in_a_window_are_bounded() -> None:
    traffic = Traffic(0.0)
    for number in range(NAMES_MAX + 1):
        traffic.put(f"t{number}", 1)
    traffic.turn(10.0)
    last = traffic.moved(f"t{NAMES_MAX}")
    assert [one.messages for one in last] == [0, 0, 0]


# ---- the broker itself


async def test_what_tools_ask_of_a_broker(client, group) -> None:
    group.store.committed.commit(PROGRESS_GROUP, SCHEDULE_TOPIC, 2, 17)
    assert shown(client, 45)["offsetTable"] == {"3": 17}
    assert "RMQ_SYS_TRACE_TOPIC" in shown(client, 305)["topicList"]
    assert shown(client, 402) == {"messageRequestModeMap": {}}
    assert shown(client, 354, topic=T)["checkStatus"] == 0
    assert shown(client, 353, topic=T, group="g") == {"topic": T, "group": "g", "readable": True}
    assert shown(client, 353, topic=T, group="g", readable=True)["readable"] is True
    refused = client.call(353, {"topic": T, "group": "g", "readable": False})
    assert (refused.code, "consumeEnable" in refused.remark) == (16, True)
    assert client.call(355, {"configType": "topics"}).code == 16
    assert client.call(316).code == 0


# ---- lists of changes


async def test_topics_are_created_together_or_none(client, group) -> None:
    topics = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2} for name in "ab"]
    answer = client.call(18, None, json.dumps({"topicConfigList": topics}).encode())
    assert answer.code == 0
    assert [one.topic_name for one in group.created] == ["a", "b"]
    topics[1]["writeQueueNums"] = 5_000
    topics[0]["topicName"] = "c"
    answer = client.call(18, None, json.dumps({"topicConfigList": topics}).encode())
    assert (answer.code, len(group.created)) == (29, 2)
    assert client.call(18, None, b'{"topicConfigList":[]}').code == 0


async def test_a_list_of_topics_says_what_was_refused(client, group) -> None:
    group.topic_refusal = Refusal(ResponseCode.SYSTEM_BUSY, "no controller")
    body = b'{"topicConfigList":[{"topicName":"a"},{"topicName":"b"}]}'
    assert client.call(18, None, body).remark == "no controller"


async def test_groups_are_set_one_after_the_other(client, group) -> None:
    body = b'{"groupConfigList":[{"groupName":"a"},{"groupName":"b"},{"groupName":"c"}]}'
    asked, answer = client.ask(225, None, body)
    assert answer is None
    for name, code in (("a", 0), ("b", 26)):
        command, done = next(one for one in reversed(group.controllers.asked) if one[0].code == 200)
        assert json.loads(command.body)["groupName"] == name
        done(reply(command, code, "not this one"))
    assert client.conn.answer_to(asked).remark == "not this one"
    sets = [one for one, _ in group.controllers.asked if one.code == 200]
    assert len(sets) == 2, "c is not reached"


# ---- 314


@pytest.mark.parametrize(
    ("ext", "cloned"),
    [
        ({}, {("T1", 0): 5, (T, 0): 7}),
        ({"topic": T}, {(T, 0): 7}),
        ({"topic": ""}, {("T1", 0): 5, (T, 0): 7}),
    ],
)
async def test_a_group_begins_where_another_is(client, group, ext, cloned) -> None:
    for topic, offset in (("T1", 5), (T, 7)):
        group.store.committed.commit("g", topic, 0, offset)
    assert client.call(314, {"srcGroup": "g", "destGroup": "d", "offline": True, **ext}).code == 0
    assert group.appended, "it is in the log"
    rows = group.store.committed.of_group("d")
    assert {(topic, queue): offset for _, topic, queue, offset in rows} == cloned


async def test_topics_that_no_member_wants_are_not_cloned(client, group) -> None:
    for topic, offset in (("T1", 5), (T, 7)):
        group.store.committed.commit("g", topic, 0, offset)
    join(client, T)
    assert client.call(314, {"srcGroup": "g", "destGroup": "d"}).code == 0
    assert [row[1:] for row in group.store.committed.of_group("d")] == [(T, 0, 7)]


async def test_what_is_not_cloned(client, group) -> None:
    ask = {"srcGroup": "g", "destGroup": PROGRESS_GROUP}
    assert client.call(314, ask).code == 16
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "leaving")
    assert client.call(314, {**ask, "destGroup": "d"}).remark == "leaving"


async def test_a_pull_is_counted_for_its_topic(client, group) -> None:
    fill(group)
    client.call(11, PULL)
    client.processor.traffic.turn(client.processor.traffic._totals[-1].at_s + 10)
    minute = shown(client, 315, statsName="GROUP_GET_NUMS", statsKey=f"{T}@g")["statsMinute"]
    assert (minute["sum"], minute["tps"]) == (9, 0.9)
