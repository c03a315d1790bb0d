"""Checks by tables: a cluster that is well, one thing amiss, and what is said about it."""

from __future__ import annotations

import re
from pathlib import Path

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
    FRONT_GROUP,
    LEASE,
    NODE,
    POD,
    QUOTA,
    VALIDATING,
)
from gantry_operator.support.doctor import as_text, examine_all, exit_code, find_in
from gantry_operator.support.findings import Diagnosis, Level
from gantry_operator.support.material import Material
from gantry_protocol.errors import GantryError
from support.sick_clusters import (
    NOW,
    Change,
    added,
    ago,
    all_of,
    amiss,
    condition,
    container,
    crd,
    denied,
    examined,
    gone,
    meta,
    of,
    properties,
    spec,
    status_of,
    unready,
    warning,
    well,
)
from unit.operator.test_fencing import fenced_world
from unit.operator.world import settled_status

ROOT = Path(__file__).parents[3]
WARN, FAIL = Level.WARN, Level.FAIL


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
