"""The meaning of a DELETE for one object: gone now, or kept for somebody's finalizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_local.apiserver.errors import StatusError, conflict, invalid
from gantry_local.apiserver.validation import invalid as invalid_cause

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_POLICIES: Final = frozenset({"Background", "Foreground", "Orphan"})


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The understood part of ``v1.DeleteOptions``; None means "not said"."""

    uid: str | None = None
    resource_version: str | None = None
    grace_s: int | None = None
    propagation: str | None = None
    dry_run: bool = False


def parse_options(
    resource: ResourceType, body: dict[str, Any], query: dict[str, str]
) -> DeleteOptions:
    """Options from the body, with the query as fallback; 422 for an unknown policy."""
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy")
    if body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    if propagation is not None and propagation not in _POLICIES:
        why = f"must be one of {sorted(_POLICIES)}"
        raise invalid(resource, "", [invalid_cause("propagationPolicy", propagation, why)])
    return DeleteOptions(
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        grace_s=int(grace) if grace is not None else None,
        propagation=propagation,
        dry_run=bool(body.get("dryRun") or query.get("dryRun")),
    )


def check_preconditions(
    resource: ResourceType, obj: dict[str, Any], options: DeleteOptions
) -> None:
    """Raise 409 when the object is not the one the caller meant."""
    metadata = obj["metadata"]
    for label, wanted, got in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    ):
        if wanted is not None and wanted != got:
            raise _precondition_failed(resource, metadata["name"], label, wanted, got)


def _precondition_failed(
    resource: ResourceType, name: str, label: str, wanted: str, got: str
) -> StatusError:
    where = "UID in object meta" if label == "UID" else "ResourceVersion in object meta"
    why = f"Precondition failed: {label} in precondition: {wanted}, {where}: {got}"
    return conflict(resource, name, why)


def grace_s(resource: ResourceType, obj: dict[str, Any], options: DeleteOptions) -> int:
    """Seconds a pod is given; everything else goes at once."""
    if resource.key != ("", "pods"):
        return 0
    spec = obj.get("spec") or {}
    phase = (obj.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0  # nothing runs, so there is nobody to wait for
    wanted = options.grace_s
    return max(0, spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted)


def finalizers_for(obj: dict[str, Any], options: DeleteOptions) -> list[str]:
    """The object's finalizers with the garbage collector's for the chosen propagation."""
    kept = [f for f in obj["metadata"].get("finalizers") or [] if f not in {FOREGROUND, ORPHAN}]
    previous = obj["metadata"].get("finalizers") or []
    match options.propagation:
        case "Foreground":
            return [*kept, FOREGROUND]
        case "Orphan":
            return [*kept, ORPHAN]
        case "Background":
            return kept
        case _:
            return list(previous)


def mark(
    obj: dict[str, Any], finalizers: list[str], *, grace: int, deletion_time: str
) -> dict[str, Any]:
    """The object with its deletion recorded; a later, shorter grace period wins."""
    metadata = dict(obj["metadata"])
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    first = "deletionTimestamp" not in metadata
    if first or grace < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionTimestamp"] = deletion_time
        metadata["deletionGracePeriodSeconds"] = grace
    if first and "generation" in metadata:
        metadata["generation"] += 1
    return {**obj, "metadata": metadata}
