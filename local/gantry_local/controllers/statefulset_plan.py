"""The next steps of a StatefulSet: a pure function of set, pods, claims and revisions.

After ``pkg/controller/statefulset/stateful_set_control.go``: Parallel and OrderedReady, OnDelete
and RollingUpdate with a partition, claims per ordinal, the retention policy. Not here: ordinals
that do not start at 0, ``minReadySeconds``, ``maxUnavailable``.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from gantry_local.controllers.direct import (
    is_finished,
    is_ready,
    is_terminating,
    owner_reference,
)

Object = dict[str, Any]
REVISION_LABEL = "controller-revision-hash"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


class Plan(msgspec.Struct):
    """Objects to create and delete, and the status to report."""

    create_pods: list[Object]
    create_claims: list[Object]
    delete_pods: list[Object]
    # (claim, its new ownerReferences)
    own_claims: list[tuple[Object, list[Object]]]
    status: Object
    # Claims on their way out that hold a pod back: a new pod would keep the old volume.
    held_by: list[str] = []


def revision_name(sts: Object) -> str:
    """``<set>-<hash of the template>``: the value of the revision label."""
    text = msgspec.json.encode(sts["spec"]["template"], order="sorted")
    return f"{sts['metadata']['name']}-{hashlib.sha256(text).hexdigest()[:10]}"


def plan(
    sts: Object,
    pods: list[Object],
    claims: dict[str, Object],
    templates: dict[str, Object],
) -> Plan:
    """The next step.

    Args:
        sts: The set.
        pods: Pods it owns.
        claims: Existing claims of the namespace by name.
        templates: Pod templates by revision name (the update revision included).
    """
    by_ordinal = {_ordinal(pod): pod for pod in pods}
    replicas = sts["spec"]["replicas"]
    update = revision_name(sts)
    current = (sts.get("status") or {}).get("currentRevision") or update
    result = Plan([], [], [], [], _status(sts, pods, current, update))
    parallel = sts["spec"]["podManagementPolicy"] == "Parallel"
    if is_terminating(sts):
        return result
    for ordinal in range(replicas):
        pod = by_ordinal.get(ordinal)
        if pod is None:
            wanted = _wanted_revision(sts, ordinal, current, update)
            template = templates.get(wanted, sts["spec"]["template"])
            _create(sts, ordinal, template, wanted, claims, result)
        elif is_finished(pod) and not is_terminating(pod):
            result.delete_pods.append(pod)
        if not parallel and not (pod is not None and is_ready(pod) and not is_terminating(pod)):
            break
    _scale_down(sts, by_ordinal, claims, result, parallel=parallel)
    if not result.create_pods and not result.delete_pods:
        _roll(sts, by_ordinal, update, result)
    _own_claims(sts, claims, result)
    return result


def _ordinal(pod: Object) -> int:
    tail = pod["metadata"]["name"].rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def _wanted_revision(sts: Object, ordinal: int, current: str, update: str) -> str:
    strategy = sts["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return update
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    return current if ordinal < partition else update


def _create(
    sts: Object,
    ordinal: int,
    template: Object,
    revision: str,
    claims: dict[str, Object],
    result: Plan,
) -> None:
    templates = sts["spec"].get("volumeClaimTemplates") or []
    names = {claim_name(sts, wanted, ordinal): wanted for wanted in templates}
    leaving = [name for name in names if name in claims and is_terminating(claims[name])]
    if leaving:
        result.held_by += leaving
        return
    result.create_pods.append(new_pod(sts, ordinal, template, revision))
    for name, wanted in names.items():
        if name not in claims:
            result.create_claims.append(_new_claim(sts, wanted, name))


def new_pod(sts: Object, ordinal: int, template: Object, revision: str) -> Object:
    """The pod of an ordinal."""
    meta, name = sts["metadata"], f"{sts['metadata']['name']}-{ordinal}"
    given = template.get("metadata") or {}
    labels = {
        **(given.get("labels") or {}),
        REVISION_LABEL: revision,
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
    }
    spec = dict(template["spec"])
    spec["hostname"] = name
    if sts["spec"].get("serviceName"):
        spec["subdomain"] = sts["spec"]["serviceName"]
    wanted = sts["spec"].get("volumeClaimTemplates") or []
    replaced = {claim["metadata"]["name"] for claim in wanted}
    kept = [volume for volume in spec.get("volumes") or [] if volume["name"] not in replaced]
    for claim in wanted:
        source = {"claimName": claim_name(sts, claim, ordinal)}
        kept.append({"name": claim["metadata"]["name"], "persistentVolumeClaim": source})
    if kept:
        spec["volumes"] = kept
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [owner_reference(sts)],
        },
        "spec": spec,
    }


def claim_name(sts: Object, template: Object, ordinal: int) -> str:
    """``<claim>-<set>-<ordinal>``."""
    return f"{template['metadata']['name']}-{sts['metadata']['name']}-{ordinal}"


def _new_claim(sts: Object, template: Object, name: str) -> Object:
    given = template["metadata"]
    labels = {
        **(given.get("labels") or {}),
        **((sts["spec"]["selector"] or {}).get("matchLabels") or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": sts["metadata"]["namespace"],
            "labels": labels,
            "annotations": dict(given.get("annotations") or {}),
        },
        "spec": template["spec"],
    }


def _scale_down(
    sts: Object,
    by_ordinal: dict[int, Object],
    claims: dict[str, Object],
    result: Plan,
    *,
    parallel: bool,
) -> None:
    """Pods above the wanted count go, highest first; their claims follow them if so asked."""
    surplus = sorted((n for n in by_ordinal if n >= sts["spec"]["replicas"]), reverse=True)
    retention = sts["spec"]["persistentVolumeClaimRetentionPolicy"]
    for ordinal in surplus:
        pod = by_ordinal[ordinal]
        if retention["whenScaled"] == "Delete":
            for template in sts["spec"].get("volumeClaimTemplates") or []:
                claim = claims.get(claim_name(sts, template, ordinal))
                if claim is not None and not _is_owned(claim, pod):
                    owners = [owner_reference(pod, controller=False)]
                    result.own_claims.append((claim, owners))
        if not is_terminating(pod):
            result.delete_pods.append(pod)
        if not parallel:
            break


def _roll(sts: Object, by_ordinal: dict[int, Object], update: str, result: Plan) -> None:
    """RollingUpdate: the highest outdated pod, once everything above it is healthy."""
    strategy = sts["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    for ordinal in reversed(range(partition, sts["spec"]["replicas"])):
        pod = by_ordinal.get(ordinal)
        if pod is None or is_terminating(pod):
            return
        if pod["metadata"]["labels"].get(REVISION_LABEL) != update:
            result.delete_pods.append(pod)
            return
        if not is_ready(pod):
            return


def _own_claims(sts: Object, claims: dict[str, Object], result: Plan) -> None:
    """Claims of wanted ordinals belong to the set exactly when they are to go with it."""
    retention = sts["spec"]["persistentVolumeClaimRetentionPolicy"]
    goes = retention["whenDeleted"] == "Delete"
    for template in sts["spec"].get("volumeClaimTemplates") or []:
        for ordinal in range(sts["spec"]["replicas"]):
            claim = claims.get(claim_name(sts, template, ordinal))
            if claim is None or is_terminating(claim):
                continue
            wanted = [owner_reference(sts)] if goes else []
            if (claim["metadata"].get("ownerReferences") or []) != wanted:
                result.own_claims.append((claim, wanted))


def _is_owned(claim: Object, owner: Object) -> bool:
    owners = claim["metadata"].get("ownerReferences") or []
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in owners)


def _status(sts: Object, pods: list[Object], current: str, update: str) -> Object:
    replicas = sts["spec"]["replicas"]
    alive = [pod for pod in pods if not is_finished(pod)]

    def of(revision: str) -> int:
        return sum(pod["metadata"]["labels"].get(REVISION_LABEL) == revision for pod in alive)

    ready = sum(is_ready(pod) for pod in alive)
    rolling = sts["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    if rolling and of(update) == len(alive) == replicas == ready:
        current = update
    old = sts.get("status") or {}
    status = {
        "observedGeneration": sts["metadata"]["generation"],
        "replicas": len(alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": of(current),
        "updatedReplicas": of(update),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": 0,
    }
    return {**{k: v for k, v in old.items() if k == "conditions"}, **status}
