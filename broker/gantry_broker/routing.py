"""Where a client's request goes: served here, handed on to the master, or held for a moment.

Clients reach the group through one address over all its members, so a request may arrive at any of
them. The serving master serves it. Another member hands the *connection* over to the master it
knows, from this request on, as a pipe of bytes (``splice``); while none is known the connection is
held, for at most ``HOLD_S``. A master that is leaving holds connections that want to write, and
hands them on once its successor is known, so that a planned switch costs clients a short wait and
no error.

Rules protected:

* A client never goes on talking to a master that is none: when the epoch or the master changes,
  every pipe to another address is cut. It is cut between two requests where that is possible
  (the answer has come back), and after ``CUT_WITHIN_S`` in any case.
* A client with sessions (it has sent heartbeats) must introduce itself to the next master, and does
  so when it connects; handed on in silence it would be unknown there until its next heartbeat, up
  to 30 s later. So its pipe serves only what was held, and ends.
* No loops: a connection that was handed over once (it has a PROXY preamble) is not handed on; it
  waits for this broker to become the master, or ends. The one exception is a master that leaves,
  before and after its successor's election: what is said to it meanwhile goes on to the successor,
  whose epoch is newer than its own, so epochs rise along any such chain and it ends.

Everything is bounded: connections held, how long, and the bytes in each pipe.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.process import log
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.splice import CONNECT_TIMEOUT_S, EndCallback, Splice

HOLD_S = 2.5  # clients give a request 3 s
PROXIED_HOLD_S = 1.0  # somebody handed it over because we are, or are about to be, the master
HELD_MAX = 4_096
RETRY_S = 0.05  # before a known master that could not be reached is tried again
CUT_WITHIN_S = 0.3
_SWEEP_S = 0.02

WRITING_CODES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
    }
)
_HEART_BEAT = RequestCode.HEART_BEAT  # to look a member up costs a tenth of a microsecond
HEARTBEATS = "heartbeats"  # in a connection's attrs: this client has sent some
_NO_MASTER = "service not available now. the group has no master at the moment"

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]

_log = log.get("routing")


class Pipe(Splice):
    """A splice that knows whether an answer is due.

    Attributes:
        waiting: the client has said something since the master last did.
        cut_at_s: when it is to be cut whatever happens; None while it is wanted.
    """

    def __init__(self, connection: Connection, address: str, on_end: EndCallback) -> None:
        """Connect; a connection that cannot be handed over is left held."""
        self.waiting = True
        self.cut_at_s: float | None = None
        super().__init__(connection, address, on_end, True, CONNECT_TIMEOUT_S)

    def from_client(self, data: bytes) -> None:
        """Bytes of the client."""
        self.waiting = True
        super().from_client(data)

    def from_upstream(self, data: bytes) -> None:
        """Bytes of the master."""
        self.waiting = False
        super().from_upstream(data)


class _Held(NamedTuple):
    """A connection that waits.

    Attributes:
        as_master: it was held here while this broker left as the master.
    """

    conn: Connection
    until_s: float
    not_before_s: float
    as_master: bool


class ClientRouter:
    """Routes the requests of all clients of one broker.

    Args:
        serving: whether this broker is the serving master.
        leaving: whether it is about to hand over.
        master_address: the other broker that is the master; empty while none is known.
        ask: something suggests that there is a newer master; find out.

    Attributes:
        processor: serves clients; None while this is not the serving master.
        held_total, spliced_total, refused_total: counted for ever.
    """

    def __init__(
        self,
        *,
        serving: Callable[[], bool],
        leaving: Callable[[], bool],
        master_address: Callable[[], str],
        ask: Callable[[], None],
    ) -> None:
        """Nothing is held or piped."""
        self.processor: Handler | None = None
        self.held_total = 0
        self.spliced_total = 0
        self.refused_total = 0
        self._serving = serving
        self._leaving = leaving
        self._master_address = master_address
        self._ask = ask
        self._held: dict[int, _Held] = {}
        self._pipes: dict[int, tuple[Connection, Pipe]] = {}
        self._refusing = False
        self._was_master = False  # served when it last stayed: once it leaves, it left as master
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._no_pipes = asyncio.Event()
        self._no_pipes.set()

    @property
    def held(self) -> int:
        """Connections that wait for a master."""
        return len(self._held)

    @property
    def spliced(self) -> int:
        """Connections that are piped to the master."""
        return len(self._pipes)

    # ---- requests

    def handle(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Serve, hold or hand on; a ``Handler``."""
        if self._refusing:
            self.refused_total += 1
            return reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, _NO_MASTER)
        if request.code == _HEART_BEAT:
            conn.attrs[HEARTBEATS] = True
        processor = self.processor
        if processor is not None and self._serving():
            if self._leaving() and request.code in WRITING_CODES:
                return self._hold(conn, request, HOLD_S, as_master=True)
            return processor(conn, request)
        if conn.proxied:
            self._ask()
            as_master = self._was_master and self._leaving()
            held = self._hold(conn, request, PROXIED_HOLD_S, as_master=as_master)
            if conn.held and as_master:
                self._try(conn)
            return held
        # A master that serves nobody is cut off: there may be another one elsewhere, not here.
        held = self._hold(conn, request, HOLD_S if processor is None else PROXIED_HOLD_S)
        if conn.held:
            self._try(conn)
        return held

    def _hold(
        self,
        conn: Connection,
        request: RemotingCommand,
        wait_s: float,
        *,
        as_master: bool = False,
    ) -> RemotingCommand | None:
        if len(self._held) >= HELD_MAX or self._closed:
            self.refused_total += 1
            return reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, _NO_MASTER)
        self.held_total += 1
        conn.hold(request)
        now_s = self._now_s()
        self._held[conn.id] = _Held(conn, now_s + wait_s, now_s, as_master)
        self._wake()
        return None

    def connection_closed(self, conn: Connection) -> None:
        """A client left."""
        self._held.pop(conn.id, None)

    # ---- the master changes

    def role_changed(self) -> None:
        """Look again at everything that waits or leads to an earlier master."""
        if self._serving() or not self._leaving():
            self._was_master = self._serving()
        target = "" if self._serving() else self._master_address()
        deadline_s = self._now_s() + CUT_WITHIN_S
        for _, pipe in self._pipes.values():
            if pipe.address != target and pipe.cut_at_s is None:
                pipe.cut_at_s = deadline_s
        for held in list(self._held.values()):
            self._try(held.conn)
        self._wake()

    def end_sessions(self, connections: Iterable[Connection]) -> None:
        """This broker serves no more: clients with sessions here connect anew, to whoever does."""
        for conn in connections:
            if HEARTBEATS in conn.attrs and not conn.held and conn.id not in self._pipes:
                conn.close()

    async def cut_all(self) -> None:
        """This broker ends: cut every pipe, between two requests where possible."""
        deadline_s = self._now_s() + CUT_WITHIN_S
        for _, pipe in self._pipes.values():
            if pipe.cut_at_s is None:
                pipe.cut_at_s = deadline_s
        self._wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * CUT_WITHIN_S):
                await self._no_pipes.wait()

    def close(self) -> None:
        """Cut everything now, hold nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for held in list(self._held.values()):
            held.conn.close()
        self._held.clear()
        for _, pipe in list(self._pipes.values()):
            pipe.close()

    # ---- inside

    def _try(self, conn: Connection) -> None:
        """Serve a held connection, or hand it on, if either is possible now."""
        held = self._held.get(conn.id)
        if held is None or held.not_before_s > self._now_s():
            return
        if self._serving():
            if not self._leaving() and self.processor is not None:
                asyncio.get_running_loop().call_soon(self._release, conn)
            return
        target = self._master_address()
        if not target or (conn.proxied and not held.as_master):
            return
        del self._held[conn.id]
        self._splice(held, target)

    def _release(self, conn: Connection) -> None:
        if self._held.pop(conn.id, None) is not None and conn.held:
            conn.release()

    def _splice(self, held: _Held, target: str) -> None:
        self.spliced_total += 1
        conn = held.conn
        ended = partial(self._pipe_ended, held)
        pipe = Pipe(conn, target, ended)
        if held.as_master and HEARTBEATS in conn.attrs:
            pipe.cut_at_s = self._now_s() + CUT_WITHIN_S
        self._pipes[conn.id] = (conn, pipe)
        self._no_pipes.clear()

    def _pipe_ended(self, held: _Held, pipe: Splice) -> None:
        conn = held.conn
        self._pipes.pop(conn.id, None)
        if not self._pipes:
            self._no_pipes.set()
        if pipe.error is None or conn.closed or not conn.held:
            return
        # The master was not there: it may be starting, or dead and about to be replaced.
        self._ask()
        if self._closed:
            conn.close()
            return
        self._held[conn.id] = held._replace(not_before_s=self._now_s() + RETRY_S)
        self._wake()

    def _wake(self) -> None:
        if self._timer is None and not self._closed and (self._held or self._pipes):
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Give up on what has waited too long, try the rest, cut what is to be cut."""
        self._timer = None
        now_s = self._now_s()
        for held in list(self._held.values()):
            if held.until_s <= now_s:
                self._give_up(held.conn)
            else:
                self._try(held.conn)
        cutting = False
        for conn, pipe in list(self._pipes.values()):
            if pipe.cut_at_s is None:
                continue
            if pipe.cut_at_s <= now_s or not pipe.waiting:
                _log.debug("pipe cut", client=conn.peer, master=pipe.address)
                pipe.close()
            else:
                cutting = True
        if self._held or cutting:
            self._wake()

    def _give_up(self, conn: Connection) -> None:
        """Answer everything that was held, so that the client can try elsewhere at once."""
        if self._held.pop(conn.id, None) is None or not conn.held:
            return
        if conn.proxied:
            conn.close()
            return
        self._refusing = True
        try:
            conn.release()
        finally:
            self._refusing = False
        conn.close()  # or it would come back here with its next request, and not look elsewhere

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
