"""The little OpenAPI that kubectl insists on: that every PATCH takes ``fieldValidation``.

kubectl validates through the server only if the server's OpenAPI says so, and refuses to apply
anything otherwise. Schemas are not published; ``kubectl explain`` is answered by the CRDs' files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_operator.local.apiserver.errors import no_such_path

if TYPE_CHECKING:
    from gantry_operator.local.apiserver.catalogue import Catalogue
    from gantry_operator.local.apiserver.kinds import ResourceType

ROOT = "/openapi/v3"
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]


def document(catalogue: Catalogue, path: str) -> dict[str, Any]:
    """The index, or one group and version; 404 otherwise."""
    below = path.removeprefix(ROOT).strip("/")
    groups: dict[str, list[ResourceType]] = {}
    for resource in catalogue:
        groups.setdefault(_prefix(resource), []).append(resource)
    if not below:
        index = {name: {"serverRelativeURL": f"{ROOT}/{name}"} for name in groups}
        return {"paths": index}
    if below not in groups:
        raise no_such_path()
    return {
        "openapi": "3.0.0",
        "info": {"title": "gantry local", "version": "v1"},
        "paths": {_url(resource): _operations(resource) for resource in groups[below]},
        "components": {"schemas": {}},
    }


def _prefix(resource: ResourceType) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _url(resource: ResourceType) -> str:
    middle = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"/{_prefix(resource)}{middle}/{resource.plural}/{{name}}"


def _operations(resource: ResourceType) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    patch = {
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
    }
    return {"patch": patch}
