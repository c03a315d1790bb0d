"""The trace that a request belongs to: W3C Trace Context, version 00, as clients write it.

RocketMQ's OpenTelemetry instrumentation puts `traceparent` among a message's properties. A parent
decides whether its children are sampled; without one a ratio does. What is malformed counts as no
parent: the one who wrote it is no worse off than without.

A process of ours between a client and a master puts its own span into a field of the request that
has the same name. It is nearer than the message's, and not stored.
"""

import re

import msgspec

TRACEPARENT = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED = 1
_PAIR = "\x01"
_END = "\x02"
_START = TRACEPARENT + _PAIR


class Parent(msgspec.Struct, frozen=True, gc=False):
    """A span of another process.

    Attributes:
        trace_id: from 1 to 2**128 - 1.
        span_id: from 1 to 2**64 - 1.
        sampled: whether it is recorded.
    """

    trace_id: int
    span_id: int
    sampled: bool


def parent_of(traceparent: str) -> Parent | None:
    """The span that a `traceparent` names; None if it is malformed."""
    match = _FORM.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    return Parent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def traceparent(trace_id: int, span_id: int) -> str:
    """The text that names a span which is recorded."""
    return f"00-{trace_id:032x}-{span_id:016x}-{_SAMPLED:02x}"


def parent_in(properties: str) -> Parent | None:
    """The parent that a message's properties name, without reading the others; None without one."""
    at = properties.find(_START)
    while at > 0 and properties[at - 1] != _END:  # the end of another name, or of a value
        at = properties.find(_START, at + 1)
    if at < 0:
        return None
    return parent_of(properties[at + len(_START) :].partition(_END)[0])


def is_sampled(parent: Parent | None, ratio: float, drawn: float) -> bool:
    """Whether a span is recorded.

    Args:
        parent: decides, if there is one.
        ratio: of the others, the share that is; from 0 to 1.
        drawn: at random, from 0 to below 1.
    """
    return drawn < ratio if parent is None else parent.sampled
