"""Whose a span is: what clients write, and what is drawn."""

from __future__ import annotations

import pytest
from gantry_protocol.records import encode_properties
from gantry_protocol.tracing.context import Parent, is_sampled, parent_in, parent_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
WRITTEN = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_is_read() -> None:
    assert parent_of(WRITTEN) == Parent(int(TRACE, 16), int(SPAN, 16), sampled=True)


@pytest.mark.parametrize(
    ("flags", "sampled"), [("00", False), ("01", True), ("03", True), ("02", False)]
)
def test_the_lowest_flag_says_that_it_is_sampled(flags: str, sampled: bool) -> None:
    parent = parent_of(f"00-{TRACE}-{SPAN}-{flags}")
    assert parent is not None
    assert parent.sampled == sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"01-{TRACE}-{SPAN}-01more",
        f" {WRITTEN}",
        f"{WRITTEN}\n",
        f"00-{TRACE[:-1]}é-{SPAN}-01",
    ],
)
def test_what_is_malformed_is_no_parent(text: str) -> None:
    assert parent_of(text) is None


def test_a_later_version_may_say_more() -> None:
    assert parent_of(f"01-{TRACE}-{SPAN}-01-more") == parent_of(WRITTEN)


@pytest.mark.parametrize(
    "properties",
    [
        {"traceparent": WRITTEN},
        {"KEYS": "k", "traceparent": WRITTEN, "TAGS": "t"},
        {"my-traceparent": "x", "traceparent": WRITTEN},
        {"KEYS": "traceparent", "traceparent": WRITTEN},
    ],
    ids=["alone", "among others", "behind a name that ends alike", "behind a value that is alike"],
)
def test_it_is_found_among_properties(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert parent_in(text) == parent_of(WRITTEN)
    assert parent_in(text.removesuffix("\x02")) == parent_of(WRITTEN)  # as 4.9 clients write it


@pytest.mark.parametrize(
    "properties",
    [{}, {"KEYS": "traceparent"}, {"my-traceparent": WRITTEN}, {"traceparent": "junk"}],
    ids=["none", "a value", "another name", "malformed"],
)
def test_without_one_there_is_none(properties: dict[str, str]) -> None:
    assert parent_in(encode_properties(properties)) is None


@pytest.mark.parametrize("ratio", [0.0, 1.0])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_parent_decides(sampled: bool, ratio: float) -> None:
    assert is_sampled(Parent(1, 1, sampled), ratio, 0.5) == sampled


@pytest.mark.parametrize(
    ("ratio", "drawn", "sampled"),
    [(0.0, 0.0, False), (0.01, 0.0, True), (0.01, 0.01, False), (1.0, 0.999, True)],
)
def test_without_one_a_ratio_does(ratio: float, drawn: float, sampled: bool) -> None:
    assert is_sampled(None, ratio, drawn) == sampled
