"""The beginning of every cluster: its namespaces, and the file that clients find it by."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.admission import Options

if TYPE_CHECKING:
    from gantry_local.apiserver.registry import Registry

NAMESPACES = ("default", "kube-system")


def ensure_namespaces(registry: Registry) -> None:
    """The namespaces every cluster has."""
    resource = registry.catalogue.type("", "namespaces")
    for name in NAMESPACES:
        if registry.store.get(resource.key, ("", name)) is None:
            registry.create(
                resource, "", {"metadata": {"name": name}}, Options(manager="gantry-local")
            )


def kubeconfig(url: str, token: str, *, namespace: str = "default", ca: str = "") -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context.

    Without TLS (``ca``) the server's URL carries the token too: kubectl does not send one over
    plain HTTP.
    """
    name = "gantry-local"
    cluster = {"server": f"{url}/k/{token}"}
    if ca:
        data = base64.b64encode(ca.encode()).decode()
        cluster = {"server": url, "certificate-authority-data": data}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
        ],
        "current-context": name,
    }
