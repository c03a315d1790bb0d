"""Clusters whose pods are only objects: an API server, and controllers that execute nothing."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from gantry_local import manifests
from gantry_local.apiserver.addresses import AddressPool
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.ambient import SystemAmbient
from gantry_local.apiserver.bootstrap import ensure_namespaces, kubeconfig
from gantry_local.apiserver.http import BOOKMARK_INTERVAL_S
from gantry_local.apiserver.registry import Registry
from gantry_local.apiserver.store import DEFAULT_WINDOW, Store
from gantry_local.controllers.direct import Direct
from gantry_local.controllers.runner import Runner
from gantry_local.runtime import controllers
from gantry_protocol.process.listening import bind
from support.api_faults import FaultyApiServer
from support.pretend_kubelet import PretendKubelet
from support.rights import Rights


class StandaloneServer:
    """``async with StandaloneServer() as server``: a served, empty cluster without controllers.

    Attributes:
        api: The server, with switches for faults.
        registry: Its verbs, for arranging and asserting without HTTP.
        token: The bearer token.
        url: The base URL, once entered.
    """

    def __init__(
        self,
        *,
        window: int = DEFAULT_WINDOW,
        bookmark_interval_s: float = BOOKMARK_INTERVAL_S,
        service_network: str = "10.78.0.0/16",
    ) -> None:
        store = Store(window=window)
        self.registry = Registry(store, SystemAmbient(), AddressPool(service_network))
        ensure_namespaces(self.registry)
        self.token = secrets.token_urlsafe(16)
        self.api = FaultyApiServer(
            self.registry, token=self.token, bookmark_interval_s=bookmark_interval_s
        )
        self.url = ""

    async def __aenter__(self) -> Self:
        self.url = await self.api.start(bind("127.0.0.1", 0, purpose="the API"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.api.stop()

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for this server at ``path``, of who may do everything."""
        return self._write(path, kubeconfig(self.url, self.token))

    def write_user(self, path: Path, rights: Rights) -> Path:
        """A kubeconfig for this server at ``path``, of a new user with these rights."""
        token = secrets.token_urlsafe(16)
        self.api.admit(token, rights)
        config = kubeconfig(self.url, token)
        config["clusters"][0]["cluster"]["server"] = self.url
        return self._write(path, config)

    def _write(self, path: Path, config: dict[str, Any]) -> Path:
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        path.chmod(0o600)
        return path

    def load(self, *paths: Path) -> None:
        """Apply every document of YAML files (or of a directory's YAML files)."""
        for path in paths:
            for document in manifests.read(str(path)):
                self.apply(document)

    def apply(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Server-side apply one object without HTTP."""
        resource = self.registry.catalogue.of_kind(obj["apiVersion"], obj["kind"])
        if resource is None:
            raise LookupError(f"no such kind: {obj['apiVersion']} {obj['kind']}")
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else ""
        options = Options(manager="gantry-local", force=True)
        return self.registry.apply(resource, namespace, metadata["name"], obj, options).record.obj


class PretendCluster(StandaloneServer):
    """``async with PretendCluster() as cluster``: for tests of the operator, small or large.

    Attributes:
        kubelet: Decides which pods become Ready (all of them unless told otherwise).
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        ambient = SystemAmbient()
        self.kubelet = PretendKubelet(Direct(self.registry, "kubelet", ambient))
        parts = controllers(self.registry, ambient, lambda _volume: None)
        self._runner = Runner(self.registry.store, [*parts, self.kubelet])
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._task = asyncio.create_task(self._runner.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await super().__aexit__(kind, error, trace)
