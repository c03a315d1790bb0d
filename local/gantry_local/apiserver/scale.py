"""The ``/scale`` view of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver import selectors
from gantry_local.apiserver.errors import bad_request, no_such_path
from gantry_local.apiserver.validation import Cause, invalid

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType


def read(resource: ResourceType, obj: dict[str, Any]) -> dict[str, Any]:
    """The ``autoscaling/v1`` Scale object of a workload."""
    if resource.scale is None:
        raise no_such_path()
    metadata = obj["metadata"]
    copied = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _at(obj, resource.scale.status_replicas) or 0}
    selector = _selector(resource, obj)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in copied if key in metadata},
        "spec": {"replicas": _at(obj, resource.scale.spec_replicas) or 0},
        "status": status,
    }


def check(resource: ResourceType, obj: dict[str, Any]) -> list[Cause]:
    """The scale subresource's demands on the fields it maps."""
    if resource.scale is None:
        return []
    causes: list[Cause] = []
    for path in (resource.scale.spec_replicas, resource.scale.status_replicas):
        value, field = _at(obj, path), "." + ".".join(path)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            kind = {str: "string", float: "float64", bool: "bool"}.get(type(value), "map")
            shown = f"{value:g}" if isinstance(value, float) else value
            why = f"{field} accessor error: {shown} is of the type {kind}, expected int64"
            causes.append(invalid(field, 0, why))
        elif value < 0:
            causes.append(invalid(field, value, "should be a non-negative integer"))
    return causes


def written(resource: ResourceType, obj: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """``obj`` (a private copy) with the replica count of a Scale object."""
    if resource.scale is None:
        raise no_such_path()
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise bad_request(f"spec.replicas must be a non-negative integer, got {replicas!r}")
    version = (wanted.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    *outer, last = resource.scale.spec_replicas
    target = obj
    for step in outer:
        target = target.setdefault(step, {})
    target[last] = replicas
    return obj


def _selector(resource: ResourceType, obj: dict[str, Any]) -> str:
    if not resource.custom:
        return selectors.to_text((obj.get("spec") or {}).get("selector") or {})
    return str(_at(obj, resource.scale.selector) or "") if resource.scale else ""


def _at(obj: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = obj
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found
