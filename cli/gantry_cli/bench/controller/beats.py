"""Heartbeats of many brokers: each replica speaks once per second, to every controller.

Brokers beyond the number of connections share some: a controller's connections are bounded, and so
are ours. What a tick owes on one connection is joined beforehand, so that the generator only
writes. Rule protected: a generator that falls behind says so, and nothing is measured by it.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import split_address

from gantry_cli.bench.controller import wire
from gantry_cli.bench.controller.work import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY_S = 1.0
TICKS = 100  # per second; each speaks for that share of the replicas
BEHIND_MAX_S = 1.0  # a whole round
TIMEOUT_MS = 10_000  # upstream's default


class Beats:
    """Use as an async context manager.

    Args:
        groups: whose replicas beat.
        replicas: of each group.
        connections: to the leader; the others get the same on `FEW`, to spare the generator.
    """

    FEW = 16

    def __init__(self, groups: Sequence[int], *, replicas: int, connections: int) -> None:
        frames = [
            wire.heartbeat(0, group, broker_id, NOWHERE, timeout_ms=TIMEOUT_MS)
            for group in groups
            for broker_id in range(1, replicas + 1)
        ]
        self._frames = frames
        self._connections = connections
        self._lanes: list[tuple[list[asyncio.WriteTransport], list[list[bytes]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._behind_s = 0.0  # at the last tick

    async def connect(self, leader: str, members: Sequence[str]) -> None:
        """Open the connections.

        Raises:
            OSError: a controller does not take them.
        """
        loop = asyncio.get_running_loop()
        for address in members:
            host, port = split_address(address)
            count = self._connections if address == leader else self.FEW
            lanes: list[asyncio.WriteTransport] = []
            self._lanes.append((lanes, share_out(self._frames, count)))
            for _ in range(count):
                transport, _protocol = await loop.create_connection(asyncio.Protocol, host, port)
                lanes.append(transport)

    def start(self) -> None:
        """Begin to beat."""
        self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        """Cease; the connections stay.

        Raises:
            GantryError: the generator could not keep up.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._behind_s > BEHIND_MAX_S:
            raise GantryError(
                f"The heartbeats leave {self._behind_s:.1f} s late; this machine cannot send more."
            )

    async def close(self) -> None:
        """Cease, and end the connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for lane in (lane for lanes, _ in self._lanes for lane in lanes):
            lane.abort()

    async def _beat(self) -> None:
        tick, begun = 0, perf_counter()
        while True:
            for lanes, slices in self._lanes:
                for lane, data in zip(lanes, slices[tick % TICKS], strict=True):
                    if data:
                        lane.write(data)
            tick += 1
            left_s = begun + tick * EVERY_S / TICKS - perf_counter()
            self._behind_s = -left_s
            await asyncio.sleep(max(left_s, 0))


def share_out(frames: Sequence[bytes], connections: int) -> list[list[bytes]]:
    """What leaves at each tick on each connection; a frame has its tick and its connection."""
    slices = [[bytearray() for _ in range(connections)] for _ in range(TICKS)]
    for number, frame in enumerate(frames):
        slices[number // connections % TICKS][number % connections] += frame
    return [[bytes(data) for data in tick] for tick in slices]
