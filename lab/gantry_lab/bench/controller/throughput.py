"""Operations per second, their latency, and whose CPU they cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gantry_lab.bench.controller.load import Load, Work
from gantry_lab.bench.controller.work import Reads, Scripts, SetChanges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gantry_lab.bench.controller.target import Target
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.suite import Plan

PREPARE = 256, 16  # slots, connections
PREPARE_PATIENCE_S = 300.0
REPLICAS = 2  # per group: a set that can lose and gain a member


class Shape(NamedTuple):
    """How many clients ask, and how much each leaves unanswered."""

    connections: int
    outstanding: int

    @property
    def slots(self) -> int:
        """Requests under way at once."""
        return self.connections * self.outstanding

    def load(self, work: Work) -> Load:
        """These clients, at `work`."""
        return Load(work, connections=self.connections, outstanding=self.outstanding)


async def prepare(
    target: Target,
    groups: Iterable[int],
    *,
    replicas: int = REPLICAS,
    registered: int | None = None,
    patience_s: float = PREPARE_PATIENCE_S,
) -> None:
    """Let groups be born on the leader (see `Scripts`); nobody beats their hearts.

    Raises:
        GantryError: a controller refused, or they were not all born in time.
    """
    slots, connections = PREPARE
    script = Scripts(slots, groups, replicas=replicas, registered=registered)
    load = Load(script, connections=connections, outstanding=slots // connections)
    try:
        await load.connect([await target.leader()])
        await load.finish(patience_s)
    finally:
        load.close()


async def writes(target: Target, plan: Plan, shape: Shape) -> Runs:
    """1001 on a group per slot; see `work`.

    The groups' brokers are alive by the connections that the load uses: they stay open as long.
    """
    births = Scripts(shape.slots, range(shape.slots), replicas=REPLICAS, alive=True)
    return await measure(target, plan, shape, SetChanges(shape.slots), births=births)


async def reads(target: Target, plan: Plan, shape: Shape) -> Runs:
    """1004 at the leader, over as many groups as there are clients."""
    groups = shape.connections
    await prepare(target, range(groups))
    return await measure(target, plan, shape, Reads(shape.slots, groups))


async def over(new: Target, old: Target, plan: Plan, shape: Shape) -> Runs:
    """How many times as many writes one quorum commits as the other, in turn."""
    slots = shape.slots
    loads: list[Load] = []

    async def once() -> dict[str, float]:
        sides = [
            await window(target, load, plan) for target, load in zip((new, old), loads, strict=True)
        ]
        return {"ratio": sides[0]["ops_per_s"] / sides[1]["ops_per_s"]}

    try:
        for target in (new, old):
            births = Scripts(slots, range(slots), replicas=REPLICAS, alive=True)
            load = shape.load(births)
            loads.append(load)
            await load.connect([await target.leader()])
            await load.finish(PREPARE_PATIENCE_S)
            load.work = SetChanges(slots)
        return await plan.repeat(once)
    finally:
        for load in loads:
            load.close()


async def measure(
    target: Target,
    plan: Plan,
    shape: Shape,
    work: Work,
    *,
    births: Scripts | None = None,
    addresses: Sequence[str] | None = None,
) -> Runs:
    """The figures of each run, by metric.

    Args:
        target: whose CPU counts; the load goes to its leader unless there are `addresses`.
        plan: how.
        shape: by how many clients.
        work: what is asked.
        births: what is done before, on the same connections.
        addresses: where to connect to, in turn.
    """
    load = shape.load(births or work)
    try:
        leader = await target.leader()
        await load.connect(addresses or [leader])
        if births is not None:
            await load.finish(PREPARE_PATIENCE_S)
            load.work = work
        return await plan.repeat(partial(window, target, load, plan))
    finally:
        load.close()


async def window(target: Target, load: Load, plan: Plan) -> dict[str, float]:
    """The figures of one run of `load`, by metric."""
    used: list[tuple[float, float] | None] = []
    seen = await load.window(plan.warmup_s, plan.seconds, lambda: used.append(target.cpu_s()))
    figures = {
        "ops_per_s": seen.per_second,
        "p50_ms": seen.p_ms(0.5),
        "p99_ms": seen.p_ms(0.99),
        "generator_cpu_percent": 100 * seen.generator_s / seen.seconds,
    }
    before, after = used
    if before is not None and after is not None:
        figures["leader_cpu_us"] = 1e6 * (after[0] - before[0]) / seen.operations
        figures["followers_cpu_us"] = 1e6 * (after[1] - before[1]) / seen.operations
    return figures
