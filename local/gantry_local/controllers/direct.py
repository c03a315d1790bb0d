"""The registry as controllers use it: plain objects in, plain objects out, misses are no errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_local.apiserver.errors import StatusError

if TYPE_CHECKING:
    from gantry_local.apiserver.ambient import Ambient
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.registry import Registry
    from gantry_local.apiserver.store import Store

Object = dict[str, Any]
MERGE = "application/merge-patch+json"


class Pods(Protocol):
    """The objects of a cluster as the kubelet reads them, and pods as it writes them."""

    @property
    def store(self) -> Store:
        """All objects, and the news of them."""

    @property
    def ambient(self) -> Ambient:
        """The time."""

    def get(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""

    def all(self, group: str, plural: str, namespace: str | None = None) -> list[Object]:
        """All objects of a type."""

    def bind(self, pod: Object, node: str) -> Object | None:
        """Give the pod its node; None when it is gone."""

    def set_status(self, group: str, plural: str, obj: Object, status: Object) -> Object | None:
        """Replace the status when it differs; None when the object is gone or was changed."""

    def end(self, pod: Object) -> None:
        """Remove a pod whose processes have ended."""


class Direct:
    """One controller's access; ``manager`` is the name its writes are owned under."""

    def __init__(self, registry: Registry, manager: str, ambient: Ambient) -> None:
        self.registry = registry
        self.ambient = ambient
        self._options = Options(manager=manager)

    @property
    def store(self) -> Store:
        """All objects, and the news of them."""
        return self.registry.store

    def bind(self, pod: Object, node: str) -> Object | None:
        """Give the pod its node; None when it is gone."""
        return self.patch("", "pods", pod, {"spec": {"nodeName": node}})

    def end(self, pod: Object) -> None:
        """Remove a pod whose processes have ended."""
        self.delete("", "pods", pod, grace_s=0)

    def type(self, group: str, plural: str) -> ResourceType:
        """A served type."""
        return self.registry.catalogue.type(group, plural)

    def get(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""
        record = self.registry.store.get((group, plural), (namespace, name))
        return None if record is None else record.obj

    def all(self, group: str, plural: str, namespace: str | None = None) -> list[Object]:
        """All objects of a type."""
        return [r.obj for r in self.registry.store.records((group, plural), namespace)]

    def owned(self, owner: Object, group: str, plural: str) -> list[Object]:
        """Objects of a type that name ``owner`` in their ownerReferences, in key order."""
        uid = owner["metadata"]["uid"]
        found = [r for r in self.registry.store.owned_by(uid) if r.resource == (group, plural)]
        return [record.obj for record in sorted(found, key=lambda record: record.key)]

    def create(self, group: str, plural: str, obj: Object) -> Object | None:
        """Create; None when the name is taken or its namespace is going away."""
        namespace = obj["metadata"].get("namespace", "")
        try:
            kind = self.type(group, plural)
            return self.registry.create(kind, namespace, obj, self._options).record.obj
        except StatusError as error:
            if error.code in {403, 404, 409}:
                return None
            raise

    def patch(
        self, group: str, plural: str, obj: Object, patch: Object, *, subresource: str = ""
    ) -> Object | None:
        """Merge-patch the object if it is still the same one; None when it is gone."""
        metadata = obj["metadata"]
        guarded = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}}
        try:
            written = self.registry.patch(
                self.type(group, plural),
                metadata.get("namespace", ""),
                metadata["name"],
                MERGE,
                guarded,
                self._options,
                subresource=subresource,
            )
        except StatusError as error:
            if error.code in {404, 409}:
                return None
            raise
        return written.record.obj

    def set_status(self, group: str, plural: str, obj: Object, status: Object) -> Object | None:
        """Replace the status when it differs."""
        if obj.get("status") == status:
            return obj
        metadata = obj["metadata"]
        body = {**obj, "metadata": {**metadata}, "status": status}
        body["metadata"].pop("managedFields", None)
        try:
            written = self.registry.update(
                self.type(group, plural),
                metadata.get("namespace", ""),
                metadata["name"],
                body,
                self._options,
                subresource="status",
            )
        except StatusError as error:
            if error.code in {404, 409}:
                return None  # somebody else was faster; their change calls the controller again
            raise
        return written.record.obj

    def delete(
        self,
        group: str,
        plural: str,
        obj: Object,
        *,
        grace_s: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete this very object (by uid); gone already is fine."""
        metadata = obj["metadata"]
        options = DeleteOptions(uid=metadata["uid"], grace_s=grace_s, propagation=propagation)
        try:
            kind = self.type(group, plural)
            namespace = metadata.get("namespace", "")
            self.registry.delete(kind, namespace, metadata["name"], options)
        except StatusError as error:
            if error.code not in {404, 409}:
                raise


def owner_reference(owner: Object, *, controller: bool = True) -> Object:
    """A reference that makes the garbage collector follow ``owner``."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    if controller:
        reference |= {"controller": True, "blockOwnerDeletion": True}
    return reference


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_terminating(obj: Object) -> bool:
    """Whether deletion has begun."""
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Object) -> bool:
    """Whether the pod has ended for good."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
