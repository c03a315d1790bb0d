"""Subscriptions to lite topics: which client of which group takes what. Pure.

It is what the records of ``GANTRY_SYS_LITE`` say in their order, so what one master knows, the next
one reads. A million subscriptions are a million entries of two tables that share their texts:
nothing is made for each.

What changes is said by events. An event that says what is so already changes nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gantry_broker.clients.core.lite.records import Added, Event, Left, Removed, Whole

ClientKey = tuple[str, str]  # group and client id
_CLIENT_BYTES = 200  # of a client's record, about, besides its names
_NAME_BYTES = 3  # quotes and comma


class Subscriber:
    """The lite topics that one client of one group takes.

    Attributes:
        key: group and client id.
        parent: the topic.
        names: of lite topics, the newest last, so that equal logs are looked through alike.
        all: every lite topic of the parent, as a member of a wildcard group.
        at: queue offset of the record that says all of it, but for what stands behind.
        pending: lite topics in which something may be for it, in order.
        scan: what is left of looking through all that it takes; None before that begins.
    """

    __slots__ = ("all", "at", "key", "names", "parent", "pending", "scan")

    def __init__(self, key: ClientKey, parent: str, at: int) -> None:
        self.key = key
        self.parent = parent
        self.names: dict[str, None] = {}
        self.all = False
        self.at = at
        self.pending: dict[str, None] = {}
        self.scan: Iterator[str] | None = None

    @property
    def size_bytes(self) -> int:
        """Of the record that says all of it, about."""
        return _CLIENT_BYTES + sum(len(name) + _NAME_BYTES for name in self.names)


class Evicted(NamedTuple):
    """A client lost a lite topic to another one of its group."""

    key: ClientKey
    name: str


class LiteRegistry:
    """See the module.

    Attributes:
        clients: by group and client id, those first whose whole record is oldest.
        count: subscriptions, over all clients; a wildcard counts as one.
    """

    def __init__(self) -> None:
        """Nobody subscribes to anything."""
        self.clients: dict[ClientKey, Subscriber] = {}
        self.count = 0
        # By parent and lite topic; most have one subscriber, so that no tuple is made for it.
        self._by_name: dict[str, dict[str, Subscriber | tuple[Subscriber, ...]]] = {}
        self._of_all: dict[str, dict[ClientKey, Subscriber]] = {}  # by parent

    def subscribers(self, parent: str, name: str) -> Iterator[Subscriber]:
        """The clients that take a lite topic, members of wildcard groups included."""
        found = self._by_name.get(parent, {}).get(name, ())
        yield from found if isinstance(found, tuple) else (found,)
        yield from self._of_all.get(parent, {}).values()

    def holders(self, group: str, parent: str, name: str) -> list[Subscriber]:
        """Clients of a group that name a lite topic."""
        return [
            item
            for item in self.subscribers(parent, name)
            if item.key[0] == group and name in item.names
        ]

    def of_group(self, group: str) -> list[Subscriber]:
        """The clients of a group."""
        return [item for key, item in self.clients.items() if key[0] == group]

    def apply(self, event: Event, at: int) -> list[Evicted]:
        """``event`` is so; its record has the queue offset ``at``.

        Returns:
            Who lost what by it.
        """
        key = (event.group, event.client_id)
        if isinstance(event, Left):
            self._forget(key)
            return []
        if isinstance(event, Removed):
            item = self.clients.get(key)
            if item is not None:
                self._take(item, event.names)
            return []
        evicted = self._evict(event, key) if isinstance(event, Added) and event.alone else []
        item = self._of(key, event.parent, at)
        if isinstance(event, Whole):
            kept = set(event.names)
            self._take(item, [name for name in item.names if name not in kept])
            self._set_all(item, is_all=event.all)
            item.at = at
            self.clients[key] = self.clients.pop(key)  # the newest
        self._give(item, event.names)
        return evicted

    def whole(self, item: Subscriber) -> Whole:
        """All about a client."""
        group, client_id = item.key
        return Whole(group, client_id, item.parent, sorted(item.names), item.all)

    def first_needed(self) -> int | None:
        """The queue offset of the oldest record that is needed; None when there is no client."""
        oldest = next(iter(self.clients.values()), None)
        return None if oldest is None else oldest.at

    def _of(self, key: ClientKey, parent: str, at: int) -> Subscriber:
        item = self.clients.get(key)
        if item is not None and item.parent != parent:
            self._forget(key)
            item = None
        if item is None:
            item = self.clients[key] = Subscriber(key, parent, at)
        return item

    def _evict(self, event: Added, key: ClientKey) -> list[Evicted]:
        found = []
        for name in event.names:
            for item in self.holders(event.group, event.parent, name):
                if item.key != key:
                    self._take(item, [name])
                    found.append(Evicted(item.key, name))
        return found

    def _give(self, item: Subscriber, names: list[str]) -> None:
        """More for a client; what it was never looked at for needs no note, it is looked at yet."""
        names = [name for name in dict.fromkeys(names) if name not in item.names]
        item.names.update(dict.fromkeys(names))
        self.count += len(names)
        if item.scan is not None:
            item.pending.update(dict.fromkeys(names))
        by_name = self._by_name.setdefault(item.parent, {})
        for name in names:
            known = by_name.setdefault(name, item)
            if known is not item:
                by_name[name] = (*(known if isinstance(known, tuple) else (known,)), item)

    def _take(self, item: Subscriber, names: list[str]) -> None:
        by_name = self._by_name.get(item.parent, {})
        for name in names:
            if name not in item.names:
                continue
            del item.names[name]
            item.pending.pop(name, None)
            self.count -= 1
            known = by_name[name]
            left = tuple(
                one for one in (known if isinstance(known, tuple) else (known,)) if one is not item
            )
            if not left:
                del by_name[name]
            else:
                by_name[name] = left if len(left) > 1 else left[0]

    def _set_all(self, item: Subscriber, *, is_all: bool) -> None:
        if item.all is is_all:
            return
        item.all, item.scan = is_all, None
        self.count += 1 if is_all else -1
        of_all = self._of_all.setdefault(item.parent, {})
        if is_all:
            of_all[item.key] = item
        else:
            del of_all[item.key]

    def _forget(self, key: ClientKey) -> None:
        item = self.clients.get(key)
        if item is not None:
            self._take(item, list(item.names))
            self._set_all(item, is_all=False)
            del self.clients[key]
