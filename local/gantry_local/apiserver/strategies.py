"""Strategies of built-in kinds beyond their schema: derived fields and rules.

``prepare`` works in place on a private copy before validation; ``check`` returns causes. Each rule
follows the kind's ``strategy.go`` and ``validation.go``; only rules some caller can meet are here.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver import podrules, selectors
from gantry_local.apiserver.validation import Cause, forbidden, invalid, required

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_local.apiserver.kinds import ResourceType

Object = dict[str, Any]
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
"""Keeps a deleted claim until no pod uses it; every claim gets it when it is created."""


FIXED_CLASS = "fixed"
"""Storage class without allowVolumeExpansion."""


def denied(resource: ResourceType, obj: Object, old: Object | None) -> str:
    """The words of an admission plugin (PersistentVolumeClaimResize) that forbids a valid write."""
    if resource.key != ("", "persistentvolumeclaims") or old is None:
        return ""
    spec, before = obj.get("spec") or {}, old["spec"]
    if spec.get("storageClassName") != FIXED_CLASS or spec["resources"] == before["resources"]:
        return ""
    return (
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the "
        "pvc must support resize"
    )


def prepare(resource: ResourceType, obj: Object, old: Object | None) -> None:
    """Fill in what the server derives for the kind."""
    action = _PREPARE.get(resource.key)
    if action is not None:
        action(obj, old)


def check(resource: ResourceType, obj: Object, old: Object | None) -> list[Cause]:
    """Violations of the kind's own rules."""
    action = _CHECK.get(resource.key)
    return action(obj, old) if action is not None else []


def _prepare_namespace(obj: Object, old: Object | None) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"][
        "name"
    ]
    if old is None:
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        obj["status"] = {"phase": "Active"}


def _prepare_pod(obj: Object, old: Object | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _prepare_claim(obj: Object, old: Object | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending"}
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if CLAIM_PROTECTION not in finalizers:
            finalizers.append(CLAIM_PROTECTION)


def _prepare_secret(obj: Object, _old: Object | None) -> None:
    plain = obj.pop("stringData", None)
    if plain:
        data = obj.setdefault("data", {})
        for key, text in plain.items():
            data[key] = base64.b64encode(str(text).encode()).decode()


def _prepare_stateful_set(obj: Object, _old: Object | None) -> None:
    spec = obj["spec"]
    strategy = spec["updateStrategy"]
    if strategy.get("type") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    for claim in spec.get("volumeClaimTemplates") or []:
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("status", {"phase": "Pending"})


def _prepare_deployment(obj: Object, _old: Object | None) -> None:
    strategy = obj["spec"]["strategy"]
    if strategy.get("type") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        for field in ("maxSurge", "maxUnavailable"):
            rolling.setdefault(field, "25%")


def _prepare_service(obj: Object, old: Object | None) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("type") == "ExternalName":
        return
    if old is not None:
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and old["spec"].get(field):
                spec[field] = old["spec"][field]
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or []:
        port.setdefault("targetPort", port.get("port"))


def _check_stateful_set(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj["spec"]
    claims = {claim["metadata"].get("name") for claim in spec.get("volumeClaimTemplates") or []}
    causes = podrules.check_template(spec["template"], "spec.template", extra_volumes=claims)
    causes += _check_selector(spec)
    if spec["replicas"] < 0:
        causes.append(
            invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
        )
    strategy = spec["updateStrategy"]
    if strategy.get("type") == "OnDelete" and strategy.get("rollingUpdate") is not None:
        field = "spec.updateStrategy.rollingUpdate"
        why = "only allowed for updateStrategy 'RollingUpdate'"
        causes.append(invalid(field, strategy["rollingUpdate"], why))
    if old is not None:
        causes += _frozen(
            spec,
            old["spec"],
            allowed=_STATEFUL_SET_MUTABLE,
            message=(
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', "
                "'template', 'updateStrategy', 'revisionHistoryLimit', "
                "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
            ),
        )
    return causes


_STATEFUL_SET_MUTABLE = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)


def _check_deployment(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj["spec"]
    causes = podrules.check_template(spec["template"], "spec.template")
    causes += _check_selector(spec)
    strategy = spec["strategy"]
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate" and rolling is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        causes.append(forbidden("spec.strategy.rollingUpdate", why))
    elif rolling is not None and {rolling["maxSurge"], rolling["maxUnavailable"]} <= {0, "0%"}:
        field = "spec.strategy.rollingUpdate.maxUnavailable"
        why = "may not be 0 when `maxSurge` is 0"
        causes.append(invalid(field, rolling["maxUnavailable"], why))
    if old is not None and spec["selector"] != old["spec"]["selector"]:
        causes.append(invalid("spec.selector", spec["selector"], "field is immutable"))
    return causes


def _check_selector(spec: Object) -> list[Cause]:
    terms = selectors.from_label_selector(spec["selector"]) or ()
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not terms:
        return [invalid("spec.selector", spec["selector"], "empty selector is invalid")]
    if not all(term.matches(labels) for term in terms):
        why = "`selector` does not match template `labels`"
        return [invalid("spec.template.metadata.labels", labels, why)]
    return []


def _frozen(spec: Object, old: Object, *, allowed: frozenset[str], message: str) -> list[Cause]:
    def rest(value: Object) -> Object:
        return {key: item for key, item in value.items() if key not in allowed}

    return [] if rest(spec) == rest(old) else [forbidden("spec", message)]


def _check_pod(obj: Object, old: Object | None) -> list[Cause]:
    if old is None:
        return podrules.check_spec(obj.get("spec") or {}, "spec")
    return podrules.check_update(obj["spec"], old["spec"])


def _check_claim(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    if old is None:
        causes = [] if spec.get("accessModes") else [required("spec.accessModes")]
        if not (spec.get("resources") or {}).get("requests", {}).get("storage"):
            causes.append(required("spec.resources[storage]"))
        return causes
    before = {key: value for key, value in old["spec"].items() if key != "resources"}
    after = {key: value for key, value in spec.items() if key != "resources"}
    if "volumeName" not in before:
        after.pop("volumeName", None)
    if before != after:
        why = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        return [forbidden("spec", why)]
    return []


def _check_service(obj: Object, old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    ports = spec.get("ports") or []
    causes: list[Cause] = []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        causes.append(required("spec.ports"))
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            causes.append(required(f"spec.ports[{index}].name"))
        if not 1 <= port["port"] <= 65535:
            why = "must be between 1 and 65535, inclusive"
            causes.append(invalid(f"spec.ports[{index}].port", port["port"], why))
    if old is not None and old["spec"].get("clusterIP"):
        before, after = old["spec"]["clusterIP"], spec.get("clusterIP")
        if before != after:
            causes.append(invalid("spec.clusterIPs[0]", after, "may not change once set"))
    return causes


def _check_data(obj: Object, old: Object | None) -> list[Cause]:
    if old is None:
        return []
    causes: list[Cause] = []
    if obj.get("type") != old.get("type"):
        causes.append(invalid("type", obj.get("type"), "field is immutable"))
    if old.get("immutable"):
        why = "field is immutable when `immutable` is set"
        fields = ("data", "binaryData", "immutable")
        causes += [forbidden(field, why) for field in fields if obj.get(field) != old.get(field)]
    return causes


def _check_budget(obj: Object, _old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        why = "minAvailable and maxUnavailable cannot be both set"
        return [invalid("spec", spec, why)]
    return []


def _check_autoscaler(obj: Object, _old: Object | None) -> list[Cause]:
    spec = obj["spec"]
    least, most = spec["minReplicas"], spec["maxReplicas"]
    causes: list[Cause] = []
    if least < 1:
        causes.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < least:
        why = "must be greater than or equal to `minReplicas`"
        causes.append(invalid("spec.maxReplicas", most, why))
    return causes


def _check_lease(obj: Object, _old: Object | None) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes: list[Cause] = []
    if "leaseDurationSeconds" in spec and spec["leaseDurationSeconds"] <= 0:
        seconds = spec["leaseDurationSeconds"]
        causes.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if "leaseTransitions" in spec and spec["leaseTransitions"] < 0:
        count = spec["leaseTransitions"]
        why = "must be greater than or equal to 0"
        causes.append(invalid("spec.leaseTransitions", count, why))
    return causes


def _check_core_event(obj: Object, _old: Object | None) -> list[Cause]:
    about = obj["involvedObject"].get("namespace") or "default"
    if obj["metadata"]["namespace"] != about:
        return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def _check_event(obj: Object, old: Object | None) -> list[Cause]:
    if old is not None:
        return []
    causes = [
        required(field)
        for field in ("reportingController", "reportingInstance", "action", "reason")
        if not obj.get(field)
    ]
    if obj.get("type") not in {"Normal", "Warning"}:
        causes.append(invalid("type", obj.get("type", ""), "has invalid value"))
    if len(obj.get("note", "")) > 1024:
        causes.append(invalid("note", "", "can have at most 1024 characters"))
    about = (obj.get("regarding") or {}).get("namespace") or "default"
    if obj["metadata"]["namespace"] != about:
        causes.append(invalid("regarding.namespace", about, "does not match event.namespace"))
    return causes


_PREPARE: dict[tuple[str, str], Callable[[Object, Object | None], None]] = {
    ("", "namespaces"): _prepare_namespace,
    ("", "pods"): _prepare_pod,
    ("", "persistentvolumeclaims"): _prepare_claim,
    ("", "secrets"): _prepare_secret,
    ("", "services"): _prepare_service,
    ("apps", "statefulsets"): _prepare_stateful_set,
    ("apps", "deployments"): _prepare_deployment,
}
_CHECK: dict[tuple[str, str], Callable[[Object, Object | None], list[Cause]]] = {
    ("", "pods"): _check_pod,
    ("", "persistentvolumeclaims"): _check_claim,
    ("", "services"): _check_service,
    ("", "secrets"): _check_data,
    ("", "configmaps"): _check_data,
    ("", "events"): _check_core_event,
    ("apps", "statefulsets"): _check_stateful_set,
    ("apps", "deployments"): _check_deployment,
    ("policy", "poddisruptionbudgets"): _check_budget,
    ("autoscaling", "horizontalpodautoscalers"): _check_autoscaler,
    ("coordination.k8s.io", "leases"): _check_lease,
    ("events.k8s.io", "events"): _check_event,
}
