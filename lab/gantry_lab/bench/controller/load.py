"""The load generator: a few connections, each with a few requests outstanding, and nothing else.

It runs in the process that prints the figures and shares the machine's processors with what it
measures; its own share is printed beside them. So there is no task, no future and no timer per
request: an answer is followed by the next request of its slot, and all that one wake-up made is
written at once. Rule protected: an answer that is not the expected one ends the measurement with a
sentence; a figure never counts a refusal as work done.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Protocol, cast

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import FrameError, GantryError
from gantry_protocol.hosts import split_address

from gantry_lab.bench.controller.wire import take_replies
from gantry_lab.bench.figures import Latencies, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_lab.bench.controller.wire import Reply

ANSWER_PATIENCE_S = 15.0  # longer than any controller here leaves a request unanswered
CONNECT_PATIENCE_S = 5.0
PACE_S = 0.002  # between two looks at what a paced load has to send


class Work(Protocol):
    """What the slots of a load send."""

    codes: frozenset[int]
    """Answers that mean done."""

    def first(self, slot: int) -> bytes | None:
        """The frame a slot begins (or goes on) with, its `opaque` being the slot's number."""

    def following(self, slot: int) -> bytes | None:
        """The frame after an answer; None if the slot has nothing left to do."""


class Load:
    """Connections to `addresses` in turn, each with its slots; ``close`` them in the end.

    Args:
        work: what the slots send.
        connections: how many.
        outstanding: slots per connection.
        per_second: None sends whenever an answer came; else so many requests are begun per second,
            and latency counts from the time a request was due.
    """

    def __init__(
        self,
        work: Work,
        *,
        connections: int,
        outstanding: int = 1,
        per_second: float | None = None,
    ) -> None:
        self.work = work
        self.slots = connections * outstanding
        self.sent_at = [0.0] * self.slots
        self.latencies: list[float] = []
        self.recording = False
        self.sending = False
        self.open = 0  # requests without an answer
        self._connections = connections
        self._outstanding = outstanding
        self.per_second = per_second
        self._lanes: list[Lane] = []
        self._idle: list[int] = []  # slots of a paced load that wait for their turn
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done = asyncio.Event()

    async def connect(self, addresses: Sequence[str]) -> None:
        """Open the connections.

        Raises:
            GantryError: one cannot be opened.
        """
        loop = asyncio.get_running_loop()
        for number in range(self._connections):
            host, port = split_address(addresses[number % len(addresses)])
            lane = Lane(self, range(number * self._outstanding, (number + 1) * self._outstanding))
            try:
                async with asyncio.timeout(CONNECT_PATIENCE_S):
                    await loop.create_connection(lambda lane=lane: lane, host, port)  # type: ignore[misc]
            except (OSError, TimeoutError) as error:
                raise GantryError(f"No connection to {host}:{port}: {error}.") from error
            self._lanes.append(lane)

    def close(self) -> None:
        """End the connections."""
        self.sending = False
        if self._failed.done() and not self._failed.cancelled():
            self._failed.exception()  # whoever measured has raised it, or did not come that far
        for lane in self._lanes:
            lane.close()

    async def finish(self, patience_s: float) -> None:
        """Let every slot work until it has nothing left to do.

        Raises:
            GantryError: an answer was wrong or did not come.
        """
        self._start()
        if self.open:
            await self._wait_for_end(patience_s)

    async def window(self, warmup_s: float, seconds: float, at_edge: Callable[[], None]) -> Window:
        """Work; count what is answered within `seconds` after `warmup_s`; wait for the rest.

        Args:
            warmup_s: before it is counted.
            seconds: how long is counted.
            at_edge: called when the counting begins and when it ends.

        Raises:
            GantryError: an answer was wrong or did not come.
        """
        self._start()
        await self._pass(warmup_s)
        gc.collect()
        gc.disable()
        try:
            at_edge()
            self.latencies.clear()
            self.recording = True
            begun, used = perf_counter(), process_time()
            await self._pass(seconds)
            self.recording = False
            took, used = perf_counter() - begun, process_time() - used
            at_edge()
        finally:
            gc.enable()
        latencies = Latencies(sorted(self.latencies))
        await self.drain()
        return Window(
            operations=len(latencies), seconds=took, latencies_s=latencies, generator_s=used
        )

    async def drain(self) -> None:
        """Begin nothing more; until every request is answered."""
        self.sending = False
        if self.open:
            self._done.clear()  # a paced load is without open requests now and then
            await self._wait_for_end(ANSWER_PATIENCE_S)

    def fail(self, error: Exception) -> None:
        """The measurement is over."""
        self.sending = False
        if not self._failed.done():
            self._failed.set_exception(error)
        self._done.set()

    def ended(self, slot: int) -> None:
        """A slot got its answer and sends nothing more for now."""
        if self.sending and self.per_second is not None:
            self._idle.append(slot)
        if not self.open:
            self._done.set()

    # ---- inside

    def _start(self) -> None:
        self.sending = True
        self._done.clear()
        if self.per_second is None:
            for lane in self._lanes:
                lane.begin(lane.slots)
        else:
            self._idle = list(range(self.slots))
            self._pace(perf_counter())

    def _pace(self, due: float) -> None:
        """Begin what is due by now."""
        assert self.per_second is not None
        if not self.sending:
            return
        now = perf_counter()
        while due <= now and self._idle:
            slot = self._idle.pop(0)
            self._lanes[slot // self._outstanding].begin((slot,), due)
            due += 1 / self.per_second
        asyncio.get_running_loop().call_later(PACE_S, self._pace, due)

    async def _pass(self, seconds: float) -> None:
        await asyncio.wait([self._failed], timeout=seconds)
        self._raise()

    async def _wait_for_end(self, patience_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._done.wait()
        self._raise()
        if self.open:
            self.sending = False
            raise GantryError(
                f"{self.open} requests were not answered within {patience_s:.0f} s; nothing was "
                "measured."
            )

    def _raise(self) -> None:
        if self._failed.done():
            self._failed.result()


class Lane(asyncio.Protocol):
    """One connection of a load."""

    def __init__(self, load: Load, slots: range) -> None:
        self.slots = slots
        self._load = load
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The controller is gone."""
        if not self._closing and (self._load.sending or self._load.open):
            why = "closed" if exc is None else str(exc)
            self._load.fail(GantryError(f"A controller ended a connection under load: {why}."))

    def close(self) -> None:
        """End the connection."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def begin(self, slots: Sequence[int], due: float | None = None) -> None:
        """Send the first request of these slots."""
        load, out = self._load, []
        now = perf_counter() if due is None else due
        for slot in slots:
            frame = load.work.first(slot)
            if frame is not None:
                load.sent_at[slot] = now
                out.append(frame)
        load.open += len(out)
        if out and self._transport is not None:
            self._transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        """Answers: each is followed by its slot's next request."""
        load = self._load
        try:
            replies, self._rest = take_replies(self._rest + data if self._rest else data)
        except FrameError as error:
            load.fail(error)
            return
        work, sent_at, now, out = load.work, load.sent_at, perf_counter(), []
        for reply in replies:
            slot = reply.opaque
            if reply.code not in work.codes or slot not in self.slots:
                load.fail(_wrong(reply))
                return
            if load.recording:
                load.latencies.append(now - sent_at[slot])
            frame = work.following(slot)
            if frame is None or not load.sending or load.per_second is not None:
                load.open -= 1
                load.ended(slot)
            else:
                sent_at[slot] = now
                out.append(frame)
        if out and self._transport is not None:
            self._transport.write(b"".join(out))


def _wrong(reply: Reply) -> GantryError:
    try:
        meaning = ResponseCode(reply.code).name
    except ValueError:
        meaning = "an unknown code"
    return GantryError(
        f"A controller answered {reply.code} ({meaning}: {reply.remark}) to request "
        f"{reply.opaque}; nothing was measured."
    )
