"""The cases by name: what each measures, what it needs, about how long it takes.

A case gets a group of its own, fresh, so that none inherits another's log. One that cannot run here
says why in a sentence (`CannotRun`) and leaves no figure; the others go on.
"""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.bench.broker import catchup, cold, failures, kills, many_queues
from gantry_cli.bench.broker.figures import BENCH, UNITS
from gantry_cli.bench.broker.target import Against, Ours
from gantry_cli.bench.broker.throughput import BATCH, Plan, pulls, sends
from gantry_cli.bench.controller.figures import lines
from gantry_cli.bench.members import Members
from gantry_cli.bench.running import CannotRun
from gantry_cli.client.session import Session, session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gantry_cli.bench.broker.target import Target
    from gantry_cli.bench.results import Line

START_S = 4.0  # of a controller and a group
FILL_MB_PER_S = 30.0
KILL_S = 5.0  # the gap, the restart, and until the group is whole again
QUICK_KILL_S = 3.0
HOT_BYTES = 256 << 20
GAPS = 50  # failures of each kind, unless it is said otherwise
KILLS = 1000


class Wish(NamedTuple):
    """What the command line asked for.

    Attributes:
        runs: per case.
        seconds: counted per run.
        warmup_s: before that, in each run.
        kills: masters to lose in the cases that lose them; None: as many as the case is named for.
        log_bytes: what an empty replica has to copy, and what is read from the disk; pull-hot
            writes no more than a quarter of a gigabyte of it.
        queues: of queues-1m.
        against: a name server or a broker that runs already.
        label: the name of the benchmark in its lines.
    """

    runs: int = 3
    seconds: float = 5.0
    warmup_s: float = 1.0
    kills: int | None = None
    log_bytes: int = 2 << 30
    queues: int = 1_000_000
    against: str | None = None
    label: str = BENCH


class Stage:
    """Where a case runs.

    Args:
        wish: what was asked for.
        directory: for the groups; it exists.
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

    @property
    def plan(self) -> Plan:
        """What was asked for."""
        return Plan(self.wish.runs, self.wish.seconds, self.wish.warmup_s, self.advance)

    @asynccontextmanager
    async def target(self, replicas: int) -> AsyncIterator[tuple[Target, Session]]:
        """The brokers that were given, else a settled group of our own with so many replicas."""
        if self.wish.against is not None:
            async with session([self.wish.against]) as client:
                yield Against(self.wish.against, client), client
            return
        async with self.group(replicas) as (members, client):
            yield Ours(members, client), client

    @asynccontextmanager
    async def group(self, replicas: int) -> AsyncIterator[tuple[Members, Session]]:
        """A settled group of our own.

        Raises:
            CannotRun: the brokers under load are somebody else's.
        """
        self.own()
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        async with (
            Members(directory, replicas=replicas) as members,
            session(members.name_servers) as client,
        ):
            await members.start()
            yield members, client

    def own(self) -> None:
        """Refuse to do to somebody else's brokers what this case does."""
        if self.wish.against is not None:
            raise CannotRun("needs brokers that it starts itself; leave --against out")


Runs = list[dict[str, float]]


class Case(NamedTuple):
    """One case.

    Attributes:
        text: what it measures, in a few words.
        run: the figures of each run.
        steps: how often it calls `advance`.
        seconds: about how long it takes.
    """

    text: str
    run: Callable[[Stage], Awaitable[Runs]]
    steps: Callable[[Wish], int]
    seconds: Callable[[Wish], float]

    async def lines(self, name: str, stage: Stage) -> list[Line]:
        """Run it."""
        return lines(name, await self.run(stage), bench=stage.wish.label, units=UNITS)


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
        return await cold.reads(members, client, stage.plan, stage.wish.log_bytes)


async def _many_queues(stage: Stage) -> Runs:
    async with stage.group(1) as (members, client):
        return await many_queues.measure(members, client, stage.plan, stage.wish.queues, stage.say)


async def _catch_up(stage: Stage) -> Runs:
    async with stage.group(3) as (members, client):
        return await catchup.measure(members, client, stage.plan, stage.wish.log_bytes)


async def _kills(stage: Stage) -> Runs:
    async with stage.group(3) as (members, _):
        return await kills.measure(members, stage.wish.kills or KILLS, stage.advance)


def _gaps(failure: str) -> Callable[[Stage], Awaitable[Runs]]:
    async def run(stage: Stage) -> Runs:
        stage.own()
        return await failures.gaps(failure, stage.wish.kills or GAPS, stage.advance)

    return run


def _count(wish: Wish) -> int:
    return wish.runs


def _windows(wish: Wish) -> float:
    return START_S + wish.runs * (wish.warmup_s + wish.seconds)


def _filled(wish: Wish) -> float:
    """Cases that fill a log first, and copy or read it in each run."""
    return START_S + wish.log_bytes / 1e6 * (1 / FILL_MB_PER_S + wish.runs / 100.0)


def _lost(count: int, seconds: float) -> Callable[[Wish], float]:
    return lambda wish: START_S + (wish.kills or count) * seconds


def _failures(wish: Wish) -> int:
    return wish.kills or GAPS


CASES: dict[str, Case] = {
    "send-64-1r": Case(
        "1 KiB sync sends by 64 clients, one replica, fsync", _sends(1), _count, _windows
    ),
    "send-64-3r": Case(
        "the same, acknowledged by all in sync of three replicas", _sends(3), _count, _windows
    ),
    "batch32-1r": Case(
        "batches of 32 by 64 clients, one replica", _sends(1, BATCH), _count, _windows
    ),
    "pull-hot": Case("pulls of 32 by 16 consumers, in memory", _pull_hot, _count, _windows),
    "pull-cold": Case("the same from the disk, every byte once", _pull_cold, _count, _filled),
    "queues-1m": Case(
        "a million queues with a message each; ratio: sends to 10,000 random ones to one",
        _many_queues,
        _count,
        lambda wish: START_S + wish.queues / 2_000.0 + 2 * wish.runs * wish.seconds,
    ),
    "master-kill": Case(
        "SIGKILL of the master: a producer's write gap",
        _gaps("sigkill"),
        _failures,
        _lost(GAPS, KILL_S),
    ),
    "master-stop": Case(
        "SIGSTOP of the master: the same", _gaps("sigstop"), _failures, _lost(GAPS, KILL_S)
    ),
    "handover": Case(
        "deletion of the master's pod: the same", _gaps("handover"), _failures, _lost(GAPS, KILL_S)
    ),
    "kills-1000": Case(
        "1,000 masters killed under load, then every acknowledged message read back",
        _kills,
        lambda wish: wish.kills or KILLS,
        _lost(KILLS, QUICK_KILL_S),
    ),
    "catch-up": Case(
        "an empty replica copies the log; producers' p99 before and meanwhile",
        _catch_up,
        _count,
        _filled,
    ),
}
"""By name, in the order they run."""
