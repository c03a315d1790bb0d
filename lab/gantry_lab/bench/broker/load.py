"""The load generator: connections with one request outstanding each, and nothing else.

It shares the processors with the broker that it measures, so there is no event loop, task or future
per request: one thread waits for all sockets at once, reads an answer into a buffer that is kept,
and writes the connection's next frame. What that costs is measured, too, and printed. Rule
protected: only an answer of code 0 counts as work done, and every answer's code and `opaque` are
read. What it refuses: to go on when answers are refusals more often than now and then.
"""

from __future__ import annotations

import asyncio
import gc
import select
import socket
import struct
from threading import Event
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Protocol

import msgspec
from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import FrameError, GantryError
from gantry_protocol.frame import MAX_FRAME_BYTES
from gantry_protocol.hosts import split_address

from gantry_lab.bench import figures
from gantry_lab.bench.broker.frames import Reply, decode_reply
from gantry_lab.bench.figures import Latencies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ANSWER_PATIENCE_S = 15.0
CONNECT_PATIENCE_S = 5.0
REFUSALS_FEW = 100  # more than these, and more than one in a hundred, end the measurement
BUFFER_BYTES = 64 * 1024
_PREFIX = struct.Struct(">iI")
_LENGTH_BYTES = 4
_HEADER_LENGTH_MASK = 0xFFFFFF
_SEND_TIMEOUT = struct.pack("@ll", int(ANSWER_PATIENCE_S), 0)  # SO_SNDTIMEO takes a timeval


class Work(Protocol):
    """What the lanes of a load ask for.

    Attributes:
        messages: that answers of code 0 stand for, so far.
    """

    messages: int

    def first(self, lane: int) -> bytearray | None:
        """The frame a lane begins with, or repeats after a refusal; None if it has none."""

    def following(self, lane: int, reply: Reply, body: memoryview) -> bytearray | None:
        """Judge an answer of code 0; the next frame, or None if the lane has nothing left to do.

        Raises:
            GantryError: the answer is not what was asked for.
        """

    def opaque(self, lane: int) -> int:
        """Of the frame the lane made last."""


class Window(figures.Window, frozen=True, kw_only=True):
    """What was seen while it was counted; operations are answers of code 0.

    Attributes:
        messages: in those.
        received_bytes: of all answers.
        refused: answers with another code.
    """

    messages: int
    received_bytes: int
    refused: int


class Lane:
    """One connection, which waits for at most one answer."""

    __slots__ = ("buffer", "filled", "number", "sent_s", "socket", "view")

    def __init__(self, number: int, connected: socket.socket) -> None:
        self.number = number
        self.socket = connected
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = 0
        self.sent_s = 0.0

    def grow(self, size: int) -> None:
        """Make room for an answer of `size` bytes."""
        larger = bytearray(2 * size)
        larger[: self.filled] = self.view[: self.filled]
        self.buffer, self.view = larger, memoryview(larger)


class Load:
    """`connections` lanes on `addresses` in turn; ``close`` them in the end.

    Its methods run in a thread of their own, one at a time.
    """

    def __init__(self, work: Work, addresses: Sequence[str], connections: int) -> None:
        """Connect.

        Raises:
            GantryError: a connection cannot be opened.
        """
        self.work = work
        self.open = 0  # requests without an answer
        self._lanes: dict[int, Lane] = {}
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
        connected.settimeout(None)  # a time-out would cost a system call per read
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lanes[connected.fileno()] = Lane(number, connected)
        self._poll.register(connected.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """End the connections."""
        self._stop.set()
        for lane in self._lanes.values():
            lane.socket.close()
        self._poll.close()

    async def window(self, warmup_s: float, seconds: float, at_edge: Callable[[], None]) -> Window:
        """Work; count what is answered within `seconds` after `warmup_s`; wait for the rest.

        Args:
            warmup_s: before it is counted.
            seconds: how long is counted.
            at_edge: called when the counting begins and when it ends, in the generator's thread.

        Raises:
            GantryError: an answer was wrong or did not come.
        """
        return await self._aside(lambda: self._window(warmup_s, seconds, at_edge))

    async def finish(self, patience_s: float, at_edge: Callable[[], None]) -> Window:
        """Let every lane work until it has nothing left to do; all of it is counted.

        Raises:
            GantryError: an answer was wrong or did not come in time.
        """
        return await self._aside(lambda: self._counted(patience_s, at_edge, ends=False))

    async def _aside(self, action: Callable[[], Window]) -> Window:
        """In a thread; cancelled, it ends the thread before anything else happens."""
        running = asyncio.create_task(asyncio.to_thread(action))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.gather(running, return_exceptions=True)  # it says that it was stopped
            raise

    # ---- in the thread

    def _window(self, warmup_s: float, seconds: float, at_edge: Callable[[], None]) -> Window:
        self._begin()
        self._turn_until(perf_counter() + warmup_s)
        found = self._counted(seconds, at_edge, ends=True)
        self._sending = False
        self._turn_until(perf_counter() + ANSWER_PATIENCE_S)
        if self.open:
            raise GantryError(
                f"{self.open} requests were not answered within {ANSWER_PATIENCE_S:.0f} s."
            )
        return found

    def _counted(self, seconds: float, at_edge: Callable[[], None], *, ends: bool) -> Window:
        """Count from now on, for `seconds`, or until nothing is left to do."""
        gc.collect()
        gc.disable()
        try:
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
        finally:
            gc.enable()
        if not ends and self.open:
            raise GantryError(f"{self.open} requests were not answered within {seconds:.0f} s.")
        return Window(
            operations=len(self._latencies),
            messages=self.work.messages - messages,
            received_bytes=self._received - received,
            refused=self._refused - refused,
            seconds=took,
            latencies_s=Latencies(sorted(self._latencies)),
            generator_s=used,
        )

    def _begin(self) -> None:
        self._sending = True
        now = perf_counter()
        for lane in self._lanes.values():
            frame = self.work.first(lane.number)
            if frame is not None:
                self.open += 1
                lane.sent_s = now
                lane.socket.sendall(frame)

    def _turn_until(self, end_s: float) -> None:
        """Serve the sockets until then, or until no answer is due."""
        lanes, poll = self._lanes, self._poll.poll
        while self.open and (left := end_s - perf_counter()) > 0:
            if self._stop.is_set():
                raise GantryError("The load was stopped.")
            for descriptor, _ in poll(min(left, 0.5)):
                self._readable(lanes[descriptor])

    def _readable(self, lane: Lane) -> None:
        """Bytes came; with an answer that is whole, the lane goes on."""
        try:
            filled = lane.filled
            got = lane.socket.recv_into(lane.view[filled:] if filled else lane.view)
        except OSError as error:
            raise GantryError(f"A broker ended a connection under load: {error}.") from error
        if not got:
            raise GantryError("A broker closed a connection under load.")
        lane.filled = filled = filled + got
        if filled < _PREFIX.size:
            return
        length, word = _PREFIX.unpack_from(lane.buffer)
        header_end = _PREFIX.size + (word & _HEADER_LENGTH_MASK)
        end = length + _LENGTH_BYTES
        if word >> 24 or not header_end <= end <= MAX_FRAME_BYTES:
            raise FrameError(f"The answer is no frame with a JSON header (length {length}).")
        if filled < end:
            if end > len(lane.buffer):
                lane.grow(end)
            return
        if filled > end:
            raise FrameError("An answer came that nobody had asked for.")
        lane.filled = 0
        try:
            reply = decode_reply(lane.view[_PREFIX.size : header_end])
        except msgspec.MsgspecError as error:
            raise FrameError(f"The answer's header cannot be read: {error}.") from error
        self._answered(lane, reply, lane.view[header_end:end])

    def _answered(self, lane: Lane, reply: Reply, body: memoryview) -> None:
        work, number = self.work, lane.number
        if reply.opaque != work.opaque(number):
            raise FrameError(f"The answer is to request {reply.opaque}, which is not the last.")
        now = perf_counter()
        if reply.code == 0:
            self._done += 1
            self._received += len(body)
            if self._recording:
                self._latencies.append(now - lane.sent_s)
            frame = work.following(number, reply, body)
        else:
            self._refusal(reply)
            frame = work.first(number)
        if frame is None or not self._sending:
            self.open -= 1
            return
        lane.sent_s = now
        try:
            lane.socket.sendall(frame)
        except OSError as error:
            raise GantryError(f"A broker takes no more requests: {error}.") from error

    def _refusal(self, reply: Reply) -> None:
        self._refused += 1
        if self._refused > max(REFUSALS_FEW, self._done // 100):
            try:
                meaning = ResponseCode(reply.code).name
            except ValueError:
                meaning = "an unknown code"
            raise GantryError(
                f"The broker refused {self._refused} of {self._done + self._refused} requests, "
                f"last with {reply.code} ({meaning}: {reply.remark}); nothing was measured."
            )
