"""OpenAPI v3 as far as kubectl reads it: schemas for ``explain``, and what a PATCH takes.

``kubectl explain`` finds the kind by its path and walks the schemas. ``kubectl apply`` validates
through the server only if the document says that a PATCH takes ``fieldValidation``. Schemas of
custom resources are those of their definitions, word for word; those of built-in kinds are what
this server checks by, without descriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gantry_local.apiserver.errors import no_such_path
from gantry_local.apiserver.schema import builtin_definitions

if TYPE_CHECKING:
    from gantry_local.apiserver.catalogue import Catalogue
    from gantry_local.apiserver.kinds import ResourceType

Object = dict[str, Any]
ROOT = "/openapi/v3"
_SCHEMAS = "#/components/schemas/"
_METADATA = "V1ObjectMeta"
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]


class Documents:
    """The documents of a catalogue, each made once for as long as the catalogue is the same."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._made: dict[str, bytes] = {}
        self._version = -1

    def encoded(self, path: str) -> bytes:
        """The index, or one group and version, as JSON; 404 otherwise."""
        if self._version != self._catalogue.version:
            self._made.clear()
            self._version = self._catalogue.version
        below = path.removeprefix(ROOT).strip("/")
        if below not in self._made:  # what does not exist raises, so only served ones are kept
            self._made[below] = msgspec.json.encode(document(self._catalogue, below))
        return self._made[below]


def document(catalogue: Catalogue, below: str) -> Object:
    """The index ("" below the root), or one group and version; 404 otherwise."""
    groups: dict[str, list[ResourceType]] = {}
    for resource in catalogue:
        groups.setdefault(_prefix(resource), []).append(resource)
    if not below:
        index = {name: {"serverRelativeURL": f"{ROOT}/{name}"} for name in groups}
        return {"paths": index}
    if below not in groups:
        raise no_such_path()
    paths: Object = {}
    for resource in groups[below]:
        paths[_url(resource)] = _collection(resource)
        paths[f"{_url(resource)}/{{name}}"] = _operations(resource)
    return {
        "openapi": "3.0.0",
        "info": {"title": "gantry local", "version": "v1"},
        "paths": paths,
        "components": {"schemas": _schemas(groups[below])},
    }


def _prefix(resource: ResourceType) -> str:
    return f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}"


def _url(resource: ResourceType) -> str:
    middle = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"/{_prefix(resource)}{middle}/{resource.plural}"


def _kind(resource: ResourceType) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _operation(resource: ResourceType, action: str) -> Object:
    return {
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(resource),
    }


def _collection(resource: ResourceType) -> Object:
    return {"get": _operation(resource, "list"), "post": _operation(resource, "post")}


def _operations(resource: ResourceType) -> Object:
    # No content types: kubectl then makes strategic merge patches by what it was built with.
    patch = _operation(resource, "patch") | {"parameters": _PARAMETERS}
    return {"get": _operation(resource, "get"), "patch": patch}


def _schemas(resources: list[ResourceType]) -> Object:
    """The schema of every kind, and all that they refer to."""
    definitions = builtin_definitions()
    found: Object = {}
    wanted = [_METADATA]
    for resource in resources:
        own = resource.schema.raw
        if resource.custom:
            own = {**own, "properties": {**own.get("properties", {}), **_identity()}}
        named = _referring(own, wanted)
        found[_name(resource)] = {**named, "x-kubernetes-group-version-kind": [_kind(resource)]}
    while wanted:
        name = wanted.pop()
        if _public(name) not in found:
            found[_public(name)] = {}  # first, since definitions may refer to themselves
            found[_public(name)] = _referring(definitions[name], wanted)
    return found


def _name(resource: ResourceType) -> str:
    """``dev.gantry.mq.v1alpha1.BrokerGroup``, as on a real server."""
    group = ".".join(reversed(resource.group.split("."))) or "core"
    return f"{group}.{resource.version}.{resource.kind}"


def _public(model: str) -> str:
    """``V1Pod`` of the client package as ``io.k8s.v1.Pod``: kubectl shows the last word."""
    group, version, kind = model.partition("V1")
    return f"io.k8s.{group.lower()}{version.lower()}.{kind}" if version else f"io.k8s.{model}"


def _identity() -> Object:
    """What every object has, and a definition need not repeat."""
    text = "Standard object's metadata."
    return {
        "apiVersion": {"type": "string", "description": "Version of this representation."},
        "kind": {"type": "string", "description": "Name of this kind in CamelCase."},
        "metadata": {"$ref": _METADATA, "description": text},
    }


def _referring(raw: Any, wanted: list[str]) -> Any:
    """A copy with references as OpenAPI writes them; what they name is added to ``wanted``.

    A reference stands alone there, so that what is said besides it goes around it.
    """
    if isinstance(raw, list):
        return [_referring(item, wanted) for item in raw]
    if not isinstance(raw, dict):
        return raw
    copied = {key: _referring(value, wanted) for key, value in raw.items() if key != "$ref"}
    name = raw.get("$ref")
    if not isinstance(name, str):
        return copied if name is None else {**copied, "$ref": _referring(name, wanted)}
    wanted.append(name)
    reference = {"$ref": _SCHEMAS + _public(name)}
    return {**copied, "allOf": [reference]} if copied else reference
