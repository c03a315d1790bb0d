"""A copy of the server's objects of a few kinds, by list and watch.

Readers subscribe to it as to the own API server's store. Revisions are the copy's own. The rule
protected here: an object is missing only after the server has said so; while it does not answer,
the last state stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from gantry_protocol.process import log

from gantry_local.apiserver.store import Store
from gantry_local.client import ApiError, Resource

if TYPE_CHECKING:
    from gantry_local.client import Client
    from gantry_local.real.wishes import Wishes

Object = dict[str, Any]
WATCH_S: Final = 240
MAX_RETRY_S: Final = 5.0
PODS: Final = Resource("", "v1", "pods", "pod", "Pod", namespaced=True)
CLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", True
)
VOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume", namespaced=False
)
MIRRORED: Final = (
    PODS,
    CLAIMS,
    VOLUMES,
    Resource("", "v1", "services", "service", "Service", namespaced=True),
    Resource("", "v1", "configmaps", "configmap", "ConfigMap", namespaced=True),
    Resource("", "v1", "secrets", "secret", "Secret", namespaced=True),
)

_log = log.get("local.mirror")


class Mirror:
    """Keeps ``store`` as the server is.

    Attributes:
        store: The copy.
        failures: Lists and watches that failed, by the resource's name.
    """

    def __init__(self, client: Client, wishes: Wishes) -> None:
        self.store = Store(window=0)
        self.failures: Counter[str] = Counter()
        self._client = client
        self._wishes = wishes
        # (plural, namespace, name) → the server's revision of what the copy has.
        self._revisions: dict[tuple[str, str, str], str] = {}
        self._unlisted = {resource.plural for resource in MIRRORED}
        self._listed = asyncio.Event()

    async def synced(self) -> None:
        """Wait until everything has been listed once."""
        await self._listed.wait()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in MIRRORED:
                group.create_task(self._follow(resource))

    async def _follow(self, resource: Resource) -> None:
        delay_s = 0.1
        while True:
            try:
                revision = await self._list(resource)
                self._unlisted.discard(resource.plural)
                if not self._unlisted:
                    self._listed.set()
                delay_s = 0.1
                await self._watch(resource, revision)
            except ApiError as error:
                self.failures[resource.plural] += 1
                _log.warning("mirror is behind", resource=resource.plural, why=str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, MAX_RETRY_S)

    async def _list(self, resource: Resource) -> str:
        answer = await self._client.request("GET", resource.path(None))
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        present = set()
        for item in answer["items"]:
            meta = item["metadata"]
            present.add((meta.get("namespace", ""), meta["name"]))
            self._take(resource, {**head, **item})
        for record in self.store.records((resource.group, resource.plural)):
            if record.key not in present:
                self._drop(resource, record.obj)
        if resource is PODS:
            self._wishes.retain({item["metadata"]["uid"] for item in answer["items"]})
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, resource: Resource, revision: str) -> None:
        """Follow changes from a revision on; returns when the server has forgotten it."""
        while True:
            query = {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": revision,
                "timeoutSeconds": str(WATCH_S),
            }
            lines = self._client.lines(resource.path(None), query, silence_s=WATCH_S + 30.0)
            async with contextlib.aclosing(lines):
                async for line in lines:
                    event = msgspec.json.decode(line)
                    kind, obj = event["type"], event["object"]
                    if kind == "ERROR":
                        if obj.get("code") == 410:
                            return
                        raise ApiError(str(obj.get("message")), code=obj.get("code", 0))
                    revision = obj["metadata"]["resourceVersion"]
                    if kind == "DELETED":
                        self._drop(resource, obj)
                    elif kind != "BOOKMARK":
                        self._take(resource, obj)

    def _take(self, resource: Resource, obj: Object) -> None:
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        place = (resource.plural, *key)
        if self._revisions.get(place) == meta["resourceVersion"]:
            return
        self._revisions[place] = meta["resourceVersion"]
        shown = self._wishes.shown(obj) if resource is PODS else obj
        before = self.store.get((resource.group, resource.plural), key)
        if before is not None and before.uid != meta["uid"]:
            self.store.delete((resource.group, resource.plural), key)  # another one of that name
        if shown is not None:
            self.store.put((resource.group, resource.plural), key, shown)

    def _drop(self, resource: Resource, obj: Object) -> None:
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        self._revisions.pop((resource.plural, *key), None)
        if resource is PODS:
            self._wishes.forget(meta["uid"])
        self.store.delete((resource.group, resource.plural), key)
