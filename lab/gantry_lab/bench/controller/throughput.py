"""Operations per second, their latency, and whose CPU they cost."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from gantry_lab.bench.controller.quorum import SERIAL
from gantry_lab.bench.controller.work import Births, Registrations, SetChanges
from gantry_lab.bench.load import FrameLoad

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_lab.bench.controller.target import Controllers
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

PREPARE = 16, 16  # connections, and requests outstanding on each
PREPARE_PATIENCE_S = 300.0
PAIR, THREE = 2, 3
"""Replicas of a group: a set that can lose and gain a member; a group as brokers make it."""
CALM = {"GANTRY_HEARTBEAT_TIMEOUT_MS": "600000"}  # groups without heartbeats: nobody is missed


async def prepare(
    target: Controllers,
    groups: Iterable[int],
    *,
    replicas: int = PAIR,
    registered: int | None = None,
    patience_s: float = PREPARE_PATIENCE_S,
) -> None:
    """Let groups be born on the leader (see `Births`); nobody beats their hearts.

    Raises:
        GantryError: a controller refused, or they were not all born in time.
    """
    connections, outstanding = PREPARE
    births = Births(connections * outstanding, groups, replicas=replicas, registered=registered)
    with closing(FrameLoad(births, [await target.leader()], connections, outstanding)) as load:
        await load.finish(patience_s)


async def writers(
    target: Controllers, connections: int, outstanding: int = 1, *, first: int = 0
) -> FrameLoad:
    """A load of AlterSyncStateSet on a group per slot, from `first` on, which it lets be born.

    The groups' brokers are alive by the connections that the load uses: they stay open as long.

    Raises:
        GantryError: a controller refused.
    """
    slots = connections * outstanding
    births = Births(slots, range(first, first + slots), replicas=PAIR, alive=True)
    load = FrameLoad(births, [await target.leader()], connections, outstanding)
    try:
        await load.finish(PREPARE_PATIENCE_S)
    except BaseException:
        load.close()
        raise
    load.work = SetChanges(slots, first)
    return load


async def writes(stage: BenchStage, connections: int, outstanding: int = 1) -> Runs:
    """AlterSyncStateSet (1001) at the leader."""
    async with stage.controllers() as target:
        return await _writes(stage, target, connections, outstanding)


async def serial(stage: BenchStage, connections: int) -> Runs:
    """The same at controllers of the old architecture."""
    async with stage.quorum(program=SERIAL) as quorum:
        return await _writes(stage, quorum, connections)


async def over_serial(stage: BenchStage, connections: int) -> Runs:
    """Writes of our controllers over writes of the old architecture."""
    async with stage.quorum() as new, stage.quorum(program=SERIAL) as old:
        with (
            closing(await writers(new, connections)) as fast,
            closing(await writers(old, connections)) as slow,
        ):
            return await _ratio(stage, (new, fast), (old, slow))


async def over_groups(stage: BenchStage, groups: int, connections: int, outstanding: int) -> Runs:
    """Writes (1003) per second with `groups` groups, and with one.

    Both quorums were told to miss nobody, since the brokers of 100,000 groups do not beat here.
    """
    async with stage.quorum(CALM) as many, stage.quorum(CALM) as few:
        await prepare(few, range(1), replicas=THREE)
        await prepare(many, range(groups), replicas=THREE, registered=1)
        slots = connections * outstanding
        loads = [
            FrameLoad(
                Registrations(slots, count), [await target.leader()], connections, outstanding
            )
            for target, count in ((many, groups), (few, 1))
        ]
        with closing(loads[0]), closing(loads[1]):
            return await _ratio(stage, (many, loads[0]), (few, loads[1]))


async def _writes(
    stage: BenchStage, target: Controllers, connections: int, outstanding: int = 1
) -> Runs:
    with closing(await writers(target, connections, outstanding)) as load:
        return await stage.repeat(lambda: stage.window(target, load))


async def _ratio(
    stage: BenchStage, ours: tuple[Controllers, FrameLoad], other: tuple[Controllers, FrameLoad]
) -> Runs:
    """The figures of `ours`, and how many times the operations of `other`; in turn."""

    async def once() -> dict[str, float]:
        below = await stage.window(*other)
        found = await stage.window(*ours)
        return found | {"ratio": found["ops_per_s"] / below["ops_per_s"]}

    return await stage.repeat(once)
