"""Lite topics: names, attributes of groups, and what a record says."""

from __future__ import annotations

import pytest
from gantry_protocol.lite import lite_problem, lite_queue, parent_and_lite
from gantry_protocol.records.lite_topics import lite_of


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
