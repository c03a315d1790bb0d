"""Checks by tables: a cluster that is well, one thing amiss, and what is said about it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BUDGET,
    CERTIFICATE,
    CLAIM,
    CONTROLLER_GROUP,
    CRD,
    DEPLOYMENT,
    EVENT,
    FRONT_GROUP,
    LEASE,
    NODE,
    POD,
    QUOTA,
    VALIDATING,
    Kind,
)
from gantry_operator.models.generate import manifests
from gantry_operator.support.doctor import as_text, examine, examine_all, exit_code, find_in
from gantry_operator.support.findings import Diagnosis, Level
from gantry_operator.support.material import Material, Unread
from gantry_protocol.errors import GantryError
from unit.operator.test_fencing import fenced_world
from unit.operator.world import broker_world, controller_world, settled_status

ROOT = Path(__file__).parents[3]
CRDS = list(manifests().values())
NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
Body = dict[str, Any]


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


def test_a_cluster_that_is_well_is_ok() -> None:
    found = examined(well())
    assert amiss(found) == []
    assert exit_code(found) == 0
    told = as_text(found)
    assert "ok    operator    system/gantry-operator runs gantry:1.\n" in told
    assert "3 of 3 replicas are in sync, 2 are needed. orders-broker-0 is master" in told
    assert "Do: " not in told
    checks = {one.check for one in found}
    assert checks >= {
        *("server", "rights", "crds", "operator", "webhooks", "quota", "conditions", "deletions"),
        *("pods", "spread", "volumes", "budget", "replicas", "quorum"),
    }


Change = Callable[[Material], object]


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
        import copy

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


WARN, FAIL = Level.WARN, Level.FAIL
HOOK = {
    "name": "h",
    "failurePolicy": "Fail",
    "rules": [{"apiGroups": ["*"], "resources": ["pods"]}],
}
CASES: list[tuple[str, Change, Level, str, str]] = [
    # what is around
    ("no-version", lambda m: m.server.clear(), WARN, "server", "does not tell its version"),
    ("no-rights", denied("pods of namespace mq"), WARN, "rights", r"pods of namespace mq \(403"),
    ("no-crd", gone(CRD, "brokergroups.mq.gantry.dev"), FAIL, "crds", "brokergroups.* not there"),
    (
        "crd-goes",
        crd(lambda c: c["metadata"].update(deletionTimestamp=ago(hours=1))),
        FAIL,
        "crds",
        "being deleted",
    ),
    (
        "crd-not-served",
        crd(lambda c: c["spec"]["versions"][0].update(served=False)),
        FAIL,
        "crds",
        "does not serve v1alpha1",
    ),
    (
        "crd-refused",
        crd(
            lambda c: c.update(
                status={
                    "conditions": [
                        {"type": "NamesAccepted", "status": "False", "message": "bg is taken"}
                    ]
                }
            )
        ),
        FAIL,
        "crds",
        "bg is taken",
    ),
    (
        "crd-older",
        crd(lambda c: properties(c).pop("tier")),
        WARN,
        "crds",
        "lacks fields .* spec.tier, spec.tier",
    ),
    (
        "crd-newer",
        crd(lambda c: properties(c).update(turbo={})),
        WARN,
        "crds",
        "does not know: spec.turbo",
    ),
    (
        "no-operator",
        all_of(gone(DEPLOYMENT), lambda m: m.objects.pop("Lease")),
        WARN,
        "operator",
        "No Deployment",
    ),
    (
        "operator-at-0",
        spec(DEPLOYMENT, "gantry-operator", replicas=0),
        FAIL,
        "operator",
        "scaled to 0",
    ),
    (
        "operator-down",
        status_of(DEPLOYMENT, "gantry-operator", readyReplicas=0),
        FAIL,
        "operator",
        "No pod of system/gantry-operator is Ready",
    ),
    (
        "operator-half",
        spec(DEPLOYMENT, "gantry-operator", replicas=2),
        WARN,
        "operator",
        "1 of 2 pods",
    ),
    (
        "lease-stale",
        spec(LEASE, "gantry-operator", renewTime=ago(minutes=30)),
        FAIL,
        "operator",
        "No operator has held the Lease for 30 min",
    ),
    (
        "lease-free",
        spec(LEASE, "gantry-operator", holderIdentity=""),
        FAIL,
        "operator",
        "No operator has held",
    ),
    ("no-lease", gone(LEASE), FAIL, "operator", "no Lease"),
    (
        "unseen",
        meta(BROKER_GROUP, "orders", generation=2),
        FAIL,
        "operator",
        "has seen the newest spec of BrokerGroup orders",
    ),
    (
        "refused",
        condition("Accepted", "False", "ApiRefused", "may not patch"),
        FAIL,
        "operator",
        "refuses the operator: may not patch",
    ),
    (
        "webhook",
        condition("Accepted", "False", "ApiRefused", 'admission webhook "x" denied'),
        FAIL,
        "webhooks",
        'refuses: admission webhook "x"',
    ),
    (
        "webhook-down",
        warning("Internal error: failed calling webhook y"),
        FAIL,
        "webhooks",
        "failed calling webhook y",
    ),
    (
        "quota",
        added(QUOTA, "q", status={"hard": {"pods": "10"}, "used": {"pods": "10"}}),
        WARN,
        "quota",
        "q: pods 10 of 10",
    ),
    (
        "quota-hits",
        warning("pods is forbidden: exceeded quota: q"),
        FAIL,
        "quota",
        "exceeded quota: q",
    ),
    # conditions
    (
        "stalled",
        all_of(
            condition("Ready", "False", "InvalidSpec", "no"),
            condition("Stalled", "True", "InvalidSpec", "no"),
        ),
        FAIL,
        "conditions",
        "InvalidSpec: no",
    ),
    (
        "reconciling",
        condition("Ready", "False", "Starting", "soon"),
        WARN,
        "conditions",
        "not Ready yet, Starting: soon",
    ),
    (
        "for-long",
        condition("Ready", "False", "Starting", "soon", minutes=30),
        FAIL,
        "conditions",
        "not Ready for 30 min",
    ),
    (
        "no-status",
        lambda m: of(m, BROKER_GROUP, "orders").update(status={}),
        FAIL,
        "conditions",
        "has no status",
    ),
    (
        "disk-full",
        condition("DiskFull", "True", "NothingMayGo", "no room"),
        FAIL,
        "conditions",
        "no room",
    ),
    (
        "altered",
        condition("Altered", "True", "AlteredByOthers", "a sidecar"),
        WARN,
        "conditions",
        "a sidecar",
    ),
    ("paused", spec(BROKER_GROUP, "orders", paused=True), WARN, "conditions", "is paused"),
    # deletions
    (
        "stuck",
        meta(
            BROKER_GROUP,
            "orders",
            deletionTimestamp=ago(hours=3),
            finalizers=[names.DRAIN_FINALIZER],
        ),
        FAIL,
        "deletions",
        "for 3 h, held by mq.gantry.dev/drain",
    ),
    (
        "stuck-pod",
        meta(POD, "orders-broker-1", deletionTimestamp=ago(minutes=20)),
        FAIL,
        "deletions",
        "Pod orders-broker-1 is being deleted for 20 min; its node",
    ),
    (
        "stuck-claim",
        meta(
            CLAIM,
            "data-orders-broker-1",
            deletionTimestamp=ago(minutes=20),
            finalizers=["kubernetes.io/pvc-protection"],
        ),
        FAIL,
        "deletions",
        "pvc-protection",
    ),
    # pods
    (
        "no-node",
        lambda m: of(m, POD, "orders-broker-1")["status"].update(
            conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]
        ),
        FAIL,
        "pods",
        "orders-broker-1 has no node: 0/3 nodes",
    ),
    (
        "no-image",
        container(
            "orders-broker-1",
            state={"waiting": {"reason": "ImagePullBackOff", "message": "denied"}},
        ),
        FAIL,
        "pods",
        "the image gantry:1: ImagePullBackOff denied",
    ),
    (
        "no-secret",
        container(
            "orders-broker-1",
            state={
                "waiting": {
                    "reason": "CreateContainerConfigError",
                    "message": 'secret "x" not found',
                }
            },
        ),
        FAIL,
        "pods",
        'secret "x" not found',
    ),
    (
        "crash-loop",
        container(
            "orders-broker-1",
            state={"waiting": {"reason": "CrashLoopBackOff"}},
            lastState={"terminated": {"exitCode": 2, "message": "gantry: unknown key a"}},
            restartCount=9,
        ),
        FAIL,
        "pods",
        "ended with code 2 .*unknown key a",
    ),
    (
        "out-of-memory",
        container(
            "orders-broker-1",
            state={"waiting": {"reason": "CrashLoopBackOff"}},
            lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        ),
        FAIL,
        "pods",
        "OOMKilled",
    ),
    (
        "restarted",
        lambda m: of(m, POD, "orders-broker-1")["status"]["containerStatuses"][0].update(
            lastState={
                "terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ago(minutes=9)}
            }
        ),
        WARN,
        "pods",
        r"orders-broker-1/broker \(OOMKilled\)",
    ),
    ("starts", unready("orders-broker-1", minutes=1), WARN, "pods", "not Ready for 60 s"),
    (
        "does-not-start",
        all_of(unready("orders-broker-1", minutes=20), warning("no key tls.crt")),
        FAIL,
        "pods",
        r"for 20 min \(FailedMount: no key tls.crt\)",
    ),
    ("missing", gone(POD, "orders-broker-2"), FAIL, "pods", "has 2 of 3 pods"),
    (
        "images",
        lambda m: of(m, POD, "orders-broker-1")["spec"]["containers"][0].update(image="gantry:2"),
        WARN,
        "pods",
        "run gantry:1, gantry:2",
    ),
    # nodes
    (
        "one-node",
        lambda m: [
            of(m, POD, f"orders-broker-{n}")["spec"].update(nodeName="node-0") for n in range(2)
        ],
        WARN,
        "spread",
        "2 of 3 pods of BrokerGroup orders are on node-0",
    ),
    (
        "quorum-on-one-node",
        lambda m: [
            of(m, POD, f"gantry-controller-{n}")["spec"].update(nodeName="node-0") for n in range(2)
        ],
        FAIL,
        "spread",
        "with it the quorum is lost",
    ),
    (
        "one-zone",
        lambda m: [
            p["spec"].update(nodeName=f"more-{p['metadata']['name']}")
            or added(
                NODE,
                f"more-{p['metadata']['name']}",
                None,
                metadata={"labels": {"topology.kubernetes.io/zone": "z9"}},
            )(m)
            for p in list(m.objects["Pod"])
        ],
        WARN,
        "spread",
        "all in the zone z9|in the zone z9, of 4",
    ),
    # volumes
    (
        "unbound",
        lambda m: of(m, CLAIM, "data-orders-broker-1").update(status={"phase": "Pending"}),
        FAIL,
        "volumes",
        "has no volume for 24 h",
    ),
    (
        "lost",
        lambda m: of(m, CLAIM, "data-orders-broker-1").update(status={"phase": "Lost"}),
        FAIL,
        "volumes",
        "is lost",
    ),
    (
        "small",
        spec(BROKER_GROUP, "orders", storage={"size": "20Gi"}),
        WARN,
        "volumes",
        "has 10Gi, and 20Gi is wished",
    ),
    (
        "not-growing",
        lambda m: of(m, CLAIM, "data-orders-broker-1")["status"].update(
            conditions=[{"type": "ControllerResizeError", "status": "True", "message": "quota"}]
        ),
        WARN,
        "volumes",
        "does not become larger: quota",
    ),
    ("no-claim", gone(CLAIM, "data-orders-broker-1"), FAIL, "volumes", "data-orders-broker-1"),
    (
        "empty-dir",
        spec(BROKER_GROUP, "orders", storage={"type": "EmptyDir"}),
        WARN,
        "volumes",
        "goes with the pod",
    ),
    # budget
    ("no-budget", gone(BUDGET, "orders-broker"), WARN, "budget", "has no PodDisruptionBudget"),
    (
        "budget-blocks",
        status_of(BUDGET, "orders-broker", disruptionsAllowed=0),
        WARN,
        "budget",
        "none may be evicted",
    ),
    # replicas
    (
        "no-master",
        status_of(BROKER_GROUP, "orders", master=None),
        FAIL,
        "replicas",
        "no master: nobody is served",
    ),
    (
        "below-minimum",
        status_of(BROKER_GROUP, "orders", inSyncReplicas=[0]),
        FAIL,
        "replicas",
        "Sends are refused: 1 of 3",
    ),
    (
        "one-lags",
        all_of(
            status_of(BROKER_GROUP, "orders", inSyncReplicas=[0, 1]),
            lambda m: of(m, BROKER_GROUP, "orders")["status"]["members"][2].update(state="Lost"),
        ),
        WARN,
        "replicas",
        r"2 of 3 .*\(replica 2 Lost\)",
    ),
    (
        "no-slack",
        spec(BROKER_GROUP, "orders", replication={"minInSyncReplicas": 3}),
        WARN,
        "replicas",
        "makes sends wait",
    ),
    (
        "shard",
        status_of(
            BROKER_GROUP,
            "orders",
            shards={
                "ready": "2/3",
                "worst": {"name": "orders_1", "reason": "NoMaster", "message": "no master"},
            },
        ),
        FAIL,
        "replicas",
        "orders_1: no master",
    ),
    # quorum
    (
        "no-leader",
        status_of(CONTROLLER_GROUP, "gantry", leader=None),
        FAIL,
        "quorum",
        "nobody leads",
    ),
    (
        "no-majority",
        all_of(
            unready("gantry-controller-0", minutes=1), unready("gantry-controller-1", minutes=1)
        ),
        FAIL,
        "quorum",
        "1 of 3 controllers are Ready, 2 are needed",
    ),
    (
        "controller-down",
        unready("gantry-controller-0", minutes=1),
        WARN,
        "quorum",
        "2 of 3 controllers",
    ),
    ("no-quorum", gone(CONTROLLER_GROUP), FAIL, "quorum", "There is no ControllerGroup gantry"),
    # tier
    (
        "tier-stalled",
        all_of(
            spec(BROKER_GROUP, "orders", tier={"url": "s3://b"}),
            condition("TierHealthy", "False", "Stalled", "access denied"),
        ),
        WARN,
        "tier",
        "Stalled: access denied",
    ),
    (
        "tier-halted",
        all_of(
            spec(BROKER_GROUP, "orders", tier={"url": "s3://b"}),
            condition("TierHealthy", "False", "Halted", "differs"),
        ),
        FAIL,
        "tier",
        "Halted: differs",
    ),
    (
        "tier-lags",
        all_of(
            spec(BROKER_GROUP, "orders", tier={"url": "s3://b"}),
            status_of(BROKER_GROUP, "orders", tier={"lagSeconds": 900}),
        ),
        WARN,
        "tier",
        "900 s behind",
    ),
    (
        "tier-unknown",
        spec(BROKER_GROUP, "orders", tier={"url": "s3://b"}),
        WARN,
        "tier",
        "is not known",
    ),
    # certificates
    (
        "certificate-ends",
        all_of(
            spec(BROKER_GROUP, "orders", tls={"secretName": "t"}),
            added(CERTIFICATE, "c", spec={"secretName": "t"}, status={"notAfter": ago(days=-3)}),
        ),
        WARN,
        "certificates",
        "ends in 3 d",
    ),
    (
        "certificate-ended",
        all_of(
            spec(BROKER_GROUP, "orders", memberTls={"secretName": "t"}),
            added(CERTIFICATE, "c", spec={"secretName": "t"}, status={"notAfter": ago(days=3)}),
        ),
        FAIL,
        "certificates",
        "has ended 3 d ago",
    ),
]


@pytest.mark.parametrize(
    ("change", "level", "check", "words"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_amiss_is_told_with_what_to_do(
    change: Change, level: Level, check: str, words: str
) -> None:
    material = well()
    change(material)
    found = examined(material)
    told = [one for one in amiss(found) if one.check == check]
    assert [one for one in told if one.level == level and re.search(words, one.message)], found
    assert all(one.todo for one in amiss(found)), "each says what to do"
    assert exit_code(found) >= {WARN: 1, FAIL: 2}[level]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(denied("nodes"), id="nodes-not-readable"),
        pytest.param(added(VALIDATING, "v", None, webhooks=[HOOK]), id="webhook"),
        pytest.param(warning("old: exceeded quota", hours=5), id="old-event"),
        pytest.param(
            added(QUOTA, "q", status={"hard": {"pods": "10"}, "used": {"pods": "9"}}), id="quota"
        ),
        pytest.param(
            spec(BROKER_GROUP, "orders", tls={"secretName": "t"}), id="certificate-not-seen"
        ),
        pytest.param(
            meta(POD, "orders-broker-1", deletionTimestamp=ago(seconds=20)), id="deletion-begins"
        ),
    ],
)
def test_what_is_no_fault_is_ok(change: Change) -> None:
    material = well()
    change(material)
    assert amiss(examined(material)) == []


def test_a_group_that_sleeps_needs_no_pods() -> None:
    material = well()
    spec(BROKER_GROUP, "orders", hibernated=True)(material)
    gone(POD, *(f"orders-broker-{n}" for n in range(3)))(material)
    assert amiss(examined(material)) == []


def test_fronts_belong_to_their_cluster() -> None:
    material = well()
    added(
        FRONT_GROUP,
        "clients",
        metadata={"generation": 1},
        spec={"controllerRef": {"name": "gantry"}},
        status={"observedGeneration": 1},
    )(material)
    messages = [one.message for one in examined(material)]
    assert "FrontGroup clients has 0 of 2 pods." in messages
    assert "FrontGroup clients has 0 of 2 pods." in [
        one.message for one in examined(material, "gantry")
    ]
    added(FRONT_GROUP, "others", spec={"controllerRef": {"name": "elsewhere"}})(material)
    assert not any("FrontGroup others" in one.message for one in examined(material))


def test_all_groups_are_examined_once() -> None:
    material = well()
    found = examine_all(material, NOW)
    assert len(found) == len(set(found))
    assert sum("ControllerGroup gantry: " in one.message for one in found) == 1
    assert examine_all(Material("mq", "", {}, {}, [], []), NOW) == []


def test_who_is_meant() -> None:
    material = well()
    assert find_in(material, "cg/gantry")[0] == CONTROLLER_GROUP
    with pytest.raises(GantryError, match="There is no group nobody in namespace mq"):
        find_in(material, "nobody")
    added(FRONT_GROUP, "orders")(material)
    with pytest.raises(GantryError, match="orders is the name of several: give bg/orders"):
        find_in(material, "orders")
    denied("brokergroups of namespace mq")(material)
    material.objects["BrokerGroup"] = []
    with pytest.raises(GantryError, match="403 Forbidden"):
        find_in(material, "bg/orders")


def test_a_finding_is_a_line_and_its_advice_another() -> None:
    told = as_text(
        [
            Diagnosis(Level.OK, "pods", "3 of 3."),
            Diagnosis(Level.FAIL, "operator", "It is\n  down.", "Start it."),
        ]
    )
    assert told == (
        "ok    pods      3 of 3.\nFAIL  operator  It is down.\n                Do: Start it.\n"
    )
    assert (exit_code([]), exit_code([Diagnosis(Level.WARN, "a", "b")])) == (0, 1)


def test_pages_that_are_named_are_there() -> None:
    folder = ROOT / "operator" / "gantry_operator" / "support"
    named = [
        found
        for path in folder.glob("*.py")
        for found in re.findall(r"(docs/[\w-]+\.md)(?:, (Gantry\w+))?", path.read_text("utf-8"))
    ]
    assert len(named) > 8
    for page, heading in named:
        text = (ROOT / page).read_text("utf-8")
        assert not heading or heading == "Gantry" or f"## {heading}\n" in text, heading


def test_a_fenced_replica_is_told_once_and_is_no_trouble() -> None:
    material = well()
    orders = of(material, BROKER_GROUP, "orders")
    orders["status"] = settled_status(fenced_world())
    orders["spec"]["fenced"] = [2]
    unready("orders-broker-2", hours=1)(material)
    found = amiss(examined(material))
    assert [(one.check, one.level) for one in found] == [
        ("conditions", Level.WARN),
        ("replicas", Level.WARN),
    ]
    assert "Fenced: replica 2;" in found[0].message
    assert "Each restart of a replica makes sends wait" in found[1].message
    orders["spec"]["fenced"] = []
    assert "pods" in {one.check for one in amiss(examined(material))}
