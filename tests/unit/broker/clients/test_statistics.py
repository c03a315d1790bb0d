"""Admin requests: creating topics, topic and consume statistics, connections."""

from __future__ import annotations

import json

import pytest
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import MessageQueue, TopicConfig, decode_body, decode_queue_table
from gantry_protocol.bodies.client import ConsumerConnections, ConsumerData, HeartbeatData
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.stats import TopicOffset
from gantry_protocol.codes import ResponseCode
from support import stores

CREATE: dict[str, object] = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": 8,
    "writeQueueNums": 6,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}


def test_a_topic_is_created_by_the_group(client, group) -> None:
    group.holding_topics = True
    asked, answer = client.ask(17, CREATE)
    assert answer is None
    group.release_topics()
    assert client.conn.answer_to(asked).code == 0
    topic = group.store.topics.lookup("New")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (8, 6, 6)
    config = client.call(351, {"topic": "New"})
    assert decode_body(TopicConfig, config.body) == topic


def test_what_shall_become_of_attributes_is_passed_on(client, group) -> None:
    change = "+message.type=FIFO,-reserve.time"
    assert client.call(17, {**CREATE, "attributes": change}).code == 0
    (topic,) = group.created
    assert topic.attributes == {"+message.type": "FIFO", "-reserve.time": ""}


def test_an_administrator_changes_a_topic_that_exists(client, group) -> None:
    made = TopicConfig(topic_name=CREATE["topic"], read_queue_nums=3, write_queue_nums=3, perm=6)
    group.controllers_know[CREATE["topic"]] = made
    assert client.call(17, CREATE).code == 0
    now = group.store.topics.lookup(CREATE["topic"])
    assert now.write_queue_nums == CREATE["writeQueueNums"]


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a b"},
        {"topic": ""},
        {"topic": "SCHEDULE_TOPIC_XXXX"},  # upstream's very name
        {"topic": "GANTRY_SYS_OFFSETS"},
        {"readQueueNums": 0},
        {"writeQueueNums": 1025},
    ],
)
def test_topics_nobody_may_create(client, group, changes) -> None:
    assert client.call(17, {**CREATE, **changes}).code == 29
    assert group.created == []


def test_refusals_of_the_group_are_passed_on(client, group) -> None:
    group.topic_refusal = Refusal(ResponseCode.SYSTEM_BUSY, "no controller")
    assert client.call(17, CREATE).remark == "no controller"
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "leaving")
    assert client.call(17, CREATE).remark == "leaving"


@pytest.mark.parametrize("code", [202, 351])
def test_an_unknown_topic_is_17(client, code) -> None:
    assert client.call(code, {"topic": "Nope"}).code == 17


def test_topic_statistics_with_queues_as_bare_keys(client, group) -> None:
    group.messages.newest_ms = 0
    stores.put(group.messages, *(stores.message("TopicTest", 2) for _ in range(9)), now_ms=1234)
    stores.confirm(group.messages)
    answer = client.call(202, {"topic": "TopicTest"})
    assert answer.body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0')
    table = decode_queue_table(answer.body, TopicOffset)
    assert table == {
        MessageQueue("broker-a", number, "TopicTest"): (
            TopicOffset(1234, 9, 0) if number == 2 else TopicOffset(0, 0, 0)
        )
        for number in range(4)
    }


def test_consumer_connections(client) -> None:
    assert client.call(203, {"consumerGroup": "g"}).code == 206
    body = HeartbeatData("c1", consumer_data_set=[ConsumerData("g")])
    client.call(34, None, encode_body(body))
    answer = client.call(203, {"consumerGroup": "g"})
    found = decode_body(ConsumerConnections, answer.body)
    assert [one.client_id for one in found.connection_set] == ["c1"]
    assert json.loads(answer.body)["connectionSet"][0]["clientAddr"] == "10.1.1.1:5000"
