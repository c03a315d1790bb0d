"""Where a case of `bench broker` runs: a fresh group of ours, or brokers that were given."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gantry_cli.client.session import Session, session

from gantry_lab.bench import suite
from gantry_lab.bench.broker.target import Against, Ours
from gantry_lab.bench.members import Members

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from gantry_lab.bench.broker.target import Target


class Wish(suite.Wish, frozen=True, kw_only=True):
    """What the command line asked for.

    Attributes:
        log_bytes: what an empty replica has to copy, and what is read from the disk; pull-hot
            writes no more than a quarter of a gigabyte of it.
        queues: of queues-1m.
        rounds: a file that keeps the finished rounds of kills-1000; None: nothing is kept.
    """

    log_bytes: int = 2 << 30
    queues: int = 1_000_000
    rounds: Path | None = None


class Stage(suite.Stage[Wish]):
    """See the module. Each group is fresh, so that no case inherits another's log."""

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
    async def group(
        self, replicas: int, variables: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[Members, Session]]:
        """A settled group of our own; its brokers have `variables` besides.

        Raises:
            CannotRun: the brokers under load are somebody else's.
        """
        async with (
            Members(self.directory(), replicas=replicas) as members,
            session(members.name_servers) as client,
        ):
            await members.start(variables)
            yield members, client
