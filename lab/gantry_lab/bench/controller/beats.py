"""Heartbeats of many brokers: each replica speaks once per second, to every controller.

Each replica has a phase of its own in that second, drawn once: real brokers started independently
of each other, so their beats come neither in step nor at equal distances. Brokers beyond the number
of connections share some: a controller's connections are bounded, and so are ours. What a tick owes
on one connection is joined beforehand, so that the generator only writes. Rule protected: when the
generator falls behind, or a controller does not take what is sent, that is said, and nothing is
measured by it.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import split_address

from gantry_lab.bench.controller.throughput import THREE, prepare, writers
from gantry_lab.bench.controller.work import NOWHERE, heartbeat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from gantry_lab.bench.controller.target import Controllers
    from gantry_lab.bench.load import FrameLoad
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

EVERY_S = 1.0
TICKS = 500  # per round; each speaks for the replicas whose phase it is
BEHIND_MAX_S = 1.0  # a whole round
TIMEOUT_MS = 10_000  # upstream's default
PHASES_SEED = 1  # the same phases in each run
FRAMES_PER_TURN = 500  # made while others beat; about 5 ms
CONNECT_PATIENCE_S = 30.0
CONNECTIONS = 1000  # to the leader: ten brokers share one
SETTLE_S = 2.0
WRITES_PER_S = 1000.0  # of the paced load that heartbeats must not delay

Slice = list[tuple[int, bytes]]
"""What leaves at one tick: on which connection, and the frames."""


class Beats:
    """Use as an async context manager; nobody beats before `speak_for` and `start`.

    Args:
        first: the first group whose replicas beat.
        replicas: of each group.
        connections: to the leader; the others get the same on `FEW`, to spare the generator.

    Attributes:
        rounds: what leaves at each tick of a round, by the number of connections.
    """

    FEW = 16

    def __init__(self, first: int, *, replicas: int, connections: int) -> None:
        self._first = first
        self._ids = range(1, replicas + 1)
        self._connections = connections
        self._frames: list[bytes] = []
        self._phases: list[int] = []
        self._draw = Random(PHASES_SEED).randrange  # noqa: S311 - phases, no secrets
        self.rounds: dict[int, list[Slice]] = {}
        self._lanes: list[list[asyncio.WriteTransport]] = []  # of each controller
        self._round_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._behind_s = 0.0  # at the last tick

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cease()
        for lane in (lane for lanes in self._lanes for lane in lanes):
            lane.abort()

    async def connect(self, leader: str, members: Sequence[str]) -> None:
        """Open the connections.

        Raises:
            GantryError: a controller does not take them.
        """
        loop = asyncio.get_running_loop()
        for address in members:
            count = self._connections if address == leader else self.FEW
            lanes: list[asyncio.WriteTransport] = []
            self._lanes.append(lanes)
            host, port = split_address(address)
            try:
                async with asyncio.timeout(CONNECT_PATIENCE_S):
                    for _ in range(count):
                        lane, _protocol = await loop.create_connection(asyncio.Protocol, host, port)
                        lanes.append(lane)
            except (OSError, TimeoutError) as error:
                raise GantryError(
                    f"{address} does not take {count} connections for heartbeats: {error}."
                ) from error

    async def speak_for(self, groups: int) -> None:
        """From now on so many groups' replicas beat; those who did keep their phases."""
        wanted = groups * len(self._ids)
        for number in range(len(self._frames), wanted):
            if number % FRAMES_PER_TURN == 0:
                await asyncio.sleep(0)  # beats go on meanwhile
            group, replica = divmod(number, len(self._ids))
            self._frames.append(
                heartbeat(
                    0, self._first + group, self._ids[replica], NOWHERE, timeout_ms=TIMEOUT_MS
                )
            )
            self._phases.append(self._draw(TICKS))
        frames = self._frames[:wanted]
        self._round_bytes = sum(map(len, frames))
        self.rounds = {
            count: share_out(frames, self._phases, count) for count in {self._connections, self.FEW}
        }

    def start(self) -> None:
        """Begin to beat."""
        self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        """Cease; the connections stay.

        Raises:
            GantryError: see `check`.
        """
        try:
            self.check()
        finally:
            await self._cease()

    def check(self) -> None:
        """See the module.

        Raises:
            GantryError: the generator does not keep up, or a controller, or a connection ended.
        """
        if self._task is not None and self._task.done():
            raise GantryError(f"The heartbeats ended: {self._task.exception()}")
        if self._behind_s > BEHIND_MAX_S:
            raise GantryError(
                f"The heartbeats leave {self._behind_s:.1f} s late; this machine cannot send more."
            )
        unsent = max(sum(lane.get_write_buffer_size() for lane in lanes) for lanes in self._lanes)
        if unsent > self._round_bytes:
            raise GantryError("A controller is more than a second behind with the heartbeats.")

    # ---- inside

    async def _cease(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _beat(self) -> None:
        tick, begun = 0, perf_counter()
        while True:
            for lanes in self._lanes:
                for number, data in self.rounds[len(lanes)][tick % TICKS]:
                    if lanes[number].is_closing():
                        raise GantryError("a controller ended a connection.")
                    lanes[number].write(data)
            tick += 1
            left_s = begun + tick * EVERY_S / TICKS - perf_counter()
            self._behind_s = -left_s
            await asyncio.sleep(max(left_s, 0))


def share_out(frames: Sequence[bytes], phases: Sequence[int], connections: int) -> list[Slice]:
    """The frames of each tick; a frame has its phase and keeps its connection.

    On many connections, those who share one have phases of their own, as the brokers behind them
    would. On few, the beats of one tick share one, so that they cost the generator one write.
    """
    ticks: list[dict[int, bytearray]] = [{} for _ in range(TICKS)]
    for number, (frame, tick) in enumerate(zip(frames, phases, strict=False)):
        connection = (number if connections >= TICKS else tick) % connections
        ticks[tick].setdefault(connection, bytearray()).extend(frame)
    return [[(connection, bytes(data)) for connection, data in tick.items()] for tick in ticks]


async def beside_writes(
    stage: BenchStage, brokers: int, connections: int, outstanding: int
) -> Runs:
    """So many replicas that beat each second: the leader's CPU, and what writes notice of them.

    There are as many writers as begin a write within a second: with fewer, a short pause would
    leave none that is idle, and the writes that become due would wait for that.
    """
    first, groups = connections * outstanding, brokers // THREE + 1
    async with stage.controllers() as target:
        await prepare(target, range(first, first + groups), replicas=THREE)
        with closing(await writers(target, connections, outstanding)) as load:
            load.per_second = WRITES_PER_S
            async with Beats(first, replicas=THREE, connections=CONNECTIONS) as beats:
                await beats.connect(await target.leader(), await target.members())
                await beats.speak_for(groups)
                return await stage.repeat(lambda: _beaten(stage, target, load, beats))


async def _beaten(
    stage: BenchStage, target: Controllers, load: FrameLoad, beats: Beats
) -> dict[str, float]:
    alone = await stage.window(target, load)
    beats.start()
    await asyncio.sleep(SETTLE_S)
    before, begun = target.cpu_s(), perf_counter()
    await asyncio.sleep(stage.wish.seconds)
    after, took_s = target.cpu_s(), perf_counter() - begun
    beaten = await stage.window(target, load)
    await beats.stop()
    found = {"p99_ms": beaten["p99_ms"], "ratio": beaten["p99_ms"] / alone["p99_ms"]}
    if before is not None and after is not None:
        found["leader_cpu_percent"] = 100 * (after[0] - before[0]) / took_s
    return found
