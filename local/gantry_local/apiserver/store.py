"""Objects, their revisions and a bounded history of changes.

One revision counter for everything, as in etcd. Stored objects are never changed in place: a write
puts a new object, so that lists, watches and history share them without copies.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gantry_local.apiserver.subscribers import Subscribers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ResourceKey = tuple[str, str]
"""(group, plural)."""
ObjectKey = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is empty."""
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

DEFAULT_WINDOW: Final = 20_000
"""Changes kept for watches that come back; older resourceVersions answer 410."""


class Record:
    """One revision of one object; its JSON text is made once and shared by all readers."""

    __slots__ = ("_encoded", "key", "obj", "resource", "revision")

    def __init__(
        self, resource: ResourceKey, key: ObjectKey, obj: dict[str, Any], rev: int
    ) -> None:
        self.resource = resource
        self.key = key
        self.obj = obj
        self.revision = rev
        self._encoded: bytes | None = None

    @property
    def uid(self) -> str:
        """The object's uid."""
        return str(self.obj["metadata"]["uid"])

    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self.obj)
        return self._encoded


class Event:
    """A change: the record it left (for DELETED the last one) and the record before it."""

    __slots__ = ("before", "record", "type")

    def __init__(self, kind: EventType, record: Record, before: Record | None) -> None:
        self.type = kind
        self.record = record
        self.before = before


class Store:
    """All objects by resource and key, with subscriptions and an index by owner."""

    def __init__(self, *, window: int = DEFAULT_WINDOW, revision: int = 0) -> None:
        self.revision = revision
        # Revisions up to and including this one cannot be watched from any more.
        self.compacted = revision
        self._window = window
        self._history: deque[Event] = deque()
        self._objects: dict[ResourceKey, dict[ObjectKey, Record]] = {}
        self._sorted: dict[ResourceKey, list[ObjectKey]] = {}
        self._owned: dict[str, dict[tuple[ResourceKey, ObjectKey], None]] = {}
        self._subscribers: Subscribers[Event] = Subscribers()

    def get(self, resource: ResourceKey, key: ObjectKey) -> Record | None:
        """The current record, if any."""
        return self._objects.get(resource, {}).get(key)

    def records(self, resource: ResourceKey, namespace: str | None = None) -> list[Record]:
        """Current records in key order; ``namespace`` None means all."""
        objects = self._objects.get(resource, {})
        order = self._sorted.get(resource)
        if order is None:
            order = self._sorted[resource] = sorted(objects)
        if namespace is None:
            return [objects[key] for key in order]
        return [objects[key] for key in order if key[0] == namespace]

    def resources(self) -> Iterator[ResourceKey]:
        """Resources that have or had objects."""
        return iter(list(self._objects))

    def owned_by(self, uid: str) -> list[Record]:
        """Records whose ownerReferences name the uid."""
        found = (self.get(*place) for place in self._owned.get(uid, {}))
        return [record for record in found if record is not None]

    def put(self, resource: ResourceKey, key: ObjectKey, obj: dict[str, Any]) -> Record:
        """Store a new revision; the object gets its resourceVersion (on a copy of its metadata)."""
        self._subscribers.check_idle()
        self.revision += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision)}
        record = Record(resource, key, {**obj, "metadata": metadata}, self.revision)
        before = self.get(resource, key)
        self._place(record, before)
        self._publish(Event("ADDED" if before is None else "MODIFIED", record, before))
        return record

    def delete(self, resource: ResourceKey, key: ObjectKey) -> Record | None:
        """Remove; the last state is published under a revision of its own, as etcd reports it."""
        self._subscribers.check_idle()
        before = self._objects.get(resource, {}).pop(key, None)
        if before is None:
            return None
        self._sorted.pop(resource, None)
        self._unlink_owners(before)
        self.revision += 1
        metadata = {**before.obj["metadata"], "resourceVersion": str(self.revision)}
        record = Record(resource, key, {**before.obj, "metadata": metadata}, self.revision)
        self._publish(Event("DELETED", record, before))
        return record

    def restore(self, records: Iterable[Record], revision: int) -> None:
        """Fill an empty store from a journal, without events."""
        assert not self._objects, "only an empty store can be restored"
        for record in records:
            self._place(record, None)
        self.revision = self.compacted = revision

    def subscribe(
        self,
        callback: Callable[[Event], None],
        *,
        name: str,
        resync: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call back on every later change, in order; returns the way to stop it.

        Args:
            callback: Short, and without writes. What it raises reaches nobody else.
            name: Of the subscriber, in logs and counts.
            resync: Called after a failure instead of the callback, until it succeeds: look at
                everything the store holds. None: the subscriber goes on without what it missed.
        """
        return self._subscribers.add(name, callback, resync)

    @property
    def failures(self) -> dict[str, int]:
        """Failed deliveries and resyncs by the subscriber's name."""
        return dict(self._subscribers.failures)

    def since(self, revision: int) -> list[Event] | None:
        """Changes after ``revision``; None when they are no longer all known."""
        if revision < self.compacted:
            return None
        newer: list[Event] = []
        for event in reversed(self._history):
            if event.record.revision <= revision:
                break
            newer.append(event)
        newer.reverse()
        return newer

    def compact(self) -> None:
        """Forget the history, as an etcd compaction does."""
        self._history.clear()
        self.compacted = self.revision

    def _place(self, record: Record, before: Record | None) -> None:
        objects = self._objects.setdefault(record.resource, {})
        if before is None:
            self._sorted.pop(record.resource, None)
        else:
            self._unlink_owners(before)
        objects[record.key] = record
        for owner in record.obj["metadata"].get("ownerReferences") or ():
            self._owned.setdefault(owner["uid"], {})[record.resource, record.key] = None

    def _unlink_owners(self, record: Record) -> None:
        for owner in record.obj["metadata"].get("ownerReferences") or ():
            linked = self._owned.get(owner["uid"], {})
            linked.pop((record.resource, record.key), None)
            if not linked:
                self._owned.pop(owner["uid"], None)

    def _publish(self, event: Event) -> None:
        self._history.append(event)
        while len(self._history) > self._window:
            self.compacted = self._history.popleft().record.revision
        self._subscribers.tell(event)
