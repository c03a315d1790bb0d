"""One client's connection to a remoting server.

Frames are served in order, as many of one wake-up as fit a share of the loop's time; ``turns`` says
when the rest has its turn. The replies that are ready leave in one write. There is no task per
request: a handler answers at once, or returns None and calls :meth:`Connection.reply` later.
Everything is bounded. A peer that does not read is not read from and cut off when it takes nothing
for long, one that asks too much at once hears ``SYSTEM_BUSY``, one whose unread answers pile up is
cut off at once, and so is one that does not end a frame which it began.

A connection can be *held* at a request: the bytes from that request on are kept undecoded until the
holder lets the server serve them after all (:meth:`Connection.release`) or hands the connection
over to another process (:mod:`gantry_protocol.remoting.splice`), which may give it back
(:meth:`Connection.detach`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, reply
from gantry_protocol.errors import FrameError
from gantry_protocol.frame import MAX_HEADER_BYTES, TOO_LARGE, FrameDecoder, encode
from gantry_protocol.hosts import address_of
from gantry_protocol.remoting.corking import cork
from gantry_protocol.remoting.rules import BUSY
from gantry_protocol.remoting.turns import LARGE_BYTES, SHARE_FRAMES, SHARE_S, Standing

if TYPE_CHECKING:
    from gantry_protocol.remoting.pipe import Pipe
    from gantry_protocol.remoting.server import RemotingServer

HIGH_WATER_BYTES = 1024 * 1024  # unsent bytes from which on a peer is no longer read from
LATE_S = 0.5  # what waited for less is never too old
SKIP_PAUSE_S = 0.01  # after each piece of a body that is not kept: 25 MB/s are read past at most
_CLOSE_GRACE_S = 1.0  # how long a closing connection may take to deliver what was written


class Connection(asyncio.Protocol):
    """A connected peer.

    Attributes:
        id: unique within the process.
        peer: ``ip:port`` of the client; a PROXY preamble's source, when one was given.
        source: the IP address it was made from; connections are counted by it.
        local: ``ip:port`` the client connected to.
        proxied: whether a PROXY preamble came first.
        believed: whether the peer has shown the quorum's key on it (``quorum_key``).
        attrs: whatever the owner of the handler keeps about the peer.
        closed: no more replies leave; true from the first :meth:`close` on.
        heard_s: the loop's time when the last byte of the peer came.
        unread_bytes: what the peer had not taken yet when that was counted last.
        partial_bytes: of what it has said, what was not served yet.
    """

    def __init__(self, server: RemotingServer, number: int) -> None:
        self.id = number
        self.peer = self.source = self.local = ""
        self.proxied = False
        self.believed = False
        self.attrs: dict[str, Any] = {}
        self.closed = False
        self.unread_bytes = 0
        self.heard_s = self.last_active_s = 0.0  # the latter of a byte in either direction
        self._server = server
        self._stats = server.stats
        self._loop: asyncio.AbstractEventLoop  # set once connected; to ask for it is a system call
        self._transport: asyncio.Transport | None = None
        self.turns = server.turns  # whose requests are served when
        self._decoder = FrameDecoder(
            remember=True,
            max_header_bytes=MAX_HEADER_BYTES,
            body_limit=server.rules.body_limit,
        )
        self._introduced = False  # ``peer`` and ``proxied`` are final
        self.partial_bytes = 0
        self._batch: list[RemotingCommand] = []  # decoded and not all served
        self._next = 0  # of it, is served next
        self._broken: FrameError | None = None  # what followed the batch; ends the connection
        self._standing = Standing()
        self._waits = False  # for its turn; nothing is read meanwhile
        self._put_off = b""  # what came when it was nobody's turn
        self._ends_s = 0.0  # of the share that it uses now
        self._served = 0  # requests in it
        self._came_s = 0.0  # loop time at which what it has not been served yet was read
        self._late_s = 0.0  # since then, where that is worth looking at
        self._framed_s = 0.0  # loop time of the last whole frame, or of the first byte since
        self._serving: RemotingCommand | None = None  # with the handler, unanswered
        self._said: dict[str, str] | None = None  # its own fields, where that was reworded
        self._dispatching = False
        # By identity, as opaques may repeat; with the own fields of those that were reworded.
        self._unanswered: dict[int, tuple[RemotingCommand, dict[str, str] | None]] = {}
        self._unanswered_bytes = 0  # their bodies
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._congested = False  # the transport asked us to stop writing
        self._stuck: asyncio.TimerHandle | None = None  # runs while it is
        self._held: bytearray | None = None  # undecoded bytes from the held request on
        self._pipe: Pipe | None = None

    # What the owner calls, always on the loop's thread.

    def send(self, command: RemotingCommand) -> None:
        """Send a request of ours (40, 39, …) to the client; dropped when closed.

        Raises:
            FrameError: it does not fit a frame.
        """
        if not self.closed and self._pipe is None:
            self._enqueue(encode(command))

    def reply(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Answer ``request``; a second answer, or one to a oneway request, is dropped."""
        if self._is_due(request):
            self._send_reply(request, response)
            self._tell_pipe(request)

    def reply_frame(self, request: RemotingCommand, frame: bytes) -> None:
        """Answer ``request`` with a whole frame, which has its opaque; otherwise like ``reply``."""
        if self._is_due(request) and not (request.flag & FLAG_ONEWAY or self.closed):
            self._stats.replies += 1
            self._enqueue(frame)
            self._tell_pipe(request)

    def _tell_pipe(self, request: RemotingCommand) -> None:
        if self._pipe is not None:
            self._pipe.answered_here(request.opaque)

    def _is_due(self, request: RemotingCommand) -> bool:
        """Whether ``request`` had no answer; from now on it has one."""
        if request is self._serving:
            self._serving = None
            return True
        if self._unanswered.pop(id(request), None) is None:
            return False
        self._count_unanswered(request, -1)
        if not self._stats.in_flight:
            self._server.note_answered()
        return True

    def close(self) -> None:
        """Deliver what was written, then end the connection."""
        if self.closed:
            return
        self.flush()
        self.closed = True
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                self._loop.call_later(_CLOSE_GRACE_S, transport.abort)

    def abort(self) -> None:
        """End the connection at once, dropping what was not sent."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def hold(self, first: RemotingCommand) -> None:
        """Stop serving at ``first``: keep it and all that follows undecoded, and read no more.

        Only from within the handler that was given ``first``, which then returns None. The holder
        must end it with :meth:`release`, a splice, or :meth:`close`.
        """
        assert self._dispatching, "a connection is held from within its handler"
        assert self._serving is first
        self._serving = None
        self._held = bytearray(self._decoder.take_back(self._next))
        self._batch, self._next, self._broken = [], 0, None
        self._count_partial()
        self._pause_reading()

    def hold_here(self) -> None:
        """The same between two requests; what was served is still answered."""
        assert not self._dispatching
        rest = self._next < len(self._batch)
        data = self._decoder.take_back(self._next) if rest else self._decoder.take_rest()
        self._held = bytearray(data + self._put_off)
        self._put_off = b""
        self._batch, self._next, self._broken = [], 0, None
        self._count_partial()
        self._pause_reading()

    @property
    def can_be_held(self) -> bool:
        """Whether ``hold_here`` is possible."""
        return not (
            self.closed
            or self._dispatching
            or self._decoder.is_skipping
            or self._held is not None
            or self._pipe
        )

    @property
    def held(self) -> bool:
        """Whether the connection waits for its holder."""
        return self._held is not None

    def release(self) -> None:
        """Serve the held requests here after all."""
        assert self._held is not None
        data, self._held = bytes(self._held), None
        self.detach(data)

    # What the splice calls.

    def attach(self, pipe: Pipe) -> bytes:
        """Give the bytes from the held request on to ``pipe``; returns those already here.

        The client is not read from until ``pause_client(False)``. What was asked before is still
        answered from here, until ``take_unanswered``.
        """
        assert self._held is not None
        data, self._held = bytes(self._held), None
        self._pipe = pipe
        self._stats.spliced += 1
        if self._congested:
            pipe.client_congested(True)
        return data

    def take_unanswered(self) -> list[RemotingCommand]:
        """The requests without an answer, as said; from now on an answer to them is dropped."""
        taken = list(self._unanswered.values())
        for request, _ in taken:
            self._is_due(request)
        return [item if said is None else replace(item, ext=said) for item, said in taken]

    def reword(self, request: RemotingCommand, ext: dict[str, str]) -> None:
        """Have ``request`` served as if it said ``ext``; ``take_unanswered`` has its own words."""
        if request is self._serving:
            self._said = self._said or request.ext
        elif id(request) in self._unanswered:
            _, said = self._unanswered[id(request)]
            self._unanswered[id(request)] = request, said or request.ext
        request.ext = ext

    def entrust(self, request: RemotingCommand) -> None:
        """Of what the pipe took, this process answers ``request``, by ``reply`` as any other."""
        if not request.flag & FLAG_ONEWAY and not self.closed:
            self._stats.requests += 1
            self._owe(request)

    def detach(self, data: bytes) -> None:
        """Serve here again what comes from ``data`` on."""
        assert not self._dispatching
        self._pipe = None
        if self.closed:
            return
        self.turns.used(self._go(data))
        self._read_on()

    def cork(self) -> None:
        """Let what is written next and the end that follows reach the client as one."""
        cork(self._transport)

    def write_raw(self, data: bytes) -> None:
        """Hand bytes of the other side to the client, as they are."""
        if self._transport is not None and not self.closed:
            self.last_active_s = self._loop.time()
            self._stats.bytes_out += len(data)
            self._transport.write(data)

    def pause_client(self, paused: bool) -> None:
        """Stop or go on reading from the client, as the other side can take it."""
        (self._pause_reading if paused else self._resume_reading)()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._loop = asyncio.get_running_loop()
        self._transport = tcp = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        tcp.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        name = tcp.get_extra_info("peername")
        self.peer = address_of(name)
        self.source = str(name[0]) if isinstance(name, tuple) else ""
        self.local = address_of(tcp.get_extra_info("sockname"))
        self.last_active_s = self._framed_s = self._loop.time()
        self._server.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        self.closed = True
        self._stop_waiting()
        self._transport = None
        self.count_unread()
        self.take_unanswered()
        self._batch, self._next = [], 0
        self._held, self._put_off = None, b""
        self._out.clear()
        self._decoder = FrameDecoder()
        self._count_partial()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.client_lost()
        self._server.connection_closed(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self.heard_s = self.last_active_s = now_s = self._loop.time()
        self._stats.bytes_in += len(data)
        if self.closed:
            return
        if self._pipe is not None:
            self._pipe.from_client(data)
        elif self._held is not None:
            self._held += data
        else:
            assert not self._batch, "nothing is read while a batch waits for the client to read"
            self._came_s = now_s
            much = self._standing.asks_much or self.partial_bytes >= LARGE_BYTES
            if much or not self.turns.is_open:
                self._put_off += data
                self._note_partial()
                self._wait(first=not much)
            else:
                self.turns.used(self._go(data))

    def pause_writing(self) -> None:
        """The client does not read fast enough."""
        self._congested = True
        self._stuck = self._loop.call_later(self._server.max_stuck_s, self.cut_off)
        if self._pipe is not None:
            self._pipe.client_congested(True)
        else:
            self._pause_reading()

    def resume_writing(self) -> None:
        """The client caught up."""
        self._congested = False
        self._stop_waiting()
        if self._pipe is not None:
            self._pipe.client_congested(False)
            return
        if self._has_more:
            self._wait(first=False)
        self._read_on()

    def take_turn(self) -> bool:
        """Serve waiting requests for a share of time; whether they are dear."""
        self._waits = False
        if self.closed or self._congested or self._held is not None or self._pipe is not None:
            return False
        late_s = self._loop.time() - self._came_s
        self._late_s = late_s if late_s > LATE_S else 0.0
        data, self._put_off = self._put_off, b""
        self._go(data)
        self._read_on()
        return self._standing.is_dear

    def _go(self, data: bytes) -> float:
        """Serve what was left, or else ``data``, within a share; returns the time it took."""
        begun_s = self.turns.clock()
        self._ends_s = begun_s + SHARE_S
        self._served = 0
        if self._batch:
            assert not data, "nothing is read while something waits"
            self._dispatch()
        else:
            self._consume(data)
        used_s, self._late_s = self.turns.clock() - begun_s, 0.0
        more = self._has_more
        if self._served:  # a part of a frame costs nothing, and says nothing
            self._standing.note(used_s, self._served, more)
        if self.closed or self._congested or self._held is not None:
            return used_s
        if more:
            self._wait(first=False)
        elif self._decoder.is_skipping and not self._waits:
            self._waits = True
            self._pause_reading()
            self._loop.call_later(SKIP_PAUSE_S, self._rested)
        return used_s

    @property
    def _has_more(self) -> bool:
        """Whether requests are here that were not served."""
        return bool(self._batch) or self._decoder.has_more or bool(self._put_off)

    def _wait(self, *, first: bool) -> None:
        """For a turn; meanwhile nothing more is read."""
        if not self._waits:
            self._waits = True
            self._pause_reading()
            self.turns.wait(self, first=first)

    def _rested(self) -> None:
        self._waits = False
        self._read_on()

    def _read_on(self) -> None:
        """Unless something else has to happen before."""
        if not (self._waits or self._congested or self._held is not None or self._pipe is not None):
            self._resume_reading()

    # Inside.

    def _consume(self, data: bytes) -> None:
        was_partial = self._decoder.pending_bytes
        try:
            self._batch = self._decoder.feed(data, SHARE_FRAMES)
        except FrameError as error:
            self._batch, self._broken = error.before, error
        self._next = 0
        if self._batch or not was_partial:
            self._framed_s = self.last_active_s
        if not self._introduced:
            self._introduce()
        if self.partial_bytes or self._decoder.pending_bytes:
            self._note_partial()
        self._dispatch()

    def _introduce(self) -> None:
        """The first bytes tell whether somebody forwards for the client."""
        self.proxied = self._decoder.proxied
        if self._decoder.proxied_from is not None:
            self.peer = self._decoder.proxied_from
        self._introduced = self.proxied or bool(self._batch)

    def _note_partial(self) -> None:
        self._count_partial()
        if self._stats.partial_bytes > self._server.max_partial_bytes:
            self._server.partial_grew()

    def _count_partial(self) -> None:
        now = self._decoder.pending_bytes + len(self._put_off)
        self._stats.partial_bytes += now - self.partial_bytes
        self.partial_bytes = now

    def _dispatch(self) -> None:
        """Serve the batch until it or the share ends, the client stops reading, or it is held."""
        self._dispatching = True
        clock, ends_s = self.turns.clock, self._ends_s
        first = self._next
        try:
            while self._next < len(self._batch) and not (self.closed or self._congested):
                self._serve(self._batch[self._next])
                self._next += 1
                if clock() >= ends_s:
                    break
        finally:
            self._dispatching = False
            self._served = self._next - first
        if self._held is not None or self.closed:
            self._next = len(self._batch)
        if self._out:
            self.flush()
        if self._next < len(self._batch):
            return  # another turn goes on here, once the client reads
        self._batch, self._next = [], 0
        self._decoder.forget()
        if self._broken is not None:
            self._end_malformed(self._broken)

    def _end_malformed(self, error: FrameError) -> None:
        self._broken = None
        self._stats.malformed += 1
        self._server.note_ended("connection ended by a malformed frame", self, error)
        self.close()

    def _serve(self, request: RemotingCommand) -> None:
        server, stats = self._server, self._stats
        if request.flag & FLAG_RESPONSE:
            if request.body is TOO_LARGE or not server.on_response(self, request):
                stats.stray_responses += 1
            return
        oneway = request.flag & FLAG_ONEWAY
        size_bytes = len(request.body)
        if request.body is TOO_LARGE or self._late_s:
            refusal = server.rules.refuse(request, self._late_s, stats)
            if refusal is not None:
                self._send_reply(request, refusal)
                return
        if oneway:
            stats.oneways += 1
        else:
            stats.requests += 1
            if (
                len(self._unanswered) >= server.max_in_flight
                or stats.in_flight >= server.max_in_flight_total
                or (size_bytes and server.is_too_much(self._unanswered_bytes, size_bytes))
            ):
                stats.busy += 1
                self._send_reply(request, BUSY)
                return
        self._serving, self._said = request, None
        try:
            response = server.handler(self, request)
        except Exception as error:  # noqa: BLE001 - upstream answers code 1 whatever a processor raises
            response = server.failed(self, request, error)
        if self._serving is None:  # answered or held from within the handler
            return
        self._serving = None
        if oneway or self.closed:
            return
        if response is not None:
            self._send_reply(request, response)
        else:
            self._owe(request, self._said)

    def _owe(self, request: RemotingCommand, said: dict[str, str] | None = None) -> None:
        """Its answer comes later."""
        self._unanswered[id(request)] = request, said
        self._count_unanswered(request, 1)

    def _count_unanswered(self, request: RemotingCommand, change: int) -> None:
        self._unanswered_bytes += change * len(request.body)
        self._stats.in_flight += change
        self._stats.in_flight_bytes += change * len(request.body)

    def _send_reply(self, request: RemotingCommand, response: RemotingCommand) -> None:
        if request.flag & FLAG_ONEWAY or self.closed:
            return
        if response.code == ResponseCode.SYSTEM_ERROR:
            self._server.note_error(request, response)
        response.opaque, response.flag = request.opaque, response.flag | FLAG_RESPONSE
        try:
            data = encode(response)
        except FrameError as error:
            data = encode(reply(request, ResponseCode.SYSTEM_ERROR, str(error)))
        self._stats.replies += 1
        self._enqueue(data)

    def _enqueue(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= HIGH_WATER_BYTES:
            self.flush()
        elif not self._dispatching and len(self._out) == 1:  # else it was said before
            self._server.flush_soon(self)

    def flush(self) -> None:
        """Write what is ready, in one piece."""
        transport = self._transport
        if not self._out or transport is None or self.closed:
            return
        data = b"".join(self._out) if len(self._out) > 1 else self._out[0]
        self._out.clear()
        self._out_bytes = 0
        self.last_active_s = self._loop.time()
        self._stats.bytes_out += len(data)
        transport.write(data)
        if transport.get_write_buffer_size() or self.unread_bytes:
            self._note_unread()

    def _note_unread(self) -> None:
        """Some of what was written is still here: bound it, for this peer and for all."""
        grown_to = self.count_unread()
        if grown_to > self._server.max_write_buffer_bytes:
            self.cut_off()
        elif self._stats.unread_bytes > self._server.max_unread_bytes:
            self._server.unread_grew()

    def count_unread(self) -> int:
        """Count anew what the peer has not taken yet; returns it in bytes."""
        transport = self._transport
        now = 0
        if transport is not None and not self.closed:
            now = transport.get_write_buffer_size()
        self._stats.unread_bytes += now - self.unread_bytes
        self.unread_bytes = now
        return now

    def cut_off(self) -> None:
        """The peer does not read what it asked for."""
        self._stats.slow_closed += 1
        self._server.note_ended("connection ended, its peer does not read", self)
        self.abort()
        self.count_unread()

    def is_stalled(self, now_s: float, within_s: float) -> bool:
        """Whether it has begun a frame, or none at all, and does not go on in time."""
        if self._pipe is not None or self._held is not None or self._waits or self._congested:
            return False
        due = self.partial_bytes or not self._introduced
        return bool(due) and now_s - self._framed_s > within_s

    def drop_partial(self) -> None:
        """Of all that waits to be whole, or for its turn, it has most, and it is too much."""
        self._end_malformed(FrameError("The unserved bytes of all connections are too many."))
        self._decoder, self._put_off = FrameDecoder(), b""
        self._count_partial()

    def _stop_waiting(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
