"""What the operator has heard of the cluster: the latest version of every object it cares about.

Fed by watch events and by full lists. Two rules keep it from going backwards: an older version of
the same object never replaces a newer one, and a list never removes or revives what was heard of
after the list was begun.

Versions are compared as integers, which Kubernetes guarantees since 1.35 and etcd always delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, CUSTOM, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Body = dict[str, Any]
Name = tuple[str, str]
"""Namespace and name."""


class Key(NamedTuple):
    """A resource to reconcile."""

    kind: str
    namespace: str
    name: str


class Comparison(NamedTuple):
    """How a full list differed from the cache.

    Attributes:
        stale: names that the list knew in a newer version, or that the cache did not know.
        pruned: names that the list did not have.
        keys: resources to look at because of that.
    """

    stale: list[Name]
    pruned: list[Name]
    keys: set[Key]


class Cache:
    """Objects by kind, namespace and name, and owned ones by their resource."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[Name, Body]] = {}
        self._owned: dict[Key, dict[tuple[Kind, str], Body]] = {}
        self._heard: dict[tuple[Kind, Name], int] = {}
        self._turn = 0

    def turn(self) -> int:
        """A mark in time: what is heard of later has a higher one."""
        return self._turn

    def get(self, kind: Kind, namespace: str, name: str) -> Body | None:
        """The latest version of an object."""
        return self._objects.get(kind, {}).get((namespace, name))

    def names(self, kind: Kind) -> Iterator[Name]:
        """All known objects of a kind."""
        return iter(list(self._objects.get(kind, ())))

    def count(self, kind: Kind) -> int:
        """How many objects of a kind are known."""
        return len(self._objects.get(kind, ()))

    def owned(self, key: Key, kind: Kind) -> list[Body]:
        """The objects of a kind that belong to a resource."""
        return [body for (k, _), body in self._owned.get(key, {}).items() if k == kind]

    def put(self, kind: Kind, body: Body) -> bool:
        """Takes in a version of an object; False if it was known or older than the known one."""
        name = name_of(body)
        self._hear(kind, name)
        old = self._objects.get(kind, {}).get(name)
        if old is not None and _is_not_newer(body, old):
            return False
        if old is not None:
            self._unlink(kind, name, old)
        meta = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
        trimmed = body | {"metadata": meta}
        self._objects.setdefault(kind, {})[name] = trimmed
        owner = key_of(kind, trimmed)
        if owner is not None and kind not in CUSTOM:
            self._owned.setdefault(owner, {})[kind, name[1]] = trimmed
        return True

    def remove(self, kind: Kind, body: Body) -> bool:
        """Takes out a deleted object; False if it was not known, or a successor is."""
        name = name_of(body)
        self._hear(kind, name)
        old = self._objects.get(kind, {}).get(name)
        if old is None or old["metadata"].get("uid") != body["metadata"].get("uid"):
            return False
        self._drop(kind, name, old)
        return True

    def compare(
        self, kind: Kind, namespace: str | None, listed: Iterable[Body], begun: int
    ) -> Comparison:
        """Takes in a full list of a kind in a namespace, or in all of them.

        Args:
            kind: what was listed.
            namespace: where; None is everywhere.
            listed: all objects.
            begun: `turn()` from before the list was begun.
        """
        result = Comparison([], [], set())
        present = set()
        for body in listed:
            name = name_of(body)
            present.add(name)
            if self._heard.get((kind, name), -1) <= begun and self.put(kind, body):
                result.stale.append(name)
                result.keys.update(_keys(kind, body))
        for name, old in list(self._objects.get(kind, {}).items()):
            inside = namespace is None or name[0] == namespace
            if inside and name not in present and self._heard.get((kind, name), -1) <= begun:
                self._drop(kind, name, old)
                result.pruned.append(name)
                result.keys.update(_keys(kind, old))
        return result

    def forget_deletions(self, before: int) -> None:
        """Drops what was remembered about objects that are gone, up to a mark in time."""
        for (kind, name), turn in list(self._heard.items()):
            if turn <= before and name not in self._objects.get(kind, {}):
                del self._heard[kind, name]

    def _hear(self, kind: Kind, name: Name) -> None:
        self._turn += 1
        self._heard[kind, name] = self._turn

    def _drop(self, kind: Kind, name: Name, old: Body) -> None:
        del self._objects[kind][name]
        self._unlink(kind, name, old)

    def _unlink(self, kind: Kind, name: Name, old: Body) -> None:
        owner = key_of(kind, old)
        if owner is not None and owner in self._owned:
            self._owned[owner].pop((kind, name[1]), None)
            if not self._owned[owner]:
                del self._owned[owner]


def name_of(body: Body) -> Name:
    """Namespace and name of an object."""
    meta = body["metadata"]
    return meta.get("namespace", ""), meta["name"]


def key_of(kind: Kind, body: Body) -> Key | None:
    """The resource that an object is, or belongs to by its labels; None for strangers."""
    namespace, name = name_of(body)
    if kind in CUSTOM:
        return Key(kind.kind, namespace, name)
    labels = body["metadata"].get("labels") or {}
    instance = labels.get(names.LABEL_INSTANCE)
    owner = {names.BROKER: BROKER_GROUP, names.CONTROLLER: CONTROLLER_GROUP}.get(
        labels.get(names.LABEL_COMPONENT, "")
    )
    if owner is None or not instance or labels.get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
        return None
    return Key(owner.kind, namespace, instance)


def _keys(kind: Kind, body: Body) -> set[Key]:
    key = key_of(kind, body)
    return set() if key is None else {key}


def _is_not_newer(new: Body, old: Body) -> bool:
    if new["metadata"].get("uid") != old["metadata"].get("uid"):
        return False
    versions = (new["metadata"].get("resourceVersion"), old["metadata"].get("resourceVersion"))
    if versions[0] == versions[1]:
        return True
    try:
        return int(versions[0] or "") < int(versions[1] or "")
    except ValueError:
        return False
