"""An API server in memory: just enough semantics for the operator's own verbs."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

from gantry_operator import names
from gantry_operator.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from gantry_operator.api.kinds import Kind
from gantry_operator.api.protocol import Api

Body = dict[str, Any]
Id = tuple[str, str, str]
Fault = Callable[[str, Kind, str], ApiError | None]


class FakeApi:
    """Objects by kind, namespace and name; every call is remembered as `verb kind name`."""

    def __init__(self) -> None:
        self.objects: dict[Id, Body] = {}
        self.calls: list[str] = []
        self.served: set[str] = set()
        self.fault: Fault = lambda _verb, _kind, _name: None
        self._version = 100

    # Arranging

    def have(self, kind: Kind, name: str, namespace: str = "mq", **parts: Any) -> Body:
        """An object that exists."""
        meta = {"name": name, "namespace": namespace} | parts.pop("metadata", {})
        return self._store(kind, parts | {"metadata": meta})

    def find(self, kind: Kind, name: str, namespace: str = "mq") -> Body | None:
        return self.objects.get((kind.kind, namespace, name))

    def refuse(self, verb: str, kind: Kind, error: ApiError, times: int = 1_000_000) -> None:
        """The next calls of a verb on a kind fail."""
        left = [times]

        def fault(called: str, of: Kind, _: str) -> ApiError | None:
            if called != verb or of != kind or left[0] <= 0:
                return None
            left[0] -= 1
            return error

        self.fault = fault

    def _store(self, kind: Kind, body: Body) -> Body:
        self._version += 1
        body = copy.deepcopy(body)
        meta = body["metadata"]
        meta.setdefault("namespace", "mq")
        meta.setdefault("uid", f"uid-{kind.kind}-{meta['name']}")
        meta["resourceVersion"] = str(self._version)
        self.objects[kind.kind, meta["namespace"], meta["name"]] = body
        return copy.deepcopy(body)

    def _enter(self, verb: str, kind: Kind, name: str) -> None:
        self.calls.append(f"{verb} {kind.kind} {name}")
        error = self.fault(verb, kind, name)
        if error is not None:
            raise error

    def _get(self, kind: Kind, namespace: str, name: str) -> Body:
        found = self.objects.get((kind.kind, namespace, name))
        if found is None:
            raise NotFound(404, "NotFound", name)
        return found

    def _check(self, found: Body, wanted: Body) -> None:
        for key in ("uid", "resourceVersion"):
            if wanted.get(key) and wanted[key] != found["metadata"][key]:
                raise Conflict(409, "Conflict", key)

    # The verbs

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        self._enter("get", kind, name)
        return copy.deepcopy(self._get(kind, namespace or "", name))

    async def list_all(
        self, kind: Kind, namespace: str | None, labels: str = ""
    ) -> AsyncIterator[Body]:
        self._enter("list", kind, namespace or "*")
        for (of, where, _), body in list(self.objects.items()):
            if of == kind.kind and namespace in (None, where):
                yield copy.deepcopy(body)

    async def create(self, kind: Kind, body: Body) -> Body:
        name = body["metadata"]["name"]
        self._enter("create", kind, name)
        if (kind.kind, body["metadata"]["namespace"], name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", name)
        return self._store(kind, body)

    async def update(self, kind: Kind, body: Body) -> Body:
        meta = body["metadata"]
        self._enter("update", kind, meta["name"])
        self._check(self._get(kind, meta["namespace"], meta["name"]), meta)
        return self._store(kind, body)

    async def apply(self, kind: Kind, body: Body, manager: str = names.FIELD_MANAGER) -> Body:
        meta = body["metadata"]
        others = "" if manager == names.FIELD_MANAGER else f" as {manager}"
        self._enter("apply", kind, meta["name"] + others)
        old = self.objects.get((kind.kind, meta["namespace"], meta["name"]))
        kept = {"uid": old["metadata"]["uid"]} if old else {}
        return self._store(kind, body | {"metadata": kept | meta})

    async def apply_status(self, kind: Kind, body: Body) -> Body:
        meta = body["metadata"]
        self._enter("status", kind, meta["name"])
        old = self._get(kind, meta["namespace"], meta["name"])
        self._check(old, meta)
        return self._store(kind, old | {"status": body["status"]})

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Body,
        *,
        manager: str = names.FIELD_MANAGER,
    ) -> Body:
        self._enter("merge", kind, name)
        old = self._get(kind, namespace, name)
        self._check(old, patch["metadata"])
        labels = (old["metadata"].get("labels") or {}) | patch["metadata"].get("labels", {})
        if "spec" in patch:
            old = old | {"spec": (old.get("spec") or {}) | patch["spec"]}
        return self._store(
            kind, old | {"metadata": old["metadata"] | patch["metadata"] | {"labels": labels}}
        )

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, resource_version: str = ""
    ) -> None:
        self._enter("delete", kind, name)
        found = self._get(kind, namespace, name)
        self._check(found, {"uid": uid, "resourceVersion": resource_version})
        del self.objects[kind.kind, namespace, name]

    async def is_served(self, kind: Kind) -> bool:
        self._enter("served", kind, "")
        return kind.kind in self.served


def as_api(fake: FakeApi) -> Api:
    """The fake has every verb; the type checker says so here."""
    return fake
