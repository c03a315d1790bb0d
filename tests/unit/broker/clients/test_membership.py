"""Heartbeats, member lists, who is told of changes; queue locks; client checks."""

from __future__ import annotations

import pytest
from gantry_broker.clients import sessions
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import (
    CheckClientRequestBody,
    ConsumerIdList,
    LockBatchBody,
    LockedQueues,
    MessageQueue,
    decode_body,
    encode_body,
)
from gantry_protocol.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.errors import BodyError

BEAT, LEAVE, WHO = 34, 35, 38

# The body of a captured heartbeat (Java 5.3.3), and of a 4.9 client, which lacks two fields.
CAPTURED = (
    b'{"clientID":"ip@pid#nanos","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG",'
    b'"subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"TopicTest"}],'
    b'"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"p"}],'
    b'"withoutSub":false}'
)


def _beat(client, client_id: str, *topics: str, group: str = "g", version: int = 1, **options):
    subscriptions = [SubscriptionData(topic, sub_version=version) for topic in topics]
    consumer = ConsumerData(group, subscription_data_set=subscriptions, **options)
    body = HeartbeatData(client_id, consumer_data_set=[consumer])
    answer = client.call(BEAT, None, encode_body(body))
    assert answer.code == 0
    return answer


def _told(client) -> int:
    """How often the client was told of a change since the last call."""
    sent, client.conn.sent[:] = list(client.conn.sent), []
    for command in sent:
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert command.is_oneway
        assert command.ext == {"consumerGroup": "g"}
    return len(sent)


def _ids(client, group: str = "g") -> list[str]:
    answer = client.call(WHO, {"consumerGroup": group})
    assert answer.code == 0
    return decode_body(ConsumerIdList, answer.body).consumer_id_list


@pytest.mark.parametrize(
    "body",
    [
        CAPTURED,
        CAPTURED.replace(b'"heartbeatFingerprint":0,', b"").replace(b',"withoutSub":false', b""),
    ],
    ids=["5.3.3", "4.9.8"],
)
def test_a_captured_heartbeat(client, group, body) -> None:
    answer = client.call(BEAT, None, body)
    assert (answer.code, answer.ext) == (0, None)
    assert answer.version >= 233, "to an older broker Java clients send no filter in SQL"
    assert _ids(client) == ["ip@pid#nanos"]
    assert [topic.topic_name for topic in group.created] == ["%RETRY%g"]
    assert (group.created[0].read_queue_nums, group.created[0].perm) == (1, 6)
    client.call(BEAT, None, body)
    assert len(group.created) == 1


def test_no_retry_topic_is_made_by_who_may_not_write(client, group) -> None:
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "leaving")
    _beat(client, "c1", "TopicTest")
    assert group.created == []


def test_everybody_hears_of_newcomers_and_leavers(connect, processor) -> None:
    first, second, third = connect(), connect(), connect()
    _beat(first, "c1", "TopicTest")
    assert _told(first) == 1, "the newcomer too"
    _beat(second, "c2", "TopicTest")
    assert (_told(first), _told(second)) == (1, 1)
    _beat(first, "c1", "TopicTest")
    assert (_told(first), _told(second)) == (0, 0), "nothing changed"
    _beat(third, "c3", "TopicTest")
    assert _ids(second) == ["c1", "c2", "c3"]
    for client in (first, second, third):
        _told(client)
    first.call(LEAVE, {"clientID": "c1", "consumerGroup": "g"})
    assert (_told(first), _told(second), _told(third)) == (0, 1, 1)
    second.conn.closed = True
    processor.connection_closed(second.conn)
    assert _told(third) == 1
    assert _ids(third) == ["c3"]


@pytest.mark.parametrize(
    ("topics", "version", "told"),
    [
        pytest.param(["TopicTest", "Other"], 2, 1, id="a topic more"),
        pytest.param([], 2, 1, id="a topic less"),
        pytest.param(["TopicTest"], 2, 0, id="another expression"),
    ],
)
def test_topics_that_come_or_go_are_told(client, topics, version, told) -> None:
    _beat(client, "c1", "TopicTest")
    _told(client)
    _beat(client, "c1", *topics, version=version)
    assert _told(client) == told


def test_an_older_subscription_does_not_replace_a_newer_one(client, connect, processor) -> None:
    _beat(client, "c1", "TopicTest", version=5)
    _beat(connect(), "c2", "TopicTest", version=4)
    group = processor._sessions.group("g")
    assert group is not None
    assert group.topics["TopicTest"].sub_version == 5


def test_a_heartbeat_without_subscriptions_keeps_them(client, processor) -> None:
    _beat(client, "c1", "TopicTest")
    body = HeartbeatData("c1", consumer_data_set=[ConsumerData("g")], without_sub=True)
    client.call(BEAT, None, encode_body(body))
    group = processor._sessions.group("g")
    assert group is not None
    assert list(group.topics) == ["TopicTest"]


def test_broadcasting_groups_are_not_told(client) -> None:
    _beat(client, "c1", "TopicTest", message_model="BROADCASTING")
    assert _told(client) == 0


def test_a_clients_second_connection_is_no_change_of_its_group(connect, processor) -> None:
    """A consumer is connected to the master, and to each replica that serves reads."""
    first, second, other = connect(), connect(), connect()
    _beat(first, "c1", "TopicTest")
    _beat(other, "c2", "TopicTest")
    assert (_told(first), _told(other)) == (2, 1)
    _beat(second, "c1", "TopicTest")
    assert _ids(other) == ["c1", "c2"]
    assert (_told(first), _told(second), _told(other)) == (0, 0, 0)
    processor.connection_closed(second.conn)
    assert _ids(other) == ["c1", "c2"]
    assert (_told(first), _told(other)) == (0, 0)
    processor.connection_closed(first.conn)
    assert _ids(other) == ["c2"]
    assert _told(other) == 1


def test_a_client_that_came_back_is_listed_once(connect, processor) -> None:
    old, new = connect(), connect()
    _beat(old, "c1", "TopicTest")
    _beat(new, "c1", "TopicTest")
    assert _ids(new) == ["c1"]
    processor.connection_closed(old.conn)
    assert _ids(new) == ["c1"]


@pytest.mark.parametrize(
    ("language", "closes"), [("JAVA", False), ("CPP", False), ("GO", True), ("PYTHON", True)]
)
@pytest.mark.parametrize("others", [False, True])
def test_a_list_without_the_caller_is_never_given(connect, language, closes, others) -> None:
    """It would release all its queues; Go does so on an error, too."""
    if others:
        _beat(connect(), "c9", "TopicTest")
    stranger = connect(language)
    _, answer = stranger.ask(WHO, {"consumerGroup": "g"})
    assert stranger.conn.closed is closes
    if closes:
        assert answer is None
    else:
        assert (answer.code, answer.remark) == (1, "no consumer for this group, g")


def test_silent_members_are_closed_and_the_rest_is_told(connect, processor) -> None:
    now_s = [1000.0]
    processor._sessions._clock = lambda: now_s[0]
    silent, alive = connect(), connect()
    _beat(silent, "c1", "TopicTest")
    _beat(alive, "c2", "TopicTest")
    now_s[0] += sessions.EXPIRY_S - 1
    _beat(alive, "c2", "TopicTest")
    _told(alive)
    processor._sessions.expire()
    assert not silent.conn.closed
    now_s[0] += 2
    processor._sessions.expire()
    assert silent.conn.closed
    assert not alive.conn.closed
    assert _told(alive) == 1
    assert _ids(alive) == ["c2"]


def test_a_member_that_asks_anything_is_heard(connect, processor) -> None:
    """Java's heartbeats stay away for minutes while another broker is silent; its pulls do not."""
    now_s = [1000.0]
    processor._sessions._clock = lambda: now_s[0]
    pulling, other = connect(), connect()
    _beat(pulling, "c1", "TopicTest")
    _beat(other, "c2", "TopicTest")
    now_s[0] += sessions.EXPIRY_S + 1
    pulling.conn.heard_s = now_s[0] - 1
    _beat(other, "c2", "TopicTest")
    processor._sessions.expire()
    assert not pulling.conn.closed
    assert sorted(_ids(other)) == ["c1", "c2"]
    now_s[0] += sessions.EXPIRY_S
    processor._sessions.expire()
    assert pulling.conn.closed


def test_a_group_that_heartbeats_leave_out_loses_the_member(connect, processor) -> None:
    """Its client has left, and UnregisterClient was lost."""
    now_s = [1000.0]
    processor._sessions._clock = lambda: now_s[0]
    client = connect()
    _beat(client, "c1", "TopicTest")
    for _ in range(2):
        now_s[0] += sessions.EXPIRY_S - 1
        client.conn.heard_s = now_s[0]
        body = HeartbeatData("c1", producer_data_set=[ProducerData("pg")])
        client.call(BEAT, None, encode_body(body))
        assert processor._sessions.has("g", "c1")
        processor._sessions.expire()
    assert not processor._sessions.has("g", "c1")


def test_producers_come_and_go(client, processor) -> None:
    body = HeartbeatData("p1", producer_data_set=[ProducerData("pg")])
    client.call(BEAT, None, encode_body(body))
    assert [member.client_id for member in processor._sessions.producers("pg")] == ["p1"]
    client.call(LEAVE, {"clientID": "p1", "producerGroup": "pg"})
    assert processor._sessions.producers("pg") == []
    client.call(LEAVE, {"clientID": "p1", "producerGroup": "pg", "consumerGroup": "none"})


def test_nothing_is_left_of_clients_that_are_gone(connect, processor) -> None:
    for number in range(20):
        client = connect()
        _beat(client, f"c{number}", "TopicTest", group=f"g{number % 3}")
        body = HeartbeatData("p", producer_data_set=[ProducerData("pg")])
        client.call(BEAT, None, encode_body(body))
        processor.connection_closed(client.conn)
    found = processor._sessions
    assert (found._consumers, found._producers, found._groups_of) == ({}, {}, {})


def test_a_heartbeat_may_not_name_endlessly_many_groups(client) -> None:
    producers = [ProducerData(f"g{n}") for n in range(sessions.MAX_GROUPS_PER_CLIENT + 1)]
    body = encode_body(HeartbeatData("c", producer_data_set=producers))
    with pytest.raises(BodyError, match="1024 groups"):
        client.call(BEAT, None, body)


def test_groups_of_one_client_are_counted_over_all_its_heartbeats(client, processor) -> None:
    half = sessions.MAX_GROUPS_PER_CLIENT // 2
    for start in (0, half, 0, half):
        producers = [ProducerData(f"g{n}") for n in range(start, start + half)]
        client.call(BEAT, None, encode_body(HeartbeatData("c", producer_data_set=producers)))
    one_more = HeartbeatData("c", producer_data_set=[ProducerData("another")])
    with pytest.raises(BodyError, match="1024 groups"):
        client.call(BEAT, None, encode_body(one_more))
    client.call(LEAVE, {"clientID": "c", "producerGroup": "g0"})
    assert client.call(BEAT, None, encode_body(one_more)).code == 0
    assert len(processor._sessions.producer_groups()) == sessions.MAX_GROUPS_PER_CLIENT


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (SubscriptionData("T", "TagA || TagB"), 0),
        (SubscriptionData("T", "||"), 23),
        (SubscriptionData("T", "a > 1", expression_type="SQL92"), 0),
        (SubscriptionData("T", "a >", expression_type="SQL92"), 23),
        (SubscriptionData("T", "a > 1", expression_type="CLASS"), 1),
    ],
)
def test_check_client_config(client, subscription, code) -> None:
    body = encode_body(CheckClientRequestBody("c1", "g", subscription))
    assert client.call(46, None, body).code == code


def _queues(*ids: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(broker, queue_id, "T") for queue_id in ids]


def test_an_unlock_over_the_wire_counts_by_the_connection_of_the_lock(client, connect) -> None:
    body = encode_body(LockBatchBody("g", "c1", _queues(0)))
    again, other = connect(), connect()
    assert client.call(41, None, body).body == again.call(41, None, body).body

    def others() -> list[MessageQueue]:
        answer = other.call(41, None, encode_body(LockBatchBody("g", "c2", _queues(0))))
        return decode_body(LockedQueues, answer.body).lock_ok_mq_set

    assert client.call(42, None, body).code == 0
    assert others() == []
    assert again.call(42, None, body).code == 0
    assert others() == _queues(0)


def test_locks_over_the_wire_are_for_this_brokers_queues(client) -> None:
    wanted = [*_queues(0, 1), *_queues(2, broker="other")]
    body = encode_body(LockBatchBody("g", "c1", wanted))
    answer = client.call(41, None, body)
    assert b'"lockOKMQSet":[' in answer.body
    assert decode_body(LockedQueues, answer.body).lock_ok_mq_set == _queues(0, 1)
    other = client.call(41, None, encode_body(LockBatchBody("g", "c2", _queues(0))))
    assert (other.code, other.body) == (0, b'{"lockOKMQSet":[]}')
    assert client.call(42, None, body).body == b""
    other = client.call(41, None, encode_body(LockBatchBody("g", "c2", _queues(0))))
    assert decode_body(LockedQueues, other.body).lock_ok_mq_set == _queues(0)
