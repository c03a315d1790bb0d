"""``pods/eviction``: a deletion that asks the disruption budget first, as a node drain does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.deletion import DeleteOptions, parse_options
from gantry_local.apiserver.errors import StatusError, internal
from gantry_local.apiserver.selectors import from_label_selector

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.registry import Registry
    from gantry_local.apiserver.store import Record

BUDGETS = ("policy", "poddisruptionbudgets")


def evict(
    registry: Registry, pods: ResourceType, namespace: str, name: str, body: dict[str, Any]
) -> None:
    """Delete the pod if its budget allows it.

    Raises:
        StatusError: 404 for no such pod, 429 when the budget has nothing left, 500 when more than
            one budget covers the pod.
    """
    pod = registry.get(pods, namespace, name)
    options = parse_options(pods, body.get("deleteOptions") or {}, {})
    budgets = [
        record for record in registry.store.records(BUDGETS, namespace) if _covers(record, pod)
    ]
    if len(budgets) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    if budgets and not _is_free(pod, budgets[0]):
        _spend(registry, budgets[0], pod)
    registry.delete(pods, namespace, name, _same_pod(options, pod))


def _covers(budget: Record, pod: Record) -> bool:
    terms = from_label_selector(budget.obj["spec"].get("selector"))
    labels = pod.obj["metadata"].get("labels") or {}
    return terms is not None and all(term.matches(labels) for term in terms)


def _is_free(pod: Record, budget: Record) -> bool:
    """Whether evicting the pod cannot reduce what the budget protects."""
    status = pod.obj.get("status") or {}
    if "deletionTimestamp" in pod.obj["metadata"] or status.get("phase") != "Running":
        return True
    conditions = status.get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    counts = budget.obj.get("status") or {}
    desired = counts.get("desiredHealthy", 0)
    return not ready and counts.get("currentHealthy", 0) >= desired > 0


def _spend(registry: Registry, budget: Record, pod: Record) -> None:
    status = budget.obj.get("status") or {}
    allowed = status.get("disruptionsAllowed", 0)
    stale = status.get("observedGeneration", 0) < budget.obj["metadata"]["generation"]
    if stale or allowed <= 0:
        raise _refused(budget, status)
    spent = {**budget.obj, "status": {**status, "disruptionsAllowed": allowed - 1}}
    resource = registry.catalogue.type(*BUDGETS)
    registry.update(resource, *budget.key, spent, Options(manager="eviction"), subresource="status")


def _refused(budget: Record, status: dict[str, Any]) -> StatusError:
    why = (
        f"The disruption budget {budget.key[1]} needs {status.get('desiredHealthy', 0)} healthy "
        f"pods and has {status.get('currentHealthy', 0)} currently"
    )
    return StatusError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
    )


def _same_pod(options: DeleteOptions, pod: Record) -> DeleteOptions:
    """The budget was asked for this very pod, so no successor may be deleted instead."""
    return DeleteOptions(
        uid=options.uid or pod.uid,
        resource_version=options.resource_version,
        grace_s=options.grace_s,
        propagation=options.propagation,
        dry_run=options.dry_run,
    )
