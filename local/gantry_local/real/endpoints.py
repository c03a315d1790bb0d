"""Endpoints that the server must not see: it refuses loopback addresses, which pods here have.

The controller is that of every local cluster. Its slices are kept in the mirror alone, where
proxies and names read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.controllers.endpoints import SERVICES, SLICES, EndpointsController

if TYPE_CHECKING:
    from gantry_local.apiserver.ambient import Ambient
    from gantry_local.apiserver.store import Store
    from gantry_local.controllers.runner import Key

Object = dict[str, Any]


class MirroredOnly:
    """Objects that exist in the mirror only (``controllers.endpoints.Objects``)."""

    def __init__(self, store: Store, ambient: Ambient) -> None:
        self.store = store
        self._ambient = ambient

    def get(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """One object, or None."""
        record = self.store.get((group, plural), (namespace, name))
        return None if record is None else record.obj

    def all(self, group: str, plural: str, namespace: str | None = None) -> list[Object]:
        """All objects of a type."""
        return [record.obj for record in self.store.records((group, plural), namespace)]

    def owned(self, owner: Object, group: str, plural: str) -> list[Object]:
        """Objects of a type that ``owner`` owns."""
        found = self.store.owned_by(owner["metadata"]["uid"])
        return [record.obj for record in found if record.resource == (group, plural)]

    def create(self, group: str, plural: str, obj: Object) -> Object | None:
        """Keep a new object."""
        meta = {**obj["metadata"], "uid": self._ambient.uid()}
        return self._put(group, plural, {**obj, "metadata": meta})

    def patch(self, group: str, plural: str, obj: Object, patch: Object) -> Object | None:
        """Replace fields of a kept object."""
        return self._put(group, plural, {**obj, **patch})

    def delete(self, group: str, plural: str, obj: Object) -> None:
        """Keep it no longer."""
        meta = obj["metadata"]
        self.store.delete((group, plural), (meta["namespace"], meta["name"]))

    def _put(self, group: str, plural: str, obj: Object) -> Object:
        meta = obj["metadata"]
        return self.store.put((group, plural), (meta["namespace"], meta["name"]), obj).obj


class KeptEndpoints(EndpointsController):
    """The endpoints of a mirror; slices go with their Service, as nobody else collects them."""

    def __init__(self, kept: MirroredOnly) -> None:
        super().__init__(kept)
        self._kept = kept

    def reconcile(self, key: Key) -> float | None:
        """Drop slices of a Service that was, then write what differs."""
        service = self._kept.get(*SERVICES, *key)
        owner = None if service is None else service["metadata"]["uid"]
        for found in self._kept.all(*SLICES, key[0]):
            if _is_left(found, key[1], owner):
                self._kept.delete(*SLICES, found)
        return super().reconcile(key)


def _is_left(item: Object, service: str, owner: str | None) -> bool:
    """Whether a slice is of a Service of that name, and not of the one that there is."""
    reference = item["metadata"]["ownerReferences"][0]
    return bool(reference["name"] == service and reference["uid"] != owner)
