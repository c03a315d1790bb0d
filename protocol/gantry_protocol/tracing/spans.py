"""Spans, and the request that carries them: OTLP over HTTP in JSON.

The form is that of `opentelemetry-proto` 1.x (`ExportTraceServiceRequest`) in its JSON mapping:
names in camel case, ids in hex, whole numbers of 64 bits as text, enumerations as numbers. It is
stable since OTLP 1.0. Ids are numbers here, and text only on the way out.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol

import msgspec

Value = str | int | bool
_ERROR = 2  # without an error nothing is said: "ok" is left to people
_IDS = 2**64 - 1  # from 1
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class SpanKind(IntEnum):
    """The part of a span in its trace."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time.

    Attributes:
        trace_id: from 1 to 2**128 - 1.
        span_id: from 1 to 2**64 - 1.
        parent_id: the span that it is a part of; 0 for none.
        start_ns: nanoseconds since 1970.
        end_ns: not before the start.
        error: why it did not end well; None if it did.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int = 0
    start_ns: int
    end_ns: int
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Mapping[str, Value] = {}
    error: str | None = None


class Rooted(Protocol):
    """Ids of a root, whatever else its holder has."""

    trace_id: int
    span_id: int


def child_id(root: int, number: int) -> int:
    """The id of a root's part, which follows from the root's; `number` from 1."""
    return (root + number - 1) % _IDS + 1


def part_of(
    root: Rooted,
    number: int,
    name: str,
    start_ns: int,
    end_ns: int,
    kind: SpanKind = SpanKind.INTERNAL,
) -> Span:
    """A part of a root; it is empty where a clock that went back would end it before it begins."""
    return Span(
        name=name,
        trace_id=root.trace_id,
        span_id=child_id(root.span_id, number),
        parent_id=root.span_id,
        start_ns=start_ns,
        end_ns=max(start_ns, end_ns),
        kind=kind,
    )


def encode_spans(spans: Sequence[Span], resource: Mapping[str, Value], version: str) -> bytes:
    """The body of a request with all of `spans`, which are of one process.

    Args:
        spans: one at least.
        resource: what is said of the process.
        version: of this product.
    """
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [
                        {
                            "scope": {"name": "gantry", "version": version},
                            "spans": [_span(span) for span in spans],
                        }
                    ],
                }
            ]
        }
    )


def rejected(answer: bytes) -> int:
    """The number of spans that the collector says it did not take; 0 if it says nothing of it."""
    try:
        return max(0, int(_decode(answer)["partialSuccess"]["rejectedSpans"]))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0


def _span(span: Span) -> dict[str, object]:
    made: dict[str, object] = {
        "traceId": f"{span.trace_id:032x}",
        "spanId": f"{span.span_id:016x}",
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }
    if span.parent_id:
        made["parentSpanId"] = f"{span.parent_id:016x}"
    return made


def _attributes(pairs: Mapping[str, Value]) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in pairs.items()]


def _value(value: Value) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value}
