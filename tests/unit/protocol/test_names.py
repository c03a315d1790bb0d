"""What may be a name, and that no text of a request escapes the question."""

from __future__ import annotations

import ast
from inspect import getmembers, isclass
from pathlib import Path

import msgspec
import pytest
from gantry_protocol import names
from gantry_protocol.bodies import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchBody,
    SubscriptionGroupConfig,
    decode_request,
    encode_body,
)
from gantry_protocol.bodies.client import MessageQueue
from gantry_protocol.bodies.route import TopicQueues
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import NameRefused
from gantry_protocol.headers import (
    brokeradmin,
    client,
    codec,
    consumers,
    controller,
    from_ext,
    nameserver,
)
from gantry_protocol.headers.client import UpdateConsumerOffsetRequestHeader

ROOT = Path(__file__).resolve().parents[3]
HEADERS = [
    member
    for module in (brokeradmin, client, consumers, controller, nameserver)
    for _, member in getmembers(module, isclass)
    if issubclass(member, msgspec.Struct)
    and member.__module__ == module.__name__
    and "Response" not in member.__name__
]
BODIES = [
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchBody,
    SubscriptionGroupConfig,
    TopicQueues,
]
# Of other members of the cluster, which ask clients what we ask here; and questions that are
# answered and forgotten.
FROM_MEMBERS = {
    "ConsumerReport",
    "HeartbeatsBody",
    "LockReport",
    "LooksBody",
    "SyncStateSetBody",
    "TopicConfigTable",
    "list[str]",
}
ONE_BY_ONE = {"HeartbeatData"}  # a group with such a name is passed over


@pytest.mark.parametrize(
    "name",
    ["T", "%RETRY%g", "%DLQ%g", "%RETRY%" + "g" * 248, "T" * 127, "MQ_INST_1%GID|a-b_c", "TBW102"],
)
def test_what_may_be_a_topic(name: str) -> None:
    assert names.topic_problem(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "blank"),
        (" ", "blank"),
        ("T" * 128, "longer than topic max length 127"),
        ("%RETRY%" + "g" * 249, "longer than topic max length 255"),
        ("a/b", "illegal characters"),
        ("a\n", "illegal characters"),
        ("ü", "illegal characters"),
    ],
)
def test_what_may_not(name: str, words: str) -> None:
    assert words in (names.topic_problem(name) or "")


@pytest.mark.parametrize("name", ["g", "CID_RMQ_SYS_TRANS", "a|b", "g" * 255, "%RETRY%g"])
def test_what_may_be_a_group(name: str) -> None:
    assert names.group_problem(name) is None


@pytest.mark.parametrize("name", ["", "g" * 256, "<reset>g", "a@b", "a.b"])
def test_what_may_not_be_a_group(name: str) -> None:
    assert names.group_problem(name) is not None


def _texts(kind: type[msgspec.Struct]) -> set[str]:
    """The attributes of ``kind`` that hold text, those of structs in it included."""
    found: set[str] = set()
    for one in msgspec.inspect.type_info(kind).fields:  # type: ignore[union-attr]
        kinds = [one.type]
        while kinds:
            match kinds.pop():
                case msgspec.inspect.StrType():
                    found.add(one.name)
                case msgspec.inspect.UnionType(types=members):
                    kinds += members
                case msgspec.inspect.ListType(item_type=item):
                    kinds.append(item)
                case msgspec.inspect.StructType(cls=inner):
                    found |= _texts(inner)
    return found


@pytest.mark.parametrize("kind", [*HEADERS, *BODIES], ids=lambda kind: kind.__name__)
def test_every_text_of_a_request_is_a_name_or_said_to_be_none(kind: type[msgspec.Struct]) -> None:
    unknown = _texts(kind) - names.CHECKS.keys() - names.NO_NAMES - {"tags_set"}
    assert not unknown, "put them into names.CHECKS or names.NO_NAMES"


def test_no_door_reads_a_body_without_the_question() -> None:
    found = set()
    for path in [
        *(ROOT / "broker/gantry_broker").rglob("*.py"),
        *(ROOT / "controller/gantry_controller").rglob("*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "decode_body"
                and ast.unparse(node.args[1]).endswith("request.body")
            ):
                found.add(ast.unparse(node.args[0]))
    assert found <= FROM_MEMBERS | ONE_BY_ONE, "use decode_request, or say here why not"


@pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: kind.__name__)
def test_a_header_with_a_name_that_is_none_is_refused(kind: type[msgspec.Struct]) -> None:
    wire = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    ext = {wire[one.name]: _plain(one) for one in msgspec.structs.fields(kind)}
    from_ext(kind, ext)
    for attribute, _, _ in names.checked_fields(kind):
        with pytest.raises(NameRefused) as refusal:
            from_ext(kind, {**ext, wire[attribute]: "x" * 5_500_000})
        assert refusal.value.answer_code == ResponseCode.INVALID_PARAMETER
        assert len(str(refusal.value)) < 200


def _plain(field: msgspec.structs.FieldInfo) -> str:
    text = str(field.type)
    return "x" if "str" in text else "false" if "bool" in text else "1"


def test_names_that_were_stored_before_are_read_in_answers_and_can_be_deleted() -> None:
    from_ext(controller.GetMetadataResponseHeader, {"group": "ü", "isLeader": "true", "peers": ""})
    from_ext(brokeradmin.DeleteSubscriptionGroupRequestHeader, {"groupName": "ü" * 1000})


def test_a_body_with_a_name_that_is_none_is_refused() -> None:
    queue = MessageQueue("broker-a", 0, "T" * 128)
    body = encode_body(LockBatchBody("g", "c", [queue]))
    with pytest.raises(NameRefused, match="topic max length"):
        decode_request(LockBatchBody, body)


def test_the_memory_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_KNOWN_MAX", 3)
    monkeypatch.setattr(codec, "_sound", {})
    for number in range(10):
        codec.check_names(UpdateConsumerOffsetRequestHeader(f"g{number}", "T", 0, 0))
    assert [len(known) for known in codec._sound.values()] == [1, 1]
