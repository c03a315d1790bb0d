"""What many groups and many brokers cost: throughput, heartbeats, restarts."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_cli.bench.controller.beats import Beats
from gantry_cli.bench.controller.load import Load
from gantry_cli.bench.controller.throughput import (
    PREPARE_PATIENCE_S,
    REPLICAS,
    Plan,
    prepare,
    window,
)
from gantry_cli.bench.controller.work import Registrations, Scripts, SetChanges

if TYPE_CHECKING:
    from gantry_cli.bench.controller.target import Target

THREE = 3  # replicas of a group
WRITERS = 64
WRITES_PER_S = 1000.0  # of the paced load that heartbeats must not delay
BROKERS = 10_000
BEAT_CONNECTIONS = 1000  # per controller: ten brokers share one
BEAT_SETTLE_S = 2.0
CALM = {"GANTRY_HEARTBEAT_TIMEOUT_MS": "600000"}  # groups without heartbeats: nobody is missed


async def ratio(few: Target, many: Target, groups: int, plan: Plan) -> list[dict[str, float]]:
    """Writes (1003) per second with `groups` groups, and with one; in turn, on two quorums.

    Both quorums were told to miss nobody, since the brokers of 100,000 groups do not beat here.
    """
    await prepare(few, range(1), replicas=THREE)
    await prepare(many, range(groups), replicas=THREE, registered=1)
    found = []
    loads: list[Load] = []
    try:
        for target, count in ((few, 1), (many, groups)):
            work = Registrations(plan.shape.slots, count)
            load = Load(
                work, connections=plan.shape.connections, outstanding=plan.shape.outstanding
            )
            loads.append(load)
            await load.connect([await target.leader()])
        for _ in range(plan.runs):
            alone = await window(few, loads[0], plan)
            figures = await window(many, loads[1], plan)
            found.append(figures | {"ratio": figures["ops_per_s"] / alone["ops_per_s"]})
            plan.advance()
    finally:
        for load in loads:
            load.close()
    return found


async def heartbeats(target: Target, plan: Plan) -> list[dict[str, float]]:
    """10,000 replicas that beat each second: the leader's CPU, and what writes notice of them."""
    groups = range(WRITERS, WRITERS + BROKERS // THREE + 1)
    await prepare(target, groups, replicas=THREE)
    births = Scripts(WRITERS, range(WRITERS), replicas=REPLICAS, alive=True)
    load = Load(births, connections=WRITERS)
    beats = Beats(groups, replicas=THREE, connections=BEAT_CONNECTIONS)
    try:
        leader = await target.leader()
        await load.connect([leader])
        await load.finish(PREPARE_PATIENCE_S)
        load.work, load.per_second = SetChanges(WRITERS), WRITES_PER_S
        await beats.connect(leader, await target.members())
        return [await _beaten(target, load, beats, plan) for _ in range(plan.runs)]
    finally:
        load.close()
        await beats.close()


async def _beaten(target: Target, load: Load, beats: Beats, plan: Plan) -> dict[str, float]:
    alone = await window(target, load, plan)
    beats.start()
    await asyncio.sleep(BEAT_SETTLE_S)
    before, begun = target.cpu_s(), perf_counter()
    await asyncio.sleep(plan.seconds)
    after, took_s = target.cpu_s(), perf_counter() - begun
    beaten = await window(target, load, plan)
    await beats.stop()
    plan.advance()
    figures = {
        "p99_ms": beaten["p99_ms"],
        "ratio": beaten["p99_ms"] / alone["p99_ms"],
        "generator_cpu_percent": beaten["generator_cpu_percent"],
    }
    if before is not None and after is not None:
        figures["leader_cpu_percent"] = 100 * (after[0] - before[0]) / took_s
    return figures


class Capacity:
    """The most groups, three replicas each beating, at which writes stay below `P99_MAX_MS`.

    Doubles until it is too much, then halves the distance a few times. Groups once born stay; those
    beyond the tried number are silent, and nobody misses them.

    Args:
        target: whom to load.
        seconds: how long each number of groups is watched.
        limit_s: when to stop trying.
    """

    P99_MAX_MS = 50.0
    FIRST = 250
    MOST = 32_000  # the controllers' table of heartbeats ends at 100,000 brokers
    HALVINGS = 3
    CONNECTIONS = Beats.FEW
    WRITES_PER_S = 100.0

    def __init__(self, target: Target, *, seconds: float, limit_s: float) -> None:
        self._target = target
        self._seconds = seconds
        self._until_s = perf_counter() + limit_s
        self._born = 0
        self._why = "the time was up"
        self._tries = 0

    async def search(self) -> dict[str, float]:
        """The number, its p99, and whether the time limit ended the search.

        Raises:
            GantryError: the smallest number is too much already.
        """
        best, best_p99, tried, limited = 0, 0.0, self.FIRST, False
        worst: int | None = None
        halvings = 0
        while halvings < self.HALVINGS and tried <= self.MOST:
            if perf_counter() > self._until_s:
                limited = True
                break
            p99_ms = await self._try(tried)
            if p99_ms is None or p99_ms > self.P99_MAX_MS:
                p99_ms = await self._try(tried)  # once may be a neighbour's doing
            if p99_ms is not None and p99_ms <= self.P99_MAX_MS:
                best, best_p99 = tried, p99_ms
            elif p99_ms is not None:
                self._why = f"with {tried} the p99 of a write was {p99_ms:.0f} ms"
                worst = tried
            else:
                worst = tried
            if worst is None:
                tried *= 2
            else:
                halvings += 1
                tried = (best + worst) // 2
        if not best:
            raise GantryError(f"Not even {self.FIRST} groups were measured: {self._why}")
        return {"groups": best, "p99_ms": best_p99, "time_limit_reached": float(limited)}

    async def _try(self, groups: int) -> float | None:
        """The p99 of writes, in ms; None if it could not even be measured."""
        beats = Beats(range(groups), replicas=THREE, connections=self.CONNECTIONS)
        writers = self.MOST + WRITERS * self._tries  # new ones: the last try's are dead by now
        self._tries += 1
        births = Scripts(WRITERS, range(writers, writers + WRITERS), replicas=REPLICAS, alive=True)
        load = Load(births, connections=WRITERS)
        try:
            await prepare(self._target, range(self._born, groups), replicas=THREE)
            self._born = max(self._born, groups)
            leader = await self._target.leader()
            await load.connect([leader])
            await beats.connect(leader, await self._target.members())
            beats.start()
            await load.finish(PREPARE_PATIENCE_S)
            load.work, load.per_second = SetChanges(WRITERS, writers), self.WRITES_PER_S
            await asyncio.sleep(BEAT_SETTLE_S)
            found = await load.window(0.0, self._seconds, lambda: None)
            await beats.stop()
        except (GantryError, OSError) as error:
            self._why = str(error)
            return None
        else:
            enough = found.operations >= 0.9 * self.WRITES_PER_S * self._seconds
            return found.p_ms(0.99) if enough else None
        finally:
            load.close()
            await beats.close()
