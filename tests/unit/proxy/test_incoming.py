"""Stored messages, as consumers that speak gRPC get them."""

from __future__ import annotations

import hashlib

import pytest
from gantry_protocol.errors import BodyError
from gantry_protocol.headers.pop import PopMessageResponseHeader
from gantry_protocol.records.properties import PRIORITY, encode_properties
from gantry_protocol.records.record import MessageRecord, encode_record
from gantry_proxy.core.handles import parse
from gantry_proxy.core.incoming import message_of
from gantry_proxy.core.outgoing import outgoing
from gantry_proxy.core.popped import popped
from gantry_proxy.messages import ENCODINGS, MESSAGE_TYPES, Message

HOST = ("10.0.0.1", 10911)


def record(properties: dict[str, str] | str = "", **more: object) -> MessageRecord:
    text = properties if isinstance(properties, str) else encode_properties(properties)
    values: dict[str, object] = {"body": b"hello", "queue_id": 2, "queue_offset": 7} | more
    return MessageRecord(
        "orders",
        properties=text,
        physical_offset=4_096,
        born_timestamp=1_000,
        store_timestamp=2_000,
        born_host=("10.0.0.7", 4),
        store_host=HOST,
        **values,  # type: ignore[arg-type]
    )


def test_what_was_sent_comes_back() -> None:
    sent = Message(body=b"hello")
    sent.topic.resource_namespace, sent.topic.name = "shop", "orders"
    system = sent.system_properties
    system.message_id, system.tag, system.message_group = "01AB", "paid", "customer-1"
    system.keys.extend(["k1", "k2"])
    sent.user_properties["colour"] = "blue"
    (stored,) = outgoing([sent], "peer", 1_000)
    got = message_of(record(stored.properties), "handle")
    got.topic.resource_namespace = "shop"  # the record's topic is this test's own
    assert got.body == sent.body
    assert dict(got.user_properties) == {"colour": "blue"}
    found = got.system_properties
    assert (found.message_id, found.tag, found.message_group) == ("01AB", "paid", "customer-1")
    assert list(found.keys) == ["k1", "k2"]
    assert found.message_type == MESSAGE_TYPES["FIFO"]


def test_a_priority_comes_back() -> None:
    sent = Message(body=b"hello")
    sent.topic.name = "orders"
    sent.system_properties.message_id, sent.system_properties.priority = "01AB", 0
    (stored,) = outgoing([sent], "peer", 1_000)
    assert stored.has_priority
    got = message_of(record(stored.properties), "handle")
    assert got.system_properties.priority == 0
    assert got.system_properties.HasField("priority")
    assert got.system_properties.message_type == MESSAGE_TYPES["PRIORITY"]
    assert not got.user_properties
    for text in ("2147483648", "high", "1" * 5_000):
        properties = encode_properties({PRIORITY: text})
        assert not message_of(record(properties), None).system_properties.HasField("priority")


def test_places_times_and_the_digest_are_the_record_s() -> None:
    found = message_of(record(reconsume_times=3), "handle").system_properties
    assert (found.queue_id, found.queue_offset, found.receipt_handle) == (2, 7, "handle")
    assert (found.born_timestamp.ToMilliseconds(), found.store_timestamp.ToMilliseconds()) == (
        1_000,
        2_000,
    )
    assert (found.born_host, found.store_host) == ("10.0.0.7:4", "10.0.0.1:10911")
    assert found.delivery_attempt == 4
    assert found.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert found.body_encoding == ENCODINGS["IDENTITY"]


def test_a_message_without_a_key_has_the_broker_s_id() -> None:
    assert message_of(record(), None).system_properties.message_id.endswith("0000000000001000")


def test_a_compressed_body_says_so() -> None:
    found = message_of(record(sys_flag=1), None).system_properties
    assert found.body_encoding == ENCODINGS["GZIP"]


def test_a_namespace_comes_apart() -> None:
    made = record()
    made.topic = "shop%orders"
    topic = message_of(made, None).topic
    assert (topic.resource_namespace, topic.name) == ("shop", "orders")


def test_a_dead_letter_says_where_it_comes_from() -> None:
    made = record({"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "01AB"})
    dead = message_of(made, None).system_properties.dead_letter_queue
    assert (dead.topic, dead.message_id) == ("orders", "01AB")


HEADER = PopMessageResponseHeader(
    pop_time=50,
    invisible_time=10_000,
    revive_qid=0,
    rest_num=0,
    start_offset_info="0 2 7;0 3 1",
    msg_offset_info="0 2 7,8",
)


def test_each_message_that_was_popped_has_a_handle() -> None:
    body = encode_record(record()) + encode_record(record(queue_id=3, queue_offset=4))
    handles = [
        parse(item.system_properties.receipt_handle) for item in popped(HEADER, body, "orders-a")
    ]
    assert [item.text for item in handles] == [
        "7 50 10000 0 0 orders-a 2 7 4096",
        "1 50 10000 0 0 orders-a 3 4 4096",
    ]
    assert [(item.broker_name, item.queue_id, item.offset) for item in handles] == [
        ("orders-a", 2, 7),
        ("orders-a", 3, 4),
    ]


def test_tries_of_what_is_consumed_in_order_are_counted() -> None:
    header = PopMessageResponseHeader(50, 10_000, 999, 0, "0 2 7", "0 2 7", "0 qo2%7 2")
    (found,) = popped(header, encode_record(record()), "orders-a")
    assert found.system_properties.delivery_attempt == 3


@pytest.mark.parametrize("starts", ["", "0 2", "0 x 7", "0 3 1"])
def test_an_answer_that_does_not_fit_together_is_an_error(starts: str) -> None:
    header = PopMessageResponseHeader(50, 10_000, 0, 0, starts)
    with pytest.raises(BodyError):
        popped(header, encode_record(record()), "orders-a")


@pytest.mark.parametrize("ms", [-1, -(2**63), 2**63 - 1])
def test_times_that_are_none_hold_up_no_message(ms: int) -> None:
    """Whoever sends by the other protocol may say anything."""
    far = {"TIMER_DELIVER_MS": "9" * 15, "TIMER_OUT_MS": "1"}
    stored = record(far)
    stored.born_timestamp = stored.store_timestamp = ms
    found = message_of(stored, "handle").system_properties
    for time in (found.born_timestamp, found.store_timestamp, found.delivery_timestamp):
        assert 0 <= time.ToMilliseconds() <= 253_402_300_799_999
