"""Custom headers: upstream's names, and nothing lost between a header and its ext."""

import json
from contextlib import suppress
from inspect import getmembers, isclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from gantry_protocol import names
from gantry_protocol.errors import HeaderError
from gantry_protocol.headers import brokeradmin, client, controller, from_ext, nameserver, to_ext
from hypothesis import given, settings
from hypothesis import strategies as st

MODULES: dict[str, ModuleType] = {
    "controller": controller,
    "client": client,
    "nameserver": nameserver,
    "brokeradmin": brokeradmin,
}
VECTORS = json.loads((Path(__file__).parent / "vectors" / "headers.json").read_text("utf-8"))
HEADERS = [
    member
    for module in MODULES.values()
    for _, member in getmembers(module, isclass)
    if issubclass(member, msgspec.Struct) and member.__module__ == module.__name__
]


def _class(name: str) -> type[msgspec.Struct]:
    module, _, kind = name.partition(".")
    return getattr(MODULES[module], kind)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_java_ext_fields_read_as_meant(vector: dict[str, Any]) -> None:
    header = from_ext(_class(vector["header"]), vector["ext"])
    assert {name: getattr(header, name) for name in vector["attributes"]} == vector["attributes"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_what_java_sent_is_written_back_as_it_was(vector: dict[str, Any]) -> None:
    kind = _class(vector["header"])
    written = to_ext(from_ext(kind, vector["ext"]))
    known = {
        key: text for key, text in vector["ext"].items() if key in kind.__struct_encode_fields__
    }
    assert known.items() <= written.items()


def _values(field_type: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match field_type:
        case msgspec.inspect.IntType(ge=low, le=high):
            return st.integers(low, high)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.StrType():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.UnionType(types=members):
            return st.one_of([_values(member) for member in members])
    raise AssertionError(f"headers have no fields of type {field_type}")


def _names(field_type: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """What every rule for names allows, or None where the field may be left out."""
    sound = st.text("%|azAZ09_-", min_size=1, max_size=120)
    return sound if isinstance(field_type, msgspec.inspect.StrType) else st.none() | sound


@pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_header_survives_its_ext(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    named = {name: check for name, check, _ in names.checked_fields(kind)}
    header = kind(
        **{
            field.name: data.draw(
                _names(field.type) if field.name in named else _values(field.type)
            )
            for field in info.fields
        }
    )
    ext = to_ext(header)
    assert all(type(key) is str and type(text) is str for key, text in ext.items())
    assert from_ext(kind, ext) == header


@pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(ext=st.dictionaries(st.sampled_from(["a", "b", "topic", "brokerId", "queueId"]), st.text()))
def test_any_ext_is_read_or_refused(kind: type[msgspec.Struct], ext: dict[str, str]) -> None:
    with suppress(HeaderError):
        from_ext(kind, ext)


@pytest.mark.parametrize(
    ("ext", "words"),
    [
        (None, "missing required field `brokerName`"),
        ({"brokerName": "b"}, "missing required field `masterBrokerId`"),
        ({"brokerName": "b", "masterBrokerId": "x"}, "'masterBrokerId' has the value 'x'"),
        ({"brokerName": "b", "masterBrokerId": ""}, "'masterBrokerId' has the value ''"),
        (
            {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "2147483648"},
            "'masterEpoch' has the value '2147483648'",
        ),
        ({"brokerName": "b", "masterBrokerId": "9" * 5000}, "'" + "9" * 64 + "'"),
    ],
)
def test_a_refusal_names_field_and_value(ext: dict[str, str] | None, words: str) -> None:
    with pytest.raises(HeaderError) as refusal:
        from_ext(controller.AlterSyncStateSetRequestHeader, ext)
    assert words in str(refusal.value)


def test_unknown_fields_ride_along() -> None:
    ext = {
        "consumerGroup": "g",
        "AccessKey": "k",
        "Signature": "s",
        "ReqT": "0",
        "__ZONE_NAME": "z",
    }
    assert from_ext(client.ConsumerGroupRequestHeader, ext).consumer_group == "g"


def test_none_is_absent_and_booleans_are_java_words() -> None:
    header = controller.ElectMasterRequestHeader("b", designate_elect=True)
    assert to_ext(header) == {
        "brokerName": "b",
        "clusterName": "",
        "brokerId": "-1",
        "designateElect": "true",
        "invokeTime": "0",
    }


def test_long_and_short_send_headers_have_the_same_attributes() -> None:
    assert (
        client.SendMessageRequestHeader.__struct_fields__
        == client.SendMessageRequestHeaderV2.__struct_fields__
    )
    assert "".join(client.SendMessageRequestHeaderV2.__struct_encode_fields__) == "abcdefghijklmn"
