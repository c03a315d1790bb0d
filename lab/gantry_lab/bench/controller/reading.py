"""Reads at the leader, by a lease, and at followers: what they spare it, what writes notice.

Rule protected: a mode is measured by the controllers' own count of reads in it, not by having asked
for it; where most reads were answered otherwise there is no figure.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench.controller.throughput import prepare, writers
from gantry_lab.bench.controller.work import Reads
from gantry_lab.bench.load import FrameLoad

if TYPE_CHECKING:
    from gantry_lab.bench.controller.quorum import ProcessQuorum
    from gantry_lab.bench.controller.target import Controllers
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

LEASE_PATIENCE_S = 10.0
ASK_S = 0.05
FIRST_WRITER = 1000  # the writers' groups are not the readers'
WRITERS, WRITES_PER_S = 64, 1000.0


async def at_leader(stage: BenchStage, connections: int, outstanding: int) -> Runs:
    """GetReplicaInfo (1004) at the leader, over as many groups as there are clients."""
    async with stage.controllers() as target:
        return await _reads(stage, target, connections, outstanding)


async def by_lease(stage: BenchStage, connections: int, outstanding: int) -> Runs:
    """The same at a leader that reads by its lease.

    Raises:
        GantryError: the lease did not become valid, or reads were not answered by it.
    """
    async with stage.quorum() as quorum:
        status = await quorum.admin("PUT", "/v1/quorum/lease", {"enabled": True})
        if status != 200:
            raise GantryError(f"PUT /v1/quorum/lease was answered with {status}.")
        deadline = asyncio.get_running_loop().time() + LEASE_PATIENCE_S
        while True:
            view = await quorum.view(quorum.leading)
            if view is not None and view.lease is not None and view.lease.valid:
                break
            if asyncio.get_running_loop().time() > deadline:
                raise GantryError(f"No lease became valid within {LEASE_PATIENCE_S:.0f} s.")
            await asyncio.sleep(ASK_S)
        before = await _by_mode(quorum, [quorum.leading])
        found = await _reads(stage, quorum, connections, outstanding)
        _most(before, await _by_mode(quorum, [quorum.leading]), "lease")
        return found


async def at_followers(stage: BenchStage, connections: int, outstanding: int) -> Runs:
    """GetReplicaInfo (1004) at the followers; beside it, at the leader, and writes under a storm.

    Raises:
        GantryError: followers passed reads on instead of answering them.
    """
    async with stage.quorum() as quorum:
        await prepare(quorum, range(connections))
        leader = await quorum.leader()
        others = [item for item in await quorum.members() if item != leader]
        followers = [node for node in quorum.nodes if quorum.address(node) != leader]
        work = Reads(connections * outstanding, connections)
        with (
            closing(FrameLoad(work, [leader], connections, outstanding)) as led,
            closing(FrameLoad(work, others, connections, outstanding)) as storm,
            closing(await writers(quorum, WRITERS, first=FIRST_WRITER)) as writing,
        ):
            writing.per_second = WRITES_PER_S

            async def once() -> dict[str, float]:
                before = await _by_mode(quorum, followers)
                found = await stage.window(quorum, storm)
                _most(before, await _by_mode(quorum, followers), "follower")
                at_leader = await stage.window(quorum, led)
                spared = 1 - found["leader_cpu_us"] / at_leader["leader_cpu_us"]
                kept = await _kept(stage, quorum, writing, storm)
                return found | {"spared_percent": 100 * spared, "writes_kept_percent": kept}

            return await stage.repeat(once)


async def _reads(
    stage: BenchStage, target: Controllers, connections: int, outstanding: int
) -> Runs:
    await prepare(target, range(connections))
    work = Reads(connections * outstanding, connections)
    with closing(FrameLoad(work, [await target.leader()], connections, outstanding)) as load:
        return await stage.repeat(lambda: stage.window(target, load))


async def _kept(
    stage: BenchStage, quorum: ProcessQuorum, writing: FrameLoad, storm: FrameLoad
) -> float:
    """Percent of the writes per second that are left while followers are asked all they can."""
    alone = await stage.window(quorum, writing)
    _, under = await asyncio.gather(
        storm.window(0.0, stage.wish.seconds + 2 * stage.wish.warmup_s),
        stage.window(quorum, writing),
    )
    return 100 * under["ops_per_s"] / alone["ops_per_s"]


async def _by_mode(quorum: ProcessQuorum, nodes: list[int]) -> dict[str, float]:
    """Reads so far, by what made them linearizable."""
    found: dict[str, float] = {}
    for node in nodes:
        for mode, count in (await quorum.counts(node, "reads_total", "mode")).items():
            found[mode] = found.get(mode, 0.0) + count
    return found


def _most(before: dict[str, float], after: dict[str, float], mode: str) -> None:
    grown = {item: count - before.get(item, 0.0) for item, count in after.items()}
    if grown.get(mode, 0.0) < 0.9 * max(sum(grown.values()), 1.0):
        raise GantryError(f"Most reads were not answered by {mode}: {grown}.")
