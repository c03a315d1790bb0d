"""The metadata of clusters as entities are compared with it: one read for all of one kind.

However many resources are looked at, a table is read once and used for ``FRESH_S``; who reads it
again names the stamp of the last answer, and is told in a line that nothing has changed. What the
operator writes itself is put in at once. Now and then each table that resources rest on is looked
at: what has changed there brings those resources back, so what others do is undone soon, and ten
thousand resources that are as they should be cost one small question.

Bounded: one table of each kind for each cluster that resources name, as large as the controllers
let it be.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import Unreachable
from pydantic import ValidationError

from gantry_operator.api.kinds import CONSUMER_GROUP, CONTROLLER_GROUP, MESSAGE_USER, TOPIC
from gantry_operator.cache import Key
from gantry_operator.plan.consumer_groups import ConsumerGroupsHeld
from gantry_operator.plan.topics import TopicsHeld
from gantry_operator.plan.users import UsersHeld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.cache import Cache, Name
    from gantry_operator.metrics import Metrics
    from gantry_operator.quorums.directory import Directory

FRESH_S = 5.0
LOOK_S = 30.0
"""How long a change that others made may go unseen, give or take a fifth."""
PAGES_MAX = 1_000
"""Of one table; a hundred thousand topics are a hundred."""


class Told(NamedTuple):
    """An answer of the controllers: a stamp, and everything; or only that nothing changed."""

    stamp: str
    facts: Any = None
    rows: dict[str, Any] | None = None


class _Table:
    """What is known of one kind in one cluster."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.stamp = ""  # of what is known in full; empty: nothing is
        self.was_read = False
        self.at_s = float("-inf")
        self.facts: Any = None
        self.rows: dict[str, Any] = {}
        self.written: dict[str, float] = {}  # own writes since the last read was begun
        self.changed: set[str] = set()  # what others have, since somebody asked
        self.all_changed = False


class Tables:
    """All tables.

    Args:
        directory: the controllers.
        metrics: where reads are counted.
    """

    def __init__(self, directory: Directory, metrics: Metrics) -> None:
        self._directory = directory
        self._metrics = metrics
        self._tables: dict[tuple[str, Name], _Table] = {}
        self._read: dict[str, Callable[[Admin, str], Awaitable[Told]]] = {
            TOPIC.kind: _topics,
            MESSAGE_USER.kind: _users,
            CONSUMER_GROUP.kind: _consumer_groups,
        }

    async def topics(self, namespace: str, cluster: str) -> TopicsHeld | Unreachable:
        """The topics of a cluster."""
        found = await self._held(TOPIC.kind, (namespace, cluster))
        if isinstance(found, Unreachable):
            return found
        groups, unheard, new = found.facts
        return TopicsHeld(groups, unheard, new, found.rows)

    async def users(self, namespace: str, cluster: str) -> UsersHeld | Unreachable:
        """The users of a cluster."""
        found = await self._held(MESSAGE_USER.kind, (namespace, cluster))
        if isinstance(found, Unreachable):
            return found
        return UsersHeld(found.stamp, found.rows)

    async def consumer_groups(
        self, namespace: str, cluster: str
    ) -> ConsumerGroupsHeld | Unreachable:
        """The settings of a cluster's consumer groups."""
        found = await self._held(CONSUMER_GROUP.kind, (namespace, cluster))
        if isinstance(found, Unreachable):
            return found
        groups, new = found.facts
        return ConsumerGroupsHeld(groups, new, found.rows)

    def doubt(self, kind: str, namespace: str, cluster: str) -> None:
        """Has a table read before it is used: what it led to was refused, so it may be old."""
        table = self._tables.get((kind, (namespace, cluster)))
        if table is not None:
            table.at_s = float("-inf")

    def wrote(self, kind: str, namespace: str, cluster: str, named: str, row: Any) -> None:
        """Takes in what was just written; None for what is gone."""
        table = self._tables.get((kind, (namespace, cluster)))
        if table is None:
            return
        table.written[named] = _now_s()
        _put(table.rows, named, row)

    async def watch(
        self, cache: Cache, enqueue: Callable[[Key], None], leads: Callable[[], bool]
    ) -> None:
        """Looks at each table that resources rest on, for ever."""
        while True:
            await asyncio.sleep(LOOK_S * random.uniform(0.8, 1.2))  # noqa: S311 -- no secret
            if leads():
                await self.look(cache, enqueue)

    async def look(self, cache: Cache, enqueue: Callable[[Key], None]) -> None:
        """One look at each; what changed brings its resources back."""
        wanted = set()
        for cluster in cache.clusters():
            if cache.get(CONTROLLER_GROUP, *cluster) is None:
                continue
            for kind in sorted({place.kind for place in cache.places(*cluster)}):
                wanted.add((kind, cluster))
                await self._look(kind, cluster, cache, enqueue)
        for place in self._tables.keys() - wanted:
            del self._tables[place]

    async def _look(
        self, kind: str, cluster: Name, cache: Cache, enqueue: Callable[[Key], None]
    ) -> None:
        found = await self._held(kind, cluster, fresh_s=0.0)
        if isinstance(found, Unreachable):
            return
        changed, found.changed = found.changed, set()
        everything, found.all_changed = found.all_changed, False
        for place, claimants in cache.places(*cluster).items():
            if place.kind == kind and (everything or place.named in changed):
                for name in claimants:
                    enqueue(Key(kind, cluster[0], name))

    async def _held(
        self, kind: str, cluster: Name, *, fresh_s: float = FRESH_S
    ) -> _Table | Unreachable:
        table = self._tables.setdefault((kind, cluster), _Table())
        async with table.lock:
            if _now_s() - table.at_s < fresh_s:
                return table
            begun_s = _now_s()
            admin = self._directory.admin(*cluster)
            try:
                told = await self._read[kind](admin, table.stamp)
            except QuorumUnreachableError as error:
                return Unreachable(str(error))
            except AdminRefusedError as error:
                older = f"The controllers of {cluster[1]} are of an older version: roll them first."
                return Unreachable(older if error.status == 404 else str(error))
            except ValidationError:
                return Unreachable(f"{cluster[1]} gave an answer that is no table.")
            self._take(kind, table, told, begun_s)
            return table

    def _take(self, kind: str, table: _Table, told: Told, begun_s: float) -> None:
        self._metrics.table_reads.labels(kind, "whole" if told.rows is not None else "same").inc()
        later = {name: at_s for name, at_s in table.written.items() if at_s >= begun_s}
        if told.rows is not None:
            for name in later:
                _put(told.rows, name, table.rows.get(name))
            if table.was_read:  # before the first read nobody concluded anything
                table.all_changed |= told.facts != table.facts
                names = told.rows.keys() | table.rows.keys()
                old, new = table.rows, told.rows
                table.changed |= {name for name in names if old.get(name) != new.get(name)}
            table.facts, table.rows, table.was_read = told.facts, told.rows, True
        table.at_s, table.stamp, table.written = _now_s(), told.stamp, later
        if told.rows is not None and later:  # the answer may be newer than those, or older
            table.stamp = ""


async def _topics(admin: Admin, known: str) -> Told:
    first = page = await admin.topics(known)
    if page.unchanged:
        return Told(page.stamp)
    rows = {topic.name: topic for topic in page.topics}
    for _ in range(PAGES_MAX):
        if not page.more:
            break
        page = await admin.topics(after=page.topics[-1].name)
        rows |= {topic.name: topic for topic in page.topics}
    return Told(first.stamp, (tuple(first.groups), tuple(first.unheard), tuple(first.new)), rows)


async def _consumer_groups(admin: Admin, known: str) -> Told:
    first = page = await admin.consumer_groups(known)
    if page.unchanged:
        return Told(page.stamp)
    rows = {group.name: group for group in page.consumer_groups}
    for _ in range(PAGES_MAX):
        if not page.more:
            break
        page = await admin.consumer_groups(after=page.consumer_groups[-1].name)
        rows |= {group.name: group for group in page.consumer_groups}
    return Told(first.stamp, (tuple(first.groups), tuple(first.new)), rows)


async def _users(admin: Admin, known: str) -> Told:
    view = await admin.access()
    stamp = "unsaid" if view.changed is None else str(view.changed)
    if view.changed is not None and stamp == known:
        return Told(stamp)
    return Told(stamp, None, {user.name: user for user in view.users})


def _put(rows: dict[str, Any], name: str, row: Any) -> None:
    if row is None:
        rows.pop(name, None)
    else:
        rows[name] = row


def _now_s() -> float:
    return asyncio.get_running_loop().time()
