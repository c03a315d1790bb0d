"""Full lists: to fill the cache at start, and to compare it now and then.

Two faults of watches are cured here. A deletion before the list that a watch begins with is never
reported, so a list of our own follows each such list, at start and later, and what it does not have
is pruned. A watch can freeze without an error, so a comparison is also the
watchdog: the watch gets a few seconds to deliver what the list knew, and if it is still behind,
that is a strike; a second strike in a row ends the process, and a new one starts with new watches.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gantry_protocol.errors import EXIT_TEMPORARY, GantryError
from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import ApiError
from gantry_operator.api.kinds import BROKER_GROUP, CUSTOM, WATCHED, Kind
from gantry_operator.cache import Cache, Comparison, Key, Name, name_of

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api, Body
    from gantry_operator.metrics import Metrics

GRACE_S = 5.0
"""How long a watch may be behind a list."""
MAX_STRIKES = 2
ATTEMPTS = 3
"""Of one list: it may become too old while it is read (410)."""
RETRY_S = 5.0
TELL_S = 10.0
"""Between two words about watches that do not begin."""
_log = log.get("resync")

Enqueue = Callable[[Key], None]


class WatchFrozenError(GantryError):
    """A watch delivers nothing and reports no error; the process has to start again."""

    exit_code = EXIT_TEMPORARY


class Resync:
    """Lists and comparisons.

    Attributes:
        named: broker groups that controllers know, whether or not there is a resource.

    Args:
        api: where to list.
        cache: what to compare with.
        namespaces: those that are served; empty means all.
        enqueue: called with each resource that has to be looked at.
        metrics: where findings are counted.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        namespaces: Sequence[str],
        enqueue: Enqueue,
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._cache = cache
        self._scopes: list[str | None] = list(namespaces) or [None]
        self._enqueue = enqueue
        self._metrics = metrics
        self.named: Callable[[], Iterable[Name]] = tuple
        self._strikes: dict[Kind, int] = {}
        self._last: float | None = None
        self._unheard = {(kind, scope) for kind in WATCHED for scope in self._scopes}
        self._gaps: dict[tuple[Kind, str | None], None] = {}  # in the order of their beginning
        self._changed = asyncio.Event()

    @property
    def age_s(self) -> float:
        """Seconds since the last comparison that succeeded; infinite before the first."""
        if self._last is None:
            return float("inf")
        return asyncio.get_running_loop().time() - self._last

    def listed(self, kind: Kind, scope: str | None) -> None:
        """A watch begins from a new list: nobody reports what was deleted before that."""
        self._unheard.discard((kind, scope))
        self._gaps[kind, scope] = None
        self._changed.set()

    async def fill(self) -> None:
        """The first lists: until they are in, "there are no pods" cannot be told from "not seen".

        They are read once every watch has begun, so that there is no moment between the two in
        which a deletion would be in neither.

        Raises:
            ApiError: a list could not be read.
        """
        await self._watches_begun()
        self._gaps.clear()
        for kind in WATCHED:
            for scope in self._scopes:
                begun = self._cache.turn()
                present, _ = await self._list(kind, scope, take=True)
                self._cache.compare(kind, scope, present, (), begun)
        self.look_at_all()
        self._last = asyncio.get_running_loop().time()

    def look_at_all(self) -> None:
        """Enqueue every resource, and every group that the controllers have named.

        In an order that is the same in every process: sets of names have none.
        """
        named = {(namespace, names.resource_of(group)) for namespace, group in self.named()}
        for namespace, name in sorted(named):
            self._enqueue(Key(BROKER_GROUP.kind, namespace, name))
        for kind in CUSTOM:
            for namespace, name in self._cache.names(kind):
                self._enqueue(Key(kind.kind, namespace, name))

    async def _watches_begun(self) -> None:
        while self._unheard:
            self._changed.clear()
            try:
                async with asyncio.timeout(TELL_S):
                    await self._changed.wait()
            except TimeoutError:
                missing = sorted({kind.plural for kind, _ in self._unheard})
                _log.warning("watches do not begin", kinds=",".join(missing))

    async def close_gaps(self) -> None:
        """Reads a list after each that a watch began with, until cancelled; one at a time."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._gaps:
                kind, scope = next(iter(self._gaps))
                del self._gaps[kind, scope]
                try:
                    self._take_in(kind, await self._differences(kind, scope))
                    self._metrics.relists.labels(kind.kind).inc()
                except ApiError as error:
                    _log.warning("list after a gap failed", kind=kind.kind, error=error)
                    self._gaps[kind, scope] = None
                    await asyncio.sleep(RETRY_S)

    async def run(self, interval_s: float) -> None:
        """Compares for ever, every interval give or take a fifth.

        Raises:
            WatchFrozenError: a watch was found behind twice in a row.
        """
        delay_s = interval_s
        while True:
            await asyncio.sleep(delay_s * random.uniform(0.8, 1.2))  # noqa: S311 -- no secret
            try:
                await self.compare()
                delay_s = interval_s
            except ApiError as error:
                _log.warning("comparison failed", error=error)
                delay_s = min(RETRY_S, interval_s)

    async def compare(self) -> None:
        """One comparison of every kind with a full list; then everything is looked at once more."""
        for kind in WATCHED:
            for scope in self._scopes:
                await self._compare(kind, scope)
        self._cache.forget_deletions(self._cache.turn())
        self.look_at_all()
        self._last = asyncio.get_running_loop().time()

    async def _compare(self, kind: Kind, scope: str | None) -> None:
        found = await self._differences(kind, scope, grace_s=GRACE_S)
        if found.stale:
            self._strike(kind, len(found.stale))
        else:
            self._strikes.pop(kind, None)
        self._take_in(kind, found)

    async def _differences(
        self, kind: Kind, scope: str | None, *, grace_s: float = 0.0
    ) -> Comparison:
        begun = self._cache.turn()
        present, behind = await self._list(kind, scope, take=False)
        if any(not self._cache.is_current(kind, body) for body in behind):
            await asyncio.sleep(grace_s)
        return self._cache.compare(kind, scope, present, behind, begun)

    def _take_in(self, kind: Kind, found: Comparison) -> None:
        if found.pruned:
            self._metrics.pruned.labels(kind.kind).inc(len(found.pruned))
            _log.info("deletions that no watch reported", kind=kind.kind, count=len(found.pruned))
        for key in sorted(found.keys):
            self._enqueue(key)

    def _strike(self, kind: Kind, count: int) -> None:
        strikes = self._strikes.get(kind, 0) + 1
        self._strikes[kind] = strikes
        self._metrics.stalled.labels(kind.kind).inc()
        _log.warning("watch is behind", kind=kind.kind, objects=count, strikes=strikes)
        if strikes >= MAX_STRIKES:
            raise WatchFrozenError(
                f"The watch of {kind.plural} delivers nothing; the operator ends so that it is "
                "started again with new watches."
            )

    async def _list(
        self, kind: Kind, scope: str | None, *, take: bool
    ) -> tuple[set[Name], list[Body]]:
        """Reads a full list; returns all names, and the objects that the cache is behind on.

        With `take` these go into the cache at once, and none are returned: at start that is all of
        them, and they need not exist twice.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._read(kind, scope, take)
            except ApiError as error:
                if error.status != 410 or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _read(
        self, kind: Kind, scope: str | None, take: bool
    ) -> tuple[set[Name], list[Body]]:
        labels = "" if kind in CUSTOM else names.MANAGED_SELECTOR
        present: set[Name] = set()
        behind: list[Body] = []
        async for body in self._api.list_all(kind, scope, labels):
            present.add(name_of(body))
            if self._cache.is_current(kind, body):
                continue
            if take:
                self._cache.put(kind, body)
            else:
                behind.append(body)
        return present, behind
