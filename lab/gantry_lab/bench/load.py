"""The load generator: connections with a few requests outstanding each, and nothing else.

It shares the processors with what it measures, so there is no event loop, task or future per
request: one thread waits for all sockets at once, reads answers into a buffer that is kept, and
writes at once what one wake-up made. What that costs is measured, too, and printed. Rule protected:
only an answer that the work calls done counts as work done, and the code and `opaque` of every
answer are read. What it refuses: to go on when answers are refusals more often than the work lets
go by.
"""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import struct
from collections import deque
from threading import Event
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import FrameError, GantryError
from gantry_protocol.frame import MAX_FRAME_BYTES
from gantry_protocol.hosts import split_address

from gantry_lab.bench.results import Latencies, percentile
from gantry_lab.bench.tls import TlsSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_lab.bench.tls import Trust

ANSWER_PATIENCE_S = 15.0  # longer than any server here leaves a request unanswered
CONNECT_PATIENCE_S = 5.0
PACE_S = 0.002  # between two looks at what a paced load has to send
BUFFER_BYTES = 64 * 1024
NOT_OPEN = -1.0
DONE = frozenset({int(ResponseCode.SUCCESS)})
_PREFIX = struct.Struct(">iI")
_LENGTH_BYTES = 4
_HEADER_LENGTH_MASK = 0xFFFFFF
_SEND_TIMEOUT = struct.pack("@ll", int(ANSWER_PATIENCE_S), 0)  # SO_SNDTIMEO takes a timeval


class Numbers(msgspec.Struct, rename="camel", gc=False):
    """The fields that are read of a custom header."""

    next_begin_offset: str = ""
    max_offset: str = ""
    queue_offset: str = ""
    pop_time: str = ""
    invisible_time: str = ""
    revive_qid: str = ""
    start_offset_info: str = ""
    msg_offset_info: str = ""


class Reply(msgspec.Struct, gc=False):
    """The fields that are read of every answer's header."""

    code: int = 0
    opaque: int = 0
    remark: str | None = None
    ext: Numbers | None = msgspec.field(name="extFields", default=None)


decode_reply = msgspec.json.Decoder(Reply).decode


class SlotWork:
    """The requests of a load's slots; the `opaque` of every frame is its slot's number.

    Attributes:
        codes: answers that mean done.
        refusals: other answers that are let go by: so many, and one in a hundred; 0: none.
        messages: that answers which mean done stand for, so far.
        woken: slots of the connection whose answer was judged last, which have work again; the
            load empties it, and asks each that is idle for its ``first`` frame.
        ended: nobody waits for the answers that are still to come.
    """

    codes = DONE
    refusals = 0
    messages = 0
    woken: Sequence[int] = ()
    ended = False

    def first(self, slot: int) -> bytes | bytearray | None:
        """The frame a slot begins with, or repeats after a refusal; None if it has none."""
        raise NotImplementedError

    def following(self, slot: int, reply: Reply, body: memoryview) -> bytes | bytearray | None:
        """Judge an answer that means done; the next frame, or None if nothing is left to do.

        Raises:
            GantryError: the answer is not what was asked for.
        """
        return self.first(slot)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a counted time; operations are answers that mean done.

    Attributes:
        messages: in those.
        received_bytes: of all answers.
        refused: other answers.
        latencies_s: of the operations, ascending.
        generator_s: CPU time of the generator's thread.
    """

    operations: int
    messages: int = 0
    received_bytes: int = 0
    refused: int = 0
    seconds: float
    latencies_s: Latencies
    generator_s: float

    @property
    def per_second(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds

    def p_ms(self, share: float) -> float:
        """The latency that this share of the operations stayed below, in milliseconds."""
        return percentile(self.latencies_s, share) * 1000


class Lane:
    """One connection, and the slots whose answers come on it."""

    __slots__ = ("buffer", "filled", "slots", "socket", "view")

    def __init__(self, slots: range, connected: socket.socket | TlsSocket) -> None:
        self.slots = slots
        self.socket = connected
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = 0

    def keep(self, start: int, end: int, size: int) -> None:
        """Let go of what is before `start`, and have room for an answer of `size` bytes."""
        rest = bytes(self.view[start:end])
        if size > len(self.buffer):
            self.buffer = bytearray(2 * size)
            self.view = memoryview(self.buffer)
        self.filled = len(rest)
        self.view[: len(rest)] = rest


class FrameLoad:
    """`connections` to `addresses` in turn, each with its slots; ``close`` them in the end.

    Its methods run in a thread of their own, one at a time.

    Args:
        work: what the slots ask for.
        addresses: of the servers.
        connections: how many.
        outstanding: slots of each.
        trust: whom TLS believes; None: connections are plain.

    Attributes:
        per_second: None: a slot asks again as soon as it has its answer; else so many requests are
            begun per second, and latency counts from the time a request was due.
    """

    def __init__(
        self,
        work: SlotWork,
        addresses: Sequence[str],
        connections: int,
        outstanding: int = 1,
        trust: Trust | None = None,
    ) -> None:
        """Connect.

        Raises:
            GantryError: a connection cannot be opened.
        """
        gc.collect()
        gc.freeze()  # what was made so far need not be walked by a collection between two windows
        self.work = work
        self.per_second: float | None = None
        self.open = 0  # requests without an answer
        self._sent_s = [NOT_OPEN] * (connections * outstanding)
        self._outstanding = outstanding
        self._trust = trust
        self._lanes: list[Lane] = []
        self._by_number: dict[int, Lane] = {}
        self._idle: deque[int] = deque()  # slots of a paced load that wait for their turn
        self._due_s = 0.0
        self._poll = select.epoll()
        self._stop = Event()
        self._sending = False
        self._recording = False
        self._latencies: list[float] = []
        self._done = 0
        self._refused = 0
        self._received = 0
        try:
            for number in range(connections):
                self._connect(number, addresses[number % len(addresses)])
        except BaseException:
            self.close()
            raise

    def _connect(self, number: int, address: str) -> None:
        host, port = split_address(address)
        try:
            connected = socket.create_connection((host, port), CONNECT_PATIENCE_S)
        except OSError as error:
            raise GantryError(f"No connection to {address}: {error}.") from error
        wire: socket.socket | TlsSocket = connected
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._trust is not None:
                wire = TlsSocket(connected, self._trust)
        except OSError as error:
            connected.close()
            raise GantryError(f"No TLS connection to {address}: {error}.") from error
        connected.settimeout(None)  # a time-out would cost a system call per read
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        first = number * self._outstanding
        lane = Lane(range(first, first + self._outstanding), wire)
        self._lanes.append(lane)
        self._by_number[connected.fileno()] = lane
        self._poll.register(connected.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """End the connections."""
        self._stop.set()
        for lane in self._lanes:
            lane.socket.close()
        self._poll.close()

    async def window(
        self, warmup_s: float, seconds: float, at_edge: Callable[[], None] = lambda: None
    ) -> Window:
        """Work; count what is answered within `seconds` after `warmup_s`; wait for the rest.

        Args:
            warmup_s: before it is counted.
            seconds: how long is counted.
            at_edge: called when the counting begins and when it ends, in the generator's thread.

        Raises:
            GantryError: an answer was wrong or did not come.
        """
        return await self._aside(lambda: self._window(warmup_s, seconds, at_edge))

    async def finish(self, patience_s: float, at_edge: Callable[[], None] = lambda: None) -> Window:
        """Let every slot work until it has nothing left to do, or the work has ended.

        All of it is counted.

        Raises:
            GantryError: an answer was wrong or did not come in time.
        """
        return await self._aside(lambda: self._counted(patience_s, at_edge, ends=False))

    async def _aside(self, action: Callable[[], Window]) -> Window:
        """In a thread; cancelled, it ends the thread before anything else happens."""
        running = asyncio.create_task(asyncio.to_thread(self._uncollected, action))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.gather(running, return_exceptions=True)  # it says that it was stopped
            raise

    # ---- in the thread

    def _uncollected(self, action: Callable[[], Window]) -> Window:
        """No garbage is collected meanwhile: that would be a pause that the load sees."""
        gc.disable()
        try:
            return action()
        finally:
            gc.enable()

    def _window(self, warmup_s: float, seconds: float, at_edge: Callable[[], None]) -> Window:
        self._begin()
        self._turn_until(perf_counter() + warmup_s)
        found = self._counted(seconds, at_edge, ends=True)
        self._sending = False
        self._turn_until(perf_counter() + ANSWER_PATIENCE_S)
        self._all_answered(ANSWER_PATIENCE_S)
        return found

    def _counted(self, seconds: float, at_edge: Callable[[], None], *, ends: bool) -> Window:
        """Count from now on, for `seconds`, or until nothing is left to do."""
        at_edge()
        self._latencies.clear()
        self._recording = True
        refused, received, messages = self._refused, self._received, self.work.messages
        begun, used = perf_counter(), thread_time()
        if not ends:
            self._begin()
        self._turn_until(begun + seconds)
        took, used = perf_counter() - begun, thread_time() - used
        self._recording = False
        at_edge()
        if not ends:
            self._all_answered(seconds)
        return Window(
            operations=len(self._latencies),
            messages=self.work.messages - messages,
            received_bytes=self._received - received,
            refused=self._refused - refused,
            seconds=took,
            latencies_s=Latencies(sorted(self._latencies)),
            generator_s=used,
        )

    def _all_answered(self, patience_s: float) -> None:
        if self.open and not self.work.ended:
            raise GantryError(f"{self.open} requests were not answered within {patience_s:.0f} s.")

    def _begin(self) -> None:
        self._sending = True
        now = perf_counter()
        if self.per_second is None:
            for lane in self._lanes:
                self._send(lane, [frame for slot in lane.slots if (frame := self._next(slot, now))])
        else:
            self._idle, self._due_s = deque(range(len(self._sent_s))), now

    def _begin_due(self, per_second: float) -> None:
        """Begin what is due by now; what finds no idle slot waits for one."""
        now = perf_counter()
        while self._due_s <= now and self._idle:
            slot = self._idle.popleft()
            frame = self._next(slot, self._due_s)
            if frame is not None:
                self._send(self._lanes[slot // self._outstanding], [frame])
            self._due_s += 1 / per_second

    def _next(self, slot: int, now_s: float) -> bytes | bytearray | None:
        frame = self.work.first(slot)
        if frame is not None:
            self.open += 1
            self._sent_s[slot] = now_s
        return frame

    def _turn_until(self, end_s: float) -> None:
        """Serve the sockets until then, or until no answer is due and none will be."""
        lanes, poll, work = self._by_number, self._poll.poll, self.work
        pace = self.per_second if self._sending else None
        while (self.open or pace) and not work.ended and (left := end_s - perf_counter()) > 0:
            if self._stop.is_set():
                raise GantryError("The load was stopped.")
            if pace:
                self._begin_due(pace)
            for descriptor, _ in poll(min(left, PACE_S if pace else 0.5)):
                lane = lanes[descriptor]
                self._readable(lane)
                while self._trust is not None and lane.socket.has_more:  # type: ignore[union-attr]
                    self._readable(lane)

    def _readable(self, lane: Lane) -> None:
        """Bytes came; slots whose answers are whole go on."""
        try:
            filled = lane.filled
            got = lane.socket.recv_into(lane.view[filled:] if filled else lane.view)
        except BlockingIOError:
            return  # TLS has nothing for us yet
        except OSError as error:
            raise GantryError(f"A server ended a connection under load: {error}.") from error
        if not got:
            raise GantryError("A server closed a connection under load.")
        at, end, size = 0, filled + got, 0
        out, now = [], perf_counter()
        while end - at >= _PREFIX.size:
            length, word = _PREFIX.unpack_from(lane.buffer, at)
            header = at + _PREFIX.size
            header_end, stop = header + (word & _HEADER_LENGTH_MASK), at + length + _LENGTH_BYTES
            if word >> 24 or not header_end <= stop <= at + MAX_FRAME_BYTES:
                raise FrameError(f"The answer is no frame with a JSON header (length {length}).")
            if stop > end:
                size = stop - at
                break
            try:
                reply = decode_reply(lane.view[header:header_end])
            except msgspec.MsgspecError as error:
                raise FrameError(f"The answer's header cannot be read: {error}.") from error
            frame = self._answered(lane, reply, lane.view[header_end:stop], now)
            if frame is not None:
                out.append(frame)
            if self.work.woken:
                out += self._woken(now)
            at = stop
        if at == end:
            lane.filled = 0
        else:
            lane.keep(at, end, size)
        self._send(lane, out)

    def _answered(
        self, lane: Lane, reply: Reply, body: memoryview, now: float
    ) -> bytes | bytearray | None:
        """The slot's next frame, if it goes on at once."""
        work, slot = self.work, reply.opaque
        if slot not in lane.slots or self._sent_s[slot] == NOT_OPEN:
            raise FrameError(f"The answer is to request {slot}, which is not under way.")
        if reply.code in work.codes:
            self._done += 1
            self._received += len(body)
            if self._recording:
                self._latencies.append(now - self._sent_s[slot])
            frame = work.following(slot, reply, body)
        else:
            self._refusal(reply)
            frame = work.first(slot)
        if frame is not None and self._sending and self.per_second is None:
            self._sent_s[slot] = now
            return frame
        self.open -= 1
        self._sent_s[slot] = NOT_OPEN
        if self.per_second is not None:
            self._idle.append(slot)
        return None

    def _woken(self, now_s: float) -> list[bytes | bytearray]:
        """The frames of slots that have work again; later all slots are asked anyway."""
        slots, self.work.woken = self.work.woken, ()
        if not self._sending:
            return []
        idle = [slot for slot in slots if self._sent_s[slot] == NOT_OPEN]
        return [frame for slot in idle if (frame := self._next(slot, now_s)) is not None]

    def _send(self, lane: Lane, frames: list[bytes | bytearray]) -> None:
        if not frames:
            return
        try:
            lane.socket.sendall(frames[0] if len(frames) == 1 else b"".join(frames))
        except OSError as error:
            raise GantryError(f"A server takes no more requests: {error}.") from error

    def _refusal(self, reply: Reply) -> None:
        self._refused += 1
        few = self.work.refusals
        if self._refused > (max(few, self._done // 100) if few else 0):
            try:
                meaning = ResponseCode(reply.code).name
            except ValueError:
                meaning = "an unknown code"
            raise GantryError(
                f"The server refused {self._refused} of {self._done + self._refused} requests, "
                f"last with {reply.code} ({meaning}: {reply.remark}); nothing was measured."
            )
