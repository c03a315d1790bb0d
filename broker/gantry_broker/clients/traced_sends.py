"""Sends that are traced, of one mastership, where tracing is on.

``entrance`` stands before the requests of clients and decides for each send whether it is traced;
``TracedSender`` takes the moments on its way. Without tracing there is neither, so a send costs
nothing more; they come when it is switched on. When it is switched off, the entrance goes, and the
rest stays for sends under way. A send is known by its connection and number until it is answered.
One that is answered elsewhere, by another group's master or by who refuses what waits too long, is
forgotten after a while and counted.

What it refuses: to change the way of a send, or its answer.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import Handler
from gantry_protocol.tracing.context import (
    TRACEPARENT,
    Parent,
    is_sampled,
    parent_in,
    parent_of,
)
from gantry_protocol.tracing.export import UNFINISHED, SpanExport

from gantry_broker.clients.core.send_trace import Flushes, SendTrace
from gantry_broker.clients.parents import taken_parent
from gantry_broker.clients.plain_sends import SendHeader
from gantry_broker.clients.send import Sender
from gantry_broker.clients.throttle import SENDS
from gantry_broker.store.contract import SendOutcome

OPEN_MAX = 4_096
OPEN_FOR_NS = 30 * 10**9  # longer than anybody waits for an answer
_PROPERTIES = ("i", "properties")  # of a header with short names, and with long ones
_SUCCESS = ResponseCode.SUCCESS


class Numbered(Protocol):
    """A request, or the answer to it."""

    @property
    def opaque(self) -> int:
        """Its number, of its connection."""


class OpenSends:
    """See the module.

    Args:
        export: takes the spans.
        ratio: the share of sends without a parent that is traced.
        group: the broker group.
        now_ns: nanoseconds since 1970.
        drawn: at random, from 0 to below 1.

    Attributes:
        flushes: of the group's log.
        group: the broker group.
        ratio: of the arguments; it may change.
        watched: sends whose moments somebody else takes, and that need the syncs, too.
    """

    def __init__(
        self,
        export: SpanExport,
        ratio: float,
        group: str,
        now_ns: Callable[[], int] = time.time_ns,
        drawn: Callable[[], float] = random.random,
    ) -> None:
        self.flushes = Flushes()
        self.now_ns = now_ns
        self._export = export
        self.ratio = ratio
        self.group = group
        self.watched = 0
        self._drawn = drawn
        self._open: dict[tuple[int, int], SendTrace] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_on(self) -> bool:
        """Whether sends that come may be traced."""
        return self._export.is_on

    def entrance(self, handler: Handler) -> Handler:
        """The same handler, behind the decision for each send."""
        return partial(self._enter, handler)

    def _enter(
        self, handler: Handler, conn: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        if request.code not in SENDS or not self.arrived(conn, request):
            return handler(conn, request)
        try:
            answer = handler(conn, request)
        except GantryError as error:  # as the server answers it
            self.ended(conn, request, error.answer_code, str(error))
            raise
        if answer is not None:
            self.refused(conn, request, answer)
        return answer

    def arrived(self, conn: Connection, request: RemotingCommand) -> bool:
        """Whether a send that has just come is traced."""
        parent = taken_parent(conn, request) or named_parent(request)
        if not is_sampled(parent, self.ratio, self._drawn()):
            return False
        self._begin(conn, request, parent)
        return True

    def _begin(
        self, conn: Connection, request: RemotingCommand, parent: Parent | None
    ) -> SendTrace:
        """Trace a send from now on."""
        now_ns = self.now_ns()
        self._forget_old(now_ns)
        parent = parent or Parent(random.getrandbits(128) or 1, 0, sampled=True)
        trace = self._open[conn.id, request.opaque] = SendTrace(
            trace_id=parent.trace_id,
            span_id=random.getrandbits(64) or 1,
            parent_id=parent.span_id,
            arrived_ns=now_ns,
            attributes={
                "messaging.system": "rocketmq",
                "messaging.operation.name": "SendMessage",
                "messaging.message.body.size": len(request.body),
                "network.peer.address": conn.peer.rpartition(":")[0],
                "gantry.broker_group": self.group,
            },
        )
        return trace

    def _forget_old(self, now_ns: int) -> None:
        while self._open:
            key = next(iter(self._open))
            is_old = now_ns - self._open[key].arrived_ns > OPEN_FOR_NS
            if not is_old and len(self._open) < OPEN_MAX:
                break
            del self._open[key]
            self._export.dropped[UNFINISHED] += 1

    def of(self, conn: Connection, request: Numbered) -> SendTrace | None:
        """The trace of a send; None for one without, or that was answered."""
        return self._open.get((conn.id, request.opaque)) if self._open else None

    def refused(self, conn: Connection, request: RemotingCommand, answer: RemotingCommand) -> None:
        """It is answered, and not stored."""
        self.ended(conn, request, answer.code, answer.remark)

    def ended(self, conn: Connection, request: Numbered, code: int, remark: str | None) -> None:
        """It is answered with ``code``."""
        trace = self._open.pop((conn.id, request.opaque), None)
        if trace is None:
            return
        trace.attributes["gantry.response_code"] = int(code)
        self.finished(trace, None if code == _SUCCESS else remark or f"code {int(code)}")

    def finished(self, trace: SendTrace, error: str | None) -> None:
        """Nothing more comes: its spans are made."""
        flushed_ns = None if trace.end is None else self.flushes.when(trace.end)
        self._export.add(trace.spans(self.now_ns(), flushed_ns, error))

    def lost(self, count: int) -> None:
        """So many are answered elsewhere, and have no spans here."""
        self._export.dropped[UNFINISHED] += count

    def confirmed(
        self,
        conn: Connection,
        request: RemotingCommand,
        unique_key: str | None,
        outcome: SendOutcome,
    ) -> bool:
        """The log has told the outcome of a send; whether it is traced."""
        trace = self.of(conn, request)
        if trace is None:
            return False
        trace.confirmed_ns = self.now_ns()
        if outcome.stored:
            first = outcome.stored[0]
            trace.end = outcome.stored[-1].end
            trace.attributes["messaging.destination.partition.id"] = str(first.queue_id)
            trace.attributes["messaging.batch.message_count"] = len(outcome.stored)
        if unique_key is not None:
            trace.attributes["messaging.message.id"] = unique_key
        return True

    def flushed(self, end: int) -> None:
        """All of the log below ``end`` is on this broker's disk."""
        if self._open or self.watched:
            self.flushes.note(end, self.now_ns())

    def close(self) -> None:
        """The mastership is over; what is open is answered by the next master."""
        self.lost(len(self._open))
        self._open.clear()


def named_parent(request: RemotingCommand) -> Parent | None:
    """The span that a send says it is a part of: by a field of its own, or of its message."""
    ext = request.ext or {}
    nearest = parent_of(ext[TRACEPARENT]) if TRACEPARENT in ext else None
    properties = ext.get(_PROPERTIES[0]) or ext.get(_PROPERTIES[1]) or ""
    return nearest or parent_in(properties)


class TracedSender(Sender):
    """A sender that takes the moments of sends that are traced.

    Args:
        sends: those that are.
        others: what every sender is given.
    """

    def __init__(self, sends: OpenSends, *others: Any) -> None:
        super().__init__(*others)
        self._sends = sends

    @classmethod
    def instead_of(cls, sender: Sender, sends: OpenSends) -> "TracedSender":
        """One that goes on where a sender is; what that one has begun it ends itself."""
        made = cls.__new__(cls)
        vars(made).update(vars(sender), _sends=sends)
        return made

    def store(
        self, conn: Connection, request: RemotingCommand, header: SendHeader, topic: TopicConfig
    ) -> RemotingCommand | None:
        """Append what was sent; see ``PlainSender.store``."""
        trace = self._sends.of(conn, request)
        if trace is None:
            return super().store(conn, request, header, topic)
        trace.begun_ns = self._sends.now_ns()
        trace.attributes["messaging.destination.name"] = header.topic
        trace.attributes["messaging.rocketmq.client_group"] = header.producer_group
        answer = super().store(conn, request, header, topic)
        if answer is not None:
            self._sends.refused(conn, request, answer)
        else:
            trace.appended_ns = self._sends.now_ns()
        return answer

    def _ended(self, conn: Connection, request: RemotingCommand, *told: Any) -> None:
        *_, unique_key, _, outcome = told
        is_traced = self._sends.confirmed(conn, request, unique_key, outcome)
        super()._ended(conn, request, *told)
        if is_traced:
            self._sends.ended(conn, request, outcome.code, outcome.remark)
