"""Where a case of `bench controller` runs: a fresh quorum of ours, or one that was given."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gantry_lab.bench import suite
from gantry_lab.bench.controller.quorum import OURS, Quorum
from gantry_lab.bench.controller.target import Against

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from gantry_lab.bench.controller.target import Target


class Stage(suite.Stage[suite.Wish]):
    """See the module. Each quorum is fresh, so that no case inherits another's log or groups."""

    @asynccontextmanager
    async def target(self) -> AsyncIterator[Target]:
        """The quorum that was given, else one of our own."""
        if self.wish.against is not None:
            yield Against(self.wish.against)
            return
        async with self.quorum() as quorum:
            yield quorum

    @asynccontextmanager
    async def quorum(
        self, settings: Mapping[str, str] | None = None, program: Sequence[str] = OURS
    ) -> AsyncIterator[Quorum]:
        """Three controllers of our own, with these environment variables besides their own.

        Raises:
            CannotRun: the quorum under load is somebody else's.
        """
        async with Quorum(self.directory(), settings, program=program) as quorum:
            yield quorum
