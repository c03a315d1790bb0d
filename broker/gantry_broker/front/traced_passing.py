"""Sends that a front passes on to the master and that are traced, where tracing is on.

Without it a front has the plain ``Pipe``. With it ``TracedPipe`` decides for each send that is not
answered here, by a look at the bytes of its header; only one that may be traced is decoded. What is
traced goes to the master with a frame ahead of it that names its span (``parents``), and is kept
so, so that the next master is told the same. All other frames are written as they came. When it is
switched on, the pipes that are there become such, and they stay so until their clients leave.

What it refuses: to change a request or an answer, and to trace a send that wants no answer, since
nobody learns when it ends.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from gantry_protocol.errors import GantryError
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.records import decode_properties
from gantry_protocol.records.properties import UNIQ_KEY
from gantry_protocol.remoting.glance import header_places
from gantry_protocol.remoting.unanswered import SENDS
from gantry_protocol.tracing.context import TRACEPARENT, is_sampled

from gantry_broker.clients.parents import notice
from gantry_broker.clients.plain_sends import send_header
from gantry_broker.clients.routing import NO_MASTER, ClientRouter, Pipe
from gantry_broker.clients.throttle import message_count
from gantry_broker.clients.traced_sends import OpenSends, named_parent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_protocol.remoting.connection import Connection
    from gantry_protocol.remoting.glance import Glimpse
    from gantry_protocol.remoting.upstream import Upstream

    from gantry_broker.clients.core.send_trace import SendTrace

# A parent that is sampled, in a header of either codec: as a property, or as a field.
_names_sampled = re.compile(
    rb'traceparent(?:\x01|\\u0001|"\s*:\s*"|\0\0\0.)'
    rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]",
    re.DOTALL,
).search
_WORD = TRACEPARENT.encode()
_NO_REQUEST = FLAG_RESPONSE | FLAG_ONEWAY
_S = 10**9  # ns


class PassedSends(OpenSends):
    """Those of one group, of all its clients; see ``OpenSends`` for the bounds."""

    def begun(self, conn: Connection, glimpse: Glimpse) -> SendTrace | None:
        """The trace of a send that is passed on; None where it has none."""
        if not self.is_on:
            return None
        drawn = self._drawn()
        if drawn >= self.ratio and not _may_be_sampled(glimpse.frame):
            return None
        try:
            (request,) = FrameDecoder(expect_preamble=False).feed(glimpse.frame)
        except GantryError:
            return None  # its master says what is wrong with it
        parent = named_parent(request)
        if not is_sampled(parent, self.ratio, drawn):
            return None
        trace = self._begin(conn, request, parent)
        trace.asked_as = "call"
        trace.arrived_ns -= int((asyncio.get_running_loop().time() - conn.heard_s) * _S)
        _describe(trace, request)
        return trace

    def answered(self, conn: Connection, glimpse: Glimpse) -> None:
        """The master has answered one of these, and its client has the answer."""
        trace = self.of(conn, glimpse)
        if trace is None:
            return
        answer = RemotingCommand(code=glimpse.code)
        with suppress(GantryError):  # its client says what is wrong with it
            (answer,) = FrameDecoder(expect_preamble=False).feed(glimpse.frame)
        ext = answer.ext or {}
        if "queueId" in ext:
            trace.attributes["messaging.destination.partition.id"] = ext["queueId"]
        if "transactionId" in ext:  # the key that the master gave it, if it had none
            trace.attributes.setdefault("messaging.message.id", ext["transactionId"])
        self.ended(conn, glimpse, answer.code, answer.remark)


class TracedPipe(Pipe):
    """The way of one client; its sends that are traced are told to the master.

    Args:
        sends: decides which are.
        connection, router, hold_s: see ``Pipe``.
    """

    def __init__(
        self, sends: PassedSends, connection: Connection, router: ClientRouter, hold_s: float
    ) -> None:
        self._sends = sends
        super().__init__(connection, router, hold_s)

    @classmethod
    def take_over(cls, pipe: Pipe, sends: PassedSends) -> None:
        """Have a pipe that has begun trace what its client sends from now on.

        It stays the object that its router, its connection and its master know.
        """
        pipe.__class__ = cls
        vars(pipe)["_sends"] = sends

    def connected(self, upstream: Upstream) -> None:
        """The master was reached; see ``Pipe``. What waited for one is named now."""
        if not self.ended and self._upstream is upstream and not self.connection.closed:
            self._table.change_waiting(self._named)
        super().connected(upstream)

    def from_upstream(self, glimpses: list[Glimpse], upstream: Upstream) -> None:
        """Frames of the master; see ``Splice``."""
        answers: Iterable[Glimpse] = ()
        if len(self._sends) and upstream is self._upstream:
            answers = [glimpse for glimpse in glimpses if glimpse.flag & FLAG_RESPONSE]
        super().from_upstream(glimpses, upstream)
        for glimpse in answers:
            self._sends.answered(self.connection, glimpse)

    def _pass_on(self, glimpses: list[Glimpse], upstream: Upstream) -> None:
        """Write it, with the spans of what is traced; see ``Splice``."""
        self._name(glimpses)
        super()._pass_on(glimpses, upstream)

    def _name(self, glimpses: list[Glimpse]) -> None:
        for place, glimpse in enumerate(glimpses):
            named = self._named(glimpse)
            if named is not glimpse:
                glimpses[place] = named
                self._table.give(named)  # in place of the other

    def _named(self, glimpse: Glimpse) -> Glimpse:
        """A frame that is about to be given to a master, behind the name of its span if traced."""
        trace = self._begun(glimpse)
        if trace is None:
            return glimpse
        trace.begun_ns = self._sends.now_ns()
        told = notice(glimpse.opaque, trace.traceparent)
        return glimpse._replace(frame=told + glimpse.frame)

    def _begun(self, glimpse: Glimpse) -> SendTrace | None:
        if glimpse.code not in SENDS or glimpse.flag & _NO_REQUEST:
            return None
        return self._sends.begun(self.connection, glimpse)

    def _answer(self, glimpses: Iterable[Glimpse], *, was_given: bool) -> None:
        """Refuse what no master will get, or get again."""
        asked = list(glimpses)
        for glimpse in () if was_given else asked:
            self._begun(glimpse)
        super()._answer(asked, was_given=was_given)
        for glimpse in asked:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            self._sends.ended(self.connection, glimpse, code, NO_MASTER)


def _may_be_sampled(frame: bytes) -> bool:
    """Whether a header seems to name a parent that is sampled."""
    start, end = header_places(frame)
    if frame.find(_WORD, start, end) < 0:
        return False
    return _names_sampled(frame, start, end) is not None


def _describe(trace: SendTrace, request: RemotingCommand) -> None:
    """Say what a master's span says of a send, as far as the request tells."""
    try:
        header = send_header(request)
        said = decode_properties(header.properties or "")
    except GantryError:
        return  # its master says what is wrong with it
    trace.attributes["messaging.destination.name"] = header.topic
    trace.attributes["messaging.rocketmq.client_group"] = header.producer_group
    trace.attributes["messaging.batch.message_count"] = message_count(request)
    if UNIQ_KEY in said and not header.batch:
        trace.attributes["messaging.message.id"] = said[UNIQ_KEY]
