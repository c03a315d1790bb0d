"""Signed requests: who made them, and what each needs."""

from __future__ import annotations

import json

import pytest
from gantry_protocol.access.rules import User, make_rule
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting import demands
from gantry_protocol.remoting.admission import Admitted, Denied, Users, signed
from gantry_protocol.remoting.signatures import SIGNATURE_FIELD

SECRET = "correct-horse"
CODE = RequestCode
IP = "10.0.0.1"


def users(*rules: tuple, kind: str = "Normal", status: str = "enable") -> Users:
    user = User(SECRET, kind, status, tuple(make_rule(*rule) for rule in rules))
    return Users("gantry", {"ada": user})


def ask(code: int, body: object = b"", **ext: str) -> RemotingCommand:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return signed(request(code, ext, data), "ada", SECRET.encode())


def verdict(known: Users, command: RemotingCommand) -> str:
    found = known.admit(command, IP)
    return "" if isinstance(found, Admitted) else found.reason


def send(topic: str = "t") -> RemotingCommand:
    return ask(CODE.SEND_MESSAGE_V2, b"body", a="pg", b=topic)


def test_upstreams_vector() -> None:
    """The bytes that upstream's AclUtils signs, and its result (spec, the vector of 4.7)."""
    ext = {"consumerGroup": "cg", "queueId": "1", "topic": "TopicTest"}
    command = signed(request(11, ext, b"body"), "rocketmq2", b"12345678")
    assert (command.ext or {})[SIGNATURE_FIELD] == "cn/IWhszO4Yjyo4CN8/1Lulrw5A="


def test_a_signature_covers_every_field_and_the_body() -> None:
    known = users(("*", ["All"]))
    assert verdict(known, send()) == ""
    for field in ("a", "b", "more"):
        command = send()
        command.ext = {**(command.ext or {}), field: "other"}
        assert verdict(known, command) == "signature"
    command = send()
    command.body = b"another"
    assert verdict(known, command) == "signature"


@pytest.mark.parametrize("shown", ["", "x", "cn/IWhszO4Yjyo4CN8/1Lulrw5A=", "ü", "\ud800"])
def test_what_is_no_signature(shown: str) -> None:
    command = send()
    command.ext = {**(command.ext or {}), SIGNATURE_FIELD: shown}
    assert verdict(users(("*", ["All"])), command) == ("signature" if shown else "unsigned")


def test_who_is_not_known_is_told_the_same_as_who_has_another_secret() -> None:
    known = users(("*", ["All"]))
    stranger = signed(request(310, {"b": "t"}), "bob", SECRET.encode())
    other = signed(request(310, {"b": "t"}), "ada", b"another-secret")
    found = [known.admit(command, IP) for command in (stranger, other)]
    assert all(isinstance(item, Denied) for item in found)
    assert str(found[0].sentence).replace("bob", "ada") == found[1].sentence


def test_unsigned_and_disabled_users_are_denied() -> None:
    assert verdict(users(("*", ["All"])), request(310, {"b": "t"})) == "unsigned"
    assert (
        verdict(users(("*", ["All"])), request(310, {"b": "t", "AccessKey": "ada"})) == "unsigned"
    )
    assert verdict(users(kind="Super", status="disable"), send()) == "disabled"


def test_super_users_may_do_everything_and_nobody_else_what_has_no_row() -> None:
    assert verdict(users(kind="Super"), ask(999_999)) == ""
    assert verdict(users(("*", ["All"])), ask(999_999)) == "super"
    for code in demands.SUPER_USERS:
        assert verdict(users(("*", ["All"])), ask(code, username="x")) == "super"


def test_the_sentence_names_user_resource_and_action_and_no_secret() -> None:
    found = users().admit(send("orders"), IP)
    assert isinstance(found, Denied)
    assert found.sentence == "User:ada has no permission for Pub on Topic:orders from 10.0.0.1"
    assert SECRET not in repr(found)
    found = users().admit(send("x" * 100_000), IP)
    assert isinstance(found, Denied)
    assert len(found.sentence) < 400


HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "pg"}],
    "consumerDataSet": [
        {"groupName": "g", "subscriptionDataSet": [{"topic": "t"}, {"topic": "%RETRY%g"}]}
    ],
}
ACKS = {"acks": [{"c": "g", "t": "t", "so": 1, "q": 0, "pt": 1, "b": "AQ=="}]}
LOCKS = {"consumerGroup": "g", "clientId": "c", "mqSet": [
    {"topic": "t", "brokerName": "b", "queueId": 0}]}  # fmt: skip
ON_TOPIC, ON_GROUP = ("Topic:t", ["Sub"]), ("Group:g", ["Sub"])
BOTH = [ON_TOPIC, ON_GROUP]


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (ask(CODE.SEND_MESSAGE, topic="t"), [("Topic:t", ["Pub"])]),
        (ask(CODE.SEND_MESSAGE_V2, a="g", b="t"), [("Topic:t", ["Pub"])]),
        (ask(CODE.SEND_MESSAGE_V2, a="pg", b="%RETRY%g"), [ON_GROUP]),
        (ask(CODE.END_TRANSACTION, topic="t"), [("Topic:t", ["Pub"])]),
        (ask(CODE.END_TRANSACTION), [("Topic:*", ["Pub"])]),
        (ask(CODE.PULL_MESSAGE, topic="t", consumerGroup="g"), BOTH),
        (ask(CODE.LITE_PULL_MESSAGE, topic="t", consumerGroup="g"), BOTH),
        (ask(CODE.PULL_MESSAGE, topic="%RETRY%g", consumerGroup="g"), [ON_GROUP]),
        (
            ask(CODE.PULL_MESSAGE, topic="%RETRY%other", consumerGroup="g"),
            [ON_GROUP, ("Group:other", ["Sub"])],
        ),
        (ask(CODE.POP_MESSAGE, topic="t", consumerGroup="g"), BOTH),
        (ask(CODE.ACK_MESSAGE, topic="t", consumerGroup="g"), BOTH),
        (ask(CODE.ACK_MESSAGE, topic="%RETRY%g_t", consumerGroup="g"), [ON_GROUP]),
        (ask(CODE.BATCH_ACK_MESSAGE, ACKS), BOTH),
        (ask(CODE.HEART_BEAT, HEARTBEAT), BOTH),
        (ask(CODE.HEART_BEAT, {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}), []),
        (ask(CODE.UNREGISTER_CLIENT, clientID="c", producerGroup="p"), []),
        (ask(CODE.UNREGISTER_CLIENT, clientID="c", consumerGroup="g"), [ON_GROUP]),
        (ask(CODE.LOCK_BATCH_MQ, LOCKS), BOTH),
        (ask(CODE.QUERY_CONSUMER_OFFSET, topic="t", consumerGroup="g"), BOTH),
        (ask(CODE.UPDATE_CONSUMER_OFFSET, topic="t", consumerGroup="g"), BOTH),
        (ask(CODE.GET_MAX_OFFSET, topic="t"), [ON_TOPIC]),
        (ask(CODE.GET_MAX_OFFSET, topic="t"), [("Topic:t", ["Get"])]),
        (ask(CODE.QUERY_ASSIGNMENT, {"topic": "t", "consumerGroup": "g"}), BOTH),
        (ask(CODE.VIEW_MESSAGE_BY_ID, topic="t"), [("Topic:*", ["Get"])]),
        (ask(CODE.UPDATE_AND_CREATE_TOPIC, topic="t"), [("Topic:t", ["Create"])]),
        (ask(CODE.DELETE_TOPIC_IN_BROKER, topic="t"), [("Topic:t", ["Delete"])]),
        (ask(CODE.DELETE_TOPIC_IN_BROKER), [("Topic:*", ["Delete"])]),
        (ask(CODE.DELETE_TOPIC_IN_BROKER, topic="%RETRY%g"), [("Group:g", ["Delete"])]),
        (ask(CODE.UPDATE_AND_CREATE_TOPIC, topic="%RETRY%g"), [("Group:g", ["Create"])]),
        (ask(CODE.GET_MAX_OFFSET, topic="%RETRY%g"), [ON_GROUP]),
        (
            ask(CODE.UPDATE_AND_CREATE_STATIC_TOPIC, {"topic": "t"}, topic="of-the-header"),
            [("Topic:t", ["Create"])],
        ),
        (
            ask(CODE.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": [{"topicName": "t"}]}),
            [("Topic:t", ["Create"])],
        ),
        (
            ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "g"}),
            [("Group:g", ["Create"])],
        ),
        (ask(CODE.DELETE_SUBSCRIPTIONGROUP, groupName="g"), [("Group:g", ["Delete"])]),
        (
            ask(CODE.INVOKE_BROKER_TO_RESET_OFFSET, topic="t", group="g"),
            [("Topic:t", ["Update"]), ("Group:g", ["Update"])],
        ),
        (
            ask(CODE.CLONE_GROUP_OFFSET, srcGroup="g", destGroup="h", topic="t"),
            [("Group:g", ["Get"]), ("Group:h", ["Update"]), ("Topic:t", ["Update"])],
        ),
        (ask(CODE.GET_BROKER_CONFIG), [("Cluster:gantry", ["Get"])]),
        (ask(CODE.UPDATE_BROKER_CONFIG), [("Cluster:gantry", ["Update"])]),
        (ask(CODE.AUTH_LIST_USER), [("Cluster:gantry", ["Get"])]),
    ],
    ids=lambda value: CODE(value.code).name if isinstance(value, RemotingCommand) else "",
)
def test_each_request_needs_its_rules_and_each_of_them(
    command: RemotingCommand, needed: list[tuple]
) -> None:
    assert verdict(users(*needed), command) == ""
    for left_out in needed:
        rest = [rule for rule in needed if rule is not left_out]
        assert verdict(users(*rest), command) == "rules", left_out


def test_a_body_that_does_not_read_is_denied() -> None:
    assert verdict(users(("*", ["All"])), ask(CODE.HEART_BEAT, b"{")) == "unreadable"
