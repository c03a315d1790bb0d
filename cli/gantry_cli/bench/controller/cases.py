"""The cases by name: what each measures, what it needs, about how long it takes.

A case gets a quorum of its own, fresh, so that none inherits another's log or groups. One that
cannot run here says why in a sentence (`CannotRun`) and leaves no figure; the others go on.
"""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.bench.controller import capacity, failover, mass, reading, restart, scale
from gantry_cli.bench.controller.figures import BENCH, lines
from gantry_cli.bench.controller.quorum import Quorum
from gantry_cli.bench.controller.target import Against
from gantry_cli.bench.controller.throughput import Plan, Shape, over, reads, writes
from gantry_cli.bench.running import CannotRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from gantry_cli.bench.controller.target import Target
    from gantry_cli.bench.results import Line

START_S = 4.0  # of a quorum, with its first groups
KILL_S = 2.0  # the gap, the restart, and until the quorum is whole again
STOP_S = 2.0
BIRTHS_PER_S = 20_000.0  # of what prepares groups
CAPACITY_S = 150.0  # after this the search begins no further step
OLD_DESIGN = {"GANTRY_ARCHITECTURE": "serial"}
FEW, MANY = Shape(64, 1), Shape(64, 16)


class Wish(NamedTuple):
    """What the command line asked for.

    Attributes:
        runs: per case.
        seconds: counted per run.
        warmup_s: before that, in each run.
        kills: leaders to lose in the cases that lose them.
        against: one controller of a quorum that runs already.
        label: the name of the benchmark in its lines.
    """

    runs: int = 5
    seconds: float = 2.0
    warmup_s: float = 0.5
    kills: int = 50
    against: str | None = None
    label: str = BENCH

    @property
    def window_s(self) -> float:
        """One run with its warm-up."""
        return self.warmup_s + self.seconds


class Stage:
    """Where a case runs.

    Args:
        wish: what was asked for.
        directory: for the quorums; it exists.
        advance: called after each run.
        say: is told what a long run has found so far.
    """

    def __init__(
        self,
        wish: Wish,
        directory: Path,
        advance: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.wish = wish
        self.advance = advance
        self.say = say
        self._directory = directory

    def plan(self, shape: Shape) -> Plan:
        """What was asked for, by these clients."""
        wish = self.wish
        return Plan(shape, wish.runs, wish.seconds, wish.warmup_s, self.advance)

    @asynccontextmanager
    async def target(self) -> AsyncIterator[Target]:
        """The quorum that was given, else one of our own."""
        if self.wish.against is not None:
            yield Against(self.wish.against)
            return
        async with self.quorum() as quorum:
            yield quorum

    @asynccontextmanager
    async def quorum(self, settings: Mapping[str, str] | None = None) -> AsyncIterator[Quorum]:
        """Three controllers of our own.

        Raises:
            CannotRun: the quorum under load is somebody else's.
        """
        if self.wish.against is not None:
            raise CannotRun("needs controllers that it starts itself; leave --against out")
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        async with Quorum(directory, settings) as quorum:
            yield quorum


class Case(NamedTuple):
    """One case.

    Attributes:
        text: what it measures, in a few words.
        run: the figures of each run.
        steps: how often it calls `advance`.
        seconds: about how long it takes.
    """

    text: str
    run: Callable[[Stage], Awaitable[list[dict[str, float]]]]
    steps: Callable[[Wish], int]
    seconds: Callable[[Wish], float]

    async def lines(self, name: str, stage: Stage) -> list[Line]:
        """Run it."""
        return lines(name, await self.run(stage), bench=stage.wish.label)


def _throughput(
    measure: Callable[[Target, Plan], Awaitable[list[dict[str, float]]]], shape: Shape
) -> Callable[[Stage], Awaitable[list[dict[str, float]]]]:
    async def run(stage: Stage) -> list[dict[str, float]]:
        async with stage.target() as target:
            return await measure(target, stage.plan(shape))

    return run


async def _leader_kill(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum() as quorum:
        return await failover.kills(quorum, stage.wish.kills, stage.advance)


async def _leader_stop(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum() as quorum:
        return await failover.stops(quorum, stage.wish.kills, stage.advance)


async def _lease(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum() as quorum:
        return await reading.by_lease(quorum, stage.plan(MANY))


async def _followers(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum() as quorum:
        return await reading.at_followers(quorum, stage.plan(MANY))


async def _serial(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum(OLD_DESIGN) as quorum:
        return await writes(quorum, stage.plan(FEW))


async def _new_over_serial(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum() as new, stage.quorum(OLD_DESIGN) as old:
        return await over(new, old, stage.plan(FEW))


def _groups(count: int) -> Callable[[Stage], Awaitable[list[dict[str, float]]]]:
    async def run(stage: Stage) -> list[dict[str, float]]:
        async with stage.quorum(scale.CALM) as few, stage.quorum(scale.CALM) as many:
            return await scale.ratio(few, many, count, stage.plan(MANY))

    return run


async def _restart(stage: Stage) -> list[dict[str, float]]:
    async with stage.quorum(scale.CALM) as quorum:
        return await restart.restarts(quorum, stage.wish.runs, stage.advance)


async def _heartbeats(stage: Stage) -> list[dict[str, float]]:
    async with stage.target() as target:
        return await scale.heartbeats(target, stage.plan(MANY))


async def _capacity(stage: Stage) -> list[dict[str, float]]:
    wish, until_s = stage.wish, perf_counter() + CAPACITY_S
    async with (
        stage.target() as target,
        capacity.Crowd(target, seconds=wish.seconds, warmup_s=wish.warmup_s) as crowd,
    ):
        trials = capacity.Trials(crowd.p99_ms, late=lambda: perf_counter() > until_s, say=stage.say)
        found = await trials.search()
    stage.advance()
    return [found]


async def _mass(stage: Stage) -> list[dict[str, float]]:
    async with stage.target() as target:
        return await mass.failovers(target, stage.wish.runs, stage.advance)


def _windows(wish: Wish) -> float:
    return START_S + wish.runs * wish.window_s


def _two_sides(groups: float) -> Callable[[Wish], float]:
    """Births are five requests per group; both quorums start, and are measured in turn."""

    def seconds(wish: Wish) -> float:
        return 2 * START_S + 5 * groups / BIRTHS_PER_S + 2 * wish.runs * wish.window_s

    return seconds


def _count(wish: Wish) -> int:
    return wish.runs


def _kills(wish: Wish) -> int:
    return wish.kills


CASES: dict[str, Case] = {
    "write-64x1": Case(
        "writes (1001) of 64 clients, each with 1 outstanding",
        _throughput(writes, FEW),
        _count,
        _windows,
    ),
    "write-64x16": Case(
        "writes of 64 clients, 16 outstanding each",
        _throughput(writes, MANY),
        _count,
        _windows,
    ),
    "readindex-64x16": Case(
        "linearizable reads (1004) at the leader",
        _throughput(reads, MANY),
        _count,
        _windows,
    ),
    "lease-64x16": Case("the same by a lease", _lease, _count, _windows),
    "follower-64x16": Case(
        "the same at followers: leader's CPU spared, writes kept under the storm",
        _followers,
        _count,
        lambda wish: START_S + wish.runs * (4 * wish.window_s + 1.0),
    ),
    "serial-64x1": Case("writes, one after another: the old design", _serial, _count, _windows),
    "new-over-serial-64x1": Case(
        "ratio of write-64x1 to serial-64x1, in turn",
        _new_over_serial,
        _count,
        lambda wish: 2 * (START_S + wish.runs * wish.window_s),
    ),
    "leader-kill": Case(
        "SIGKILL of the leader until the next committed write",
        _leader_kill,
        _kills,
        lambda wish: START_S + wish.kills * KILL_S,
    ),
    "leader-stop": Case(
        "SIGSTOP of the leader until the next committed write",
        _leader_stop,
        _kills,
        lambda wish: START_S + wish.kills * STOP_S,
    ),
    "restart-100k": Case(
        "a killed follower with 100,000 groups until it is up to date, from its snapshot",
        _restart,
        _count,
        lambda wish: START_S + 5e5 / BIRTHS_PER_S + wish.runs * 8.0,
    ),
    "heartbeat-10k": Case(
        "10,000 replicas, a heartbeat per second each; ratio: p99 of 1,000 writes/s to without",
        _heartbeats,
        _count,
        lambda wish: 10.0 + wish.runs * (3 * wish.seconds + 4.0),
    ),
    "groups-1k": Case(
        "writes (1003) with 1,000 groups; ratio: to 1 group", _groups(1000), _count, _two_sides(1e3)
    ),
    "groups-100k": Case(
        "writes (1003) with 100,000 groups; ratio: to 1 group",
        _groups(100_000),
        _count,
        _two_sides(1e5),
    ),
    "groups-capacity": Case(
        "most groups, three replicas beating, at p99 of 100 writes/s up to 50 ms",
        _capacity,
        lambda _: 1,
        lambda _: CAPACITY_S,
    ),
    "mass-failover": Case(
        "1,000 masters die in one instant until the last group has a new one",
        _mass,
        _count,
        lambda wish: START_S + wish.runs * 5.0,
    ),
}
"""By name, in the order they run."""
