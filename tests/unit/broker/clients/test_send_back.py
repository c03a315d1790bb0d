"""36: tried again later, or among the dead letters; whatever it is, the message is not lost."""

from __future__ import annotations

import pytest
from gantry_broker.log import DiskFullError
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import LockBatchBody, MessageQueue, SubscriptionGroupConfig, encode_body
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord, decode_properties, offset_msg_id
from gantry_protocol.records.properties import SCHEDULE_TOPIC

# The ext of a captured 36 (Java 5.3.3).
BACK: dict[str, object] = {
    "bname": "broker-a",
    "delayLevel": "1",
    "group": "CG",
    "maxReconsumeTimes": "16",
    "offset": "785",
    "originMsgId": "ABC",
    "originTopic": "TopicTest",
    "unitMode": "false",
}


def _stored(group, **changes) -> MessageRecord:
    """A message as a consumer got it."""
    fields = {
        "topic": "TopicTest",
        "queue_id": 1,
        "body": b"hello",
        "properties": "UNIQ_KEY\x01U\x02TAGS\x01TagA\x02KEYS\x01k1\x02WAIT\x01true\x02",
        "born_timestamp": 17,
        "born_host": ("10.1.1.1", 5000),
        "store_host": ("10.0.0.9", 10911),
    }
    record = MessageRecord(**(fields | changes))
    group.append([record], lambda outcome: None)
    return record


def _back(client, record: MessageRecord, **changes):
    return client.call(36, {**BACK, "offset": record.physical_offset, **changes})


def _last(group) -> MessageRecord:
    (record,) = group.appended[-1]
    return record


def test_a_failed_message_is_parked_for_its_groups_retry_topic(client, group) -> None:
    record = _stored(group)
    assert _back(client, record).code == 0
    found = _last(group)
    assert (found.topic, found.queue_id, found.reconsume_times) == (SCHEDULE_TOPIC, 0, 1)
    assert (found.body, found.born_timestamp, found.born_host) == (b"hello", 17, record.born_host)
    assert found.store_host == group.store_host
    # The captured retry record's, and the delay that delivery takes off.
    assert decode_properties(found.properties) == {
        "ORIGIN_MESSAGE_ID": offset_msg_id("10.0.0.9", 10911, record.physical_offset),
        "RETRY_TOPIC": "TopicTest",
        "UNIQ_KEY": "U",
        "DELAY": "1",
        "TAGS": "TagA",
        "KEYS": "k1",
        "WAIT": "false",
        "REAL_TOPIC": "%RETRY%CG",
        "REAL_QID": "0",
        "__GANTRY_DELAY_MS": "1000",
    }
    (topic,) = group.created
    assert (topic.topic_name, topic.write_queue_nums, topic.perm) == ("%RETRY%CG", 1, 6)


@pytest.mark.parametrize(
    ("tried", "limit", "level", "queue_id"),
    [
        pytest.param(0, 16, 0, 2, id="the first retry waits for level 3"),
        pytest.param(4, 16, 0, 6, id="and each one a level more"),
        pytest.param(0, 16, 5, 4, id="unless the client names one"),
        pytest.param(15, 16, 0, 17, id="the last one is clamped"),
        pytest.param(16, 16, 0, None, id="no try is left"),
        pytest.param(3, 3, 1, None, id="the client's limit"),
        pytest.param(16, None, 1, None, id="the group's limit"),
        pytest.param(16, -1, 1, None, id="no limit of a client's is the group's"),
        pytest.param(0, 16, -1, None, id="the client gives up"),
        pytest.param(0, 0, 1, None, id="no retry at all"),
    ],
)
def test_levels_and_the_end(client, group, tried, limit, level, queue_id) -> None:
    record = _stored(group, reconsume_times=tried)
    ext = {**BACK, "offset": record.physical_offset, "delayLevel": level}
    ext["maxReconsumeTimes"] = limit
    answer = client.call(36, {key: value for key, value in ext.items() if value is not None})
    assert answer.code == 0
    found = _last(group)
    if queue_id is not None:
        assert (found.topic, found.queue_id) == (SCHEDULE_TOPIC, queue_id)
        return
    assert (found.topic, found.queue_id, found.reconsume_times) == ("%DLQ%CG", 0, tried + 1)
    properties = decode_properties(found.properties)
    assert (properties["DELAY"], properties["RETRY_TOPIC"]) == ("-1", "TopicTest")
    (topic,) = group.created
    assert (topic.topic_name, topic.perm) == ("%DLQ%CG", 6)


def test_a_second_failure_keeps_the_first_copys_names(client, group) -> None:
    properties = (
        "ORIGIN_MESSAGE_ID\x01FIRST\x02RETRY_TOPIC\x01Real\x02DELAY\x013\x02REAL_QID\x010\x02"
    )
    record = _stored(group, topic="%RETRY%CG", properties=properties, reconsume_times=1)
    assert _back(client, record, delayLevel=0).code == 0
    found = decode_properties(_last(group).properties)
    assert (found["ORIGIN_MESSAGE_ID"], found["RETRY_TOPIC"]) == ("FIRST", "Real")
    assert (found["DELAY"], found["REAL_TOPIC"]) == ("4", "%RETRY%CG")


def test_the_groups_own_settings(client, group) -> None:
    configs = group.consumers._configs
    configs["CG"] = SubscriptionGroupConfig("CG", retry_max_times=2, retry_queue_nums=3)
    record = _stored(group, reconsume_times=1)
    for queue_id in ("0", "1", "2", "0"):
        assert _back(client, record).code == 0
        assert decode_properties(_last(group).properties)["REAL_QID"] == queue_id
    assert group.created[0].write_queue_nums == 3
    assert _back(client, _stored(group, reconsume_times=2), maxReconsumeTimes=-1).code == 0
    assert group.created[1].write_queue_nums == 1, "of dead letters there is one queue"
    configs["CG"] = SubscriptionGroupConfig("CG", retry_queue_nums=0)
    before = len(group.appended)
    assert _back(client, record).code == 0, "such a group wants nothing a second time"
    assert len(group.appended) == before


def test_what_no_client_ever_got_from_there_is_not_found(client, group) -> None:
    _stored(group)
    assert client.call(36, {**BACK, "offset": 7}).code == 1
    assert "look message by offset failed, 7" in client.call(36, {**BACK, "offset": 7}).remark
    _back(client, _stored(group))
    parked = _last(group)
    assert _back(client, parked).code == 1, "a parked copy would be parked for ever"


@pytest.mark.parametrize(
    ("arrange", "code"),
    [
        pytest.param(lambda g: setattr(g, "append_error", DiskFullError("full")), 14, id="full"),
        pytest.param(
            lambda g: setattr(g, "topic_refusal", Refusal(ResponseCode.SYSTEM_BUSY, "later")),
            2,
            id="no topic",
        ),
        pytest.param(
            lambda g: setattr(g, "refusal", Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no")),
            14,
            id="no master",
        ),
    ],
)
def test_anything_but_0_makes_the_consumer_send_it_once_more(client, group, arrange, code) -> None:
    record = _stored(group)
    arrange(group)
    assert _back(client, record).code == code


def test_who_is_no_master_any_more_once_the_topic_is_made_stores_nothing(client, group) -> None:
    record = _stored(group)
    group.holding_topics = True
    asked, answer = client.ask(36, {**BACK, "offset": record.physical_offset})
    assert answer is None
    group.refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no")
    before = len(group.appended)
    group.release_topics()
    assert client.conn.answer_to(asked).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(group.appended) == before


def test_not_confirmed_is_not_0(client, group) -> None:
    record = _stored(group)
    group.holding = True
    asked, answer = client.ask(36, {**BACK, "offset": record.physical_offset})
    assert answer is None
    group.give_up()
    assert client.conn.answer_to(asked).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_an_illegal_group_is_29(client, group) -> None:
    assert _back(client, _stored(group), group="a b").code == 29


def test_a_group_that_holds_locks_goes_straight_to_the_dead_letters(client, group) -> None:
    """A group that consumes in order resends only what it gives up."""
    queue = MessageQueue(broker_name="broker-a", queue_id=0, topic="TopicTest")
    body = encode_body(LockBatchBody("CG", "c1", [queue]))
    assert client.call(41, None, body).code == 0
    retry = {"a": "g", "b": "%RETRY%CG", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 17, "h": 0}
    answer = client.call(310, {**retry, "i": "DELAY\x013\x02", "j": 1, "l": 16}, b"x")
    assert answer.code == 0
    assert _last(group).topic == "%DLQ%CG"
    client.call(42, None, body)
    client.call(310, {**retry, "i": "DELAY\x013\x02", "j": 1, "l": 16}, b"x")
    assert _last(group).topic == SCHEDULE_TOPIC
