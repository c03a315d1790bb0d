"""Spans that follow from the moments of a send."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_broker.clients.core import send_trace
from gantry_broker.clients.core.send_trace import Flushes, SendTrace
from gantry_protocol.tracing.spans import SpanKind


def trace(**moments: Any) -> SendTrace:
    return SendTrace(
        trace_id=1, span_id=10, parent_id=5, arrived_ns=100, attributes={"a": "b"}, **moments
    )


ALL = {"begun_ns": 110, "appended_ns": 120, "confirmed_ns": 160}


@pytest.mark.parametrize(
    ("moments", "flushed_ns", "parts"),
    [
        ({}, None, {}),
        ({"begun_ns": 110}, None, {"queue": (100, 110)}),
        (
            ALL,
            150,
            {
                "queue": (100, 110),
                "append": (110, 150),
                "replicate": (120, 160),
                "answer": (160, 200),
            },
        ),
        (
            ALL,
            None,
            {
                "queue": (100, 110),
                "append": (110, 120),
                "replicate": (120, 160),
                "answer": (160, 200),
            },
        ),
        (
            {"begun_ns": 110, "confirmed_ns": 160},
            None,
            {"queue": (100, 110), "answer": (160, 200)},
        ),
        ({"confirmed_ns": 160, "begun_ns": 110}, 50, {"queue": (100, 110), "answer": (160, 200)}),
    ],
    ids=["refused at once", "refused", "whole", "no sync seen", "found", "synced before"],
)
def test_parts_are_what_it_came_to(
    moments: dict[str, int], flushed_ns: int | None, parts: dict[str, tuple[int, int]]
) -> None:
    root, *found = trace(**moments).spans(200, flushed_ns, None)
    assert (root.start_ns, root.end_ns, root.parent_id, root.kind) == (100, 200, 5, SpanKind.SERVER)
    assert {part.name: (part.start_ns, part.end_ns) for part in found} == parts
    assert {(part.trace_id, part.parent_id) for part in found} <= {(1, 10)}
    assert len({part.span_id for part in (root, *found)}) == 1 + len(parts)


def test_nothing_ends_before_it_begins_where_the_clock_goes_back() -> None:
    moments = {"begun_ns": 90, "appended_ns": 80, "confirmed_ns": 70}
    assert [
        span for span in trace(**moments).spans(60, 75, None) if span.end_ns < span.start_ns
    ] == []


def test_only_the_root_says_what_went_wrong() -> None:
    root, *parts = trace(**ALL).spans(200, 150, "too few")
    assert root.error == "too few"
    assert [part.error for part in parts] == [None] * 4


def test_a_record_is_on_the_disk_with_the_first_sync_that_covers_it() -> None:
    flushes = Flushes()
    for end, at_ns in ((100, 1), (200, 2), (300, 3), (300, 4), (500, 5)):
        flushes.note(end, at_ns)
    assert [flushes.when(end) for end in (100, 101, 200, 300, 301, 500, 501)] == [
        1, 2, 2, 3, 5, 5, None,
    ]  # fmt: skip


def test_syncs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = Flushes()
    for number in range(send_trace.FLUSHES_MAX + 10):
        flushes.note(number, number)
    assert flushes.when(5) is None  # nobody knows any more which was the first
    assert flushes.when(send_trace.FLUSHES_MAX) == send_trace.FLUSHES_MAX
