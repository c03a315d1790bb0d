"""A benchmark as data: its cases, what each runs, how long that takes, what it is to reach.

`cases/NAME.toml` holds one. A case names a function of this package (`module:function`), which gets
the `BenchStage` it runs on and the parameters that stand `with` it, and returns the figures of each
run. Tables of a page whose figures are measured elsewhere are such files, too; their cases run
nothing.
"""

from __future__ import annotations

import importlib
import tomllib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

CASES = Path(__file__).parent / "cases"
BIRTHS_PER_S = 20_000.0  # of what prepares groups: five requests each
FILL_MB_PER_S = 40.0
COPY_MB_PER_S = 100.0
QUEUES_PER_S = 8_000.0


class Goal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a case, as a row of a page.

    Attributes:
        metric: the figure.
        text: what it is, in the table.
        least: what the median must reach; None if there is no such bound.
        most: what it may not exceed.
        worst: what no run may exceed.
        times: how many times that of another benchmark it must be, by its name.
    """

    metric: str
    text: str
    least: float | None = None
    most: float | None = None
    worst: float | None = None
    times: dict[str, float] = {}


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The wishes of the command line.

    Attributes:
        runs: per case.
        seconds: counted per run.
        warmup_s: before that, in each run.
        kills: processes to lose in the cases that lose them; None: as many as the case wants.
        against: an address of servers that run already; None: ours are started.
        label: the name of the benchmark in its lines.
        log_bytes: what an empty replica has to copy, and what is read from the disk; pull-hot and
            pop-64 write no more than a quarter of a gigabyte of it.
        queues: of queues-1m.
        rounds: a file that keeps the finished rounds of kills-1000; None: nothing is kept.
    """

    runs: int
    seconds: float
    warmup_s: float
    label: str
    kills: int | None = None
    against: str | None = None
    log_bytes: int = 2 << 30
    queues: int = 1_000_000
    rounds: Path | None = None


class Time(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """About how long a case takes on a quiet machine.

    Attributes:
        start: seconds of servers, with their first groups.
        windows: measured in each run, with its warm-up.
        run: seconds of each run besides.
        loss: seconds of each process that is lost.
        births: groups that are made.
        log: whether a log is filled first, and copied or read in each run.
        queues: whether queues are made.
    """

    start: float = 4.0
    windows: float = 1.0
    run: float = 0.0
    loss: float = 0.0
    births: float = 0.0
    log: bool = False
    queues: bool = False


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"given": "with"}):
    """One case.

    Attributes:
        name: on the command line, and in its lines.
        goals: its figures on the page, in this order; none where another sheet has them.
        text: what it measures, in a few words.
        run: `module:function` of this package; empty if it is measured elsewhere.
        given: the parameters of that.
        time: about how long it takes.
        losses: processes that are lost, unless it is said otherwise; 0: none.
        once: whether it has one run, however many are wanted.
        named_only: it runs only if it is asked for by name.
    """

    name: str
    goals: tuple[Goal, ...] = ()
    text: str = ""
    run: str = ""
    given: dict[str, Any] = {}
    time: Time = Time()
    losses: int = 0
    once: bool = False
    named_only: bool = False

    async def measure(self, stage: BenchStage) -> Runs:
        """Run it."""
        module, _, name = self.run.partition(":")
        function = getattr(importlib.import_module(f"gantry_lab.bench.{module}"), name)
        return await cast("Callable[..., Awaitable[Runs]]", function)(stage, **self.given)

    def seconds(self, wish: Wish) -> float:
        """About how long it takes."""
        time, runs = self.time, 1 if self.once else wish.runs
        log_mb = wish.log_bytes / 1e6 if time.log else 0.0
        return (
            time.start
            + runs * (time.run + time.windows * (wish.warmup_s + wish.seconds))
            + time.loss * self.steps(wish)
            + time.births * 5 / BIRTHS_PER_S
            + log_mb * (1 / FILL_MB_PER_S + runs / COPY_MB_PER_S)
            + (wish.queues / QUEUES_PER_S if time.queues else 0.0)
        )

    def steps(self, wish: Wish) -> int:
        """The number of times that it says that it has come further."""
        if self.losses:
            return wish.kills or self.losses
        return 1 if self.once else wish.runs


class Bench(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A benchmark, and its table between two comments of a page.

    Attributes:
        name: in its lines.
        case: all, in the order they run.
        sentence: what shared the machine, below its figures on a page.
        text: what it measures, for people.
        others: benchmarks that are shown beside it on a page.
        examples: of its options.
        defaults: of `Wish`.
    """

    name: str
    case: tuple[Case, ...]
    sentence: str = ""
    text: str = ""
    others: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    defaults: dict[str, float] = {}

    def chosen(self, names: tuple[str, ...]) -> tuple[Case, ...]:
        """The cases of these names, or all that run without being named."""
        return tuple(
            item for item in self.case if (item.name in names if names else not item.named_only)
        )

    @cached_property
    def rows(self) -> tuple[tuple[str, Goal], ...]:
        """Case and figure of each row of its table."""
        return tuple((case.name, goal) for case in self.case for goal in case.goals)

    @property
    def begin(self) -> str:
        """The comment before its table."""
        return f"<!-- {self.name} figures: begin -->"

    @property
    def end(self) -> str:
        """The comment after it."""
        return f"<!-- {self.name} figures: end -->"


def bench(name: str) -> Bench:
    """The benchmark of `cases/NAME.toml`."""
    text = (CASES / f"{name}.toml").read_text("utf-8")
    return msgspec.convert({"name": name, **tomllib.loads(text)}, Bench)
