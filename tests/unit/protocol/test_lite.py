"""Lite topics: names, attributes of groups, and what a record says."""

from __future__ import annotations

import pytest
from gantry_protocol.lite import lite_problem, lite_queue, parent_and_lite
from gantry_protocol.records.lite_topics import lite_of
from gantry_protocol.settings.lite import group_attributes


@pytest.mark.parametrize("name", ["a", "A-1_b", "x" * 64])
def test_names(name: str) -> None:
    assert lite_problem(name) is None
    assert parent_and_lite(lite_queue("parent", name)) == ("parent", name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a$b", "%a", "x" * 65, "ü", "a\x01"])
def test_what_is_no_name(name: str) -> None:
    assert lite_problem(name) is not None


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"__LITE_TOPIC\x01a\x02", "a"),
        (b"K\x01v\x02__LITE_TOPIC\x01a\x02", "a"),
        (b"__LITE_TOPIC\x01a", "a"),
        (b"X__LITE_TOPIC\x01a\x02", None),
        (b"__LITE_TOPIC\x01a$b\x02", None),
        (b"__LITE_TOPIC\x01\x02", None),
        (b"", None),
    ],
)
def test_a_record_says_its_lite_topic(properties: bytes, found: str | None) -> None:
    assert lite_of(b"sessions", properties) == found


def test_attributes_of_a_group_are_given_and_taken_away() -> None:
    bound = group_attributes({}, {"+lite.bind.topic": "sessions"})
    assert bound == {"lite.bind.topic": "sessions"}
    both = group_attributes(bound, {"+lite.sub.model": "Exclusive"})
    assert both == bound | {"lite.sub.model": "Exclusive"}
    assert group_attributes(both, {"-lite.sub.model": ""}) == bound
    assert group_attributes(both, {}) == both, "who names none changes none"
    assert group_attributes(both, bound) == bound, "whole ones are as they are written"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lite.sub.model", "Both"),
        ("lite.sub.client.quota", "-2"),
        ("lite.sub.client.quota", "many"),
        ("lite.bind.topic", ""),
        ("lite.sub.reset.offset.exclusive", "yes"),
    ],
)
def test_a_value_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        group_attributes({}, {f"+{name}": value})
