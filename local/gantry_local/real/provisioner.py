"""Volumes of claims: directories, offered to kube-controller-manager as an external provisioner.

``plan`` decides. The rule protected here: a directory is removed only when the server says that
its volume is Released by the claim that it was made for; while the server is silent, all stays.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from gantry_protocol.process import log

from gantry_local.client import ApiError
from gantry_local.controllers.direct import is_terminating
from gantry_local.real.mirror import CLAIMS, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gantry_local.apiserver.store import Event, Store
    from gantry_local.client import Client

Object = dict[str, Any]
PROVISIONER: Final = "gantry.dev/local"
_ASKED: Final = "volume.kubernetes.io/storage-provisioner"
_MADE_BY: Final = "pv.kubernetes.io/provisioned-by"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
RETRY_S: Final = 1.0

_log = log.get("local.provisioner")


class VolumeAction(msgspec.Struct, frozen=True):
    """One thing to do for a claim or a volume."""

    kind: Literal["make", "grow", "remove"]
    volume: str
    claim: Object | None = None


def storage_classes() -> list[Object]:
    """``standard``, the default, whose volumes grow, and ``fixed``, whose do not."""
    return [_storage_class("standard", grows=True), _storage_class("fixed", grows=False)]


def _storage_class(name: str, *, grows: bool) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {_DEFAULT: str(name == "standard").lower()}},
        "provisioner": PROVISIONER,
        "allowVolumeExpansion": grows,
    }


def plan(claims: list[Object], volumes: list[Object]) -> list[VolumeAction]:
    """All that is due now."""
    known = {volume["metadata"]["name"]: volume for volume in volumes}
    actions = [action for claim in claims if (action := _for_claim(claim, known)) is not None]
    released = [
        VolumeAction("remove", name)
        for name, volume in known.items()
        if _is_ours(volume)
        and (volume.get("status") or {}).get("phase") == "Released"
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    ]
    return actions + released


def _for_claim(claim: Object, known: dict[str, Object]) -> VolumeAction | None:
    meta, status = claim["metadata"], claim.get("status") or {}
    name = f"pvc-{meta['uid']}"
    if is_terminating(claim):
        return None
    if status.get("phase") == "Bound":
        wanted = claim["spec"]["resources"]["requests"]["storage"]
        has = (status.get("capacity") or {}).get("storage")
        ours = claim["spec"].get("volumeName") == name and name in known
        return VolumeAction("grow", name, claim) if ours and wanted != has else None
    asked = (meta.get("annotations") or {}).get(_ASKED) == PROVISIONER
    return VolumeAction("make", name, claim) if asked and name not in known else None


def _is_ours(volume: Object) -> bool:
    return (volume["metadata"].get("annotations") or {}).get(_MADE_BY) == PROVISIONER


def new_volume(claim: Object, directory: Path) -> Object:
    """The volume of a claim, reserved for it."""
    meta, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": directory.name, "annotations": {_MADE_BY: PROVISIONER}},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "hostPath": {"path": str(directory)},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName", ""),
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


class Provisioner:
    """Carries the plan out, again whenever a claim or a volume changes.

    Attributes:
        failures: Actions that failed, by kind; each is tried again.
    """

    def __init__(
        self, client: Client, store: Store, directory: Path, remove: Callable[[str], None]
    ) -> None:
        self.failures: Counter[str] = Counter()
        self._client = client
        self._store = store
        self._directory = directory
        self._remove = remove
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        unsubscribe = self._store.subscribe(
            self._on_event, name="provisioner", resync=self._wake.set
        )
        try:
            while True:
                self._wake.clear()
                if not await self._act():
                    asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)
                await self._wake.wait()
        finally:
            unsubscribe()

    def _on_event(self, event: Event) -> None:
        if event.record.resource in {("", CLAIMS.plural), ("", VOLUMES.plural)}:
            self._wake.set()

    async def _act(self) -> bool:
        """One round; False when something is to be tried again."""
        claims = [record.obj for record in self._store.records(("", CLAIMS.plural))]
        volumes = [record.obj for record in self._store.records(("", VOLUMES.plural))]
        well = True
        for action in plan(claims, volumes):
            try:
                await self._carry_out(action)
            except ApiError as error:
                if error.code not in {404, 409}:  # else the mirror is behind, and comes again
                    well = False
                    self.failures[action.kind] += 1
                    _log.warning("volume waits", volume=action.volume, why=str(error))
        return well

    async def _carry_out(self, action: VolumeAction) -> None:
        name = action.volume
        if action.kind == "remove":
            self._remove(name)
            await self._client.delete(VOLUMES, name, "")
            return
        assert action.claim is not None, "only a removal has no claim"
        if action.kind == "make":
            volume = new_volume(action.claim, self._directory / name)
            await self._client.request("POST", VOLUMES.path(None), body=volume)
            return
        meta = action.claim["metadata"]
        size = {"storage": action.claim["spec"]["resources"]["requests"]["storage"]}
        await self._client.patch(VOLUMES, name, "", {"spec": {"capacity": size}})
        grown = {"metadata": {"uid": meta["uid"]}, "status": {"capacity": size}}
        await self._client.patch(
            CLAIMS, meta["name"], meta["namespace"], grown, subresource="status"
        )
