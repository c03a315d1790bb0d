"""The dispatcher: every request's way to whoever can answer it, and its answer's way back.

The table (``gantry_controller.requests``) says of each request who answers it and how: here at
once, by an event in the log, whose result is the answer, or by a read. A node that may not answer
passes the request on to the leader, once: what another node has passed on is never passed on again.
Java brokers look for a new leader every ten seconds only, so this is what hides a change of leader.
A follower that cannot serve a read now answers with the leader's address and the peers if the
sender said that it understands that (``REDIRECTS``); RocketMQ's clients would see a failure.

A request may ask for the index in the log that its answer reflects (``WITH_INDEX``); checkers of
recorded histories do.

An answer that grows with the number of groups is made in turns of the loop (``turns``): its handler
returns work, not the answer.

What changes the quorum's state is first shown to the guard (``guard``). The port of the name
service serves the rows that say so, and no others. Ports of listeners, which are reached from
outside of the cluster, serve even fewer (``AT_LISTENERS``): what clients ask for and nothing that
changes anything. The listener's name is noted in the request, which goes with it to the leader.

Every request is answered within ``ANSWER_WITHIN_S``, but for those that ask to wait for longer and
are held (``hold``). A Java broker closes its connection after 3 s without an answer, and upstream
takes a closed connection for a dead broker.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConnectionClosed, GantryError, RequestTimeout, WireError
from gantry_protocol.headers import to_ext
from gantry_protocol.headers.controller import GetMetadataResponseHeader
from gantry_protocol.process import log
from gantry_protocol.remoting.reads import REDIRECTS
from gantry_protocol.remoting.server import Connection, not_supported
from gantry_protocol.types import NodeId

from gantry_controller.metadata.events import Event, encode_event
from gantry_controller.metadata.results import Result
from gantry_controller.raft.errors import NotLeader, Overloaded, ReadRedirect
from gantry_controller.remoting.forwarder import FORWARDED, Forwarder
from gantry_controller.remoting.guard import Guard
from gantry_controller.requests import REMOTING, Answerer, Consistency, RequestClass
from gantry_controller.turns import WAITING_MAX, TurnQueue, Work, step

ANSWER_WITHIN_S = 2.5
COMMAND_BYTES_MAX = 2 * 1024 * 1024  # a broker of the old kind with 50,000 topics
NOT_LEADER_REMARK = "The controller is not in leader state"
"""With the code of a missing leader: the request surely had no effect. Any other text says more."""

WITH_INDEX = "gantryWithIndex"
LOG_INDEX = "gantryLogIndex"
"""Extension fields: of a request that asks, and of its answer."""
LISTENER = "gantryListener"
"""The extension field with the name of the listener that a request came in by. Whoever writes it
himself is shown the addresses of that listener, which he could ask for there as well."""
AT_LISTENERS = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
    }
)
"""Reads that name no address, or those of the listener."""

# Per request; to look a member up in its enumeration costs a tenth of a microsecond.
_ANY, _ANY_AT_READ_INDEX = Answerer.ANY, Answerer.ANY_AT_READ_INDEX
_CONSISTENT_READ = Consistency.CONSISTENT_READ
_BROKER_HEARTBEAT = RequestCode.BROKER_HEARTBEAT

_log = log.get("dispatcher")


class ProposingNode(Protocol):
    """The part of the Raft node that the dispatcher needs."""

    @property
    def node_id(self) -> NodeId:
        """This node."""

    @property
    def leader_id(self) -> NodeId | None:
        """The leader, as far as this node knows."""

    @property
    def is_serving_leader(self) -> bool:
        """Whether this node leads and has applied all that was committed before it did."""

    def propose(self, command: bytes, done: Callable[[Any], None]) -> None:
        """Calls ``done`` with the result of applying ``command``, or with an exception."""

    def read(self, done: Callable[[Exception | None], None], *, anywhere: bool = False) -> None:
        """Calls ``done`` with None once the local state is as new as this call.

        Only the leader can say so by itself; ``anywhere``: a follower asks it.
        """


class Exchange:
    """One request that waits for its answer."""

    __slots__ = (
        "connection",
        "forwarded",
        "index",
        "number",
        "request",
        "row",
        "serve",
        "until_s",
        "wants_index",
    )

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        row: RequestClass,
        serve: "Serve",
        number: int,
    ) -> None:
        self.connection = connection
        self.request = request
        self.row = row
        self.serve = serve
        self.number = number
        ext = request.ext or {}
        self.forwarded = FORWARDED in ext
        self.wants_index = WITH_INDEX in ext
        self.until_s = 0.0  # while it is open: when it has to be answered
        self.index: int | None = None  # that the answer reflects, once it is being made in turns

    @property
    def follows_redirects(self) -> bool:
        """Whether the sender goes to the leader itself; for all others that is done here."""
        return self.request.ext is not None and REDIRECTS in self.request.ext

    @property
    def listener(self) -> str | None:
        """The listener that the sender came in by; None: it is inside the cluster."""
        return None if self.request.ext is None else self.request.ext.get(LISTENER)

    @property
    def origin(self) -> int | None:
        """The number of the sender's connection; None if another node passed the request on."""
        return None if self.forwarded else self.connection.id


Serve = Callable[[Exchange], RemotingCommand | None]
"""Answers now, or returns None and has called one of the dispatcher's verbs."""


class Dispatcher:
    """One node's dispatcher; its ``handle`` is the handler of the remoting servers.

    Args:
        quorum: the Raft node.
        forwarder: the way to the leader.
        applied_index: of the last entry that the state reflects.
        describe: who leads and who else there is, as GetMetadataInfo says it.
        guard: who may change what the quorum holds.
    """

    def __init__(
        self,
        quorum: ProposingNode,
        forwarder: Forwarder,
        applied_index: Callable[[], int],
        describe: Callable[[], GetMetadataResponseHeader],
        guard: Guard,
    ) -> None:
        self.requests: dict[int, int] = {}  # by code
        self.expired = 0
        self._quorum = quorum
        self._forwarder = forwarder
        self._applied_index = applied_index
        self._describe = describe
        self.guard = guard
        self._serves: dict[int, tuple[RequestClass, Serve]] = {}
        self.long_answers = TurnQueue()
        self._open: dict[int, Exchange] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None  # for the oldest, or one that was it
        self._numbers = 0
        self.add({RequestCode.GANTRY_SHOW_KEY: self._show_key})

    def add(self, handlers: Mapping[RequestCode, Serve]) -> None:
        """Serves more codes, each as its row in the table says."""
        self._serves.update({code: (REMOTING[code], serve) for code, serve in handlers.items()})

    @property
    def served(self) -> frozenset[int]:
        """The codes that have a handler."""
        return frozenset(self._serves)

    def close(self) -> None:
        """Answers nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.long_answers.stop()
        self._open.clear()

    def handle_named(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Serves one request at the name service's port (a ``Handler``)."""
        found = self._serves.get(request.code)
        if found is None or not found[0].named or _is_members_heartbeat(request):
            return not_supported(request)
        return self._handle(connection, request, found, at_name_service=True)

    def handle_outside(
        self, listener: str, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Serves one request at the port of a listener (a ``Handler`` once it has a name)."""
        if request.code not in AT_LISTENERS:
            return not_supported(request)
        # Nobody outside is sent to another controller: that would be an address inside.
        ext = {name: text for name, text in (request.ext or {}).items() if name != REDIRECTS}
        request.ext = {**ext, LISTENER: listener}
        return self.handle_named(connection, request)

    def handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serves one request (``gantry_protocol.remoting.server.Handler``)."""
        found = self._serves.get(request.code)
        if found is None:
            return not_supported(request)
        return self._handle(connection, request, found, at_name_service=False)

    def _handle(
        self,
        connection: Connection,
        request: RemotingCommand,
        found: "tuple[RequestClass, Serve]",
        *,
        at_name_service: bool,
    ) -> RemotingCommand | None:
        if found[0].needs_key:
            objection = self.guard.objection(connection, request, at_name_service=at_name_service)
            if objection is not None:
                return objection
        self.requests[request.code] = self.requests.get(request.code, 0) + 1
        self._numbers += 1
        exchange = Exchange(connection, request, *found, self._numbers)
        if exchange.row.answerer is _ANY:
            return _as_promised(exchange, exchange.serve(exchange))
        self._keep_open(exchange)
        try:
            answer = self._serve_or_pass_on(exchange)
        except Exception:
            self._close(exchange)
            raise
        if answer is not None:
            self._close(exchange)
        return answer

    # What handlers call.

    def write(
        self, exchange: Exchange, event: Event, answer: Callable[[Result], RemotingCommand]
    ) -> None:
        """Puts ``event`` into the log; its result makes the answer.

        Raises:
            WireError: the request carries more than any honest one does.
        """
        assert type(event) is exchange.row.event, (exchange.row, event)

        command = encode_event(event)
        if len(command) > COMMAND_BYTES_MAX:
            raise WireError(
                f"The request makes an event of {len(command)} bytes; "
                f"more than {COMMAND_BYTES_MAX} are a mistake."
            )
        self._quorum.propose(command, partial(self._written, exchange, answer))

    def read(self, exchange: Exchange, answer: Callable[[], RemotingCommand | None]) -> None:
        """Makes the answer from the state once that is as new as this request."""
        assert exchange.row.consistency is _CONSISTENT_READ, exchange.row
        anywhere = exchange.row.answerer is _ANY_AT_READ_INDEX
        self._when_current(exchange, answer, anywhere=anywhere)

    def read_in_turns(
        self,
        exchange: Exchange,
        make: Callable[[], Work[RemotingCommand]],
        *,
        is_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """As ``read``; the answer is what the work comes to.

        Args:
            exchange: the request.
            make: begins the work.
            is_short: whether the work is so little that it need not wait for that of others.
        """
        self.read(exchange, lambda: self.in_turns(exchange, make(), is_short=is_short()))

    def in_turns(
        self, exchange: Exchange, work: Work[RemotingCommand], *, is_short: bool = False
    ) -> RemotingCommand | None:
        """The answer, if the first bit of ``work`` makes it; else it comes later (None)."""
        exchange.index = self._applied_index()
        outcome = step(work) if is_short or not self.long_answers else None
        if outcome is not None:
            return outcome[0]

        def bit() -> bool:
            if exchange.number in self._open:  # else nobody waits any more
                self._answer(exchange, lambda: (step(work) or (None,))[0])
            return exchange.number not in self._open

        if not self.long_answers.add(bit):
            busy = f"{WAITING_MAX} long answers are being made already; try again in a moment."
            return reply(exchange.request, ResponseCode.SYSTEM_BUSY, busy)
        return None

    def look_again(self, exchange: Exchange, answer: Callable[[], RemotingCommand | None]) -> None:
        """Before a write is answered without an event, because the state seems to have it."""
        assert exchange.row.consistency is Consistency.WRITE, exchange.row
        self._when_current(exchange, answer)

    def hold(self, exchange: Exchange) -> None:
        """Leaves the request to its handler, which bounds its time and calls ``answer_held``."""
        self._close(exchange)

    def answer_held(self, exchange: Exchange, make: Callable[[], RemotingCommand]) -> None:
        """Answers a request that was held."""
        self._open[exchange.number] = exchange  # until ``_answer`` has sent what ``make`` makes
        self._answer(exchange, make)

    # Inside.

    def _show_key(self, exchange: Exchange) -> RemotingCommand:
        """ShowKey (31005)."""
        return self.guard.key_requests.handle(exchange.connection, exchange.request)

    def _when_current(
        self,
        exchange: Exchange,
        answer: Callable[[], RemotingCommand | None],
        *,
        anywhere: bool = False,
    ) -> None:
        self._quorum.read(partial(self._readable, exchange, answer), anywhere=anywhere)

    def _written(
        self, exchange: Exchange, answer: Callable[[Result], RemotingCommand], outcome: object
    ) -> None:
        if isinstance(outcome, Result):
            self._answer(exchange, answer, outcome)
        else:
            self._failed(exchange, outcome)

    def _readable(
        self,
        exchange: Exchange,
        answer: Callable[[], RemotingCommand | None],
        error: Exception | None,
    ) -> None:
        if error is None:
            self._answer(exchange, answer)
        else:
            self._failed(exchange, error)

    def _serve_or_pass_on(self, exchange: Exchange) -> RemotingCommand | None:
        quorum = self._quorum
        if quorum.is_serving_leader or exchange.row.answerer is _ANY_AT_READ_INDEX:
            return _as_promised(exchange, exchange.serve(exchange))
        if quorum.leader_id == quorum.node_id:
            # Just elected: what the handler looks at may be older than its predecessor's answers.
            self._when_serving(exchange)
            return None
        return self._pass_on(exchange, quorum.leader_id)

    def _when_serving(self, exchange: Exchange) -> None:
        self._when_current(exchange, lambda: exchange.serve(exchange))

    def _pass_on(self, exchange: Exchange, leader: NodeId | None) -> RemotingCommand | None:
        if leader is None or leader == self._quorum.node_id or exchange.forwarded:
            return self._no_leader(exchange)

        def done(outcome: RemotingCommand | Exception) -> None:
            if isinstance(outcome, RemotingCommand):
                self._send(exchange, outcome)
            elif isinstance(outcome, RequestTimeout | ConnectionClosed):
                # It was sent, so it may have taken effect: this is more than a missing leader.
                code = exchange.row.without_leader
                self._send(exchange, reply(exchange.request, code, str(outcome)))
            else:
                self._send(exchange, self._no_leader(exchange))

        self._forwarder.forward(leader, exchange.request, done)
        return None

    def _failed(self, exchange: Exchange, error: object) -> None:
        answer: RemotingCommand | None
        if isinstance(error, ReadRedirect) and exchange.follows_redirects:
            answer = self._redirect(exchange, error)
        elif isinstance(error, NotLeader) and error.leader == self._quorum.node_id:
            self._when_serving(exchange)  # it became the leader while the request waited
            return
        elif isinstance(error, NotLeader):  # it was not taken, so another may
            answer = self._pass_on(exchange, error.leader)
        elif isinstance(error, Overloaded):
            answer = reply(exchange.request, ResponseCode.SYSTEM_BUSY, str(error))
        else:  # lost on its way into the log; whether it took effect is unknown
            answer = reply(exchange.request, exchange.row.without_leader, str(error))
        if answer is not None:
            self._send(exchange, answer)

    def _redirect(self, exchange: Exchange, error: ReadRedirect) -> RemotingCommand:
        code = exchange.row.without_leader
        return reply(exchange.request, code, str(error), to_ext(self._describe()))

    @staticmethod
    def _no_leader(exchange: Exchange) -> RemotingCommand:
        return reply(exchange.request, exchange.row.without_leader, NOT_LEADER_REMARK)

    def _answer(
        self, exchange: Exchange, make: Callable[..., RemotingCommand | None], *facts: Result
    ) -> None:
        """Inside the node's pass, which has to go on whatever a handler raises."""
        try:
            answer = _as_promised(exchange, make(*facts))
            if answer is not None and exchange.wants_index:
                index = self._applied_index() if exchange.index is None else exchange.index
                answer.ext = {**(answer.ext or {}), LOG_INDEX: str(index)}
        except GantryError as error:  # what the request says cannot be read
            answer = reply(exchange.request, error.answer_code, str(error))
        except Exception as error:  # noqa: BLE001 - upstream answers 1 whatever is raised
            _log.exception("answer could not be made", error, code=exchange.request.code)
            answer = reply(exchange.request, ResponseCode.SYSTEM_ERROR, str(error))
        if answer is not None:
            self._send(exchange, answer)

    def _send(self, exchange: Exchange, answer: RemotingCommand) -> None:
        if self._close(exchange):
            exchange.connection.reply(exchange.request, answer)

    def _close(self, exchange: Exchange) -> bool:
        return self._open.pop(exchange.number, None) is not None

    def _keep_open(self, exchange: Exchange) -> None:
        """Until it is answered, or its time is over."""
        exchange.until_s = asyncio.get_running_loop().time() + ANSWER_WITHIN_S
        self._open[exchange.number] = exchange
        if self._timer is None:
            self._wait_for(exchange)

    def _wait_for(self, oldest: Exchange) -> None:
        self._timer = asyncio.get_running_loop().call_at(oldest.until_s, self._expire)

    def _expire(self) -> None:
        """Answers whose time is over; all have the same, so the oldest come first."""
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        for exchange in list(takewhile(lambda item: item.until_s <= now_s, self._open.values())):
            if self._close(exchange):
                self.expired += 1
                busy = "The quorum did not answer in time; whether it took effect is unknown"
                answer = reply(exchange.request, ResponseCode.SYSTEM_BUSY, busy)
                exchange.connection.reply(exchange.request, answer)
        if self._open and self._timer is None:
            self._wait_for(next(iter(self._open.values())))


def _is_members_heartbeat(request: RemotingCommand) -> bool:
    """Whether it is the heartbeat of a controller's broker; a name service's broker has no id."""
    return request.code == _BROKER_HEARTBEAT and "brokerId" in (request.ext or {})


def _as_promised(exchange: Exchange, answer: RemotingCommand | None) -> RemotingCommand | None:
    """The answer, which has one of the codes that its row names."""
    assert answer is None or exchange.row.allows(answer.code), (exchange.row.name, answer)
    return answer
