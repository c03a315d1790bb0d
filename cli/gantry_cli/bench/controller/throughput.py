"""Operations per second, their latency, and whose CPU they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.bench.controller.load import Load, Work
from gantry_cli.bench.controller.work import Reads, Scripts, SetChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gantry_cli.bench.controller.target import Target

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


class Plan(NamedTuple):
    """How a throughput is measured.

    Attributes:
        shape: by how many clients.
        runs: how often.
        seconds: how long is counted each time.
        warmup_s: before that.
        advance: called after each run.
    """

    shape: Shape
    runs: int
    seconds: float
    warmup_s: float
    advance: Callable[[], None]


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


async def writes(target: Target, plan: Plan) -> list[dict[str, float]]:
    """1001 on a group per slot; see `work`.

    The groups' brokers are alive by the connections that the load uses: they stay open as long.
    """
    slots = plan.shape.slots
    births = Scripts(slots, range(slots), replicas=REPLICAS, alive=True)
    return await measure(target, plan, SetChanges(slots), births=births)


async def reads(target: Target, plan: Plan) -> list[dict[str, float]]:
    """1004 at the leader, over as many groups as there are clients."""
    groups = plan.shape.connections
    await prepare(target, range(groups))
    return await measure(target, plan, Reads(plan.shape.slots, groups))


async def over(new: Target, old: Target, plan: Plan) -> list[dict[str, float]]:
    """How many times as many writes one quorum commits as the other, in turn."""
    slots = plan.shape.slots
    loads = []
    found = []
    try:
        for target in (new, old):
            births = Scripts(slots, range(slots), replicas=REPLICAS, alive=True)
            load = Load(
                births, connections=plan.shape.connections, outstanding=plan.shape.outstanding
            )
            loads.append(load)
            await load.connect([await target.leader()])
            await load.finish(PREPARE_PATIENCE_S)
            load.work = SetChanges(slots)
        for _ in range(plan.runs):
            sides = [
                await window(target, load, plan)
                for target, load in zip((new, old), loads, strict=True)
            ]
            found.append({"ratio": sides[0]["ops_per_s"] / sides[1]["ops_per_s"]})
            plan.advance()
        return found
    finally:
        for load in loads:
            load.close()


async def measure(
    target: Target,
    plan: Plan,
    work: Work,
    *,
    births: Scripts | None = None,
    addresses: Sequence[str] | None = None,
) -> list[dict[str, float]]:
    """The figures of each run, by metric.

    Args:
        target: whose CPU counts; the load goes to its leader unless there are `addresses`.
        plan: how.
        work: what is asked.
        births: what is done before, on the same connections.
        addresses: where to connect to, in turn.
    """
    load = Load(
        births or work, connections=plan.shape.connections, outstanding=plan.shape.outstanding
    )
    try:
        leader = await target.leader()
        await load.connect(addresses or [leader])
        if births is not None:
            await load.finish(PREPARE_PATIENCE_S)
            load.work = work
        found = []
        for _ in range(plan.runs):
            found.append(await window(target, load, plan))
            plan.advance()
        return found
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
