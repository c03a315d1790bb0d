"""The form of OTLP in JSON, and the ids of parts."""

from __future__ import annotations

import json

import pytest
from gantry_protocol.tracing.spans import Span, SpanKind, child_id, encode_spans, rejected


def test_a_request_is_as_the_protocol_has_it() -> None:
    root = Span(
        name="SendMessage",
        trace_id=0xAB,
        span_id=0x1,
        start_ns=1_700_000_000_000_000_001,
        end_ns=1_700_000_000_000_000_002,
        kind=SpanKind.SERVER,
        attributes={"text": "ä", "number": 2**53 + 1, "flag": True},
        error="refused",
    )
    part = Span(
        name="append", trace_id=0xAB, span_id=2**64 - 1, parent_id=0x1, start_ns=3, end_ns=4
    )
    assert json.loads(encode_spans([root, part], {"service.name": "s"}, "1.2")) == {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "gantry", "version": "1.2"},
                        "spans": [
                            {
                                "traceId": "000000000000000000000000000000ab",
                                "spanId": "0000000000000001",
                                "name": "SendMessage",
                                "kind": 2,
                                "startTimeUnixNano": "1700000000000000001",
                                "endTimeUnixNano": "1700000000000000002",
                                "attributes": [
                                    {"key": "text", "value": {"stringValue": "ä"}},
                                    {"key": "number", "value": {"intValue": "9007199254740993"}},
                                    {"key": "flag", "value": {"boolValue": True}},
                                ],
                                "status": {"code": 2, "message": "refused"},
                            },
                            {
                                "traceId": "000000000000000000000000000000ab",
                                "spanId": "ffffffffffffffff",
                                "parentSpanId": "0000000000000001",
                                "name": "append",
                                "kind": 1,
                                "startTimeUnixNano": "3",
                                "endTimeUnixNano": "4",
                                "attributes": [],
                                "status": {},
                            },
                        ],
                    }
                ],
            }
        ]
    }


@pytest.mark.parametrize("root", [1, 2**64 - 3, 2**64 - 1])
def test_parts_have_ids_of_their_own_that_are_ids(root: int) -> None:
    ids = [child_id(root, number) for number in range(1, 6)]
    assert len({root, *ids}) == 6
    assert all(0 < one < 2**64 for one in ids)


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (b'{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no"}}', 3),
        (b'{"partialSuccess": {"rejectedSpans": 3}}', 3),
        (b'{"partialSuccess": {}}', 0),
        (b"{}", 0),
        (b"", 0),
        (b"not JSON", 0),
        (b"[1]", 0),
        (b'{"partialSuccess": {"rejectedSpans": "-3"}}', 0),
        (b'{"partialSuccess": {"rejectedSpans": "x"}}', 0),
        (b'{"partialSuccess": 1}', 0),
    ],
)
def test_what_was_not_taken_is_said(answer: bytes, count: int) -> None:
    assert rejected(answer) == count
