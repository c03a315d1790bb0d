"""3001 to 3010, 31017 and 31018, as brokers and tools send them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gantry_controller.metadata.events import CreateUser, SetAccess
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError
from gantry_protocol.quorum_key import KeyFile, write_key
from msgspec.structs import replace
from support.controller_dispatcher import CLUSTER, FakeConnection, Harness

SECRET = "hush-hush-hush"
CODE = RequestCode


def say(harness: Harness, code: int, body: object = None, **ext: str) -> RemotingCommand:
    data = b"" if body is None else json.dumps(body).encode()
    return harness.call(code, {"clusterName": CLUSTER, **ext}, data)


def create(harness: Harness, name: str, kind: str = "Super") -> RemotingCommand:
    body = {"username": name, "password": SECRET, "userType": kind}
    return say(harness, CODE.AUTH_CREATE_USER, body, username=name)


def told(answer: RemotingCommand) -> Any:
    assert answer.code == 0, answer
    assert SECRET.encode() not in answer.body
    return json.loads(answer.body)


async def test_users_as_mqadmin_makes_and_lists_them(harness: Harness) -> None:
    assert create(harness, "ada").code == 0
    assert create(harness, "bob", "Normal").code == 0
    assert say(harness, CODE.AUTH_UPDATE_USER, {"userStatus": "disable"}, username="bob").code == 0
    assert told(say(harness, CODE.AUTH_GET_USER, username="bob")) == {
        "username": "bob",
        "userType": "Normal",
        "userStatus": "disable",
    }
    names = [user["username"] for user in told(say(harness, CODE.AUTH_LIST_USER))]
    assert names == ["ada", "bob"]
    assert [user["username"] for user in told(say(harness, CODE.AUTH_LIST_USER, filter="d"))] == [
        "ada"
    ]
    assert say(harness, CODE.AUTH_DELETE_USER, username="bob").code == 0
    assert say(harness, CODE.AUTH_GET_USER, username="bob").code == ResponseCode.USER_NOT_EXIST


async def test_rules_as_mqadmin_makes_and_lists_them(harness: Harness) -> None:
    create(harness, "ada")
    entry = {"resource": "Topic:t", "actions": ["Pub"], "sourceIps": ["10.0.0.1"],
             "decision": "Allow"}  # fmt: skip
    acl = {"subject": "User:ada", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    assert say(harness, CODE.AUTH_CREATE_ACL, acl, subject="User:ada").code == 0
    shown = told(say(harness, CODE.AUTH_GET_ACL, subject="User:ada"))
    entry["sourceIps"] = ["10.0.0.1/32"]
    assert shown == acl
    assert told(say(harness, CODE.AUTH_LIST_ACL, subjectFilter="ad", resourceFilter="Topic")) == [
        acl
    ]
    assert told(say(harness, CODE.AUTH_LIST_ACL, resourceFilter="Group")) == []
    gone = say(harness, CODE.AUTH_DELETE_ACL, subject="User:ada", resource="Topic:t")
    assert gone.code == 0
    missing = say(harness, CODE.AUTH_GET_ACL, subject="User:ada")
    assert missing.code == ResponseCode.POLICY_NOT_EXIST


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (CODE.AUTH_CREATE_USER, {"username": "a b"}, {"password": SECRET}),
        (CODE.AUTH_CREATE_USER, {"username": "c"}, {"password": SECRET, "userType": "Root"}),
        (CODE.AUTH_UPDATE_USER, {"username": "ada"}, {"userStatus": "off"}),
        (CODE.AUTH_CREATE_ACL, {"subject": "ada"}, {}),
        (CODE.AUTH_CREATE_ACL, {"subject": "User:ada"}, {}),
        (
            CODE.AUTH_CREATE_ACL,
            {"subject": "User:ada"},
            {
                "policies": [
                    {"entries": [{"resource": "X:t", "actions": ["Pub"], "decision": "Deny"}]}
                ]
            },
        ),
        (CODE.AUTH_DELETE_ACL, {"subject": "User:ada", "policyType": "Other"}, None),
    ],
)
async def test_what_cannot_be_is_refused_in_one_sentence(
    harness: Harness, code: int, ext: dict[str, str], body: object
) -> None:
    create(harness, "ada")
    try:
        answer = say(harness, code, body, **ext)
        found, sentence = answer.code, answer.remark or ""
    except GantryError as error:  # the server makes the answer of it
        found, sentence = error.answer_code, str(error)
    assert found == ResponseCode.INVALID_PARAMETER
    assert SECRET not in sentence


def keyed(tmp_path: Path) -> KeyFile:
    return KeyFile(write_key(tmp_path / "key"))


def ask(
    harness: Harness, index: int = -1, wait_ms: int = 0, *, believed: bool = True
) -> list[RemotingCommand]:
    ext = {"clusterName": CLUSTER, "knownIndex": str(index), "waitMs": str(wait_ms)}
    stub = FakeConnection(1, believed=believed)
    answer = harness.dispatcher.handle(stub, request(CODE.GANTRY_GET_ACCESS, ext))  # type: ignore[arg-type]
    return stub.replies if answer is None else [answer]


def access(answers: list[RemotingCommand]) -> ClusterAccess:
    (answer,) = answers
    assert answer.code == 0, answer
    return msgspec.json.decode(answer.body, type=ClusterAccess)


async def test_secrets_are_told_to_none_who_has_not_shown_the_key(tmp_path: Path) -> None:
    """This quorum is open to everybody; it still gives no secret away."""
    harness = Harness(keyed(tmp_path), is_open=True)
    try:
        harness.apply(user("root"))
        said = access(ask(harness, believed=False))
        assert said.is_news
        assert said.users == {}
        assert list(access(ask(harness)).users) == ["root"]
    finally:
        await harness.close()


async def test_a_leader_tells_no_secrets_to_whom_a_follower_does_not_believe(
    tmp_path: Path,
) -> None:
    """The leader believes the follower, and sees of its client no more than the request."""
    harness = Harness(keyed(tmp_path), is_open=True)
    try:
        harness.apply(user("root"))
        harness.quorum.follow(2)
        for believed, names in ((False, []), (True, ["root"])):
            harness.quorum.redirects = 1  # it lags
            assert ask(harness, believed=believed) == []
            _, passed_on = harness.forwarder.passed_on.pop()
            leader = FakeConnection(2)
            harness.dispatcher.handle(leader, replace(passed_on))  # type: ignore[arg-type]
            assert list(access(leader.replies).users) == names
    finally:
        await harness.close()


async def test_a_quorum_without_a_key_needs_no_users(harness: Harness) -> None:
    create(harness, "root")
    answer = say(harness, CODE.GANTRY_SET_ACCESS, enabled="true")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "has no key" in (answer.remark or "")
    assert say(harness, CODE.GANTRY_SET_ACCESS, enabled="false").code == 0


def user(name: str) -> CreateUser:
    return CreateUser(cluster=CLUSTER, user=name, secret=SECRET, kind="Super", status="enable")


async def test_a_broker_with_the_key_is_told_all_once_and_then_the_news(tmp_path: Path) -> None:
    harness = Harness(keyed(tmp_path))
    try:
        assert access(ask(harness)) == ClusterAccess(0, is_news=True)
        waiting = ask(harness, 0, wait_ms=5_000)
        assert waiting == []
        harness.apply(user("root"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        said = access(waiting)
        assert said.users["root"].secret == SECRET
        assert not said.enabled
        assert access(ask(harness, said.index)) == ClusterAccess(said.index)
        assert harness.apply(SetAccess(cluster=CLUSTER, enabled=True)).changed
        now = access(ask(harness, said.index))
        assert now.enabled
        assert now.users == said.users
    finally:
        await harness.close()


@pytest.mark.parametrize("is_open", [False, True])
async def test_nobody_without_the_key_asks_for_users(tmp_path: Path, is_open: bool) -> None:
    """A quorum that lets everybody in has a key, too, while it is rolled out."""
    harness = Harness(keyed(tmp_path), is_open=is_open)
    stub = FakeConnection(1, believed=False)
    codes = [*range(CODE.AUTH_CREATE_USER, CODE.AUTH_LIST_ACL + 1), CODE.GANTRY_SET_ACCESS]
    try:
        for code in codes if is_open else (*codes, CODE.GANTRY_GET_ACCESS):
            ext = {"clusterName": CLUSTER, "username": "x", "subject": "User:x", "enabled": "false"}
            answer = harness.dispatcher.handle(stub, request(code, ext))  # type: ignore[arg-type]
            assert answer is not None
            assert answer.code == ResponseCode.NO_PERMISSION, code
    finally:
        await harness.close()
