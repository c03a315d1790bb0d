"""Reads by a lease and at followers: what they spare the leader, and what writes notice of them.

Rule protected: a mode is measured by the controllers' own count of reads in it, not by having asked
for it; where most reads were answered otherwise there is no figure.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench.controller.load import Load
from gantry_lab.bench.controller.scale import WRITERS, WRITES_PER_S
from gantry_lab.bench.controller.throughput import (
    PREPARE_PATIENCE_S,
    REPLICAS,
    Shape,
    prepare,
    reads,
    window,
)
from gantry_lab.bench.controller.work import Reads, Scripts, SetChanges

if TYPE_CHECKING:
    from gantry_lab.bench.controller.quorum import Quorum
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.suite import Plan

LEASE_PATIENCE_S = 10.0
ASK_S = 0.05
FIRST_WRITER = 1000  # the writers' groups are not the readers'


async def by_lease(quorum: Quorum, plan: Plan, shape: Shape) -> Runs:
    """1004 at a leader that reads by its lease.

    Raises:
        GantryError: the lease did not become valid, or reads were not answered by it.
    """
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
    found = await reads(quorum, plan, shape)
    _most(before, await _by_mode(quorum, [quorum.leading]), "lease")
    return found


async def at_followers(quorum: Quorum, plan: Plan, shape: Shape) -> Runs:
    """1004 at the followers; beside it, at the leader, and writes at a steady rate under a storm.

    Raises:
        GantryError: followers passed reads on instead of answering them.
    """
    groups = shape.connections
    await prepare(quorum, range(groups))
    leader = await quorum.leader()
    others = [one for one in await quorum.members() if one != leader]
    followers = [node for node in quorum.nodes if quorum.address(node) != leader]
    births = Scripts(
        WRITERS, range(FIRST_WRITER, FIRST_WRITER + WRITERS), replicas=REPLICAS, alive=True
    )
    work = Reads(shape.slots, groups)
    at_leader, storm = shape.load(work), shape.load(work)
    writing = Load(births, connections=WRITERS)

    async def once() -> dict[str, float]:
        before = await _by_mode(quorum, followers)
        figures = await window(quorum, storm, plan)
        _most(before, await _by_mode(quorum, followers), "follower")
        led = await window(quorum, at_leader, plan)
        spared = 1 - figures["leader_cpu_us"] / led["leader_cpu_us"]
        kept = await _kept(quorum, writing, storm, plan)
        return figures | {"spared_percent": 100 * spared, "writes_kept_percent": kept}

    try:
        await at_leader.connect([leader])
        await storm.connect(others)
        await writing.connect([leader])
        await writing.finish(PREPARE_PATIENCE_S)
        writing.work, writing.per_second = SetChanges(WRITERS, FIRST_WRITER), WRITES_PER_S
        return await plan.repeat(once)
    finally:
        for load in (at_leader, storm, writing):
            load.close()


async def _kept(quorum: Quorum, writing: Load, storm: Load, plan: Plan) -> float:
    """Percent of the writes per second that are left while followers are asked all they can."""
    alone = await window(quorum, writing, plan)
    _, under = await asyncio.gather(
        storm.window(0.0, plan.seconds + 2 * plan.warmup_s, lambda: None),
        window(quorum, writing, plan),
    )
    return 100 * under["ops_per_s"] / alone["ops_per_s"]


async def _by_mode(quorum: Quorum, nodes: list[int]) -> dict[str, float]:
    """Reads so far, by what made them linearizable."""
    found: dict[str, float] = {}
    for node in nodes:
        for mode, count in (await quorum.counts(node, "reads_total", "mode")).items():
            found[mode] = found.get(mode, 0.0) + count
    return found


def _most(before: dict[str, float], after: dict[str, float], mode: str) -> None:
    grown = {one: count - before.get(one, 0.0) for one, count in after.items()}
    if grown.get(mode, 0.0) < 0.9 * max(sum(grown.values()), 1.0):
        raise GantryError(f"Most reads were not answered by {mode}: {grown}.")
