"""Acceptance of a resource: whether it can be acted on, and what to tell its owner if not.

These are the same rules that the API server enforces by the CRD, asked again here: a resource may
be older than a rule, and a rule about the past (`oldSelf`) can be checked against what exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.settings.broker import BrokerTuning
from gantry_protocol.settings.controller import ControllerTuning

from gantry_operator import names
from gantry_operator.builders.front import PORTS_VARIABLE
from gantry_operator.builders.tier import URL
from gantry_operator.models.known_settings import wrong_settings
from gantry_operator.plan.growth import claimed_size, wished_last
from gantry_operator.plan.objects import is_larger, same_quantity, setting
from gantry_operator.plan.observed import hosted_shards
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.models import BrokerGroupStatus, ControllerGroup, Tier
    from gantry_operator.models.base import Metadata
    from gantry_operator.models.parts import Storage
    from gantry_operator.plan.observed import Body, BrokerObserved, FrontObserved, Refusal
    from gantry_operator.plan.volumes import Identity

_NO_DIRECTORY = (
    "spec.tier.url: a directory holds the tier only where all replicas see the same files, as with "
    "gantry local: use s3://BUCKET here."
)


class Acceptance(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        usable: whether objects may be built from the spec at all. A refused write leaves this
            true, so that the write is tried again.
        steps: whether disruptive steps may be taken. A refused one leaves this true, likewise.
    """

    accepted: bool
    usable: bool
    reason: Reason
    message: str
    steps: bool = False


def _refused(reason: Reason, message: str) -> Acceptance:
    return Acceptance(accepted=False, usable=False, reason=reason, message=message)


def _settle(refusals: Iterable[Refusal]) -> Acceptance:
    refused = tuple(refusals)
    steps = all(refusal.step for refusal in refused)
    for refusal in refused:
        reason = Reason.NAME_TAKEN if refusal.taken else Reason.API_REFUSED
        text = f"{refusal.kind} {refusal.name}: {refusal.message}"
        return Acceptance(accepted=False, usable=True, reason=reason, message=text, steps=steps)
    text = "The spec is valid."
    return Acceptance(accepted=True, usable=True, reason=Reason.VALID, message=text, steps=True)


def accept_broker_group(seen: BrokerObserved, statefulset: Body | None) -> Acceptance:
    """Rule: nothing is built from a spec that is invalid, dangling or contradicts what exists."""
    group = seen.group
    if group is None:
        return _refused(Reason.INVALID_SPEC, seen.invalid)
    wrong = wrong_settings(seen.meta, group.spec.config, BrokerTuning)
    if wrong:
        return _refused(Reason.INVALID_SPEC, wrong)
    reference, tier = group.spec.controller_ref.name, group.spec.tier
    changed = (
        _changed_reference(reference, statefulset)
        or _changed_shards(group.spec.shards, statefulset)
        or _changed_storage(group.spec.storage, statefulset)
        or _changed_tier(tier, seen.previous, statefulset)
    )
    if changed:
        return _refused(Reason.IMMUTABLE_FIELD, changed)
    if tier is not None and tier.is_directory and not seen.directory_tiers:
        return _refused(Reason.INVALID_SPEC, _NO_DIRECTORY)
    if seen.controllers is None:
        return _no_controllers(reference, seen.meta)
    return _settle(seen.refusals)


def accept_front_group(seen: FrontObserved) -> Acceptance:
    """Rule: a cluster has the fronts of one resource, the one that was there first."""
    group = seen.group
    if group is None:
        return _refused(Reason.INVALID_SPEC, seen.invalid)
    deployment = seen.deployment
    live = None if deployment is None else setting(deployment, PORTS_VARIABLE)
    if live is not None and live.isdigit() and int(live) > group.spec.ports:
        return _refused(
            Reason.IMMUTABLE_FIELD,
            f"spec.ports can be raised and never lowered: set it back to {live}, and create a new "
            "FrontGroup for fewer.",
        )
    if seen.controllers is None:
        return _no_controllers(seen.cluster, seen.meta)
    if seen.before:
        return _refused(
            Reason.CLUSTER_HAS_FRONTS,
            f"FrontGroup {seen.before} serves cluster {seen.cluster} already, and there can be one "
            "for each: delete one of the two.",
        )
    return _settle(seen.refusals)


def _no_controllers(reference: str, meta: Metadata) -> Acceptance:
    return _refused(
        Reason.CONTROLLER_NOT_FOUND,
        f"There is no valid ControllerGroup {reference} in namespace {meta.namespace}: create it "
        "there.",
    )


def accept_controller_group(
    group: ControllerGroup | None,
    invalid: str,
    statefulset: Body | None,
    refusals: Iterable[Refusal],
    identity: Identity | None = None,
) -> Acceptance:
    """Rule: nothing is built from a spec that is invalid or contradicts what exists."""
    if group is None:
        return _refused(Reason.INVALID_SPEC, invalid)
    wrong = wrong_settings(group.metadata, group.spec.config, ControllerTuning)
    if wrong:
        return _refused(Reason.INVALID_SPEC, wrong)
    changed = _changed_storage(group.spec.storage, statefulset)
    if changed:
        return _refused(Reason.IMMUTABLE_FIELD, changed)
    if identity is not None and identity.refused:
        return _refused(Reason.VOLUMES_UNCLEAR, identity.refused)
    return _settle(refusals)


def _changed_reference(reference: str, statefulset: Body | None) -> str:
    annotations = (statefulset or {}).get("metadata", {}).get("annotations") or {}
    created_for = annotations.get(names.ANNOTATION_CONTROLLER_GROUP)
    if created_for is None or created_for == reference:
        return ""
    return (
        f"spec.controllerRef.name is fixed at creation: set it back to {created_for}, and create a "
        "new BrokerGroup under the other controller."
    )


def _changed_shards(shards: int | None, statefulset: Body | None) -> str:
    """Names of groups and the layout of volumes depend on it."""
    if statefulset is None:
        return ""
    hosted = hosted_shards(statefulset)
    if hosted is None and shards is not None:
        return (
            "spec.shards is fixed at creation as to whether it is set: remove it, and create a new "
            "BrokerGroup with shards."
        )
    if hosted is not None and shards is None:
        return (
            "spec.shards is fixed at creation as to whether it is set: set it back to "
            f"{hosted}, and create a new BrokerGroup without shards."
        )
    return ""


def _changed_storage(storage: Storage, statefulset: Body | None) -> str:
    if statefulset is None:
        return ""
    templates = statefulset["spec"].get("volumeClaimTemplates") or []
    if (storage.type == "PersistentVolumeClaim") != bool(templates):
        kind = "PersistentVolumeClaim" if templates else "EmptyDir"
        return f"spec.storage.type is fixed at creation: set it back to {kind}."
    size = _fixed_size(statefulset)
    if size is not None and not same_quantity(size, storage.size):
        return f"spec.storage.size of an EmptyDir is fixed at creation: set it back to {size}."
    largest = wished_last(statefulset) or claimed_size(statefulset)
    if largest is not None and is_larger(largest, storage.size):
        return (
            f"spec.storage.size can grow and never shrink, since no volume does: set it back to "
            f"{largest}."
        )
    for template in templates:
        spec = template["spec"]
        if spec.get("storageClassName") != storage.class_name:
            old = spec.get("storageClassName")
            back = f"set it back to {old}" if old else "remove it"
            return f"spec.storage.className is fixed at creation: {back}."
    return ""


def _fixed_size(statefulset: Body) -> str | None:
    """The size of the EmptyDir that pods keep their data in; None where they have a claim."""
    template = statefulset["spec"].get("template") or {}
    for volume in (template.get("spec") or {}).get("volumes") or ():
        if volume.get("name") == "data" and "emptyDir" in volume:
            size: str | None = volume["emptyDir"].get("sizeLimit")
            return size
    return None


def _changed_tier(
    tier: Tier | None, previous: BrokerGroupStatus | None, statefulset: Body | None
) -> str:
    """Where something has been uploaded, the place stays: older messages may be nowhere else."""
    if statefulset is None or previous is None or previous.tier is None:
        return ""
    url = setting(statefulset, URL)
    if url is None or not previous.tier.committed_offset or (tier is not None and tier.url == url):
        return ""
    return (
        f"spec.tier.url is fixed once something has been uploaded: set it back to {url}, and "
        "create a new BrokerGroup for another place."
    )
