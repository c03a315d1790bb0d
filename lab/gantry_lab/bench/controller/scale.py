"""What many groups and many brokers cost: throughput, heartbeats, restarts."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_lab.bench.controller.beats import Beats
from gantry_lab.bench.controller.throughput import (
    PREPARE_PATIENCE_S,
    REPLICAS,
    Shape,
    prepare,
    window,
)
from gantry_lab.bench.controller.work import Registrations, Scripts, SetChanges

if TYPE_CHECKING:
    from gantry_lab.bench.controller.load import Load
    from gantry_lab.bench.controller.target import Target
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.suite import Plan

THREE = 3  # replicas of a group
WRITERS = 64
WRITES_PER_S = 1000.0  # of the paced load that heartbeats must not delay
BROKERS = 10_000
BEAT_CONNECTIONS = 1000  # per controller: ten brokers share one
BEAT_SETTLE_S = 2.0
CALM = {"GANTRY_HEARTBEAT_TIMEOUT_MS": "600000"}  # groups without heartbeats: nobody is missed


async def ratio(few: Target, many: Target, groups: int, plan: Plan, shape: Shape) -> Runs:
    """Writes (1003) per second with `groups` groups, and with one; in turn, on two quorums.

    Both quorums were told to miss nobody, since the brokers of 100,000 groups do not beat here.
    """
    await prepare(few, range(1), replicas=THREE)
    await prepare(many, range(groups), replicas=THREE, registered=1)
    loads: list[Load] = []

    async def once() -> dict[str, float]:
        alone = await window(few, loads[0], plan)
        figures = await window(many, loads[1], plan)
        return figures | {"ratio": figures["ops_per_s"] / alone["ops_per_s"]}

    try:
        for target, count in ((few, 1), (many, groups)):
            load = shape.load(Registrations(shape.slots, count))
            loads.append(load)
            await load.connect([await target.leader()])
        return await plan.repeat(once)
    finally:
        for load in loads:
            load.close()


async def heartbeats(target: Target, plan: Plan, shape: Shape) -> Runs:
    """10,000 replicas that beat each second: the leader's CPU, and what writes notice of them.

    There are as many writers as begin a write within a second: with fewer, a short pause would
    leave none that is idle, and the writes that become due would wait for that.
    """
    writers = shape.slots
    groups = BROKERS // THREE + 1
    await prepare(target, range(writers, writers + groups), replicas=THREE)
    births = Scripts(writers, range(writers), replicas=REPLICAS, alive=True)
    load = shape.load(births)
    try:
        async with Beats(writers, replicas=THREE, connections=BEAT_CONNECTIONS) as beats:
            leader = await target.leader()
            await load.connect([leader])
            await load.finish(PREPARE_PATIENCE_S)
            load.work, load.per_second = SetChanges(writers), WRITES_PER_S
            await beats.connect(leader, await target.members())
            await beats.speak_for(groups)
            return await plan.repeat(partial(_beaten, target, load, beats, plan))
    finally:
        load.close()


async def _beaten(target: Target, load: Load, beats: Beats, plan: Plan) -> dict[str, float]:
    alone = await window(target, load, plan)
    beats.start()
    await asyncio.sleep(BEAT_SETTLE_S)
    before, begun = target.cpu_s(), perf_counter()
    await asyncio.sleep(plan.seconds)
    after, took_s = target.cpu_s(), perf_counter() - begun
    beaten = await window(target, load, plan)
    await beats.stop()
    figures = {
        "p99_ms": beaten["p99_ms"],
        "ratio": beaten["p99_ms"] / alone["p99_ms"],
        "generator_cpu_percent": beaten["generator_cpu_percent"],
    }
    if before is not None and after is not None:
        figures["leader_cpu_percent"] = 100 * (after[0] - before[0]) / took_s
    return figures
