"""The ``/scale`` view of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_operator.local.apiserver import selectors
from gantry_operator.local.apiserver.errors import bad_request, no_such_path

if TYPE_CHECKING:
    from gantry_operator.local.apiserver.kinds import ResourceType


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
