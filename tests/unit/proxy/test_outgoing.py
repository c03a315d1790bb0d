"""Messages of producers that speak gRPC, as brokers store them."""

from __future__ import annotations

import pytest
from gantry_protocol.records.properties import decode_properties
from gantry_proxy.core.outgoing import BODY_BYTES_MAX, DELAY_MAX_MS, Outgoing, outgoing
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.messages import ENCODINGS, MESSAGE_TYPES, Message

PEER, NOW_MS = "10.0.0.7:40000", 1_700_000_000_000


def message(**system: object) -> Message:
    made = Message(body=b"hello")
    made.topic.name = "orders"
    made.system_properties.message_id = "01AB"
    for name, value in system.items():
        setattr(made.system_properties, name, value)
    return made


def sent(made: Message) -> tuple[Outgoing, dict[str, str]]:
    (found,) = outgoing([made], PEER, NOW_MS)
    return found, decode_properties(found.properties)


def refusal(*messages: Message) -> str:
    with pytest.raises(CallRefused) as refused:
        outgoing(messages, PEER, NOW_MS)
    return refused.value.code


def test_what_a_client_says_is_in_the_record() -> None:
    made = message(tag="paid", trace_context="t-1", born_host="app-3")
    made.system_properties.keys.extend(["k1", "k2"])
    made.system_properties.born_timestamp.FromMilliseconds(NOW_MS - 5)
    made.user_properties["colour"] = "blue"
    found, properties = sent(made)
    assert (found.topic, found.body, found.sys_flag) == ("orders", b"hello", 0)
    assert found.born_ms == NOW_MS - 5
    assert properties == {
        "colour": "blue",
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "01AB",
        "WAIT": "true",
        "PGROUP": "orders",
        "TRACE_CONTEXT": "t-1",
        "__BORNHOST": "app-3",
        "BORN_TIMESTAMP": str(NOW_MS - 5),
    }


def test_what_a_client_does_not_say_is_what_the_connection_says() -> None:
    _, properties = sent(message())
    assert properties["__BORNHOST"] == PEER
    assert properties["BORN_TIMESTAMP"] == str(NOW_MS)


def test_a_namespace_is_a_part_of_the_name() -> None:
    made = message()
    made.topic.resource_namespace = "shop"
    assert sent(made)[0].topic == "shop%orders"


def test_a_compressed_body_is_marked() -> None:
    assert sent(message(body_encoding=ENCODINGS["GZIP"]))[0].sys_flag == 1


def test_a_half_message_is_marked_and_says_when_it_may_be_asked_for() -> None:
    made = message(message_type=MESSAGE_TYPES["TRANSACTION"])
    made.system_properties.orphaned_transaction_recovery_duration.FromSeconds(30)
    found, properties = sent(made)
    assert found.is_transaction
    assert found.sys_flag == 4
    assert properties["TRAN_MSG"] == "true"
    assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "30"


def test_a_message_group_is_the_sharding_key() -> None:
    found, properties = sent(message(message_group="customer-1"))
    assert found.message_group == properties["__SHARDINGKEY"] == "customer-1"


def test_a_priority_is_a_property_of_the_record() -> None:
    assert sent(message(priority=7))[1]["_SYS_MSG_PRIORITY_"] == "7"
    assert "_SYS_MSG_PRIORITY_" not in sent(message())[1]
    assert refusal(message(priority=-1)) == "BAD_REQUEST"
    forged = message()
    forged.user_properties["_SYS_MSG_PRIORITY_"] = "7"
    assert refusal(forged) == "ILLEGAL_MESSAGE_PROPERTY_KEY"


def test_a_delay_is_the_time_at_which_it_ends() -> None:
    made = message()
    made.system_properties.delivery_timestamp.FromMilliseconds(NOW_MS + 5_000)
    assert sent(made)[1]["TIMER_DELIVER_MS"] == str(NOW_MS + 5_000)
    made.system_properties.delivery_timestamp.FromMilliseconds(NOW_MS + DELAY_MAX_MS + 1)
    assert refusal(made) == "ILLEGAL_DELIVERY_TIME"
    made.system_properties.delivery_timestamp.seconds = NOW_MS  # milliseconds where seconds belong
    assert refusal(made) == "ILLEGAL_DELIVERY_TIME"


def test_a_time_of_birth_that_is_none_is_refused() -> None:
    made = message()
    made.system_properties.born_timestamp.seconds = NOW_MS
    assert refusal(made) == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"message_id": " "}, "ILLEGAL_MESSAGE_ID"),
        ({"message_id": "a\x02b"}, "ILLEGAL_MESSAGE_ID"),
        ({"tag": "a|b"}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": "a\x01b"}, "ILLEGAL_MESSAGE_TAG"),
        ({"message_group": "   "}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_group": "g" * 64}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_group": "a\x02b"}, "ILLEGAL_MESSAGE_GROUP"),
    ],
)
def test_texts_that_no_record_can_hold_are_refused(system: dict[str, object], code: str) -> None:
    assert refusal(message(**system)) == code


def test_properties_of_the_system_are_nobody_elses() -> None:
    made = message()
    made.user_properties["UNIQ_KEY"] = "forged"
    assert refusal(made) == "ILLEGAL_MESSAGE_PROPERTY_KEY"


@pytest.mark.parametrize(("name", "value"), [("a\x01", "b"), ("a", "b\x02")])
def test_properties_hold_no_separators(name: str, value: str) -> None:
    made = message()
    made.user_properties[name] = value
    assert refusal(made) == "ILLEGAL_MESSAGE_PROPERTY_KEY"


def test_properties_have_bounds() -> None:
    many = message()
    for number in range(129):
        many.user_properties[f"p{number}"] = "x"
    assert refusal(many) == "MESSAGE_PROPERTIES_TOO_LARGE"
    long = message()
    long.user_properties["p"] = "x" * 16_384
    assert refusal(long) == "MESSAGE_PROPERTIES_TOO_LARGE"


def test_bodies_have_bounds() -> None:
    made = message()
    made.body = b"x" * (BODY_BYTES_MAX + 1)
    assert refusal(made) == "MESSAGE_BODY_TOO_LARGE"
    made.body = b""
    assert refusal(made) == "MESSAGE_BODY_EMPTY"


def test_keys_are_words() -> None:
    made = message()
    made.system_properties.keys.append("a\x02b")
    assert refusal(made) == "ILLEGAL_MESSAGE_KEY"


def test_a_batch_is_of_one_topic_and_plain() -> None:
    other = message()
    other.topic.name = "invoices"
    assert len(outgoing([message(), message()], PEER, NOW_MS)) == 2
    assert refusal(message(), other) == "MESSAGE_CORRUPTED"
    assert refusal(message(), message(message_group="g")) == "MESSAGE_CORRUPTED"
    assert refusal(message(), message(priority=0)) == "MESSAGE_CORRUPTED"
    assert refusal(message(), message(body_encoding=ENCODINGS["GZIP"])) == "MESSAGE_CORRUPTED"
    assert refusal() == "MESSAGE_CORRUPTED"


def test_names_are_checked() -> None:
    made = message()
    made.topic.name = "no topic"
    assert refusal(made) == "ILLEGAL_TOPIC"
