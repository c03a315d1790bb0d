"""The way of a client's request: served here, passed on to the master, or held for a moment.

Clients reach the group through one address over all its members, so a request may arrive at any of
them. The serving master serves it. Another member takes the *connection* over and passes its frames
on to the master it knows, from this request on (``splice``); while none is known the client waits,
for at most ``HOLD_S``. When the master dies or the epoch changes, the connection stays, and the
next master is given what is unanswered; when that is this very broker, it serves the connection
itself. A master that is leaving holds connections that want to write, and one that has been deposed
passes its clients on, so that a switch costs them a short wait and no error.

Rules protected:

* A client never goes on talking to a master that is none: when the epoch or the master changes,
  nothing more is passed to another address. What that one has in hand it may answer, for at most
  ``MOVE_WITHIN_S``; the next one is given the rest, once.
* A client with sessions (it has sent heartbeats) is introduced to the next master by its last
  heartbeat. One that was too long to be kept is cut, so that the client introduces itself.
* No loops, and one way for a request: a connection that was handed over once (it has a PROXY
  preamble) is not handed on; it waits for this broker to become the master, or ends. Whoever handed
  it over keeps what is unanswered, and gives it to the next master with a mark. So a master serves
  nothing that was handed over for an earlier epoch, even if it was the master of that one, too: the
  one in between may have it already.
* Only a process that ends, or a master that is cut off, cuts connections: each with an answer, or
  when its client is idle. A client whose request meets the cut would wait for its time-out.

Everything is bounded: connections held, how long, and the bytes kept for each and for all.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import FLAG_RESPONSE, RemotingCommand, reply
from gantry_protocol.frame import encode
from gantry_protocol.process import log
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import Glimpse
from gantry_protocol.remoting.splice import Budget, Splice
from gantry_protocol.remoting.unanswered import MAX_HEARTBEAT_BYTES, PULLS, SENDS
from gantry_protocol.remoting.upstream import Upstream
from gantry_protocol.send_answer import MAY_BE_STORED
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_broker.clients import parents
from gantry_broker.clients.plain_sends import HOST
from gantry_broker.clients.resent import RESENT, Marks

if TYPE_CHECKING:
    from gantry_broker.clients.access import Gate

HOLD_S = 2.5  # clients give a request 3 s
PROXIED_HOLD_S = 1.0  # somebody handed it over because we are, or are about to be, the master
HELD_MAX = 4_096
RETRY_S = 0.05  # before a known master that could not be reached is tried again
MOVE_WITHIN_S = 0.1  # for the answers of a master that is none any more
CUT_WITHIN_S = 1.0
IDLE_S = 0.25  # a client that waits for nothing, and has said nothing for so long, may be cut
EPOCH_DIGITS = 10  # of 31 bits
_SWEEP_S = 0.02

WRITING_CODES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
    }
)
_HEART_BEAT = RequestCode.HEART_BEAT  # to look a member up costs a tenth of a microsecond
_PASSED_ON = RequestCode.GANTRY_PASSED_ON
EPOCH = "epoch"  # in a connection's attrs: it was handed over for the master of this one
HEARTBEATS = "heartbeats"  # in a connection's attrs: the client's last one, None if it is too long
NO_MASTER = "service not available now. the group has no master at the moment"

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]
AboutMember = Callable[[RemotingCommand], RemotingCommand]

_log = log.get("routing")


class Served(Protocol):
    """The member whose clients are routed.

    Attributes:
        leaving: it is about to hand over.
    """

    leaving: bool

    @property
    def takes_requests(self) -> bool:
        """Whether clients are served by it: it is the serving master, and not cut off."""


class Pipe(Splice):
    """A splice with its times.

    Attributes:
        hold_s: how long it may wait for a master.
        until_s: when its waiting ends; None while nothing waits.
        waited_until_s: when it would have ended, had no master been reached.
        not_before_s: when the master it knows may be tried again.
        leave_at_s: when it gives up hope for answers of a former master; None with the right one.
        has_led: to some master before.
        number: of the connection.
        since_s: when it began; an owner that ends old ones may set it anew.
    """

    def __init__(self, connection: Connection, router: "ClientRouter", hold_s: float) -> None:
        """Waits from now on."""
        self.hold_s = hold_s
        self.until_s: float | None = None
        self.waited_until_s = 0.0
        self.not_before_s = 0.0
        self.leave_at_s: float | None = None
        self.has_led = False
        self.number = connection.id
        self.since_s = asyncio.get_running_loop().time()
        self._router = router
        super().__init__(connection, router, router.budget, tls=router.tls)

    @property
    def is_idle(self) -> bool:
        """Whether the client waits for nothing, and has said nothing for a while."""
        silent_s = asyncio.get_running_loop().time() - self.connection.last_active_s
        return silent_s > IDLE_S and not self.waiting

    @property
    def has_asides(self) -> bool:
        """Whether this process may answer requests itself."""
        return self._router.open_aside is not None

    def takes_aside(self, glimpse: Glimpse) -> bool:
        """Whether it answers this one."""
        aside = self._router.open_aside
        return aside is not None and aside(self, glimpse)

    def connected(self, upstream: Upstream) -> None:
        """The master was reached: nothing waits any more."""
        if self.until_s is not None:
            self.waited_until_s, self.until_s = self.until_s, None
        super().connected(upstream)


class ClientRouter:
    """Routes the requests of all clients of one broker.

    Args:
        master_address: the other broker that is the master; empty while none is known.
        epoch: the one that is served here or there; 0 while none is known.
        ask: something suggests that there is a newer master; find out.
        tls: of the process: how masters are dialled.

    Attributes:
        member: whose clients these are; None while nobody is served here.
        about_member: by code, what is asked of the member itself, whatever its role.
        processor: serves clients; None while this is not the serving master.
        aside: of what clients say that are passed on, may answer requests here; None passes all on.
        gate: asked before a request is served here, and asides are left to the master; None lets
            all in.
        make_pipe: makes the way of a client that is passed on.
        budget: what is kept for clients of all pipes.
        held_total, spliced_total, moved_total, refused_total: counted for ever.
    """

    def __init__(
        self,
        *,
        master_address: Callable[[], str],
        epoch: Callable[[], int],
        ask: Callable[[], None],
        tls: Tls = NO_TLS,
    ) -> None:
        """Nothing is held or piped."""
        self.tls = tls
        self.member: Served | None = None
        self.about_member: Mapping[int, AboutMember] = {}
        self.processor: Handler | None = None
        self.aside: Callable[[Pipe, Glimpse], bool] | None = None
        self.gate: Gate | None = None
        self.make_pipe: Callable[[Connection, ClientRouter, float], Pipe] = Pipe
        self.budget = Budget()
        self.held_total = 0
        self.spliced_total = 0
        self.moved_total = 0
        self.refused_total = 0
        self._master_address = master_address
        self._epoch = epoch
        self._ask = ask
        self._pipes: dict[int, Pipe] = {}
        self._was_master = False  # served when it last stayed: once it leaves, it left as master
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._cut_at_s: float | None = None  # this broker ends: when all pipes must be gone
        self._no_pipes = asyncio.Event()
        self._no_pipes.set()

    def _serving(self) -> bool:
        if self.gate is not None and not self.gate.is_ready:
            return False
        return self.member is not None and self.member.takes_requests

    def _leaving(self) -> bool:
        return self.member is not None and self.member.leaving

    @property
    def open_aside(self) -> Callable[[Pipe, Glimpse], bool] | None:
        """``aside``, unless only a master may judge what clients say."""
        return self.aside if self.gate is None else None

    def _objection(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        return None if self.gate is None else self.gate.objection(conn, request)

    @property
    def held(self) -> int:
        """Connections that wait for a master."""
        return sum(pipe.until_s is not None for pipe in self._pipes.values())

    @property
    def spliced(self) -> int:
        """Connections that are passed on to a master."""
        return sum(bool(pipe.address) for pipe in self._pipes.values())

    @property
    def pipes(self) -> list[Pipe]:
        """The ways of all clients that are passed on, or wait to be."""
        return list(self._pipes.values())

    @property
    def _has_left(self) -> bool:
        """Whether this broker was the master, and its end is why it is none."""
        return self._was_master and self._leaving() and not self._serving()

    @property
    def is_owed(self) -> bool:
        """Whether a master owes an answer, other than one to a pull."""
        return any(pipe.address and not pipe.is_quiet for pipe in self._pipes.values())

    def take_back(self) -> None:
        """Leave to masters what was to be answered here, and lead its clients on with it."""
        for pipe in list(self._pipes.values()):
            if pipe.take_back():
                pipe.leave()

    # ---- requests

    def handle(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve, hold or hand on; a ``Handler``."""
        about_member = self.about_member.get(request.code)
        if about_member is not None:
            return self._objection(conn, request) or about_member(request)
        if request.code == _HEART_BEAT:
            is_short = len(request.body) < MAX_HEARTBEAT_BYTES // 2  # its header is short, too
            conn.attrs[HEARTBEATS] = request if is_short else None
        elif request.code == _PASSED_ON:
            _note_passed_on(conn, request)
            return None if request.is_oneway else reply(request)
        processor = self.processor
        if processor is not None and self._serving():
            if EPOCH in conn.attrs and self._is_former(conn):
                conn.close()
                return None
            if self._leaving() and request.code in WRITING_CODES:
                return self._pass_on(conn, request, HOLD_S)
            return self._objection(conn, request) or processor(conn, request)
        if conn.proxied:
            self._ask()
            if self._has_left:
                conn.close()
                return None
            return self._pass_on(conn, request, PROXIED_HOLD_S)
        # A master that serves nobody is cut off: there may be another one elsewhere, not here.
        return self._pass_on(conn, request, HOLD_S if processor is None else PROXIED_HOLD_S)

    def refusal(self, asked: RemotingCommand, *, was_given: bool) -> RemotingCommand:
        """The answer to a request that no master will get, or get again: ask again.

        A send that a master was given says that it may be in the log: whoever is plainly refused
        may take it for granted that it is not.
        """
        self.refused_total += 1
        if asked.code in PULLS:
            return _pull_again(asked)
        ext = {MAY_BE_STORED: "true"} if was_given and asked.code in SENDS else None
        return reply(asked, ResponseCode.SERVICE_NOT_AVAILABLE, NO_MASTER, ext)

    def _is_former(self, conn: Connection) -> bool:
        """Whether it was handed over for an earlier epoch than the one that is served here.

        It is asked before each request. One that was served in its own epoch, too, has requests on
        its way that the next master was given: a member that waits does not read its clients, so it
        does not see that whoever passed one on has hung up.
        """
        return bool(0 < conn.attrs.get(EPOCH, 0) < self._epoch())

    def _pass_on(
        self, conn: Connection, request: RemotingCommand, hold_s: float
    ) -> RemotingCommand | None:
        if self._closed or (len(self._pipes) >= HELD_MAX and self.held >= HELD_MAX):
            return self.refusal(request, was_given=False)
        conn.hold(request)
        self._adopt(conn, hold_s)
        return None

    def _adopt(self, conn: Connection, hold_s: float) -> None:
        """Pass on what a held connection says."""
        self.held_total += 1
        pipe = self.make_pipe(conn, self, hold_s)
        if pipe.ended:
            return
        self._pipes[conn.id] = pipe
        self._no_pipes.clear()
        pipe.claim(conn.attrs.pop(RESENT, ()))
        heartbeat = conn.attrs.get(HEARTBEATS)
        if heartbeat is not None:
            pipe.remember(encode(heartbeat))
        pipe.until_s = self._now_s() + hold_s
        if self._cut_at_s is not None:
            pipe.end_with_answer()
        self._try(pipe)
        self._wake()

    # ---- the master changes

    def role_changed(self) -> None:
        """Look again at everything that waits or leads to an earlier master."""
        if self._serving() or not self._leaving():
            self._was_master = self._serving()
        target = "" if self._serving() else self._master_address()
        deadline_s = self._now_s() + MOVE_WITHIN_S
        for pipe in list(self._pipes.values()):
            if pipe.address and pipe.address != target:
                if pipe.leave_at_s is None:
                    pipe.leave_at_s = deadline_s
                    pipe.move()
            elif not pipe.address:
                pipe.not_before_s = 0.0
                self._try(pipe)
        self._wake()

    def end_sessions(self, connections: Iterable[Connection]) -> None:
        """This broker serves no more: its clients are passed on to whoever does.

        What is not answered by now goes with them: nobody here knows what becomes of it, and the
        next master looks. Whoever passed a client on gives it to that one by itself.
        """
        for conn in connections:
            if conn.attrs.keys().isdisjoint((HEARTBEATS, HOST)) or conn.id in self._pipes:
                continue
            if conn.attrs.get(HEARTBEATS, ()) is None:
                conn.close()
            elif conn.proxied:
                if conn.take_unanswered():
                    conn.close()
            elif conn.can_be_held:
                conn.hold_here()
                self._adopt(conn, HOLD_S)
                pipe = self._pipes.get(conn.id)
                if pipe is not None:
                    pipe.take_unanswered()

    def let_go(self, connections: Iterable[Connection]) -> None:
        """Another master may serve elsewhere, of which nobody here will hear: end them.

        Whoever passes one on keeps what is unanswered and gives it to the next master, so it is
        told nothing. The others are answered, after this turn of the loop.
        """
        for conn in connections:
            if conn.attrs.keys().isdisjoint((HEARTBEATS, HOST)) or conn.id in self._pipes:
                continue
            if conn.proxied:
                conn.close()
            else:
                asyncio.get_running_loop().call_soon(self._end_answered, conn)

    def _end_answered(self, conn: Connection) -> None:
        if conn.closed or conn.id in self._pipes:
            return
        conn.cork()
        for asked in conn.take_unanswered():
            if not asked.is_oneway:
                answer = self.refusal(asked, was_given=True)
                answer.opaque, answer.flag = asked.opaque, answer.flag | FLAG_RESPONSE
                conn.write_raw(encode(answer))
        conn.close()

    async def cut_all(self) -> None:
        """This broker ends: cut every pipe, with its last answer where possible."""
        self._cut_at_s = self._now_s() + CUT_WITHIN_S
        for pipe in list(self._pipes.values()):
            pipe.end_with_answer()
        self._wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.2 * CUT_WITHIN_S):
                await self._no_pipes.wait()

    def close(self) -> None:
        """Cut everything now, hold nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for pipe in list(self._pipes.values()):
            pipe.close()

    def connection_closed(self, conn: Connection) -> None:
        """A client left; its pipe has heard of it."""

    # ---- Owner of the pipes

    def freed(self, splice: Splice) -> None:
        """A pipe leads nowhere (any more): find a master for what its client says."""
        assert isinstance(splice, Pipe)
        now_s = self._now_s()
        was_moved, splice.leave_at_s = splice.leave_at_s is not None, None
        if splice.until_s is None:
            # A master that ends the connection without a word was none, and is waited for as one.
            is_new = splice.heard or splice.waited_until_s < now_s - splice.hold_s
            splice.until_s = now_s + splice.hold_s if is_new else splice.waited_until_s
            splice.heard = False
        if not was_moved:
            # The master was not there: it may be starting, or dead and about to be replaced.
            splice.not_before_s = now_s + RETRY_S
            self._ask()
        self._try(splice)
        self._wake()

    def ended(self, splice: Splice) -> None:
        """A pipe is over."""
        self._pipes.pop(splice.connection.id, None)
        if not self._pipes:
            self._no_pipes.set()

    # ---- inside

    def _try(self, pipe: Pipe) -> None:
        """Serve the client of a pipe that leads nowhere, or lead it on, if possible now."""
        if pipe.ended or pipe.address:
            return
        if self._serving():
            if not self._leaving() and self.processor is not None:
                asyncio.get_running_loop().call_soon(self._serve_here, pipe)
            return
        target = self._master_address()
        if not target or pipe.not_before_s > self._now_s():
            return
        if pipe.connection.proxied:
            if self._has_left:
                pipe.close()
            return
        self.spliced_total += 1
        self.moved_total += pipe.has_led
        pipe.has_led = True
        pipe.lead_to(target, self._epoch())

    def _serve_here(self, pipe: Pipe) -> None:
        if pipe.ended or pipe.address or self.processor is None or self._leaving():
            return
        conn = pipe.connection
        if self._is_former(conn):
            pipe.close()
            return
        marked, data = pipe.serve_here()
        if marked:
            conn.attrs[RESENT] = Marks(marked)
        conn.detach(data)

    def _wake(self) -> None:
        if self._timer is None and not self._closed and self._pipes:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Give up on what has waited too long, try the rest, cut what is to be cut."""
        self._timer = None
        now_s = self._now_s()
        again = False
        for pipe in list(self._pipes.values()):
            if self._cut_at_s is not None and (pipe.is_idle or self._cut_at_s <= now_s):
                _log.debug("pipe cut", client=pipe.connection.peer, master=pipe.address)
                pipe.end()
            elif pipe.leave_at_s is not None and pipe.leave_at_s <= now_s:
                pipe.leave()
            elif pipe.until_s is not None:
                self._wait_on(pipe, now_s)
            again = again or pipe.until_s is not None or pipe.leave_at_s is not None
        if again or self._cut_at_s is not None:
            self._wake()

    def _wait_on(self, pipe: Pipe, now_s: float) -> None:
        """Look at a pipe that waits for a master."""
        if pipe.until_s is not None and pipe.until_s > now_s:
            self._try(pipe)
        elif pipe.connection.proxied:
            pipe.close()
        elif pipe.address:
            pipe.leave()  # it does not accept; the next look comes here
        elif pipe.waiting:
            pipe.end()  # or its client would come back here, and not look elsewhere
        else:
            pipe.until_s = None
            pipe.refuse()

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _note_passed_on(conn: Connection, request: RemotingCommand) -> None:
    """For whom it is, and what another master was given; harmless if a client says it itself."""
    parents.note(conn, request)
    epoch = (request.ext or {}).get("epoch", "")
    if len(epoch) <= EPOCH_DIGITS and epoch.isascii() and epoch.isdigit():
        conn.attrs[EPOCH] = int(epoch)
    body = request.body[: len(request.body) // 4 * 4]
    if body:
        conn.attrs[RESENT] = Marks(item for (item,) in struct.iter_unpack(">i", body))


def _pull_again(asked: RemotingCommand) -> RemotingCommand:
    """The answer to a pull that nobody serves: nothing was found, go on from the same place."""
    at = (asked.ext or {}).get("queueOffset", "0")
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": at, "minOffset": "0", "maxOffset": at}
    return reply(asked, ResponseCode.PULL_RETRY_IMMEDIATELY, NO_MASTER, ext)
