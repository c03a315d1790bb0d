"""The rules of a structural schema, as the API server states them for CustomResourceDefinitions.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FORBIDDEN = {"$ref", "$defs", "definitions", "title", "dependencies", "deprecated", "id"} | {
    "patternProperties",
    "readOnly",
    "writeOnly",
    "xml",
    "const",
    "exclusiveMinimum",
}
TYPES = {"object", "array", "string", "integer", "number", "boolean"}


def breaches(node: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Every way in which the schema is not structural."""
    yield from (f"{path}: {key}" for key in FORBIDDEN & set(node))
    if node.get("x-kubernetes-int-or-string"):
        if "type" in node:
            yield f"{path}: int-or-string with a type"
        return
    yield from _shape(node, path)
    for name, child in node.get("properties", {}).items():
        yield from breaches(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from breaches(node[key], f"{path}.{key}")


def _shape(node: dict[str, Any], path: str) -> Iterator[str]:
    if node.get("type") not in TYPES:
        yield f"{path}: type {node.get('type')!r}"
    yield from (f"{path}: {key}" for key in ("anyOf", "oneOf", "allOf", "not") if key in node)
    if isinstance(node.get("additionalProperties"), bool):
        yield f"{path}: additionalProperties is a boolean"
    if "properties" in node and "additionalProperties" in node:
        yield f"{path}: properties and additionalProperties"
    if node.get("type") == "array" and "items" not in node:
        yield f"{path}: array without items"
    yield from _map_keys(node, path)


def _map_keys(node: dict[str, Any], path: str) -> Iterator[str]:
    for key in node.get("x-kubernetes-list-map-keys", []):
        has_default = "default" in node["items"]["properties"][key]
        if key not in node["items"].get("required", []) and not has_default:
            yield f"{path}: list map key {key} is not required and has no default"


def properties(node: dict[str, Any], path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """All named fields with their schemas."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from properties(child, f"{path}.{name}")
    if isinstance(node.get("items"), dict):
        yield from properties(node["items"], f"{path}[]")
