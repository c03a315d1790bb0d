"""Isolation of endpoints: the part of an object each may write, and when a marked one goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType

Object = dict[str, Any]
SERVER_OWNED = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""Metadata only the server writes."""
_IDENTITY = ("name", "namespace", "resourceVersion", "uid")


def isolate(resource: ResourceType, old: Object, obj: Object, subresource: str) -> Object:
    """The main endpoint cannot touch the status, the status endpoint nothing else."""
    if subresource == "status":
        metadata = dict(old["metadata"])
        if "managedFields" in obj["metadata"]:
            metadata["managedFields"] = obj["metadata"]["managedFields"]
        isolated = {**old, "metadata": metadata}
        isolated.pop("status", None)
        return {**isolated, "status": obj["status"]} if "status" in obj else isolated
    if not resource.status:
        return obj
    kept = {key: value for key, value in obj.items() if key != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def appliable(resource: ResourceType, config: Object, subresource: str) -> Object:
    """The part of an applied configuration that its endpoint takes."""
    if subresource == "status":
        identity = {k: config["metadata"][k] for k in _IDENTITY if k in config["metadata"]}
        kept = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": identity}
        return {**kept, "status": config["status"]} if "status" in config else kept
    if resource.status:
        return {key: value for key, value in config.items() if key != "status"}
    return config


def may_go(obj: Object) -> bool:
    """Whether a marked object has nothing left that keeps it."""
    metadata = obj["metadata"]
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and obj.get("kind") != "Namespace"
    )
