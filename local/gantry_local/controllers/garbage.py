"""Garbage collection: dependents follow their owners; namespaces and CRDs take their content along.

After ``pkg/controller/garbagecollector``: an object goes when none of its owners exists; foreground
deletion waits for dependents that block it; orphaning cuts the references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.crds import CLEANUP_FINALIZER
from gantry_local.apiserver.deletion import FOREGROUND, ORPHAN
from gantry_local.apiserver.errors import StatusError
from gantry_local.controllers.direct import Direct, is_terminating

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_local.apiserver.store import Event, Record
    from gantry_local.controllers.runner import Key

NAMESPACES = ("", "namespaces")
PODS = ("", "pods")
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
RETRY_S = 0.2


class GarbageCollector:
    """Keys are ("group/plural", "namespace/name") or ("uid", uid) of a vanished owner."""

    name = "garbage-collector"

    def __init__(self, direct: Direct) -> None:
        self._direct = direct
        self._store = direct.registry.store

    def initial_keys(self) -> Iterable[Key]:
        """Everything that has an owner or is on its way out."""
        for resource in self._store.resources():
            for record in self._store.records(resource):
                if _concerns(record):
                    yield _key(record)

    def keys_for(self, event: Event) -> Iterable[Key]:
        """Dependents and terminating objects; owners that vanished."""
        record = event.record
        if event.type == "DELETED":
            yield "uid", record.uid
            # A blocking dependent is gone: its owners may now be free to go.
            for owner in record.obj["metadata"].get("ownerReferences") or ():
                found = self._find(owner, record.key[0])
                if found is not None:
                    yield _key(found)
            yield from self._containers(record)
        elif _concerns(record):
            yield _key(record)

    def _containers(self, record: Record) -> Iterable[Key]:
        namespace = self._store.get(NAMESPACES, ("", record.key[0]))
        if namespace is not None and is_terminating(namespace.obj):
            yield _key(namespace)
        crd = self._store.get(CRDS, ("", f"{record.resource[1]}.{record.resource[0]}"))
        if crd is not None and is_terminating(crd.obj):
            yield _key(crd)

    def reconcile(self, key: Key) -> float | None:
        """Look at one object, or at all dependents of one vanished owner."""
        first, second = key
        if first == "uid":
            for dependent in self._store.owned_by(second):
                self._check_owners(dependent)
            return None
        group, _, plural = first.rpartition("/")
        namespace, _, name = second.rpartition("/")
        record = self._store.get((group, plural), (namespace, name))
        if record is None:
            return None
        if is_terminating(record.obj):
            return self._finish(record)
        self._check_owners(record)
        return None

    def _find(self, owner: dict[str, Any], namespace: str) -> Record | None:
        kind = self._direct.registry.catalogue.of_kind(owner["apiVersion"], owner["kind"])
        if kind is None:
            return None
        record = self._store.get(kind.key, (namespace if kind.namespaced else "", owner["name"]))
        return record if record is not None and record.uid == owner["uid"] else None

    def _check_owners(self, record: Record) -> None:
        """Delete what has owners and none of them exists; cut single dangling references."""
        owners = record.obj["metadata"].get("ownerReferences") or []
        if not owners:
            return
        alive = [owner for owner in owners if self._find(owner, record.key[0]) is not None]
        if len(alive) == len(owners):
            return
        if alive:
            patch = {"metadata": {"ownerReferences": alive}}
            self._direct.patch(*record.resource, record.obj, patch)
        elif not is_terminating(record.obj):
            self._direct.delete(*record.resource, record.obj, propagation="Background")

    def _finish(self, record: Record) -> float | None:
        if record.resource == NAMESPACES:
            return self._empty_namespace(record)
        finalizers = record.obj["metadata"].get("finalizers") or []
        if record.resource == CRDS and CLEANUP_FINALIZER in finalizers:
            return self._empty_crd(record)
        if ORPHAN in finalizers:
            self._orphan_dependents(record)
            self._drop_finalizer(record, ORPHAN)
        elif FOREGROUND in finalizers and self._delete_dependents(record):
            self._drop_finalizer(record, FOREGROUND)
        return None

    def _orphan_dependents(self, owner: Record) -> None:
        for dependent in self._store.owned_by(owner.uid):
            references = dependent.obj["metadata"]["ownerReferences"]
            kept = [reference for reference in references if reference["uid"] != owner.uid]
            patch = {"metadata": {"ownerReferences": kept}}
            self._direct.patch(*dependent.resource, dependent.obj, patch)

    def _delete_dependents(self, owner: Record) -> bool:
        """Start deleting dependents; whether none is left that blocks the owner."""
        blocked = False
        for dependent in self._store.owned_by(owner.uid):
            if not is_terminating(dependent.obj):
                self._direct.delete(*dependent.resource, dependent.obj, propagation="Foreground")
            current = self._store.get(dependent.resource, dependent.key)
            if current is not None and current.uid == dependent.uid:
                references = current.obj["metadata"].get("ownerReferences") or []
                blocked |= any(
                    reference["uid"] == owner.uid and reference.get("blockOwnerDeletion")
                    for reference in references
                )
        return not blocked

    def _drop_finalizer(self, record: Record, finalizer: str) -> None:
        current = self._store.get(record.resource, record.key)
        if current is None:
            return
        kept = [f for f in current.obj["metadata"].get("finalizers") or [] if f != finalizer]
        self._direct.patch(*record.resource, current.obj, {"metadata": {"finalizers": kept}})

    def _empty_namespace(self, record: Record) -> float | None:
        """Pods go first, and all else once they are gone, as since Kubernetes 1.33."""
        name = record.key[1]
        left = 0
        running = self._store.records(PODS, name)
        for resource in (PODS,) if running else self._store.resources():
            for item in self._store.records(resource, name):
                left += 1
                if not is_terminating(item.obj):
                    self._direct.delete(*resource, item.obj, propagation="Background")
        if left:
            return RETRY_S
        try:
            self._direct.registry.finalize_namespace(name)
        except StatusError:
            return None  # somebody else finished it
        return None

    def _empty_crd(self, record: Record) -> float | None:
        spec = record.obj["spec"]
        resource = (spec["group"], spec["names"]["plural"])
        items = self._store.records(resource)
        for item in items:
            if not is_terminating(item.obj):
                self._direct.delete(*resource, item.obj, propagation="Background")
        if self._store.records(resource):
            return RETRY_S
        self._drop_finalizer(record, CLEANUP_FINALIZER)
        return None


def _key(record: Record) -> Key:
    return f"{record.resource[0]}/{record.resource[1]}", f"{record.key[0]}/{record.key[1]}"


def _concerns(record: Record) -> bool:
    return bool(record.obj["metadata"].get("ownerReferences")) or is_terminating(record.obj)
