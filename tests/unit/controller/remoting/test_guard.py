"""Who may change what the quorum holds: row by row of the table, at both ports."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from gantry_controller.requests import REMOTING, Answerer, Consistency
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import GantryError
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.signatures import sign, signed_content
from support.controller_dispatcher import CLUSTER, NAME, FakeConnection, Harness

KEY = "0123456789abcdef"
NEEDY = sorted(code for code, row in REMOTING.items() if row.needs_key)
FREE = sorted(code for code, row in REMOTING.items() if not row.needs_key)
EXT = {"clusterName": CLUSTER, "brokerName": NAME, "topic": "t", "namespace": "n", "key": "k"}


@pytest.fixture
def key(tmp_path: Path) -> KeyFile:
    (tmp_path / "key").write_text(KEY)
    return KeyFile(tmp_path / "key")


def ask(
    harness: Harness,
    code: int,
    ext: dict[str, str] | None = None,
    *,
    believed: bool = False,
    named: bool = False,
) -> RemotingCommand:
    """The first answer to a request, of a sender that has shown nothing unless ``believed``."""
    stub = FakeConnection(1, believed=believed)
    command = request(code, EXT if ext is None else ext)
    handle = harness.dispatcher.handle_named if named else harness.dispatcher.handle
    try:
        answer = handle(stub, command)  # type: ignore[arg-type]  # a fake of the same shape
    except GantryError as error:  # as the server answers it
        answer = reply(command, ResponseCode.SYSTEM_ERROR, str(error))
    return stub.replies[0] if answer is None else answer


ABOUT_USERS = {
    RequestCode.GANTRY_GET_ACCESS,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
}


def test_all_that_changes_something_needs_the_key() -> None:
    for code, row in REMOTING.items():
        if row.consistency is Consistency.WRITE:
            assert row.needs_key, row.name
        if row.consistency in (Consistency.CONSISTENT_READ, Consistency.UNSAFE_READ):
            assert row.needs_key == (code in ABOUT_USERS), row.name
        assert row.needs_key == row.allows(ResponseCode.NO_PERMISSION) or code in (
            RequestCode.GANTRY_SHOW_KEY,
            RequestCode.UPDATE_CONTROLLER_CONFIG,
            RequestCode.UPDATE_NAMESRV_CONFIG,
        )
    local = {
        code
        for code, row in REMOTING.items()
        if row.consistency is Consistency.LOCAL and row.needs_key
    }
    assert local == {
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.GANTRY_HEARTBEATS,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
    }


@pytest.mark.parametrize("code", NEEDY, ids=lambda code: code.name)
async def test_without_the_key_nothing_changes(key: KeyFile, code: RequestCode) -> None:
    harness = Harness(key)
    before = harness.machine.point.digest
    for ext in (EXT, {**EXT, "gantryForwarded": "1"}, {**EXT, "AccessKey": "gantry"}):
        answer = ask(harness, code, ext)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "no quorum key was shown" in (answer.remark or "")
    assert (harness.machine.point.digest, harness.quorum.index) == (before, 0)
    assert harness.dispatcher.requests == {}, "it came no further than the guard"
    assert (
        ask(harness, code, believed=True).code != ResponseCode.NO_PERMISSION
        or REMOTING[code].answerer is Answerer.ANY
    )
    await harness.close()


@pytest.mark.parametrize("code", FREE, ids=lambda code: code.name)
async def test_reads_need_none(key: KeyFile, code: RequestCode) -> None:
    harness = Harness(key)
    answer = ask(harness, code)
    assert "no quorum key was shown" not in (answer.remark or "")
    await harness.close()


@pytest.mark.parametrize("access_key", ["gantry", "rocketmq"])
async def test_a_wrong_signature_is_called_wrong(key: KeyFile, access_key: str) -> None:
    harness = Harness(key)
    answer = ask(harness, 1002, {**EXT, "AccessKey": access_key, "Signature": "c2lnbmVk"})
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "its signature was not made with the quorum's key" in (answer.remark or "")
    await harness.close()


async def test_a_follower_refuses_too_and_passes_on_what_it_believes(key: KeyFile) -> None:
    harness = Harness(key)
    harness.quorum.follow(2)
    assert ask(harness, 1002).code == ResponseCode.NO_PERMISSION
    assert harness.forwarder.passed_on == []
    harness.dispatcher.handle(FakeConnection(1), request(1002, EXT))  # type: ignore[arg-type]  # a fake of the same shape
    assert [command.code for _, command in harness.forwarder.passed_on] == [1002]
    await harness.close()


async def test_a_quorum_may_be_told_to_believe_anybody(key: KeyFile) -> None:
    harness = Harness(key, is_open=True)
    assert ask(harness, 1002).code != ResponseCode.NO_PERMISSION
    await harness.close()


# ---- the name service's port


@pytest.mark.parametrize("code", sorted(REMOTING), ids=lambda code: code.name)
async def test_the_clients_port_serves_the_name_service_alone(
    key: KeyFile, code: RequestCode
) -> None:
    harness = Harness(key)
    is_name_service = code in range(100, 107) or code in {
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,  # of brokers without an id: see below
        RequestCode.GANTRY_SHOW_KEY,
    }
    answer = ask(harness, code, believed=True, named=True)
    is_served = answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert is_served == is_name_service
    await harness.close()


async def test_a_members_heartbeat_is_not_for_the_name_service(key: KeyFile) -> None:
    harness = Harness(key)
    beat = {**EXT, "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
    answer = ask(harness, 904, beat, believed=True, named=True)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await harness.close()


# ---- signatures of unmodified tools


def signed(ext: dict[str, str], secret: str, access: str = "gantry") -> dict[str, str]:
    named = {**ext, "AccessKey": access}
    return {**named, "Signature": sign(secret.encode(), signed_content(named, b"")).decode()}


async def test_a_signed_request_is_served(key: KeyFile) -> None:
    harness = Harness(key)
    entry = {"namespace": "n", "key": "k", "value": "v"}
    assert ask(harness, 100, signed(entry, KEY)).code == ResponseCode.SUCCESS
    assert ask(harness, 100, signed(entry, KEY), named=True).code == ResponseCode.SUCCESS
    await harness.close()


@pytest.mark.parametrize(
    "ext",
    [
        signed(EXT, "another key, of others"),
        signed(EXT, KEY, access="someone"),
        {**signed(EXT, KEY), "brokerName": "another"},
        {**signed(EXT, KEY), "Signature": ""},
    ],
    ids=["another key", "another access key", "changed afterwards", "empty"],
)
async def test_a_signature_that_does_not_fit_is_none(key: KeyFile, ext: dict[str, str]) -> None:
    harness = Harness(key)
    assert ask(harness, 205, ext).code == ResponseCode.NO_PERMISSION
    await harness.close()


async def test_strangers_fill_no_log_and_read_no_file(
    key: KeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever they send, and even while the key cannot be read."""
    harness = Harness(key)
    assert key.file is not None
    key.file.unlink()
    with caplog.at_level(logging.WARNING, "gantry"):
        for ext in (EXT, signed(EXT, KEY)):
            for _ in range(50):
                assert ask(harness, 205, ext).code == ResponseCode.NO_PERMISSION
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1, "the refusals; signatures are judged only where there are some"
        assert ask(harness, 205, signed(EXT, KEY)).code == ResponseCode.NO_PERMISSION
    assert "signature cannot be judged" in caplog.records[1].getMessage()
    await harness.close()
