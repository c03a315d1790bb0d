"""A cluster that is well, as the doctor finds it, and changes that make it sick."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable
from typing import Any

from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BUDGET,
    CLAIM,
    CONTROLLER_GROUP,
    CRD,
    DEPLOYMENT,
    EVENT,
    LEASE,
    NODE,
    POD,
    Kind,
)
from gantry_operator.models.generate import manifests
from gantry_operator.support.doctor import examine, find_in
from gantry_operator.support.findings import Diagnosis, Level
from gantry_operator.support.material import Material, Unread
from unit.operator.world import broker_world, controller_world, settled_status

CRDS = list(manifests().values())
NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
Body = dict[str, Any]
Change = Callable[[Material], object]


def ago(**time: float) -> str:
    return f"{NOW - dt.timedelta(**time):%Y-%m-%dT%H:%M:%SZ}"


def body(kind: Kind, name: str, namespace: str | None = "mq", **parts: Any) -> Body:
    meta: Body = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {"kind": kind.kind, "metadata": meta | parts.pop("metadata", {})} | parts


def pod(component: str, group: str, ordinal: int) -> Body:
    container = {"name": component, "image": "gantry:1"}
    claim = f"data-{group}-{component}-{ordinal}"
    return body(
        POD,
        f"{group}-{component}-{ordinal}",
        metadata={"labels": names.labels(component, group), "creationTimestamp": ago(days=1)},
        spec={
            "nodeName": f"node-{ordinal}",
            "containers": [container],
            "volumes": [{"persistentVolumeClaim": {"claimName": claim}}],
        },
        status={
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": ago(days=1)},
            ],
            "containerStatuses": [
                container | {"state": {"running": {"startedAt": ago(days=1)}}, "restartCount": 0}
            ],
        },
    )


def claim(component: str, group: str, ordinal: int) -> Body:
    return body(
        CLAIM,
        f"data-{group}-{component}-{ordinal}",
        metadata={"labels": names.labels(component, group), "creationTimestamp": ago(days=1)},
        spec={"resources": {"requests": {"storage": "10Gi"}}},
        status={"phase": "Bound", "capacity": {"storage": "10Gi"}},
    )


def group(kind: Kind, name: str, status: Any, **spec: Any) -> Body:
    text = status if isinstance(status, dict) else status.model_dump(by_alias=True, mode="json")
    return body(
        kind,
        name,
        metadata={"generation": 1},
        spec={"storage": {"size": "10Gi"}} | spec,
        status=text,
    )


def well() -> Material:
    """Three replicas and three controllers on three nodes, an operator, and nothing amiss."""
    reference = {"controllerRef": {"name": "gantry"}, "replicas": 3}
    objects = [
        group(BROKER_GROUP, "orders", settled_status(broker_world()), **reference),
        group(CONTROLLER_GROUP, "gantry", settled_status(controller_world()), replicas=3),
        body(
            DEPLOYMENT,
            "gantry-operator",
            "system",
            metadata={"labels": {names.LABEL_COMPONENT: names.OPERATOR}},
            spec={
                "replicas": 1,
                "template": {"spec": {"containers": [{"image": "gantry:1"}]}},
            },
            status={"readyReplicas": 1},
        ),
        body(
            LEASE,
            "gantry-operator",
            "system",
            spec={"holderIdentity": "operator-x", "renewTime": ago(seconds=2)},
        ),
        *(
            body(CRD, crd["metadata"]["name"], None, spec=crd["spec"])
            for crd in manifests().values()
        ),
    ]
    for component, name in (("broker", "orders"), ("controller", "gantry")):
        for n in range(3):
            objects += [pod(component, name, n), claim(component, name, n)]
        objects.append(
            body(
                BUDGET,
                f"{name}-{component}",
                metadata={"labels": names.labels(component, name)},
                status={"disruptionsAllowed": 1, "currentHealthy": 3},
            )
        )
    objects += [
        body(NODE, f"node-{n}", None, metadata={"labels": {"topology.kubernetes.io/zone": f"z{n}"}})
        for n in range(3)
    ]
    material = Material("mq", "system", {"gitVersion": "v1.34.1"}, {}, [], [])
    for one in objects:
        material.objects.setdefault(one["kind"], []).append(one)
    return material


def of(material: Material, kind: Kind, name: str) -> Body:
    found: Body = next(o for o in material.objects[kind.kind] if o["metadata"]["name"] == name)
    return found


def examined(material: Material, name: str = "orders") -> list[Diagnosis]:
    return examine(material, *find_in(material, name), NOW)


def amiss(findings: list[Diagnosis]) -> list[Diagnosis]:
    return [one for one in findings if one.level != Level.OK]


def status_of(kind: Kind, name: str, **parts: Any) -> Change:
    return lambda m: of(m, kind, name)["status"].update(parts)


def condition(name: str, status: str, reason: str, message: str, **age: float) -> Change:
    def change(material: Material) -> None:
        conditions = of(material, BROKER_GROUP, "orders")["status"]["conditions"]
        conditions[:] = [one for one in conditions if one["type"] != name]
        conditions.append(
            {
                "type": name,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": ago(**(age or {"seconds": 5})),
            }
        )

    return change


def container(name: str, **status: Any) -> Change:
    """A container's status, whose pod is not Ready."""

    def change(material: Material) -> None:
        found = of(material, POD, name)["status"]
        found["containerStatuses"][0] |= status
        found["conditions"][1] |= {"status": "False", "lastTransitionTime": ago(minutes=1)}

    return change


def unready(name: str, **age: float) -> Change:
    return lambda m: of(m, POD, name)["status"]["conditions"][1].update(
        status="False", lastTransitionTime=ago(**age)
    )


def added(kind: Kind, name: str, namespace: str | None = "mq", **parts: Any) -> Change:
    return lambda m: m.objects.setdefault(kind.kind, []).append(
        body(kind, name, namespace, **parts)
    )


def gone(kind: Kind, *which: str) -> Change:
    def change(material: Material) -> None:
        kept = [o for o in material.objects[kind.kind] if o["metadata"]["name"] not in which]
        material.objects[kind.kind] = kept if which else []

    return change


def meta(kind: Kind, name: str, **parts: Any) -> Change:
    return lambda m: of(m, kind, name)["metadata"].update(parts)


def spec(kind: Kind, name: str, **parts: Any) -> Change:
    return lambda m: of(m, kind, name)["spec"].update(parts)


def denied(what: str) -> Change:
    return lambda m: m.unread.append(Unread(what, "403 Forbidden: no", True))


def all_of(*changes: Change) -> Change:
    return lambda m: [change(m) for change in changes]


def crd(change: Callable[[Body], object]) -> Change:
    def changed(material: Material) -> None:
        found = of(material, CRD, "brokergroups.mq.gantry.dev")
        found["spec"] = copy.deepcopy(found["spec"])
        change(found)

    return changed


def properties(found: Body) -> Body:
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    result: Body = schema["properties"]["spec"]["properties"]
    return result


def warning(message: str, name: str = "orders-broker-1", **age: float) -> Change:
    return added(
        EVENT,
        "e1",
        type="Warning",
        reason="FailedMount",
        message=message,
        involvedObject={"name": name},
        lastTimestamp=ago(**(age or {"minutes": 1})),
    )
