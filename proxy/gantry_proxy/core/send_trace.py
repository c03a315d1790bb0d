"""The trace of one send at a proxy: whose part it is, and its spans.

The root is the call. `route` is the time until its broker group is known, `call` the time that the
master was asked, with all tries, and is the parent of the master's own span: so the two fit into
one another without a word about times. A call that was refused before has no `call`.

The parent is named by the first message's property `traceparent`, where brokers look for it, by its
trace context, where clients of gRPC put it, or by the call's metadata; the first that is there and
well-formed counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.tracing.context import TRACEPARENT, Parent, parent_of, traceparent
from gantry_protocol.tracing.spans import Span, SpanKind, Value, child_id, part_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ROUTE, CALL = range(1, 3)


def parent_among(messages: Any, metadata: Mapping[str, str]) -> Parent | None:
    """The parent of a SendMessage; None if nobody names one."""
    for message in messages[:1]:
        for text in (
            message.user_properties.get(TRACEPARENT, ""),
            message.system_properties.trace_context,
        ):
            parent = parent_of(text) if text else None
            if parent is not None:
                return parent
    return parent_of(metadata.get(TRACEPARENT, ""))


class SendTrace(msgspec.Struct):
    """One call; nanoseconds since 1970, None for what has not happened.

    Attributes:
        trace_id, span_id: of its root.
        parent_id: 0 without a parent.
        attributes: of the root.
        routed_ns: when its group was known.
    """

    trace_id: int
    span_id: int
    parent_id: int
    arrived_ns: int
    attributes: dict[str, Value]
    routed_ns: int | None = None

    @property
    def traceparent(self) -> str:
        """The parent of whatever the master does about it."""
        return traceparent(self.trace_id, child_id(self.span_id, CALL))

    def spans(self, answered_ns: int, error: str | None) -> list[Span]:
        """The root and its parts.

        Args:
            answered_ns: now.
            error: why it was refused or not acknowledged; None if it was.
        """
        root = Span(
            name="SendMessage",
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=self.parent_id,
            start_ns=self.arrived_ns,
            end_ns=max(self.arrived_ns, answered_ns),
            kind=SpanKind.SERVER,
            attributes=self.attributes,
            error=error,
        )
        if self.routed_ns is None:
            return [root]
        return [
            root,
            part_of(self, ROUTE, "route", self.arrived_ns, self.routed_ns, SpanKind.INTERNAL),
            part_of(self, CALL, "call", self.routed_ns, answered_ns, SpanKind.CLIENT),
        ]
