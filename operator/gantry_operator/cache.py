"""The cache of the cluster: the latest version of every object that the operator cares about.

Fed by watch events and by full lists. Two rules keep it from going backwards: an older version of
the same object never replaces a newer one, and a list never removes or revives what was heard of
after the list was begun.

Objects are kept as JSON text, and of pods only what decisions rest on: as Python objects, the pods
of five thousand groups alone would be half a gigabyte. Of a text, only what others of its kind do
not have is kept (`packing`): whole texts would be another hundred megabytes.

Versions are compared as integers, which Kubernetes guarantees since 1.35 and etcd always delivered.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gantry_operator import names
from gantry_operator.api.kinds import (
    AUTOSCALER,
    BROKER_GROUP,
    BUDGET,
    CONSUMER_GROUP,
    CONTROLLER_GROUP,
    CRON_JOB,
    CUSTOM,
    ENTITIES,
    FRONT_GROUP,
    MESSAGE_USER,
    POD,
    TEMPLATED,
    TOPIC,
    Kind,
)
from gantry_operator.packing import Packed, Packer
from gantry_operator.plan import additions, crashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

Body = dict[str, Any]
Name = tuple[str, str]
"""Namespace and name."""


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Body] = msgspec.json.Decoder()
_BOOKKEEPING = frozenset({"managedFields", "resourceVersion"})
_OWNER_KINDS = {
    names.BROKER: BROKER_GROUP,
    names.AUDIT: BROKER_GROUP,
    names.CONTROLLER: CONTROLLER_GROUP,
    names.FRONT: FRONT_GROUP,
}
_POD_METADATA = frozenset(
    {"name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp"}
)
NAME_FIELDS = {TOPIC: "topicName", MESSAGE_USER: "userName", CONSUMER_GROUP: "groupName"}
"""Where an entity says what it stands for, if that is not its own name."""
_POD_STATUS = frozenset({"phase", "podIP", "hostIP"})


class Key(NamedTuple):
    """A resource to reconcile."""

    kind: str
    namespace: str
    name: str


class Subject(NamedTuple):
    """One thing in the metadata of a cluster, by its kind and its name there."""

    kind: str
    named: str


class CachedObject(NamedTuple):
    """One object: what the cache itself asks for, and the rest as text."""

    uid: str | None
    version: str | None
    owner: Key | None
    ending: bool
    packed: Packed

    def body(self) -> Body:
        """The object."""
        decoded: Body = _DECODER.decode(self.packed.text())
        if self.version is not None:
            decoded["metadata"]["resourceVersion"] = self.version
        return decoded


class Comparison(NamedTuple):
    """The differences between a full list and the cache.

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
        self._entries: dict[Kind, dict[Name, CachedObject]] = {}
        self._owned: dict[Key, dict[tuple[Kind, str], CachedObject]] = {}
        self._entities: dict[Name, dict[Subject, dict[str, str]]] = {}
        self._heard: dict[tuple[Kind, Name], int] = {}
        self._turn = 0
        self._packer = Packer[tuple[Kind, str]]()

    def turn(self) -> int:
        """A mark in time: what is heard of later has a higher one."""
        return self._turn

    def get(self, kind: Kind, namespace: str, name: str) -> Body | None:
        """The latest version of an object."""
        entry = self._entries.get(kind, {}).get((namespace, name))
        return None if entry is None else entry.body()

    def names(self, kind: Kind) -> Iterator[Name]:
        """All known objects of a kind."""
        return iter(list(self._entries.get(kind, ())))

    def count(self, kind: Kind) -> int:
        """The number of known objects of a kind."""
        return len(self._entries.get(kind, ()))

    def owned(self, key: Key, kind: Kind) -> list[Body]:
        """The objects of a kind that belong to a resource."""
        return [entry.body() for (k, _), entry in self._owned.get(key, {}).items() if k == kind]

    def clusters(self) -> list[Name]:
        """Namespace and name of each cluster that entities are in, whether or not it exists."""
        return list(self._entities)

    def places(self, namespace: str, cluster: str) -> dict[Subject, dict[str, str]]:
        """The things that entities stand for in a cluster: names of these, to their creation."""
        return self._entities.get((namespace, cluster), {})

    def claimants(self, namespace: str, cluster: str, place: Subject) -> list[str]:
        """The resources that stand for one thing, the one that was there first before others."""
        found = self.places(namespace, cluster).get(place, {})
        return sorted(found, key=lambda name: (found[name], name))

    def ending(self, kind: Kind) -> list[Body]:
        """The objects of a kind that are being deleted."""
        return [entry.body() for entry in self._entries.get(kind, {}).values() if entry.ending]

    def is_current(self, kind: Kind, body: Body) -> bool:
        """Whether this version of an object, or a newer one, is known."""
        old = self._entries.get(kind, {}).get(name_of(body))
        return old is not None and _is_not_newer(body["metadata"], old)

    def put(self, kind: Kind, body: Body) -> bool:
        """Takes in a version of an object; False if it brings nothing new.

        That is a version that was known, an older one, or one that differs only in what is not
        kept: a node's word about a pod every few seconds starts nothing.
        """
        namespace, own = name_of(body)
        name = sys.intern(namespace), own
        self._hear(kind, name)
        meta = body["metadata"]
        old = self._entries.get(kind, {}).get(name)
        if old is not None:
            if _is_not_newer(meta, old):
                return False
            self._unlink(kind, name, old)
        owner = key_of(kind, body)
        entry = CachedObject(
            meta.get("uid"),
            meta.get("resourceVersion"),
            owner,
            meta.get("deletionTimestamp") is not None,
            self._pack(kind, owner, _ENCODER.encode(_trimmed(kind, body)), old),
        )
        self._entries.setdefault(kind, {})[name] = entry
        if kind in ENTITIES:
            place, created = place_of(kind, body), meta.get("creationTimestamp") or ""
            cluster = self._entities.setdefault((name[0], reference(body)), {})
            cluster.setdefault(place, {})[name[1]] = created
        if owner is not None and kind not in CUSTOM:
            self._owned.setdefault(owner, {})[kind, name[1]] = entry
        return old is None or (old.uid, old.packed) != (entry.uid, entry.packed)

    def remove(self, kind: Kind, body: Body) -> bool:
        """Takes out a deleted object; False if it was not known, or a successor is."""
        name = name_of(body)
        self._hear(kind, name)
        old = self._entries.get(kind, {}).get(name)
        if old is None or old.uid != body["metadata"].get("uid"):
            return False
        self._drop(kind, name, old)
        return True

    def compare(
        self,
        kind: Kind,
        namespace: str | None,
        present: Set[Name],
        behind: Iterable[Body],
        begun: int,
    ) -> Comparison:
        """Takes in a full list of a kind in a namespace, or in all of them.

        Args:
            kind: what was listed.
            namespace: where; None is everywhere.
            present: the names of all listed objects.
            behind: those objects that were not current in the cache when they were listed.
            begun: `turn()` from before the list was begun.
        """
        result = Comparison([], [], set())
        for body in behind:
            name = name_of(body)
            if self._heard.get((kind, name), -1) > begun or self.is_current(kind, body):
                continue
            result.stale.append(name)
            if self.put(kind, body):
                result.keys.update(_one(key_of(kind, body)))
        for name, old in list(self._entries.get(kind, {}).items()):
            inside = namespace is None or name[0] == namespace
            if inside and name not in present and self._heard.get((kind, name), -1) <= begun:
                self._drop(kind, name, old)
                result.pruned.append(name)
                result.keys.update(_one(old.owner))
        return result

    def forget_deletions(self, before: int) -> None:
        """Drops what was remembered about objects that are gone, up to a mark in time."""
        for (kind, name), turn in list(self._heard.items()):
            if turn <= before and name not in self._entries.get(kind, {}):
                del self._heard[kind, name]

    def _hear(self, kind: Kind, name: Name) -> None:
        self._turn += 1
        self._heard[kind, name] = self._turn

    def _pack(self, kind: Kind, owner: Key | None, text: bytes, old: CachedObject | None) -> Packed:
        """A text; the one that is there if that is the same."""
        if old is not None and old.packed.text() == text:
            return old.packed
        return self._packer.pack((kind, "" if owner is None else owner.kind), text)

    def _drop(self, kind: Kind, name: Name, old: CachedObject) -> None:
        del self._entries[kind][name]
        self._unlink(kind, name, old)

    def _unlink(self, kind: Kind, name: Name, old: CachedObject) -> None:
        if kind in ENTITIES:
            self._leave(kind, name, old.body())
        if old.owner is not None and old.owner in self._owned:
            self._owned[old.owner].pop((kind, name[1]), None)
            if not self._owned[old.owner]:
                del self._owned[old.owner]

    def _leave(self, kind: Kind, name: Name, body: Body) -> None:
        place, cluster = place_of(kind, body), (name[0], reference(body))
        there = self._entities[cluster]
        there[place].pop(name[1], None)
        if not there[place]:
            del there[place]
        if not there:
            del self._entities[cluster]


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
    owner = _OWNER_KINDS.get(labels.get(names.LABEL_COMPONENT, ""))
    if owner is None or not instance or labels.get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
        return None
    return Key(owner.kind, namespace, instance)


def reference(body: Body) -> str:
    """The ControllerGroup that a resource names, even with a spec that is otherwise invalid."""
    spec = body.get("spec") or {}
    referred = spec.get("controllerRef") or {}
    name = referred.get("name") if isinstance(referred, dict) else None
    return name if isinstance(name, str) and name else "gantry"


def place_of(kind: Kind, body: Body) -> Subject:
    """The thing that an entity stands for, even with a spec that is otherwise invalid."""
    given = (body.get("spec") or {}).get(NAME_FIELDS[kind])
    return Subject(kind.kind, given if isinstance(given, str) and given else name_of(body)[1])


def _trimmed(kind: Kind, body: Body) -> Body:
    """An object without the API server's bookkeeping; of a pod, only what is read of it.

    That is what `pod_view` and `names.member_secret` read. Who wrote what is kept of pod templates
    into which others wrote, which are few.
    """
    meta = {key: value for key, value in body["metadata"].items() if key not in _BOOKKEEPING}
    if kind in (BUDGET, AUTOSCALER, CRON_JOB):  # their status follows every change of a pod
        body = {key: value for key, value in body.items() if key != "status"}
    if kind in TEMPLATED:
        written = additions.kept(body["metadata"].get("managedFields") or ())
        meta |= {"managedFields": written} if written else {}
    if kind != POD:
        return body | {"metadata": meta}
    meta = {key: value for key, value in meta.items() if key in _POD_METADATA}
    status = body.get("status") or {}
    kept = {key: value for key, value in status.items() if key in _POD_STATUS}
    for of_some in ("containerStatuses", "initContainerStatuses"):
        kept[of_some] = [crashes.kept(item) for item in status.get(of_some) or ()]
    kept["conditions"] = [
        {"type": item.get("type"), "status": item.get("status")}
        for item in status.get("conditions") or ()
        if item.get("type") == "Ready"
    ]
    spec: Body = {"nodeName": (body.get("spec") or {}).get("nodeName")}
    secret = names.member_secret(body)
    if secret is not None:
        spec["volumes"] = [{"name": names.MEMBER_TLS_VOLUME, "secret": {"secretName": secret}}]
    return {"metadata": meta, "spec": spec, "status": kept}


def _one(key: Key | None) -> set[Key]:
    return set() if key is None else {key}


def _is_not_newer(meta: Body, old: CachedObject) -> bool:
    if meta.get("uid") != old.uid:
        return False
    version = meta.get("resourceVersion")
    if version == old.version:
        return True
    try:
        return int(version or "") < int(old.version or "")
    except ValueError:
        return False
