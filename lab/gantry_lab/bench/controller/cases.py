"""The cases of `gantry_lab bench controller`: what each runs, and what it is to reach.

One that cannot run here says why in a sentence (`CannotRun`) and leaves no figure; others go on.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from gantry_lab.bench.controller import capacity, failover, mass, reading, restart, scale
from gantry_lab.bench.controller.quorum import SERIAL
from gantry_lab.bench.controller.stage import Stage
from gantry_lab.bench.controller.throughput import Shape, over, reads, writes
from gantry_lab.bench.suite import Bench, Case, Goal, Wish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_lab.bench.controller.target import Target
    from gantry_lab.bench.figures import Runs
    from gantry_lab.bench.suite import Plan

START_S = 4.0  # of a quorum, with its first groups
LOSS_S = 2.0  # the gap, the restart, and until the quorum is whole again
BIRTHS_PER_S = 20_000.0  # of what prepares groups
CAPACITY_S = 150.0  # after this the search begins no further step
GAPS = 50  # leaders lost in each way, unless it is said otherwise
JAVA = ("java-dledger", "java-jraft")
FEW, MANY = Shape(64, 1), Shape(64, 16)


def _throughput(
    measure: Callable[[Target, Plan, Shape], Awaitable[Runs]], shape: Shape
) -> Callable[[Stage], Awaitable[Runs]]:
    async def run(stage: Stage) -> Runs:
        async with stage.target() as target:
            return await measure(target, stage.plan, shape)

    return run


async def _lease(stage: Stage) -> Runs:
    async with stage.quorum() as quorum:
        return await reading.by_lease(quorum, stage.plan, MANY)


async def _followers(stage: Stage) -> Runs:
    async with stage.quorum() as quorum:
        return await reading.at_followers(quorum, stage.plan, MANY)


async def _serial(stage: Stage) -> Runs:
    async with stage.quorum(program=SERIAL) as quorum:
        return await writes(quorum, stage.plan, FEW)


async def _new_over_serial(stage: Stage) -> Runs:
    async with stage.quorum() as new, stage.quorum(program=SERIAL) as old:
        return await over(new, old, stage.plan, FEW)


async def _leader_kill(stage: Stage) -> Runs:
    async with stage.quorum() as quorum:
        return await failover.kills(quorum, stage.plan_of(_losses(stage.wish)))


async def _leader_stop(stage: Stage) -> Runs:
    async with stage.quorum() as quorum:
        return await failover.stops(quorum, stage.plan_of(_losses(stage.wish)))


async def _restart(stage: Stage) -> Runs:
    async with stage.quorum(scale.CALM) as quorum:
        return await restart.restarts(quorum, stage.plan)


def _groups(count: int) -> Callable[[Stage], Awaitable[Runs]]:
    async def run(stage: Stage) -> Runs:
        async with stage.quorum(scale.CALM) as few, stage.quorum(scale.CALM) as many:
            return await scale.ratio(few, many, count, stage.plan, MANY)

    return run


async def _capacity(stage: Stage) -> Runs:
    wish, until_s = stage.wish, perf_counter() + CAPACITY_S
    async with (
        stage.target() as target,
        capacity.Crowd(target, seconds=wish.seconds, warmup_s=wish.warmup_s) as crowd,
    ):
        trials = capacity.Trials(crowd.p99_ms, late=lambda: perf_counter() > until_s, say=stage.say)
        return await stage.plan_of(1).repeat(trials.search)


async def _mass(stage: Stage) -> Runs:
    async with stage.target() as target:
        return await mass.failovers(target, stage.plan)


def _losses(wish: Wish) -> int:
    return wish.kills or GAPS


def _losing(wish: Wish) -> float:
    return START_S + _losses(wish) * LOSS_S


def _windows(wish: Wish) -> float:
    return START_S + wish.windows_s


def _two_sides(groups: float) -> Callable[[Wish], float]:
    """Births are five requests per group; both quorums start, and are measured in turn."""
    return lambda wish: 2 * START_S + 5 * groups / BIRTHS_PER_S + 2 * wish.windows_s


CASES: tuple[Case[Wish, Stage], ...] = (
    Case(
        "write-64x1",
        "writes (1001) of 64 clients, each with 1 outstanding",
        _throughput(writes, FEW),
        _windows,
        (
            Goal("ops_per_s", "writes/s, 64 clients × 1 outstanding", least=20_000),
            Goal("p99_ms", "… their p99, ms", most=10),
            Goal("leader_cpu_us", "… leader's CPU per write, µs"),
            Goal("followers_cpu_us", "… both followers' CPU per write, µs"),
            Goal("generator_cpu_percent", "… generator's share of one core, %"),
        ),
    ),
    Case(
        "write-64x16",
        "writes of 64 clients, 16 outstanding each",
        _throughput(writes, MANY),
        _windows,
        (
            Goal("ops_per_s", "writes/s, 64 × 16", least=60_000),
            Goal("p99_ms", "… their p99, ms"),
            Goal("leader_cpu_us", "… leader's CPU per write, µs"),
            Goal("followers_cpu_us", "… both followers' CPU per write, µs"),
            Goal("generator_cpu_percent", "… generator's share of one core, %"),
        ),
    ),
    Case(
        "readindex-64x16",
        "linearizable reads (1004) at the leader",
        _throughput(reads, MANY),
        _windows,
        (
            Goal("ops_per_s", "linearizable reads/s, 64 × 16", least=60_000),
            Goal("leader_cpu_us", "… leader's CPU per read, µs"),
        ),
    ),
    Case(
        "lease-64x16", "the same by a lease", _lease, _windows, (Goal("ops_per_s", "… by lease"),)
    ),
    Case(
        "follower-64x16",
        "the same at followers: leader's CPU spared, writes kept under the storm",
        _followers,
        lambda wish: START_S + wish.runs * (4 * wish.window_s + 1.0),
        (
            Goal("ops_per_s", "… at the followers"),
            Goal("spared_percent", "… leader's CPU per read taken away, %", least=60),
            Goal("writes_kept_percent", "writes kept under that storm, %", least=90),
        ),
    ),
    Case(
        "serial-64x1",
        "writes, one after another: the old design",
        _serial,
        _windows,
        (Goal("ops_per_s", "writes/s, 64 × 1, old design (serial)"),),
    ),
    Case(
        "new-over-serial-64x1",
        "ratio of write-64x1 to serial-64x1, in turn",
        _new_over_serial,
        _two_sides(0),
        (Goal("ratio", "new ÷ serial, 64 clients", least=10),),
    ),
    Case(
        "leader-kill",
        "SIGKILL of the leader until the next committed write",
        _leader_kill,
        _losing,
        (Goal("gap_ms", "SIGKILL of the leader → next write, ms", most=400, worst=1000),),
        steps=_losses,
    ),
    Case(
        "leader-stop",
        "SIGSTOP of the leader until the next committed write",
        _leader_stop,
        _losing,
        (Goal("gap_ms", "SIGSTOP of the leader → next write, ms", most=1500, worst=2500),),
        steps=_losses,
    ),
    Case(
        "restart-100k",
        "a killed follower with 100,000 groups until it is up to date, from its snapshot",
        _restart,
        lambda wish: START_S + 5e5 / BIRTHS_PER_S + wish.runs * 8.0,
        (
            Goal("seconds", "restart with 100,000 groups, s", most=5),
            Goal("rss_mb", "… memory, MB", most=600),
            Goal("pause_p99_ms", "… pauses for the snapshot, p99 below, ms", most=5),
        ),
    ),
    Case(
        "heartbeat-10k",
        "10,000 replicas, a heartbeat per second each; ratio: p99 of 1,000 writes/s to without",
        _throughput(scale.heartbeats, MANY),
        lambda wish: 10.0 + wish.runs * (3 * wish.seconds + 4.0),
        (
            Goal("leader_cpu_percent", "10,000 heartbeats/s: leader, % of core", most=25),
            Goal("ratio", "… p99 of writes to without", most=2),
        ),
    ),
    Case(
        "groups-1k",
        "writes (1003) with 1,000 groups; ratio: to 1 group",
        _groups(1000),
        _two_sides(1e3),
        (Goal("ratio", "throughput with 1,000 groups ÷ with 1", least=0.8),),
    ),
    Case(
        "groups-100k",
        "writes (1003) with 100,000 groups; ratio: to 1 group",
        _groups(100_000),
        _two_sides(1e5),
        (Goal("ratio", "throughput with 100,000 groups ÷ with 1", least=0.8),),
    ),
    Case(
        "groups-capacity",
        "most groups, three replicas beating, at p99 of 100 writes/s up to 50 ms",
        _capacity,
        lambda _: CAPACITY_S,
        (
            Goal(
                "groups", "most groups at p99 of writes up to 50 ms", times=dict.fromkeys(JAVA, 10)
            ),
            Goal("time_limit_reached", "… 1: the time limit ended the search"),
        ),
        steps=lambda _: 1,
    ),
    Case(
        "mass-failover",
        "1,000 masters die in one instant until the last group has a new one",
        _mass,
        lambda wish: START_S + wish.runs * 5.0,
        (Goal("seconds", "1,000 masters die → last group has a new one, s", most=2),),
    ),
)

BENCH = Bench(
    "controller",
    Stage,
    CASES,
    JAVA,
    "three controllers, with every write synced to disk, and the generator share them.",
)
