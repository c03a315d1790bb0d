"""Property texts and the hash of tags."""

import pytest
from gantry_protocol.errors import RecordError
from gantry_protocol.records import (
    append_properties,
    decode_properties,
    encode_properties,
    find_property,
    tags_code,
    without_property,
)
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1)
MESSY = st.text(st.sampled_from("aAT\x01\x02"), max_size=30)


def test_upstreams_sample_of_malformed_text() -> None:
    text = "a\x01\x02b\x01c\x02noval\x02d\x01e\x01f\x02\x01x\x02k\x01v"
    assert decode_properties(text) == {"b": "c", "d": "e\x01f", "k": "v"}


def test_later_duplicates_win() -> None:
    assert decode_properties("a\x011\x02a\x012\x02") == {"a": "2"}


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_properties_survive_encoding(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02c"}])
def test_separators_in_properties_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(RecordError, match="holds a separator"):
        encode_properties(properties)


@pytest.mark.parametrize("text", ["", "TAGS\x01TagA", "TAGS\x01TagA\x02"])
def test_appending_mends_the_separator_that_old_clients_omit(text: str) -> None:
    both = decode_properties(append_properties(text, {"TRACE_ON": "true"}))
    assert both == {**decode_properties(text), "TRACE_ON": "true"}


@given(MESSY, st.sampled_from(["a", "A", "T", "AT"]))
def test_finding_one_is_decoding_all(text: str, name: str) -> None:
    assert find_property(text.encode(), name) == decode_properties(text).get(name)


@given(MESSY, st.sampled_from(["a", "A", "T", "AT"]))
def test_taking_one_out_leaves_the_others(text: str, name: str) -> None:
    rest = decode_properties(text)
    rest.pop(name, None)
    assert decode_properties(without_property(text, name)) == rest


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagA||TagB", 1789476431),
        ("polygenelubricants", -(2**31)),
        ("标签", 857175),
        ("\U0001f600", 1772899),
    ],
)
def test_tags_hash_as_in_java(tags: str, code: int) -> None:
    assert tags_code(tags) == code
