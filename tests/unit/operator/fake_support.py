"""An API server to be looked at: objects, logs, and what may not be read."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from gantry_operator.api.errors import ApiError, Denied, NotFound
from gantry_operator.api.kinds import Kind
from gantry_operator.api.port_forward import Passage

Body = dict[str, Any]


class FakeSupport:
    """Objects by kind, logs by pod, container and whether of the run before, answers by pod."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Body]] = {}
        self.logs: dict[tuple[str, str, bool], list[bytes]] = {}
        self.answers: dict[str, bytes] = {}
        self.denied: set[str] = set()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.unavailable: ApiError | None = None
        self.running = 0
        self.most_at_once = 0

    def have(self, kind: Kind, name: str, namespace: str | None = "mq", **parts: Any) -> Body:
        """An object that exists, with our label."""
        meta: Body = {"name": name, "labels": {"app.kubernetes.io/name": "gantry"}}
        meta |= {} if namespace is None else {"namespace": namespace}
        body = {"kind": kind.kind, "metadata": meta | parts.pop("metadata", {})} | parts
        self.objects.setdefault(kind.kind, []).append(body)
        return body

    async def version(self) -> Body:
        if self.unavailable is not None:
            raise self.unavailable
        return {"gitVersion": "v1.34.1"}

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        self._may(kind)
        for body in self.objects.get(kind.kind, []):
            meta = body["metadata"]
            if (meta.get("namespace"), meta["name"]) == (namespace, name):
                return copy.deepcopy(body)
        raise NotFound(404, "NotFound", name)

    async def list_all(
        self, kind: Kind, namespace: str | None, labels: str = ""
    ) -> AsyncIterator[Body]:
        self._may(kind)
        wanted = dict(part.split("=") for part in labels.split(",") if part)
        for body in self.objects.get(kind.kind, []):
            meta = body["metadata"]
            here = namespace is None or meta.get("namespace") == namespace
            if here and wanted.items() <= (meta.get("labels") or {}).items():
                yield copy.deepcopy(body)

    async def is_served(self, kind: Kind) -> bool:
        return kind.kind in self.objects

    async def read_log(
        self, namespace: str, pod: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        self.asked.append((pod, dict(query)))
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            key = pod, query["container"], query.get("previous") == "true"
            if "pods/log" in self.denied:
                raise Denied(403, "Forbidden", f"pods {pod} is forbidden: token=hunter2-in-words")
            if key not in self.logs:
                raise NotFound(404, "NotFound", f"{namespace}/{pod}")
            for chunk in self.logs[key]:
                yield chunk
        finally:
            self.running -= 1

    async def ask_port(
        self, namespace: str, pod: str, port: int, path: str, *, bytes_max: int
    ) -> bytes:
        self.asked.append((pod, {"port": str(port), "path": path}))
        if "pods/portforward" in self.denied:
            raise Denied(403, "Forbidden", f"pods {pod} is forbidden")
        if pod not in self.answers:
            raise NotFound(404, "NotFound", f"{namespace}/{pod}")
        assert len(self.answers[pod]) <= bytes_max
        return self.answers[pod]

    def pass_to_port(
        self, namespace: str, pod: str, port: int
    ) -> AbstractAsyncContextManager[Passage]:
        raise NotFound(404, "NotFound", f"{namespace}/{pod}")

    def _may(self, kind: Kind) -> None:
        if kind.plural in self.denied:
            raise Denied(403, "Forbidden", f"{kind.plural} is forbidden")
