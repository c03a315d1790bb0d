"""Capacity of a quorum: three beating replicas of each group, and writes that stay quick.

The number is doubled until it is too much, or quartered until it is not, and then the distance is
halved. Only replicas are added or fall silent between two tries; connections stay, since the end of
one calls for a look at everybody who spoke on it. Rules protected: the search ends in time whatever
the controllers do, and a number counts as too much only if it failed twice and writes are quick
again without any heartbeat, because a neighbour on the same machine delays a write as well. What it
refuses: to name a number that it has not tried, or any where writes are slow by themselves.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_lab.bench.controller.beats import Beats
from gantry_lab.bench.controller.throughput import THREE, prepare, writers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_lab.bench.controller.target import Controllers
    from gantry_lab.bench.load import FrameLoad
    from gantry_lab.bench.results import Runs
    from gantry_lab.bench.stage import BenchStage

P99_MAX_MS = 50.0
FIRST = 256
MOST = 32_768  # the controllers' table of heartbeats ends at 100,000 brokers
CLOSE_ENOUGH = 8  # the search ends when the least that is too much is within 1/8
TRIES = 2  # of one number, before silence is tried
WATCH_MIN_S = 3.0  # of a try: 300 writes
SETTLE_S = 2.0  # of new replicas: each is heard twice
WRITERS = 64
WRITES_PER_S = 100.0
ANSWERED_MIN = 0.9  # of the writes that are due
BIRTH_PATIENCE_S = 60.0  # of the groups of one try


class Search:
    """The choice of the next number of groups to try; pure."""

    def __init__(self) -> None:
        self.best = 0  # the most that was carried
        self.worst: int | None = None  # the least that was too much

    def next(self) -> int | None:
        """A number not tried yet; None when the answer is known well enough."""
        best, worst = self.best, self.worst
        if worst is None:
            return min(2 * best, MOST) if 0 < best < MOST else None if best else FIRST
        if not best:
            return worst // 4 or (1 if worst > 1 else None)
        middle = (best + worst) // 2
        return middle if middle > best and (worst - best) * CLOSE_ENOUGH > worst else None

    def note(self, tried: int, *, carried: bool) -> None:
        """Note the result of a try."""
        if carried:
            self.best = max(self.best, tried)
        else:
            self.worst = tried


class Trials:
    """The search, whatever is tried.

    Args:
        attempt: the p99 of writes in ms while so many groups beat; a `GantryError` if somebody did
            not keep up.
        late: whether to begin no further try.
        say: is told of each try.
    """

    def __init__(
        self,
        attempt: Callable[[int], Awaitable[float]],
        *,
        late: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self._attempt = attempt
        self._is_late = late
        self._say = say
        self._limited = False
        self._why = ""

    async def search(self) -> dict[str, float]:
        """The number, its p99, and whether the time limit ended the search.

        Raises:
            GantryError: writes are slow without heartbeats, or none that is carried was found.
        """
        while await self._tries(0) is None:
            if self._late():
                raise GantryError(f"Nothing was measured: {self._why}")
        search, p99s = Search(), dict[int, float]()
        while (groups := search.next()) is not None and not self._late():
            found = await self._carried(groups)
            if found is not None:
                p99s[groups] = found
            elif self._limited:
                break
            search.note(groups, carried=found is not None)
        if self._limited and not search.best:
            raise GantryError(f"No number of groups that is carried was found: {self._why}")
        figures = {"groups": float(search.best), "time_limit_reached": float(self._limited)}
        if search.best:  # else not even one group is carried, and that is the figure
            figures["p99_ms"] = p99s[search.best]
        return figures

    async def _carried(self, groups: int) -> float | None:
        """The p99 of writes in ms that this number was carried with; None if it is too much.

        None, too, if the time was up before that was known; `_limited` says so.
        """
        while True:
            found = await self._tries(groups)
            if found is not None or self._late() or await self._tries(0) is not None:
                return found
            if self._late():
                return None
            self._say("writes are slow without heartbeats, too; once more")

    async def _tries(self, groups: int) -> float | None:
        """The p99 of writes in ms, or None if it was too high, or not measured, each time."""
        for number in range(TRIES):
            if number and self._late():
                break
            try:
                p99_ms = await self._attempt(groups)
            except GantryError as error:
                self._why = str(error)
                self._say(f"{groups:,} groups: {error}")
                continue
            self._say(f"{groups:,} groups: p99 of writes {p99_ms:.1f} ms")
            if p99_ms <= P99_MAX_MS:
                return p99_ms
            self._why = f"with {groups:,} groups the p99 of a write was {p99_ms:.0f} ms."
        return None

    def _late(self) -> bool:
        self._limited = self._limited or self._is_late()
        return self._limited


async def most_groups(stage: BenchStage, limit_s: float) -> Runs:
    """See the module; no further try begins after so many seconds."""
    until_s = perf_counter() + limit_s
    async with stage.controllers() as target:
        crowd = Crowd(target, stage.wish.seconds, stage.wish.warmup_s)
        trials = Trials(crowd.p99_ms, late=lambda: perf_counter() > until_s, say=stage.say)
        try:
            return await stage.repeat(trials.search)
        finally:
            await crowd.leave()


class Crowd:
    """Groups that beat and writes beside them; let it ``leave`` in the end.

    Args:
        target: whom to load.
        seconds: how long each try is watched, at least `WATCH_MIN_S`.
        warmup_s: before that, on new connections.
    """

    def __init__(self, target: Controllers, seconds: float, warmup_s: float) -> None:
        self._target = target
        self._seconds = max(seconds, WATCH_MIN_S)
        self._warmup_s = warmup_s
        self._born = 0
        self._sessions = 0
        self._session: tuple[FrameLoad, Beats] | None = None
        self._open = AsyncExitStack()

    async def p99_ms(self, groups: int) -> float:
        """Of writes, while so many groups beat; after an error the next try has new connections.

        Raises:
            GantryError: somebody did not keep up, or refused.
        """
        try:
            if groups > self._born:
                births = range(self._born, groups)
                await prepare(self._target, births, replicas=THREE, patience_s=BIRTH_PATIENCE_S)
                self._born = groups
            settle_s = SETTLE_S
            if self._session is None:
                self._session = await self._begin()
                settle_s += self._warmup_s
            load, beats = self._session
            await beats.speak_for(groups)
            await asyncio.sleep(settle_s)
            found = await load.window(0.0, self._seconds)
            beats.check()
            if found.operations < ANSWERED_MIN * WRITES_PER_S * self._seconds:
                raise GantryError(f"only {found.per_second:.0f} writes were answered per second.")
            return found.p_ms(0.99)
        except GantryError:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Close the connections."""
        self._session = None
        await self._open.aclose()

    async def _begin(self) -> tuple[FrameLoad, Beats]:
        """New connections, and new writers: the last ones went with their connections."""
        first = MOST + WRITERS * self._sessions
        self._sessions += 1
        load = await writers(self._target, WRITERS, first=first)
        self._open.callback(load.close)
        load.per_second = WRITES_PER_S
        beats = Beats(0, replicas=THREE, connections=Beats.FEW)
        await self._open.enter_async_context(beats)
        await beats.connect(await self._target.leader(), await self._target.members())
        await beats.speak_for(0)
        beats.start()
        return load, beats
