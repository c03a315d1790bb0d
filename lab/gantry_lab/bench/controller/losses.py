"""The gap in which nobody can write after the leader was lost.

A client that has no better idea sends a write to every other controller each few milliseconds; the
gap ends when the first of them is answered as committed. So the figure has that grain, and it
contains the election, the new leader's first commit and the way through a follower. Each run begins
with a quorum that is whole. What it refuses: to count a write that was sent before the loss.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError, RemotingError
from gantry_protocol.remoting.client import RemotingClient

from gantry_lab.bench.controller import work
from gantry_lab.bench.controller.throughput import prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gantry_lab.bench.controller.quorum import ProcessQuorum
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

EVERY_S = 0.002  # between two tries
GAP_MAX_S = 30.0
GROUP = 0


class Survivors:
    """Connections to the controllers that will be left."""

    def __init__(self) -> None:
        self._clients: list[RemotingClient] = []
        self._tries = 0

    async def connect(self, addresses: Sequence[str]) -> None:
        """Open them.

        Raises:
            RemotingError: a controller does not take connections.
        """
        for address in addresses:
            client = RemotingClient()
            await client.connect(address)
            self._clients.append(client)

    def close(self) -> None:
        """End them."""
        for client in self._clients:
            client.close()

    async def first_write_s(self) -> float:
        """Seconds from this call to the first write that was sent since and is committed.

        Raises:
            GantryError: there is none within `GAP_MAX_S`.
        """
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[float] = loop.create_future()

        def answered(outcome: RemotingCommand | RemotingError) -> None:
            done = isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS
            if done and not committed.done():
                committed.set_result(perf_counter())

        begun = perf_counter()
        while not committed.done():
            if perf_counter() - begun > GAP_MAX_S:
                raise GantryError(f"No write was committed within {GAP_MAX_S:.0f} s.")
            for client in self._clients:
                client.call_nowait(self._write(), answered, GAP_MAX_S)
            await asyncio.wait([committed], timeout=EVERY_S)
        return committed.result() - begun

    def _write(self) -> RemotingCommand:
        """RegisterBroker (1003) at another address each time, so that each changes the group."""
        self._tries += 1
        ext = {
            "clusterName": work.CLUSTER,
            "brokerName": work.name(GROUP),
            "brokerId": "2",
            "brokerAddress": f"127.0.0.1:{1 + self._tries % 60_000}",
        }
        return request(RequestCode.CONTROLLER_REGISTER_BROKER, ext)


async def kills(stage: BenchStage) -> Runs:
    """SIGKILL; the leader comes back before the next one."""
    async with stage.quorum() as quorum:
        return await _losses(stage, quorum, quorum.kill, quorum.start)


async def stops(stage: BenchStage) -> Runs:
    """SIGSTOP: connections stay open, nothing is refused, only time tells."""
    async with stage.quorum() as quorum:

        async def pause(node: int) -> None:
            quorum.pause(node)

        async def resume(node: int) -> None:
            quorum.resume(node)

        return await _losses(stage, quorum, pause, resume)


async def _losses(
    stage: BenchStage,
    quorum: ProcessQuorum,
    lose: Callable[[int], Awaitable[None]],
    give_back: Callable[[int], Awaitable[None]],
) -> Runs:
    """Each run begins with a quorum that is whole."""
    await prepare(quorum, [GROUP])

    async def once() -> dict[str, float]:
        await quorum.settled()
        lost = quorum.leading
        others = [address for address in await quorum.members() if address != quorum.address(lost)]
        survivors = Survivors()
        try:
            await survivors.connect(others)
            await lose(lost)
            gap = {"gap_ms": 1000 * await survivors.first_write_s()}
        finally:
            survivors.close()
        await give_back(lost)
        return gap

    return await stage.repeat(once)
