"""A client's connection that is passed on, frame by frame, to one master after the other.

A process that a client reached through the group's one address does this when it is not the master.
The master is sent a PROXY preamble with the client's address, then every frame from the first
unanswered one on; its frames go back unchanged. A frame is given whole or not at all, in either
direction, so that a connection can be moved or ended between any two.

When the master goes, or another one is known, the client notices nothing but time: the next master
is given what is unanswered (``unanswered``). Ahead of it go the client's last heartbeat, as a
request that nobody answers, so that its consumers stay members; and ``GANTRY_PASSED_ON`` with the
epoch whose master this is for, and with the opaques of those sends that an earlier master may have
stored. A master of a later epoch ends the connection instead of serving it: whoever passed it on
may have given the same requests to another master meanwhile. The client's own bytes are never
touched.

Neither side is read faster than the other can take it, and no more is kept for a client than
``unanswered`` allows and ``Budget`` has left. While there is no master the client is not read from.
Which master comes next, and for how long to wait for one, is the owner's to decide.

Some requests may be answered by this very process (*aside*), while a master is led to: it is asked
for each (``takes_aside``). They stand in the table of unanswered requests like those that the
master was given, so the next master is given them, too, with a mark. They are served in shares of
the loop's time; what one share leaves waits for its turn, and nothing is read from the client
meanwhile.

A subclass may keep and give a frame together with one of its own ahead of it, as one.
"""

import asyncio
import struct
from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace

from gantry_protocol.codes import RequestCode
from gantry_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, request
from gantry_protocol.errors import ConnectError, FrameError, RemotingError, ResolveError
from gantry_protocol.frame import MAX_HEADER_BYTES, FrameDecoder, encode
from gantry_protocol.hosts import split_address
from gantry_protocol.process import log
from gantry_protocol.proxy_preamble import UNKNOWN_V1, build_v1
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import FrameCutter, Glimpse
from gantry_protocol.remoting.turns import SHARE_S
from gantry_protocol.remoting.unanswered import Unanswered
from gantry_protocol.remoting.upstream import Upstream
from gantry_protocol.tls.process import NO_TLS, Tls

CONNECT_TIMEOUT_S = 1.0  # the master is near or gone; clients give a send 3 s in all
MAX_KEPT_BYTES = 256 * 1024 * 1024  # for all clients of one port

_log = log.get("remoting")


class Budget:
    """The bound of what all splices of one port keep in memory together.

    Attributes:
        kept_bytes: what they keep.
        given_again: requests that went to another master after one had not answered.
        refused_again: those that were refused instead.
    """

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        """Nothing is kept."""
        self.max_bytes = max_bytes
        self.kept_bytes = 0
        self.given_again = 0
        self.refused_again = 0


class Owner(Protocol):
    """The owner of a splice, who decides where it leads."""

    def freed(self, splice: "Splice") -> None:
        """It leads nowhere (``error`` says why, if connecting failed), or its client speaks again.

        Now or later: ``lead_to``, ``serve_here``, ``refuse`` or ``close``.
        """

    def ended(self, splice: "Splice") -> None:
        """It is over: the client is gone, or served here; said once."""

    def refusal(self, asked: RemotingCommand, *, was_given: bool) -> RemotingCommand:
        """The answer to a request that no master will get; ``was_given``: or get again."""


class Splice:
    """One client.

    Attributes:
        address: where it leads; empty while it leads nowhere.
        established: the process there has been reached.
        heard: it has said something.
        ended: it is over.
        error: why connecting failed last, if it did.
    """

    def __init__(
        self,
        connection: Connection,
        owner: Owner,
        budget: Budget,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        tls: Tls = NO_TLS,
    ) -> None:
        """Take over a connection that is held; nothing is read from it before ``lead_to``."""
        self.address = ""
        self._epoch = 0
        self.established = False
        self.heard = False
        self.ended = False
        self.error: RemotingError | None = None
        self.connection = connection
        self._owner = owner
        self._budget = budget
        self._counted_bytes = 0  # this splice's share of the budget
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._table = Unanswered()
        self._said = FrameCutter(MAX_HEADER_BYTES)
        self._upstream: Upstream | None = None
        self._task: asyncio.Task[None] | None = None
        self._moving = False  # what the client says waits for the next master
        self._put_off: list[Glimpse] = []  # what the client said, behind a share of asides
        self._ending = False
        self._client_congested = False
        self._is_attaching = True
        self._take(connection.attach(self))
        self._is_attaching = False

    # ---- what the owner calls

    @property
    def waiting(self) -> int:
        """Requests of the client that are not answered."""
        return len(self._table)

    @property
    def is_quiet(self) -> bool:
        """Whether the master has answered everything but pulls."""
        return self._table.is_quiet

    @property
    def epoch(self) -> int:
        """That it leads to the master of; 0 while it leads nowhere or nobody knows."""
        return self._epoch if self.established and not self._moving else 0

    @property
    def heartbeat(self) -> bytes | None:
        """The client's last heartbeat; None before the first, or of one that is too long."""
        return self._table.heartbeat

    @property
    def has_asides(self) -> bool:
        """Whether this process may answer requests itself; for a subclass."""
        return False

    def takes_aside(self, glimpse: Glimpse) -> bool:
        """Whether this process answers a request, by ``Connection.reply``; for a subclass.

        If not, nothing was done about it.
        """
        return False

    def say(self, frame: bytes) -> None:
        """Tell the master something that nobody answers; nothing happens while there is none."""
        if self._upstream is not None and self.established:
            self._upstream.write(frame)

    def take_back(self) -> bool:
        """Leave to a master what this process was to answer; whether there was anything.

        An answer that comes later all the same is dropped.
        """
        return bool(self.connection.take_unanswered())

    def claim(self, opaques: Iterable[int]) -> None:
        """Of what waits, these were given to a master before they came here."""
        self._table.claim(opaques)

    def take_unanswered(self) -> None:
        """The requests without an answer are for the master that it will lead to."""
        self._table.add_given(
            Glimpse(item.code, item.opaque, item.flag, encode(item))
            for item in self.connection.take_unanswered()
        )
        self._count()

    def remember(self, heartbeat: bytes) -> None:
        """The client's last heartbeat, said before its connection was taken over."""
        self._table.heartbeat = self._table.heartbeat or heartbeat

    def lead_to(self, address: str, epoch: int = 0) -> None:
        """Connect, and give the process there all that is unanswered.

        Args:
            address: of the master.
            epoch: that it is the master of; 0 if nobody knows.
        """
        assert not self.address, "it leads somewhere else"
        self.address = address
        self._epoch = epoch
        self.established = self.heard = False
        self.error = None
        self._moving = False
        upstream = self._upstream = Upstream(self)
        self._task = asyncio.create_task(self._connect(upstream))

    def move(self) -> None:
        """The master it leads to is none any more: give it nothing, free it when it has answered.

        Pulls are not waited for. The owner sets an end to it by ``leave``.
        """
        if self.ended or not self.address:
            return
        self._moving = True
        self._wait_with_put_off()
        if not self.established or self._table.is_quiet:
            self.leave()

    def leave(self) -> None:
        """Let go of the master now; what it has not answered is for the next one."""
        if not self.ended and self.address:
            self._drop_upstream()
            self._owner.freed(self)

    def end_with_answer(self) -> None:
        """End it with the next answer that leaves nothing but pulls unanswered.

        Both reach the client as one, so that it says nothing more here. Whoever ends a connection
        at another moment may meet a request that is on its way.
        """
        self._ending = True

    def end(self) -> None:
        """End it now, with a refusal of what is unanswered."""
        if not self.ended:
            self._wait_with_put_off()
            self.connection.cork()
            self._give_up()
            self.close()

    def refuse(self) -> None:
        """No master came in time: say so to everything that waits, and listen again."""
        self._give_up()
        self._count()
        self.connection.pause_client(False)

    def serve_here(self) -> tuple[list[int], bytes]:
        """Give the connection back to this process, which is the master.

        Returns:
            What ``Connection.detach`` is to be called with, and the opaques of the sends in it that
            an earlier master may have stored.
        """
        self._drop_upstream()
        self.ended = True
        handover = self._table.hand_over()
        self._answer(handover.refused, was_given=True)
        self._note(len(handover.marked), len(handover.refused))
        self._epoch = 0  # what is served here is passed on to nobody
        data = b"".join([*self._introduction([]), *handover.frames, self._said.take_rest()])
        self._table.give_up()
        self._count()
        self._owner.ended(self)
        return handover.marked, data

    def close(self) -> None:
        """Cut both sides; what was written to them is still delivered, for at most a second."""
        if self.ended:
            return
        self.ended = True
        self._drop_upstream()
        self._table.give_up()
        self._said.take_rest()
        self._count()
        self.connection.close()
        self._owner.ended(self)

    # ---- the way to the master

    async def _connect(self, upstream: Upstream) -> None:
        try:
            await open_connection(
                lambda: upstream, self.address, self._connect_timeout_s, tls=self._tls
            )
        except ConnectError as error:
            if self._upstream is upstream:
                self.error = error
                self._drop_upstream()
                self._owner.freed(self)

    def connected(self, upstream: Upstream) -> None:
        """The process accepted: introduce the client and give it what is unanswered."""
        connection = self.connection
        if self.ended or self._upstream is not upstream:
            upstream.close()
            return
        if connection.closed:
            self.close()
            return
        self.established = True
        if self._client_congested:
            upstream.pause(True)
        self.take_unanswered()
        handover = self._table.hand_over()
        self._answer(handover.refused, was_given=True)
        self._note(len(handover.marked), len(handover.refused))
        upstream.write(
            b"".join(
                [_preamble(connection), *self._introduction(handover.marked), *handover.frames]
            )
        )
        self._count()
        self._read_on()

    def _introduction(self, marked: list[int]) -> list[bytes]:
        """What a master is told before the client's own frames."""
        said = []
        heartbeat = self._table.heartbeat
        if heartbeat is not None:
            try:
                (command,) = FrameDecoder(expect_preamble=False).feed(heartbeat)
                said.append(encode(replace(command, flag=command.flag | FLAG_ONEWAY)))
            except FrameError:
                self._table.heartbeat = None
        if marked or self._epoch:
            ext = {"epoch": str(self._epoch)}
            body = struct.pack(f">{len(marked)}i", *marked)
            said.append(encode(request(RequestCode.GANTRY_PASSED_ON, ext, body, oneway=True)))
        return said

    def _note(self, again: int, refused: int) -> None:
        self._budget.given_again += again
        self._budget.refused_again += refused

    def _drop_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        task, self._task = self._task, None
        self.address = ""
        self.established = False
        self._moving = False
        self._wait_with_put_off()
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        if upstream is not None:
            upstream.close()
        if not self.ended:
            self.connection.pause_client(True)

    # ---- what the client's connection calls

    def from_client(self, data: bytes) -> None:
        """Bytes of the client."""
        self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            glimpses = self._said.feed(data)
        except FrameError as error:
            _log.warning("connection ended by a malformed frame", reason=error)
            self.close()
            return
        upstream = self._upstream
        if upstream is None or not self.established or self._moving:
            for glimpse in glimpses:
                self._table.wait(glimpse)
        elif self._put_off:
            self._put_off += glimpses
        elif glimpses:
            self._give(glimpses, upstream)
        self._count()
        if self._budget.kept_bytes > self._budget.max_bytes:
            _log.warning("connection ended, too much is kept for clients of a master that is gone")
            self.close()
        elif self._table.is_full or (upstream is None and glimpses):
            self.connection.pause_client(True)
        if upstream is None and glimpses and not self._is_attaching and not self.ended:
            self._owner.freed(self)

    def _give(self, glimpses: list[Glimpse], upstream: Upstream) -> None:
        """Give the master what is not answered here."""
        if self.has_asides:
            glimpses = self._without_asides(glimpses)
        else:
            for glimpse in glimpses:
                self._table.give(glimpse)
        self._pass_on(glimpses, upstream)

    def _pass_on(self, glimpses: list[Glimpse], upstream: Upstream) -> None:
        """Write what the table has as given."""
        if len(glimpses) == 1:
            upstream.write(glimpses[0].frame)
        elif glimpses:
            upstream.write(b"".join([glimpse.frame for glimpse in glimpses]))

    def _without_asides(self, glimpses: list[Glimpse]) -> list[Glimpse]:
        """Answer what may be answered here, for a share of time; the rest of it waits."""
        turns, passed = self.connection.turns, []
        begun_s = now_s = turns.clock()
        for place, glimpse in enumerate(glimpses):
            if now_s - begun_s > SHARE_S:
                self._put_off = glimpses[place:]
                self.connection.pause_client(True)
                turns.wait(self, first=False)
                break
            self._table.give(glimpse)
            if self.takes_aside(glimpse):
                now_s = turns.clock()
            else:
                passed.append(glimpse)
        return passed

    def _wait_with_put_off(self) -> None:
        """What was put off is for the next master."""
        put_off, self._put_off = self._put_off, []
        for glimpse in put_off:
            self._table.wait(glimpse)

    def take_turn(self) -> bool:
        """Go on with what was put off."""
        glimpses, self._put_off = self._put_off, []
        upstream = self._upstream
        if self.ended or upstream is None or not glimpses:
            return False
        self._give(glimpses, upstream)
        self._count()
        self._read_on()
        self._go_on()
        return False

    def answered_here(self, opaque: int) -> None:
        """This process has answered a request."""
        was_full = self._table.is_full
        self._table.answered(opaque)
        self._count()
        if was_full:
            self._read_on()
        self._go_on()

    def _go_on(self) -> None:
        """End, or leave the master, if nothing but pulls is unanswered and that was waited for."""
        if self.ended or not (self._ending or self._moving):
            return
        if self._table.is_quiet and not self._put_off:
            if self._ending and not self._table.is_waiting:
                self.end()
            elif self._moving:
                self.leave()

    def client_congested(self, congested: bool) -> None:
        """The client does not read fast enough, or does again."""
        self._client_congested = congested
        if self._upstream is not None:
            self._upstream.pause(congested)
        if self.has_asides:
            if congested:
                self.connection.pause_client(True)
            else:
                self._read_on()

    def client_lost(self) -> None:
        """The client left."""
        self.close()

    # ---- what the other side calls

    def from_upstream(self, glimpses: list[Glimpse], upstream: Upstream) -> None:
        """Frames of the master, or a part of one; what a former one still says is not passed on."""
        if upstream is not self._upstream:
            return
        if not glimpses:
            self._count()
            return
        self.heard = True
        table = self._table
        was_full = table.is_full
        for glimpse in glimpses:
            if glimpse.flag & FLAG_RESPONSE:
                table.answered(glimpse.opaque)
        is_last = self._ending and table.is_quiet and not table.is_waiting and not self._put_off
        if is_last:
            self.connection.cork()
        if len(glimpses) == 1:
            self.connection.write_raw(glimpses[0].frame)
        else:
            self.connection.write_raw(b"".join([glimpse.frame for glimpse in glimpses]))
        self._count()
        if is_last:
            self.end()
        elif self._moving and table.is_quiet:
            self.leave()
        elif was_full and not table.is_full:
            self._read_on()

    def upstream_congested(self, upstream: Upstream, congested: bool) -> None:
        """The other process does not read fast enough, or does again."""
        if self.ended or upstream is not self._upstream:
            return
        if congested:
            self.connection.pause_client(True)
        else:
            self._read_on()

    def upstream_lost(self, upstream: Upstream) -> None:
        """The other process ended the connection."""
        if not self.ended and upstream is self._upstream:
            self._drop_upstream()
            self._owner.freed(self)

    # ---- inside

    def _read_on(self) -> None:
        upstream = self._upstream
        if upstream is not None and self.established and not upstream.congested:
            is_held_up = bool(self._put_off) or (self.has_asides and self._client_congested)
            self.connection.pause_client(self._table.is_full or is_held_up)

    def _give_up(self) -> None:
        wanted = self._table.give_up()
        self._answer(wanted.given, was_given=True)
        self._answer(wanted.waiting, was_given=False)

    def _answer(self, glimpses: Iterable[Glimpse], *, was_given: bool) -> None:
        """Refuse what no master will get, or get again, in the owner's words."""
        for glimpse in glimpses:
            try:
                *_, asked = FrameDecoder(expect_preamble=False).feed(glimpse.frame)
            except FrameError:
                self.connection.close()
                return
            answer = self._owner.refusal(asked, was_given=was_given)
            answer.opaque, answer.flag = asked.opaque, answer.flag | FLAG_RESPONSE
            self.connection.write_raw(encode(answer))

    def _count(self) -> None:
        now = self._table.size_bytes + self._said.pending_bytes
        if self._upstream is not None:
            now += self._upstream.pending_bytes
        if now != self._counted_bytes:
            self._budget.kept_bytes += now - self._counted_bytes
            self._counted_bytes = now


def _preamble(connection: Connection) -> bytes:
    try:
        return build_v1(split_address(connection.peer), split_address(connection.local))
    except (ResolveError, ValueError):  # the client left before anybody asked for its address
        return UNKNOWN_V1
