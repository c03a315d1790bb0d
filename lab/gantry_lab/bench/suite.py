"""A benchmark as a list of cases: what each runs, about how long it takes, what it is to reach.

`bench broker` and `bench controller` are such lists. Here is what a case uses: what
was asked for (`Wish`), where it runs (`Stage`), the loop over its runs (`Plan`). Rule protected: a
case that hurts or inspects processes refuses those that somebody else started.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec
from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gantry_lab.bench.figures import Runs


class CannotRun(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """This case has nothing to measure here; says why."""


class Goal(NamedTuple):
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
    times: Mapping[str, float] = MappingProxyType({})


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for.

    Attributes:
        runs: per case.
        seconds: counted per run.
        warmup_s: before that, in each run.
        kills: processes to lose in the cases that lose them; None: as many as the case wants.
        against: an address of servers that run already; None: ours are started.
        label: the name of the benchmark in its lines.
    """

    runs: int
    seconds: float
    warmup_s: float
    label: str
    kills: int | None = None
    against: str | None = None

    @property
    def window_s(self) -> float:
        """One run with its warm-up."""
        return self.warmup_s + self.seconds

    @property
    def windows_s(self) -> float:
        """All runs of a case."""
        return self.runs * self.window_s


WishT = TypeVar("WishT", bound=Wish)


class Plan(NamedTuple):
    """How a case is measured.

    Attributes:
        runs: how often.
        seconds: how long is counted each time.
        warmup_s: before that.
        advance: called after each run.
    """

    runs: int
    seconds: float
    warmup_s: float
    advance: Callable[[], None]

    async def repeat(self, one: Callable[[], Awaitable[dict[str, float]]]) -> Runs:
        """The figures of each run."""
        found = []
        for _ in range(self.runs):
            found.append(await one())
            self.advance()
        return found


class Stage(Generic[WishT]):
    """Where a case runs.

    Args:
        wish: what was asked for.
        directory: for data and logs; it exists.
        advance: called after each run.
        say: is told what a long run has found so far.
    """

    def __init__(
        self,
        wish: WishT,
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
        return self.plan_of(self.wish.runs)

    def plan_of(self, runs: int) -> Plan:
        """The same with so many runs."""
        return Plan(runs, self.wish.seconds, self.wish.warmup_s, self.advance)

    def directory(self) -> Path:
        """A fresh one, for servers of our own.

        Raises:
            CannotRun: those under load are somebody else's.
        """
        self.own()
        return Path(tempfile.mkdtemp(dir=self._directory))

    def own(self) -> None:
        """Refuse to do to somebody else's servers what this case does.

        Raises:
            CannotRun: they are.
        """
        if self.wish.against is not None:
            raise CannotRun("needs servers that it starts itself; leave --against out")


StageT = TypeVar("StageT")


def _runs(wish: Wish) -> int:
    return wish.runs


class Case(msgspec.Struct, Generic[WishT, StageT], frozen=True):
    """One case.

    Attributes:
        name: on the command line, and in its lines.
        text: what it measures, in a few words.
        run: the figures of each run.
        seconds: about how long it takes on a quiet machine.
        goals: its figures on the page, in this order.
        steps: how often it calls `advance`.
        named_only: it runs only if it is asked for by name.
    """

    name: str
    text: str
    run: Callable[[StageT], Awaitable[Runs]]
    seconds: Callable[[WishT], float]
    goals: tuple[Goal, ...]
    steps: Callable[[WishT], int] = _runs
    named_only: bool = False


class Bench(msgspec.Struct, Generic[WishT, StageT], frozen=True):
    """A benchmark.

    Attributes:
        name: in its lines.
        stage: where its cases run.
        cases: in the order they run.
        others: benchmarks that are shown beside it on a page.
        sentence: what shared the machine, below its figures on a page.
    """

    name: str
    stage: Callable[[WishT, Path, Callable[[], None], Callable[[str], None]], StageT]
    cases: tuple[Case[WishT, StageT], ...]
    others: tuple[str, ...]
    sentence: str

    def chosen(self, names: tuple[str, ...]) -> tuple[Case[WishT, StageT], ...]:
        """The cases of these names, or all that run without being named."""
        return tuple(
            case for case in self.cases if (case.name in names if names else not case.named_only)
        )
