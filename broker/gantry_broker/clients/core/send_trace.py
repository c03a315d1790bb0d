"""The trace of one send at its master: moments, and the spans that follow from them.

The root is the request. `queue` is what it waited before it was stored (a quota, a topic that had
to be made, the look for a send that came before), `append` its way into the log until it is on this
broker's disk, `replicate` from there in the log to its confirmation by the sync-state set, which
goes on beside the sync, and `answer` what came after. A send that was refused has none of what it
did not come to.

A front has no log: in place of `append` and `replicate` it has `store`, the time that the master
was asked, which is the parent of the master's part. Of a send that it passes on it has `queue` and
`call`, until the master has answered.
"""

from collections import deque

import msgspec
from gantry_protocol.tracing.context import traceparent
from gantry_protocol.tracing.spans import Span, SpanKind, Value, child_id, part_of

FLUSHES_MAX = 4_096  # a second of them and more
QUEUE, APPEND, REPLICATE, ANSWER, STORE = range(1, 6)


class Flushes:
    """The newest ends of what is on the disk, and when each was."""

    def __init__(self) -> None:
        """None yet."""
        self._ends: deque[tuple[int, int]] = deque(maxlen=FLUSHES_MAX)

    def note(self, end: int, now_ns: int) -> None:
        """All below ``end`` is on the disk now; it rises within a mastership."""
        self._ends.append((end, now_ns))

    def when(self, end: int) -> int | None:
        """The moment at which all below ``end`` was; None if it is not, or is too long ago."""
        found = None
        for flushed, at_ns in reversed(self._ends):
            if flushed < end:
                return found
            found = at_ns
        return found if len(self._ends) < FLUSHES_MAX else None


class SendTrace(msgspec.Struct):
    """One send; nanoseconds since 1970, None for what has not happened.

    Attributes:
        trace_id, span_id: of its root.
        parent_id: 0 without a parent.
        attributes: of the root.
        begun_ns: when it was to be stored.
        appended_ns: when it stood in the log.
        end: the log offset behind it; None if it was not stored.
        name: of the root.
        asked_as: of a front's, the name of the part in which the master is asked.
    """

    trace_id: int
    span_id: int
    parent_id: int
    arrived_ns: int
    attributes: dict[str, Value]
    begun_ns: int | None = None
    appended_ns: int | None = None
    end: int | None = None
    confirmed_ns: int | None = None
    name: str = "SendMessage"
    asked_as: str = ""

    @property
    def traceparent(self) -> str:
        """The parent of the master's part, where it is asked to store this."""
        return traceparent(self.trace_id, child_id(self.span_id, STORE))

    def spans(self, answered_ns: int, flushed_ns: int | None, error: str | None) -> list[Span]:
        """The root and its parts.

        Args:
            answered_ns: now.
            flushed_ns: when this broker's disk had it; None if it never did, as far as is known.
            error: why it was refused or not acknowledged; None if it was.
        """
        root = Span(
            name=self.name,
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=self.parent_id,
            start_ns=self.arrived_ns,
            end_ns=max(self.arrived_ns, answered_ns),  # the wall clock may go back meanwhile
            kind=SpanKind.SERVER,
            attributes=self.attributes,
            error=error,
        )
        if self.begun_ns is None:
            return [root]
        spans = [root, part_of(self, QUEUE, "queue", self.arrived_ns, self.begun_ns)]
        if self.asked_as:
            until_ns = answered_ns if self.confirmed_ns is None else self.confirmed_ns
            spans.append(
                part_of(self, STORE, self.asked_as, self.begun_ns, until_ns, SpanKind.CLIENT)
            )
        if self.appended_ns is not None:
            stored_ns = self.appended_ns if flushed_ns is None else flushed_ns
            spans.append(part_of(self, APPEND, "append", self.begun_ns, stored_ns))
        if self.confirmed_ns is not None:
            if self.appended_ns is not None:
                spans.append(
                    part_of(self, REPLICATE, "replicate", self.appended_ns, self.confirmed_ns)
                )
            spans.append(part_of(self, ANSWER, "answer", self.confirmed_ns, answered_ns))
        return spans
