"""What only members say, where TLS between members is spoken: by whose certificate it is heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.remoting.guard import OF_MANY, SPOKEN_BY
from gantry_controller.requests import REMOTING
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.batches import HeartbeatRow, HeartbeatsBody
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import GantryError
from gantry_protocol.member_tls.arriving import PEER_NAMES
from gantry_protocol.member_tls.names import Names
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.signatures import sign, signed_content
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.certificates import MemberAuthority
from support.controller_dispatcher import CLUSTER, NAME, FakeConnection, Harness

if TYPE_CHECKING:
    from pathlib import Path

KEY = "0123456789abcdef"
EXT = {"clusterName": CLUSTER, "brokerName": NAME, "topic": "t", "namespace": "n", "key": "k"}
NEEDY = sorted(code for code, row in REMOTING.items() if row.needs_key)
FREE = sorted(code for code, row in REMOTING.items() if not row.needs_key)
SAID_BY_PEOPLE = {
    "UPDATE_CONTROLLER_CONFIG", "CLEAN_BROKER_DATA", "UPDATE_AND_CREATE_TOPIC",
    "DELETE_TOPIC_IN_BROKER", "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", "DELETE_SUBSCRIPTIONGROUP",
    "GANTRY_MAP_QUEUES", "GANTRY_SET_ACCESS", "AUTH_CREATE_USER", "AUTH_UPDATE_USER",
    "AUTH_DELETE_USER", "AUTH_GET_USER", "AUTH_LIST_USER", "AUTH_CREATE_ACL", "AUTH_UPDATE_ACL",
    "AUTH_DELETE_ACL", "AUTH_GET_ACL", "AUTH_LIST_ACL", "PUT_KV_CONFIG", "DELETE_KV_CONFIG",
    "WIPE_WRITE_PERM_OF_BROKER", "ADD_WRITE_PERM_OF_BROKER", "UPDATE_NAMESRV_CONFIG",
    "REGISTER_BROKER", "UNREGISTER_BROKER", "REGISTER_TOPIC_IN_NAMESRV", "DELETE_TOPIC_IN_NAMESRV",
}  # fmt: skip
"""Or by brokers of the old kind, at the name service."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> MemberAuthority:
    return MemberAuthority(tmp_path_factory.mktemp("members"))


@pytest.fixture(params=["enforcing", "permissive"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def key(directory: Path, authority: MemberAuthority, mode: str = "enforcing") -> KeyFile:
    (directory / "key").write_text(KEY)
    settings = authority.settings("controller", "gantry://mq/controller", mode=mode)
    return KeyFile(directory / "key", MemberTls(settings))


def ask(
    harness: Harness,
    command: RemotingCommand,
    uri: str | None,
    *,
    believed: bool = True,
    named: bool = False,
) -> RemotingCommand:
    """The first answer to a request of a sender whose certificate has this name."""
    stub: Any = FakeConnection(1, believed=believed)
    if uri is not None:
        stub.attrs[PEER_NAMES] = Names.of([uri])
    dispatcher = harness.dispatcher
    try:
        answer = (dispatcher.handle_named if named else dispatcher.handle)(stub, command)
    except GantryError as error:  # as the server answers it
        answer = reply(command, ResponseCode.SYSTEM_ERROR, str(error))
    return stub.replies[0] if answer is None else answer


def is_refused(answer: RemotingCommand) -> bool:
    refused = "TLS between members is enforced" in (answer.remark or "")
    assert not refused or answer.code == ResponseCode.NO_PERMISSION
    return refused


def test_every_request_that_needs_the_key_is_of_members_or_of_people() -> None:
    assert {code.name for code in NEEDY} == {code.name for code in SPOKEN_BY} | SAID_BY_PEOPLE
    assert not {code.name for code in SPOKEN_BY} & SAID_BY_PEOPLE


@pytest.mark.parametrize("code", NEEDY, ids=lambda code: code.name)
async def test_key_alone_does_not_do_where_certificates_are_enforced(
    tmp_path: Path, authority: MemberAuthority, mode: str, code: RequestCode
) -> None:
    shown = key(tmp_path, authority, mode)
    harness = Harness(shown)
    before = harness.machine.point.digest
    for ext in (EXT, {**EXT, "gantryForwarded": "1"}):
        assert is_refused(ask(harness, request(code, ext), None)) == (mode == "enforcing")
    if mode == "enforcing":
        assert (harness.machine.point.digest, harness.quorum.index) == (before, 0)
        assert shown.tls.refused["plain"] == 2
    assert not is_refused(ask(harness, request(code, EXT), "gantry://mq/controller"))
    await harness.close()


@pytest.mark.parametrize("code", sorted(SPOKEN_BY), ids=lambda code: code.name)
@pytest.mark.parametrize(
    "uri",
    [
        f"gantry://mq/broker/{CLUSTER}/another",
        f"gantry://mq/broker/another/{NAME}",
        f"gantry://mq/front/{CLUSTER}",
        "gantry://mq/front/another",
    ],
)
async def test_nobody_speaks_for_another_group(
    tmp_path: Path, authority: MemberAuthority, mode: str, code: RequestCode, uri: str
) -> None:
    names_no_group = (RequestCode.GANTRY_GET_ACCESS, RequestCode.GANTRY_HEARTBEATS)
    ext = {"clusterName": CLUSTER} if code in names_no_group else EXT
    if code in names_no_group and uri.startswith(f"gantry://mq/broker/{CLUSTER}"):
        return  # each row of a heartbeat is judged by itself, and users are the cluster's
    if code == RequestCode.GANTRY_GET_ACCESS and uri == f"gantry://mq/front/{CLUSTER}":
        return
    shown = key(tmp_path, authority, mode)
    harness = Harness(shown)
    assert is_refused(ask(harness, request(code, ext), uri))
    assert shown.tls.refused["name"] == 1
    await harness.close()


@pytest.mark.parametrize("code", sorted(SPOKEN_BY), ids=lambda code: code.name)
async def test_members_speak_for_their_own_group(
    tmp_path: Path, authority: MemberAuthority, code: RequestCode
) -> None:
    harness = Harness(key(tmp_path, authority))
    for uri in (f"gantry://mq/broker/{CLUSTER}/{NAME}", f"gantry://mq/broker/{CLUSTER}/bro*"):
        assert not is_refused(ask(harness, request(code, EXT), uri))
    await harness.close()


@pytest.mark.parametrize("group", [NAME, "another"])
async def test_each_row_of_a_heartbeat_is_judged(
    tmp_path: Path, authority: MemberAuthority, group: str
) -> None:
    harness = Harness(key(tmp_path, authority))
    rows = [
        HeartbeatRow(name, "1.2.3.4:5", BrokerId(1), "i", Epoch(0), Offset(0), Offset(0))
        for name in (NAME, group)
    ]
    command = request(
        RequestCode.GANTRY_HEARTBEATS, body=encode_body(HeartbeatsBody(CLUSTER, 1000, rows))
    )
    answer = ask(harness, command, f"gantry://mq/broker/{CLUSTER}/{NAME}")
    told = ResponseCode.SUCCESS if group == NAME else ResponseCode.NO_PERMISSION
    assert answer.code == told
    await harness.close()


async def test_certificate_is_not_instead_of_the_key(
    tmp_path: Path, authority: MemberAuthority
) -> None:
    harness = Harness(key(tmp_path, authority))
    answer = ask(
        harness, request(1002, EXT), f"gantry://mq/broker/{CLUSTER}/{NAME}", believed=False
    )
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "no quorum key was shown" in (answer.remark or "")
    await harness.close()


@pytest.mark.parametrize("code", FREE, ids=lambda code: code.name)
async def test_reads_need_no_certificate(
    tmp_path: Path, authority: MemberAuthority, code: RequestCode
) -> None:
    harness = Harness(key(tmp_path, authority))
    answer = ask(harness, request(code, EXT), None, believed=False)
    assert not is_refused(answer)
    await harness.close()


async def test_people_sign_and_move_no_mastership(
    tmp_path: Path, authority: MemberAuthority
) -> None:
    harness = Harness(key(tmp_path, authority))
    for code, told in ((100, False), (1011, False), (1002, True), (1001, True), (904, True)):
        ext = {**EXT, "value": "v", "AccessKey": "gantry"}
        ext["Signature"] = sign(KEY.encode(), signed_content(ext, b"")).decode()
        signed = request(code, ext)
        assert is_refused(ask(harness, signed, None, believed=False)) is told, code
    await harness.close()


async def test_name_service_is_as_the_key_says(tmp_path: Path, authority: MemberAuthority) -> None:
    harness = Harness(key(tmp_path, authority))
    for code in (100, 103, 205):
        assert not is_refused(ask(harness, request(code, EXT), None, named=True))
    await harness.close()


@pytest.mark.parametrize("code", sorted(set(SPOKEN_BY) - OF_MANY), ids=lambda code: code.name)
@pytest.mark.parametrize("ext", [{}, {"brokerName": ""}, {"clusterName": CLUSTER}])
async def test_who_names_no_group_is_heard_of_none(
    tmp_path: Path, authority: MemberAuthority, code: RequestCode, ext: dict[str, str]
) -> None:
    harness = Harness(key(tmp_path, authority))
    assert is_refused(ask(harness, request(code, ext), f"gantry://mq/broker/{CLUSTER}/*"))
    await harness.close()


@pytest.mark.parametrize(("cluster", "heard"), [(CLUSTER, True), ("another", False)])
async def test_request_without_a_cluster_is_of_the_cluster_in_the_certificate(
    tmp_path: Path, authority: MemberAuthority, cluster: str, *, heard: bool
) -> None:
    """Only this cluster has the group, so that its name would be enough."""
    harness = Harness(key(tmp_path, authority))
    uri = f"gantry://mq/broker/{cluster}/{NAME}"
    whole = {"clusterName": CLUSTER, "brokerName": NAME, "appliedBrokerId": "1"}
    whole["registerCheckCode"] = "a;1"
    assert ask(harness, request(1013, whole), "gantry://mq/controller").code == 0
    asked = request(1013, {**whole, "clusterName": ""})
    ask(harness, asked, uri)
    assert asked.ext is not None
    assert (asked.ext["clusterName"] == CLUSTER) is heard
    await harness.close()


async def test_rows_without_a_cluster_are_of_nobody(
    tmp_path: Path, authority: MemberAuthority
) -> None:
    harness = Harness(key(tmp_path, authority))
    row = HeartbeatRow(NAME, "1.2.3.4:5", BrokerId(1), "i", Epoch(0), Offset(0), Offset(0))
    command = request(RequestCode.GANTRY_HEARTBEATS, body=encode_body(HeartbeatsBody("", 1, [row])))
    answer = ask(harness, command, f"gantry://mq/broker/{CLUSTER}/{NAME}")
    assert answer.code == ResponseCode.NO_PERMISSION
    await harness.close()
