"""One view of the consumers of a cluster, over the reports of all its masters (RIP-18).

Each master reports who consumes from its own broker group (``subscriptions.report_consumers``). A
client mostly speaks to several masters, so a consumer group's members are those whom any master
hears: whoever loses one connection stays a member everywhere.

The view is derived from the reports. It remembers when each consumer group changed, by the index in
the log. A reader says how far it has read and is given what changed since; one that has read
nothing, or too long ago, is given the whole, in pages by name. What is given is as of now, so a
reader that has caught up knows the same as every other.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

from gantry_protocol.types import Index

from gantry_controller.metadata.clients import Client, ConsumerGroup, ConsumerTable, Subscription

GONE_MAX = 1000
"""Consumer groups without members whose end is remembered, of one cluster."""

PAGE_CLIENTS_MAX = 5000
"""Clients and consumer groups in a page: half a megabyte, and five milliseconds to make."""

HEARD_BY_MAX = 2
"""Broker groups named for each client: enough to tell a master whether another one hears it."""

GroupKey = tuple[str, str]


class HeardClient(NamedTuple):
    """A member, and the first ``HEARD_BY_MAX`` broker groups whose masters hear it, by name."""

    client: Client
    heard_by: tuple[str, ...]


class ClusterGroup(NamedTuple):
    """A consumer group over all broker groups of a cluster.

    Attributes:
        generation: rises with each change: the index of the last in the log; 0 without members.
        clients: ascending by id; none if the group has ended.
        subscriptions: ascending by topic; of two for one topic that of the later broker name.
        latest: the report of the last broker group in order, whose mode counts; None without any.
    """

    generation: Index
    clients: tuple[HeardClient, ...]
    subscriptions: tuple[Subscription, ...]
    latest: ConsumerGroup | None


Show = Callable[[str], ClusterGroup]


class ConsumerPage(NamedTuple):
    """Next answer to a reader.

    Attributes:
        since: up to where the reader will have read; what it says next time.
        after: the name after which the whole goes on; None once it has been given.
        is_whole: this is a part of the whole: the reader forgets what it knew before its begin.
        more: there is another page.
        groups: the consumer groups as they are now.
    """

    since: Index
    after: str | None
    is_whole: bool
    more: bool
    groups: dict[str, ClusterGroup]


class ClusterConsumers:
    """The consumer groups of one cluster: where each has members, and when it changed.

    Attributes:
        changed_at: the index of the last change of any.
    """

    __slots__ = ("_changes", "_forgotten_at", "_gone", "_where", "changed_at")

    def __init__(self, began_at: Index) -> None:
        """Changes before ``began_at`` are not known one by one."""
        self.changed_at = began_at
        self._forgotten_at = began_at
        self._where: dict[str, dict[GroupKey, None]] = {}
        self._changes: dict[str, Index] = {}  # the oldest first
        self._gone: dict[str, None] = {}  # of these, the groups without members, the oldest first

    def changed(self, key: GroupKey, names: Iterable[str], table: ConsumerTable, at: Index) -> None:
        """The report of the broker group ``key`` is now ``table``; ``names`` are other than before.

        The caller changes names in one order on all controllers.
        """
        for name in names:
            if name in table.groups:
                self._where.setdefault(name, {})[key] = None
            else:
                self._where.get(name, {}).pop(key, None)
            self._changes.pop(name, None)
            self._changes[name] = at
            self._gone.pop(name, None)
            if not self._where.get(name):
                self._where.pop(name, None)
                self._gone[name] = None
            self.changed_at = at
        while len(self._gone) > GONE_MAX:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._forgotten_at = max(self._forgotten_at, self._changes.pop(oldest))

    def page(self, since: Index, after: str | None, show: Show) -> ConsumerPage:
        """Answer for a reader that has read up to ``since``, and of the whole up to ``after``.

        ``since`` is 0 for a reader that knows nothing; ``after`` is None unless the last page was
        of the whole, and not its end. Of a page of news those that changed at one index are not
        parted. ``show`` gives a consumer group as it is now.
        """
        if after is None and self._forgotten_at <= since <= self.changed_at:
            return self._news(since, show)
        if after is None:
            since, after = self.changed_at, ""
        groups: dict[str, ClusterGroup] = {}
        size = 0
        for name in sorted(name for name in self._where if name > after):
            if size >= PAGE_CLIENTS_MAX:
                return ConsumerPage(since, next(reversed(groups)), True, True, groups)
            groups[name] = show(name)
            size += 1 + len(groups[name].clients)
        return ConsumerPage(since, None, True, since < self.changed_at, groups)

    def _news(self, since: Index, show: Show) -> ConsumerPage:
        newest = takewhile(lambda change: change[1] > since, reversed(self._changes.items()))
        groups: dict[str, ClusterGroup] = {}
        size, until = 0, since
        for name, at in reversed(list(newest)):
            if size >= PAGE_CLIENTS_MAX and at > until:
                return ConsumerPage(until, None, False, True, groups)
            groups[name], until = show(name), at
            size += 1 + len(groups[name].clients)
        return ConsumerPage(self.changed_at, None, False, False, groups)

    def heard_at(self, name: str) -> Iterable[GroupKey]:
        """The broker groups whose masters hear members of a consumer group."""
        return self._where.get(name, ())

    def group(
        self, name: str, reports: Mapping[GroupKey, ConsumerTable], generation: Index
    ) -> ClusterGroup:
        """A consumer group as all ``reports`` have it."""
        heard: dict[str, HeardClient] = {}
        subscriptions: dict[str, Subscription] = {}
        latest = None
        for key in sorted(self._where.get(name, ())):
            latest = reports[key].groups[name]
            for client in latest.clients:
                known = heard.get(client.client_id)
                by = (key[1],) if known is None else (*known.heard_by, key[1])[:HEARD_BY_MAX]
                heard[client.client_id] = HeardClient(client, by)
            subscriptions.update({wanted.topic: wanted for wanted in latest.subscriptions})
        return ClusterGroup(
            generation=generation,
            clients=tuple(heard[client] for client in sorted(heard)),
            subscriptions=tuple(subscriptions[topic] for topic in sorted(subscriptions)),
            latest=latest,
        )
