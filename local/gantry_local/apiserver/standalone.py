"""An API server by itself: what integration tests and the 5,000-group scale test run against."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import yaml
from gantry_protocol.process.listening import bind

from gantry_local.apiserver.addresses import AddressPool
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.ambient import SystemAmbient
from gantry_local.apiserver.http import BOOKMARK_INTERVAL_S, ApiServer
from gantry_local.apiserver.registry import Registry
from gantry_local.apiserver.store import DEFAULT_WINDOW, Store

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

NAMESPACES = ("default", "kube-system")


class StandaloneServer:
    """``async with StandaloneServer() as server``: a served, empty cluster without controllers.

    Attributes:
        api: The server with its fault switches.
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
        self.api = ApiServer(
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
        """A kubeconfig for this server at ``path``."""
        path.write_text(yaml.safe_dump(kubeconfig(self.url, self.token)), encoding="utf-8")
        path.chmod(0o600)
        return path

    def load(self, *manifests: Path) -> None:
        """Apply every document of YAML files (or of a directory's YAML files)."""
        for path in manifests:
            files = sorted(path.glob("*.y*ml")) if path.is_dir() else [path]
            for file in files:
                for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                    if document:
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


def ensure_namespaces(registry: Registry) -> None:
    """The namespaces every cluster has."""
    resource = registry.catalogue.type("", "namespaces")
    for name in NAMESPACES:
        if registry.store.get(resource.key, ("", name)) is None:
            registry.create(
                resource, "", {"metadata": {"name": name}}, Options(manager="gantry-local")
            )


def kubeconfig(url: str, token: str, *, namespace: str = "default") -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context.

    The server's URL carries the token too: kubectl does not send one over plain HTTP.
    """
    name = "gantry-local"
    server = f"{url}/k/{token}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
        ],
        "current-context": name,
    }
