"""The stage of a case: fresh servers of our own, or some that were given.

Rule protected: a case that hurts or inspects processes refuses those that somebody else started.
"""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_cli.client.session import Session, session
from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.target import AgainstBrokers, ProcessGroup
from gantry_lab.bench.controller.quorum import OURS, ProcessQuorum
from gantry_lab.bench.controller.target import AgainstControllers
from gantry_lab.bench.members import Members

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from gantry_lab.bench.broker.target import Brokers
    from gantry_lab.bench.controller.target import Controllers
    from gantry_lab.bench.load import FrameLoad, Window
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.suite import Case, Wish


class CannotRun(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """This case has nothing to measure here; says why."""


class BenchStage:
    """See the module. Servers are fresh, so that no case inherits another's log or groups.

    Args:
        wish: what was asked for.
        case: what runs here.
        directory: for data and logs; it exists.
        advance: called after each step.
        say: is told what a long run has found so far.
    """

    def __init__(
        self,
        wish: Wish,
        case: Case,
        directory: Path,
        advance: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self.wish = wish
        self.steps = case.steps(wish)
        self.advance = advance
        self.say = say
        self._directory = directory

    async def repeat(self, one: Callable[[], Awaitable[dict[str, float]]]) -> Runs:
        """The figures of each step."""
        found = []
        for _ in range(self.steps):
            found.append(await one())
            self.advance()
        return found

    async def window(self, target: Controllers | Brokers, load: FrameLoad) -> dict[str, float]:
        """The figures of one run of `load`, by metric; `target` is whose CPU counts."""
        used: list[tuple[float, float] | None] = []
        seen = await load.window(
            self.wish.warmup_s, self.wish.seconds, lambda: used.append(target.cpu_s())
        )
        return figures(seen, used, target.roles)

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

    @asynccontextmanager
    async def controllers(self) -> AsyncIterator[Controllers]:
        """The quorum that was given, else one of our own."""
        if self.wish.against is not None:
            yield AgainstControllers(self.wish.against)
            return
        async with self.quorum() as quorum:
            yield quorum

    @asynccontextmanager
    async def quorum(
        self, settings: Mapping[str, str] | None = None, program: Sequence[str] = OURS
    ) -> AsyncIterator[ProcessQuorum]:
        """Three controllers of our own, with these environment variables besides their own."""
        async with ProcessQuorum(self.directory(), settings, program=program) as quorum:
            yield quorum

    @asynccontextmanager
    async def brokers(self, replicas: int) -> AsyncIterator[tuple[Brokers, Session]]:
        """The brokers that were given, else a settled group of our own with so many replicas."""
        if self.wish.against is not None:
            async with session([self.wish.against]) as client:
                yield AgainstBrokers(self.wish.against, client), client
            return
        async with self.group(replicas) as (members, client):
            yield ProcessGroup(members, client), client

    @asynccontextmanager
    async def group(
        self, replicas: int, variables: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[Members, Session]]:
        """A settled group of our own; its brokers have `variables` besides."""
        async with (
            Members(self.directory(), replicas=replicas) as members,
            session(members.name_servers) as client,
        ):
            await members.start(variables)
            yield members, client


def figures(
    seen: Window, used: Sequence[tuple[float, float] | None], roles: tuple[str, str]
) -> dict[str, float]:
    """The figures of one window, by metric.

    Args:
        seen: the window.
        used: CPU seconds as of its beginning and its end: of the one that leads, of the others.
        roles: what these are called.

    Raises:
        GantryError: there are too few answers to speak of.
    """
    count = seen.messages or seen.operations
    if not count:
        raise GantryError("No request was answered; measure longer with --seconds.")
    found = {
        "messages_per_s" if seen.messages else "ops_per_s": count / seen.seconds,
        "p50_ms": seen.p_ms(0.5),
        "p99_ms": seen.p_ms(0.99),
        "generator_cpu_us": 1e6 * seen.generator_s / count,
        "generator_cpu_percent": 100 * seen.generator_s / seen.seconds,
        "refused_percent": 100 * seen.refused / (seen.operations + seen.refused),
    }
    if seen.messages and seen.received_bytes > 1024 * seen.messages:
        found["mb_per_s"] = seen.received_bytes / seen.seconds / 1e6
    before, after = used
    if before is not None and after is not None:
        for role, start, end in zip(roles, before, after, strict=True):
            found[f"{role}_cpu_us"] = 1e6 * (end - start) / count
    return found
