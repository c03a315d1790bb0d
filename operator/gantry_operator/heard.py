"""Events of the cluster become keys in the queue; nothing else happens on an event.

Events about what the operator wrote itself are known to the cache and start nothing, or every
status write would start the next reconcile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, ENTITIES, FRONT_GROUP, Kind
from gantry_operator.cache import Cache, Key, key_of, name_of, place_of, reference

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Body
    from gantry_operator.workqueue import WorkQueue


class Listener:
    """Takes in events."""

    def __init__(self, cache: Cache, queue: WorkQueue[Key]) -> None:
        self._cache = cache
        self._queue = queue

    def hear(self, kind: Kind, event: str | None, body: Body) -> None:
        """An event of a watch; the type is None for an object of an initial list."""
        namespace, name = name_of(body)
        before = self._cache.get(kind, namespace, name)
        deleted = event == "DELETED"
        news = self._cache.remove(kind, body) if deleted else self._cache.put(kind, body)
        if not news:
            return
        key = key_of(kind, body)
        if key is not None:
            self._queue.add(key)
        if kind is CONTROLLER_GROUP and (deleted or _wish(before) != _wish(body)):
            self._dependents(namespace, name)
            self._entities(namespace, name)
        if kind in ENTITIES and (deleted or before is None):
            self._others(kind, body)
        if kind is BROKER_GROUP and (deleted or before is None):
            quorum = reference(body)
            self._referred_to(namespace, quorum)
            self._dependents(namespace, quorum, FRONT_GROUP)
            if event == "ADDED":
                self._neighbours(namespace, name, quorum)
        if kind is FRONT_GROUP and (deleted or before is None):
            # Brokers open their store to fronts, and a second FrontGroup waits for the first.
            self._referred_to(namespace, reference(body))
            self._dependents(namespace, reference(body))

    def roles_changed(self, namespace: str, group: str) -> None:
        """The controllers say that a group changed: people wait for its label."""
        self._queue.add(Key(BROKER_GROUP.kind, namespace, names.resource_of(group)), urgent=True)

    def evidence_changed(self, namespace: str, name: str) -> None:
        """Controllers are silent, or heard again: what rests on their word is looked at."""
        self._queue.add(Key(CONTROLLER_GROUP.kind, namespace, name))
        self._dependents(namespace, name)

    def _referred_to(self, namespace: str, quorum: str) -> None:
        """The deletion of a controller group waits for the last one that refers to it."""
        if self._cache.get(CONTROLLER_GROUP, namespace, quorum) is not None:
            self._queue.add(Key(CONTROLLER_GROUP.kind, namespace, quorum))

    def _neighbours(self, namespace: str, name: str, quorum: str) -> None:
        """Broker groups whose deletions nobody could take messages from before; mostly one."""
        for other_namespace, group in self._cache.names(BROKER_GROUP):
            if other_namespace != namespace or group == name:
                continue
            body = self._cache.get(BROKER_GROUP, namespace, group) or {}
            finalizers = (body.get("metadata") or {}).get("finalizers") or ()
            if names.DRAIN_FINALIZER not in finalizers and reference(body) == quorum:
                self._queue.add(Key(BROKER_GROUP.kind, namespace, group))

    def _entities(self, namespace: str, cluster: str) -> None:
        """What stands for something in the metadata of a quorum that appeared, changed or went."""
        for place, claimants in self._cache.places(namespace, cluster).items():
            for name in claimants:
                self._queue.add(Key(place.kind, namespace, name))

    def _others(self, kind: Kind, body: Body) -> None:
        """Of several that stand for one thing the first one counts, which may be another now."""
        namespace, name = name_of(body)
        for other in self._cache.claimants(namespace, reference(body), place_of(kind, body)):
            if other != name:
                self._queue.add(Key(kind.kind, namespace, other))

    def _dependents(self, namespace: str, name: str, *kinds: Kind) -> None:
        """Groups that refer to a controller group whose wish changed, appeared or went.

        Of all kinds that do, unless some are named.
        """
        for kind in kinds or (BROKER_GROUP, FRONT_GROUP):
            for other_namespace, group in self._cache.names(kind):
                if other_namespace != namespace:
                    continue
                if reference(self._cache.get(kind, namespace, group) or {}) == name:
                    self._queue.add(Key(kind.kind, namespace, group))


def _wish(body: Body | None) -> object:
    return None if body is None else (body["metadata"].get("uid"), body.get("spec"))
