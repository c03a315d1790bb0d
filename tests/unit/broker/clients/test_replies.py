"""Requests and replies: 325 to the broker, 326 to the client that waits."""

from __future__ import annotations

import asyncio

import pytest
from gantry_broker.clients import replies
from gantry_broker.clients.access import HEARD_AS
from gantry_broker.clients.admin_metrics import AdminCollector
from gantry_protocol.bodies.client import HeartbeatData, ProducerData
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.records import decode_properties, decode_record

from .test_send import V1, V2

WAITS = "10.1.1.1@77"
ASKED = f"CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01{WAITS}\x02TTL\x013000\x02"
SAID = f"MSG_TYPE\x01reply\x02{ASKED}"
REPLY = {**V2, "b": "broker-a_REPLY_TOPIC", "i": SAID}


def beat(client, client_id: str = WAITS) -> None:
    data = HeartbeatData(client_id, producer_data_set=[ProducerData("p")])
    assert client.call(34, None, encode_body(data)).code == 0


def taken(client, code: int = 0) -> RemotingCommand:
    """What came to a client last, which it answers."""
    pushed = client.conn.sent[-1]
    assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert client.processor.answered(client.conn, reply(pushed, code))
    return pushed


def samples(client) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("outcome", "")): sample.value
        for metric in AdminCollector(lambda: client.processor).collect()
        for sample in metric.samples
        if "replies" in sample.name
    }


async def test_a_request_says_to_which_group_its_reply_goes(client, group) -> None:
    assert client.call(310, {**V2, "i": ASKED + "CLUSTER\x01elsewhere\x02"}, b"?").code == 0
    assert client.call(310, V2, b"!").code == 0
    request, other = (
        decode_properties(
            decode_record(group.messages.view(record.physical_offset) or b"").properties
        )
        for records in group.appended
        for record in records
    )
    assert (request["CLUSTER"], other["CLUSTER"]) == (group.broker_name, group.cluster)
    assert (request["CORRELATION_ID"], request["REPLY_TO_CLIENT"]) == ("c1", WAITS)


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        pytest.param(325, REPLY, id="v2"),
        pytest.param(324, {**V1, "topic": REPLY["b"], "properties": SAID}, id="v1"),
    ],
)
async def test_a_reply_comes_to_its_client_and_is_answered_by_it(
    client, connect, group, code, ext
) -> None:
    beat(client)
    consumer = connect()
    asked, answer = consumer.ask(code, {**ext}, b"42")
    assert answer is None, "the client has not said that it has it"
    pushed = taken(client)
    assert pushed.body == b"42"
    assert pushed.ext is not None
    assert pushed.ext["topic"] == "broker-a_REPLY_TOPIC"
    assert pushed.ext["bornTimestamp"] == "1700000000000"
    assert pushed.ext["bornHost"] == consumer.conn.peer
    assert pushed.ext["storeHost"].endswith(":10911")
    said = decode_properties(pushed.ext["properties"])
    assert (said["CORRELATION_ID"], said["MSG_TYPE"]) == ("c1", "reply")
    assert said["PUSH_REPLY_TIME"] == pushed.ext["storeTimestamp"]
    answer = consumer.conn.answer_to(asked)
    assert answer.code == 0
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("1", "0")
    assert answer.ext["msgId"] == "0"
    assert group.appended == [], "nobody reads a reply later"
    assert samples(client) == {
        ("gantry_broker_replies_total", "taken"): 1,
        ("gantry_broker_replies_total", "not_here"): 0,
        ("gantry_broker_replies_total", "too_many"): 0,
        ("gantry_broker_replies_total", "no_answer"): 0,
        ("gantry_broker_replies_waiting", ""): 0,
    }


async def test_whoever_has_asked_is_known_before_its_heartbeat(client, connect) -> None:
    """After a change of master that one may come half a minute later."""
    assert client.call(310, {**V2, "i": ASKED}, b"?").code == 0
    consumer = connect()
    asked, _ = consumer.ask(325, REPLY, b"42")
    taken(client)
    assert consumer.conn.answer_to(asked).code == 0


async def test_a_client_that_comes_anew_is_sent_its_replies_there(client, connect) -> None:
    beat(client)
    again = connect()
    beat(again)
    client.processor.connection_closed(client.conn)
    connect().ask(325, REPLY, b"42")
    taken(again)
    assert client.conn.sent == []


async def test_an_id_stays_with_its_user(client, connect) -> None:
    """Else whoever says the id of another client is told its replies."""
    client.conn.attrs[HEARD_AS] = ("alice", "10.1.1.1")
    beat(client)
    other = connect()
    other.conn.attrs[HEARD_AS] = ("mallory", "10.1.1.2")
    beat(other)
    assert other.call(310, {**V2, "i": ASKED}, b"?").code == 0
    connect().ask(325, REPLY, b"42")
    taken(client)
    assert other.conn.sent == []
    client.processor.connection_closed(client.conn)
    beat(other)
    connect().ask(325, REPLY, b"43")
    assert taken(other).body == b"43"


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("CORRELATION_ID\x01c1\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        (SAID, f"push reply message fail, channel of <{WAITS}> not found."),
    ],
)
async def test_a_reply_to_nobody_is_refused(client, properties: str, remark: str) -> None:
    answer = client.call(325, {**REPLY, "i": properties}, b"42")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_a_reply_whose_client_leaves_or_refuses_it_is_refused(client, connect) -> None:
    beat(client)
    consumer = connect()
    asked, _ = consumer.ask(325, REPLY, b"42")
    taken(client, ResponseCode.SYSTEM_ERROR)
    assert consumer.conn.answer_to(asked).code == ResponseCode.SYSTEM_ERROR
    asked, _ = consumer.ask(325, REPLY, b"42")
    client.processor.connection_closed(client.conn)
    answer = consumer.conn.answer_to(asked)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the client went offline before it answered" in answer.remark
    assert consumer.call(325, REPLY, b"42").code == ResponseCode.SYSTEM_ERROR


@pytest.mark.looptime
async def test_a_client_that_says_nothing_is_given_up(client, connect) -> None:
    beat(client)
    consumer = connect()
    asked, _ = consumer.ask(325, REPLY, b"42")
    await asyncio.sleep(replies.TAKEN_WITHIN_S + 0.1)
    answer = consumer.conn.answer_to(asked)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "did not answer within 2 s" in answer.remark
    assert samples(client)["gantry_broker_replies_total", "no_answer"] == 1


async def test_replies_under_way_are_bounded(client, connect, monkeypatch) -> None:
    monkeypatch.setattr(client.processor.replies, "_limit", 3)
    beat(client)
    consumer = connect()
    assert [consumer.ask(325, REPLY, b"42")[1] for _ in range(3)] == [None] * 3
    assert consumer.call(325, REPLY, b"42").code == ResponseCode.SYSTEM_BUSY
    client.processor.connection_closed(consumer.conn)
    assert connect().ask(325, REPLY, b"42")[1] is None, "the replies of who left are forgotten"


async def test_replies_and_questions_have_different_numbers(client, connect) -> None:
    """A client answers both on one connection, and answers bear nothing but their number."""
    beat(client)
    connect().ask(325, REPLY, b"42")
    pushed = client.conn.sent[-1]
    numbers = client.processor.passing._numbers
    assert next(numbers) > pushed.opaque
    assert numbers is client.processor.replies._numbers


async def test_a_reply_to_the_brokers_own_topics_is_refused(client) -> None:
    beat(client)
    answer = client.call(325, {**REPLY, "b": "SCHEDULE_TOPIC_XXXX"}, b"42")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert client.conn.sent == []
