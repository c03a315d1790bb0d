"""The cases of `gantry_lab bench broker`: what each runs, and what it is to reach.

One that cannot run here says why in a sentence (`CannotRun`) and leaves no figure; others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_lab.bench.broker import catchup, cold, failures, kills, many_queues, quotas
from gantry_lab.bench.broker.stage import Stage, Wish
from gantry_lab.bench.broker.target import Ours
from gantry_lab.bench.broker.throughput import BATCH, pulls, sends
from gantry_lab.bench.suite import Bench, Case, Goal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_lab.bench.figures import Runs

START_S = 4.0  # of a controller and a group
FILL_MB_PER_S = 40.0
COPY_MB_PER_S = 100.0
QUEUES_PER_S = 8_000.0
KILL_S = 4.0  # the gap, the restart, and until a group under an operator is whole again
STOP_S = 7.0
QUICK_KILL_S = 0.8  # the same for bare processes
HOT_BYTES = 256 << 20
GAPS = 50  # failures of each kind, unless it is said otherwise
KILLS = 1000
DEFAULT, IN_SYNC = "java-default", "java-all-in-sync"  # see tests/interop/java_brokers


def _sends(replicas: int, batch: int = 1) -> Callable[[Stage], Awaitable[Runs]]:
    async def run(stage: Stage) -> Runs:
        async with stage.target(replicas) as (target, _):
            return await sends(target, stage.plan, batch=batch)

    return run


async def _pull_hot(stage: Stage) -> Runs:
    async with stage.target(1) as (target, client):
        return await pulls(target, stage.plan, client, min(HOT_BYTES, stage.wish.log_bytes))


async def _pull_cold(stage: Stage) -> Runs:
    async with stage.group(1) as (members, client):
        return await cold.reads(members, client, stage.plan, stage.wish.log_bytes, stage.say)


async def _many_queues(stage: Stage) -> Runs:
    async with stage.group(1) as (members, client):
        return await many_queues.measure(members, client, stage.plan, stage.wish.queues, stage.say)


async def _quotas(stage: Stage) -> Runs:
    async with stage.group(1, quotas.QUOTAS) as (members, client):
        return await quotas.measure(Ours(members, client), stage.plan)


async def _catch_up(stage: Stage) -> Runs:
    async with stage.group(3) as (members, client):
        return await catchup.measure(members, client, stage.plan, stage.wish.log_bytes, stage.say)


def _gaps(failure: str) -> Callable[[Stage], Awaitable[Runs]]:
    async def run(stage: Stage) -> Runs:
        stage.own()
        return await failures.gaps(failure, _failures(stage.wish), stage.advance)

    return run


async def _kills(stage: Stage) -> Runs:
    return await kills.measure(lambda: stage.group(3), _masters(stage.wish), stage)


def _failures(wish: Wish) -> int:
    return wish.kills or GAPS


def _masters(wish: Wish) -> int:
    return wish.kills or KILLS


def _windows(wish: Wish) -> float:
    return START_S + wish.windows_s


def _filled(wish: Wish) -> float:
    """Cases that fill a log first, and copy or read it in each run."""
    return _windows(wish) + wish.log_bytes / 1e6 * (1 / FILL_MB_PER_S + wish.runs / COPY_MB_PER_S)


def _failing(seconds: float) -> Callable[[Wish], float]:
    return lambda wish: START_S + _failures(wish) * seconds


CASES: tuple[Case[Wish, Stage], ...] = (
    Case(
        "send-64-1r",
        "1 KiB sync sends by 64 clients, one replica, fsync",
        _sends(1),
        _windows,
        (
            Goal(
                "messages_per_s",
                "1 KiB sync sends/s, 64 clients, 1 replica",
                least=20_000,
                times={DEFAULT: 1},
            ),
            Goal("p99_ms", "… their p99, ms"),
            Goal("master_cpu_us", "… master's CPU per message, µs"),
            Goal("generator_cpu_us", "… generator's CPU per message, µs"),
        ),
    ),
    Case(
        "send-64-3r",
        "the same, acknowledged by all in sync of three replicas",
        _sends(3),
        _windows,
        (
            Goal(
                "messages_per_s",
                "the same, 3 replicas, all in sync",
                least=12_000,
                times={DEFAULT: 1, IN_SYNC: 4},
            ),
            Goal("p99_ms", "… their p99, ms", most=25),
            Goal("master_cpu_us", "… master's CPU per message, µs"),
            Goal("replicas_cpu_us", "… both other replicas' CPU per message, µs"),
            Goal("generator_cpu_us", "… generator's CPU per message, µs"),
        ),
    ),
    Case(
        "batch32-1r",
        "batches of 32 by 64 clients, one replica",
        _sends(1, BATCH),
        _windows,
        (
            Goal("messages_per_s", "messages/s in batches of 32", least=150_000),
            Goal("master_cpu_us", "… master's CPU per message, µs"),
        ),
    ),
    Case(
        "pull-hot",
        "pulls of 32 by 16 consumers, in memory",
        _pull_hot,
        _windows,
        (
            Goal("messages_per_s", "pulled messages/s, in memory", least=200_000),
            Goal("master_cpu_us", "… master's CPU per message, µs"),
            Goal("generator_cpu_us", "… generator's CPU per message, µs"),
        ),
    ),
    Case(
        "pull-cold",
        "the same from the disk, every byte once",
        _pull_cold,
        _filled,
        (
            Goal("mb_per_s", "pulled from the disk, MB/s", least=100),
            Goal("disk_read_percent", "… read from the disk, % of that"),
        ),
    ),
    Case(
        "queues-1m",
        "a million queues with a message each; ratio: sends to 10,000 random ones to one",
        _many_queues,
        lambda wish: START_S + wish.queues / QUEUES_PER_S + 2 * wish.windows_s,
        (
            Goal("created_s", "a million queues made, s", most=600),
            Goal("rss_mb", "… memory at its highest, MB", most=2048),
            Goal("restart_s", "… restart until a send and a pull are answered, s", most=60),
            Goal("ratio", "… sends to 10,000 random queues ÷ to one", least=0.5),
        ),
    ),
    Case(
        "quotas",
        "one tenant's sends beside another's that tries far more than its quota",
        _quotas,
        lambda wish: START_S + 2 * wish.windows_s,
        (
            Goal("p99_ms", "a tenant's p99 beside one that floods, ms"),
            Goal("ratio", "… ÷ alone", most=2),
        ),
    ),
    Case(
        "master-kill",
        "SIGKILL of the master: a producer's write gap",
        _gaps("sigkill"),
        _failing(KILL_S),
        (Goal("gap_ms", "SIGKILL of the master: write gap, ms", most=500, worst=1000),),
        steps=_failures,
    ),
    Case(
        "master-stop",
        "SIGSTOP of the master: the same",
        _gaps("sigstop"),
        _failing(STOP_S),
        (Goal("gap_ms", "SIGSTOP of the master: write gap, ms", worst=3500),),
        steps=_failures,
    ),
    Case(
        "handover",
        "deletion of the master's pod: the same",
        _gaps("handover"),
        _failing(KILL_S),
        (Goal("gap_ms", "hand-over: write gap, ms", worst=500),),
        steps=_failures,
    ),
    Case(
        "kills-1000",
        "1,000 masters killed under load, then every acknowledged message read back",
        _kills,
        lambda wish: _masters(wish) * QUICK_KILL_S,
        (
            Goal("kills", "masters killed under load", least=KILLS),
            Goal("acknowledged", "… messages acknowledged"),
            Goal("lost", "… of those lost", most=0, worst=0),
        ),
        steps=_masters,
        named_only=True,
    ),
    Case(
        "catch-up",
        "an empty replica copies the log; producers' p99 before and meanwhile",
        _catch_up,
        _filled,
        (
            Goal("mb_per_s", "catch-up of an empty replica, MB/s", least=100),
            Goal("ratio", "… producers' p99 meanwhile ÷ before", most=2),
        ),
    ),
)

BENCH = Bench(
    "broker",
    Stage,
    CASES,
    (DEFAULT, IN_SYNC),
    "the brokers, with every message synced to disk, a controller and the generator share them.",
)
