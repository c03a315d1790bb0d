"""The rules in our CRDs: each lets good resources through and refuses one that breaks it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gantry_local import manifests
from gantry_local.apiserver import rules
from gantry_local.apiserver.schema import Schema, custom
from support import template_cases

ROOT = Path(__file__).resolve().parents[3]
Json = dict[str, Any]

CLAIM = {"type": "PersistentVolumeClaim", "size": "1Gi"}
EMPTY: Json = {"type": "EmptyDir", "size": "1Gi"}
BUCKET: Json = {"url": "s3://bucket/prefix"}
FROM_TIER: Json = {"fromTier": {"shard": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}}
PEERS = ({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}, {})


def schema(kind: str) -> Schema:
    (crd,) = manifests.read(str(ROOT / "crds" / f"mq.gantry.dev_{kind}s.yaml"))
    found = custom(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    assert rules.attach(found) == []
    return found


SCHEMAS = {
    kind: schema(kind)
    for kind in (
        "brokergroup",
        "consumergroup",
        "controllergroup",
        "frontgroup",
        "messageuser",
        "topic",
    )
}


def messages(node: Schema) -> list[str]:
    """The message of every rule at and below `node`."""
    below = [*node.properties.values(), *filter(None, (node.additional, node.items))]
    return [rule.message for rule in node.rules] + [
        one for child in below for one in messages(child)
    ]


def group(uploaded: int | None = None, name: str = "orders", **spec: Any) -> Json:
    defaults: Json = {
        "controllerRef": {"name": "gantry"},
        "replicas": 3,
        "replication": {"minInSyncReplicas": 2},
        "storage": CLAIM,
        "clients": {"route": "Group"},
    }
    told = {} if uploaded is None else {"status": {"tier": {"committedOffset": uploaded}}}
    return {"metadata": {"name": name}, "spec": defaults | spec, **told}


def quorum(name: str = "gantry", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"replicas": 3, "storage": CLAIM} | spec}


def fronts(name: str = "clients", **spec: Any) -> Json:
    """As the API server has it, with its defaults."""
    service = {"type": "ClusterIP", "firstNodePort": 30950} | spec.pop("service", {})
    defaults: Json = {"controllerRef": {"name": "gantry"}, "replicas": 2, "ports": 16}
    return {"metadata": {"name": name}, "spec": defaults | spec | {"service": service}}


def entity(name: str = "orders", **spec: Any) -> Json:
    """A Topic, a MessageUser or a ConsumerGroup."""
    defaults: Json = {"controllerRef": {"name": "gantry"}, "queues": 8}
    return {"metadata": {"name": name}, "spec": defaults | spec}


def outside(plain: tuple[bool, ...] = (True,), tls: Json | None = None) -> Json:
    """Clients with a listener for each, which takes plain text or not; `tls` is of all of them."""
    named = {"type": "NodePort"} | ({} if tls is None else {"tls": {"mode": "Enforcing"} | tls})
    listeners = [named | {"name": f"l{n}", "allowPlain": one} for n, one in enumerate(plain)]
    return {"route": "Group", "listeners": listeners}


def beside(port: int, name: str = "own") -> Json:
    """A template with a sidecar that has this port."""
    ports = [{"containerPort": port, "name": name}]
    return {"spec": {"sidecars": [{"name": "other", "image": "busybox:1", "ports": ports}]}}


PERMISSIVE: Json = {"tls": {"secretName": "s", "mode": "Permissive"}}
ENFORCING: Json = {"tls": {"secretName": "s", "mode": "Enforcing"}}
OWN: Json = {"secretName": "own"}
BOTH = (("brokergroup", group), ("controllergroup", quorum))
NAMED = (("topic", "topicName"), ("messageuser", "userName"), ("consumergroup", "groupName"))
TEMPLATED = (("brokergroup", group), ("controllergroup", quorum), ("frontgroup", fronts))
NODES = {"type": "NodePort", "advertisedAddress": "mq.example.com"}

ACCEPTED = [
    ("brokergroup", group(shards=3, clients=outside()), None),
    ("brokergroup", group(shards=3, clients=outside((False, True), {"secretName": "a"})), None),
    ("brokergroup", group(shards=3, clients=outside(), template=beside(11_200)), None),
    (
        "brokergroup",
        group(clients=outside((False, True), {"secretName": "a"}), template=beside(11_200)),
        None,
    ),
    ("brokergroup", group(), None),
    ("brokergroup", group(name="a" * 45), None),
    ("brokergroup", group(replication={}), None),
    ("brokergroup", group(hibernated=True), None),
    ("brokergroup", group(replicas=2, fenced=[1, 2]), None),
    ("brokergroup", group(forget={"id": "a", "brokerId": 4}), None),
    (
        "brokergroup",
        group(replicas=1, replication={}, storage={"type": "EmptyDir", "size": "1Gi"}),
        None,
    ),
    ("brokergroup", group(tier={"url": "file:///data"}), None),
    ("brokergroup", group(tier=BUCKET | {"endpoint": "http://s3:9000", "region": "x"}), None),
    ("brokergroup", group(tier=BUCKET, retention={}, pipeline={"audit": {}}), None),
    ("brokergroup", group(retention={"hours": 1}, config={"send_threads": "1"}), None),
    ("brokergroup", group(0), group(0, tier=BUCKET)),
    ("brokergroup", group(9, tier=BUCKET), group(9, tier=BUCKET)),
    ("brokergroup", group(9, tier=BUCKET), group(9)),
    ("brokergroup", group(replicas=5), group()),
    ("brokergroup", group(networkPolicy={"clientsFrom": [{"podSelector": {}}]}), None),
    ("brokergroup", group(shards=3, clients={"route": "Pod"}), group(shards=2)),
    ("brokergroup", group(shards=2), group(shards=3)),
    ("brokergroup", group(preferredMaster={"zones": ["a", "b"]}), group()),
    *(
        (kind, make(clients=outside(plain), **tls), None)
        for kind, make in (("brokergroup", group), ("controllergroup", quorum))
        for plain, tls in (((), {}), ((True, True), {}), ((False,), ENFORCING))
    ),
    *(
        (kind, make(clients=outside((plain,), tls), **of_all), None)
        for kind, make in BOTH
        for plain, tls, of_all in (
            (False, OWN, {}),
            (False, OWN, PERMISSIVE),
            (False, {}, PERMISSIVE),
            (True, OWN | {"mode": "Permissive"}, {}),
            (True, {"mode": "Disabled"}, {}),
            (True, {"mode": "Disabled"}, ENFORCING),
        )
    ),
    ("brokergroup", group(shards=2, tier=BUCKET), None),
    ("brokergroup", group(tier=BUCKET, bootstrap=FROM_TIER), None),
    (
        "brokergroup",
        group(tier=BUCKET, bootstrap=FROM_TIER, replicas=5),
        group(tier=BUCKET, bootstrap=FROM_TIER),
    ),
    ("controllergroup", quorum(name="a" * 41), None),
    ("controllergroup", quorum(clusterUid="u"), quorum(clusterUid="u")),
    ("frontgroup", fronts(name="a" * 40), None),
    *((kind, entity(**{field: "A"}), entity(**{field: "A"})) for kind, field in NAMED),
    *((kind, entity("a.b", **{field: "A"}), None) for kind, field in NAMED),
    ("topic", entity(readQueues=8), None),
    ("topic", entity("a" * 127), None),
    ("messageuser", entity("a" * 64), None),
    ("messageuser", entity("a.b"), None),
    ("frontgroup", fronts(tier=BUCKET | {"region": "x"}), fronts(tier={"url": "file:///x"})),
    *(
        (kind, made(template={"spec": spec}), None)
        for kind, made in TEMPLATED
        for spec in (
            *template_cases.EDGES,
            {
                **template_cases.FULL,
                "securityContext": {"anyUser": False},
                "container": {
                    "startupProbe": {"periodSeconds": 1, "failureThreshold": 600},
                    "livenessProbe": {"periodSeconds": 5, "failureThreshold": 6},
                },
            },
        )
    ),
    ("frontgroup", fronts(ports=17), fronts()),
    ("frontgroup", fronts(service=NODES | {"firstNodePort": 32752}), None),
    ("frontgroup", fronts(autoscaling={"minReplicas": 3, "maxReplicas": 3}), None),
]

REFUSED: list[tuple[str, str, Json, Json | None]] = [
    *(
        (kind, why, made(template={"spec": spec}), None)
        for kind, made in TEMPLATED
        for why, spec in template_cases.REFUSED
    ),
    ("brokergroup", "bootstrap.fromTier is a place", group(bootstrap=FROM_TIER), None),
    (
        "brokergroup",
        "bootstrap.fromTier is the tier of one",
        group(shards=3, tier=BUCKET, bootstrap=FROM_TIER),
        None,
    ),
    *(
        ("brokergroup", "bootstrap is fixed", group(tier=BUCKET, **new), group(tier=BUCKET, **old))
        for new, old in (
            ({"bootstrap": FROM_TIER}, {}),
            ({}, {"bootstrap": FROM_TIER}),
            ({"bootstrap": {"fromTier": {"shard": "b"}}}, {"bootstrap": FROM_TIER}),
        )
    ),
    ("brokergroup", "shards is fixed", group(shards=1), group()),
    ("brokergroup", "shards is fixed", group(), group(shards=1)),
    ("brokergroup", "clients.route Master", group(shards=3, clients={"route": "Master"}), None),
    *(
        (
            "brokergroup",
            "each shard has a port for each listener with tls",
            group(
                shards=3,
                clients=outside((False, True), {"secretName": "a"}),
                template=beside(port, name),
            ),
            None,
        )
        for port, name in ((11_200, "own"), (11_599, "own"), (80, "outside-0"))
    ),
    *(
        (kind, "a listener leads", make(clients=outside(plain), **tls), None)
        for kind, make in (("brokergroup", group), ("controllergroup", quorum))
        for plain, tls in (((False,), {}), ((True, False), {}), ((False,), PERMISSIVE))
    ),
    *(
        (
            kind,
            "a listener leads",
            make(clients=outside((False,), OWN | {"mode": mode}), **tls),
            None,
        )
        for kind, make in BOTH
        for mode, tls in (("Permissive", {}), ("Permissive", ENFORCING), ("Disabled", ENFORCING))
    ),
    *(
        (kind, "tls of a listener needs", make(clients=outside((True,), {"mode": mode})), None)
        for kind, make in BOTH
        for mode in ("Enforcing", "Permissive")
    ),
    ("brokergroup", "switchover moves", group(shards=3, switchover={"id": "a"}), None),
    (
        "brokergroup",
        "preferredMaster is for one group",
        group(shards=3, preferredMaster={"zones": ["a"]}),
        None,
    ),
    (
        "brokergroup",
        "forget names a member of one",
        group(shards=3, forget={"id": "a", "brokerId": 4}),
        None,
    ),
    ("brokergroup", "fenced names every replica", group(replicas=2, fenced=[0, 1]), None),
    (
        "brokergroup",
        "pipeline reads the tier of one",
        group(shards=3, tier=BUCKET, pipeline={"audit": {}}),
        None,
    ),
    *(
        ("brokergroup", "metadata.name must", group(name=name), None)
        for name in ("9", "a_", "a" * 46)
    ),
    (
        "brokergroup",
        "hibernated removes the pods",
        group(
            hibernated=True,
            replicas=1,
            replication={},
            storage={"type": "EmptyDir", "size": "1Gi"},
        ),
        None,
    ),
    ("brokergroup", "spec.tier.url is fixed", group(1), group(1, tier=BUCKET)),
    (
        "brokergroup",
        "spec.tier.url is fixed",
        group(1, tier={"url": "s3://other"}),
        group(1, tier=BUCKET),
    ),
    (
        "brokergroup",
        "replication.minInSyncReplicas must",
        group(replication={"minInSyncReplicas": 4}),
        None,
    ),
    *(
        (kind, "storage.type EmptyDir", made(storage={"type": "EmptyDir", "size": "1Gi"}), None)
        for kind, made in (("brokergroup", group), ("controllergroup", quorum))
    ),
    *(
        ("brokergroup", "retention is for", group(tier=BUCKET, retention=retention), None)
        for retention in ({"hours": 1}, {"bytes": "1Gi"}, {"whenFull": "Refuse"})
    ),
    ("brokergroup", "pipeline.audit reads", group(pipeline={"audit": {}}), None),
    (
        "brokergroup",
        "pipeline.audit reads",
        group(pipeline={"audit": {}}, tier={"url": "file:///data"}),
        None,
    ),
    *(
        (kind, "config must not", made(config={"send_threads": "1", "data_dir": "/"}), None)
        for kind, made in (("brokergroup", group), ("controllergroup", quorum))
    ),
    (
        "brokergroup",
        "controllerRef.name is fixed",
        group(controllerRef={"name": "other"}),
        group(),
    ),
    *(
        (kind, "storage.type, storage.className", made(storage=CLAIM | {"className": "x"}), made())
        for kind, made in (("brokergroup", group), ("controllergroup", quorum))
    ),
    *(
        (
            kind,
            "storage.type, storage.className and the size of an EmptyDir",
            made(replicas=1, storage=EMPTY | {"size": "2Gi"}, **more),
            made(replicas=1, storage=EMPTY, **more),
        )
        for kind, made, more in (
            ("brokergroup", group, {"replication": {}}),
            ("controllergroup", quorum, {}),
        )
    ),
    *(
        ("brokergroup", "tier.url must be", group(tier={"url": url}), None)
        for url in ("s3://B", "s3://bucket?x=1", "s3://key:secret@bucket", "gs://bucket")
    ),
    ("brokergroup", "tier.endpoint must be", group(tier=BUCKET | {"endpoint": "s3:9000"}), None),
    *(
        ("brokergroup", "tier.endpoint, tier.region", group(tier={"url": "file:///x"} | more), None)
        for more in ({"endpoint": "http://s3"}, {"region": "x"}, {"credentialsSecret": "s"})
    ),
    *(
        ("brokergroup", "a peer takes", group(networkPolicy={which: [peer]}), None)
        for which in ("clientsFrom", "metricsFrom")
        for peer in PEERS
    ),
    *(
        ("controllergroup", "a peer takes", quorum(networkPolicy={which: [peer]}), None)
        for which in ("clientsFrom", "toolsFrom", "metricsFrom")
        for peer in PEERS
    ),
    *(
        ("controllergroup", "metadata.name must", quorum(name=name), None)
        for name in ("9", "a" * 42)
    ),
    ("controllergroup", "clusterUid is fixed", quorum(clusterUid="u"), quorum()),
    ("controllergroup", "clusterUid is fixed", quorum(), quorum(clusterUid="u")),
    ("controllergroup", "clusterUid is fixed", quorum(clusterUid="v"), quorum(clusterUid="u")),
    *(
        (kind, f"{field} is fixed", entity(**new), entity(**old))
        for kind, field in NAMED
        for new, old in (({field: "A"}, {field: "B"}), ({field: "A"}, {}), ({}, {field: "A"}))
    ),
    *(
        (kind, "controllerRef.name is fixed", entity(controllerRef={"name": "other"}), entity())
        for kind, _ in NAMED
    ),
    ("topic", "readQueues must not be less", entity(readQueues=7), None),
    *(
        ("topic", "metadata.name is also the topic's", entity(name), None)
        for name in ("a.b", "a" * 128)
    ),
    ("consumergroup", "metadata.name is also the consumer group's", entity("a.b"), None),
    ("messageuser", "metadata.name is also the user's", entity("a" * 65), None),
    ("messageuser", "the user gantry stands", entity("gantry"), None),
    ("messageuser", "the user gantry stands", entity(userName="gantry"), None),
    *(("frontgroup", "metadata.name must", fronts(name=name), None) for name in ("9", "a" * 41)),
    (
        "frontgroup",
        "controllerRef.name is fixed",
        fronts(controllerRef={"name": "other"}),
        fronts(),
    ),
    ("frontgroup", "ports can be raised", fronts(ports=15), fronts()),
    ("frontgroup", "tier.url must be", fronts(tier={"url": "s3://key@b-1"}), None),
    ("frontgroup", "tier.endpoint must be", fronts(tier=BUCKET | {"endpoint": "s3:9000"}), None),
    (
        "frontgroup",
        "tier.endpoint, tier.region",
        fronts(tier={"url": "file:///x", "region": "x"}),
        None,
    ),
    ("frontgroup", "service.type NodePort needs", fronts(service={"type": "NodePort"}), None),
    (
        "frontgroup",
        "service.firstNodePort and",
        fronts(service=NODES | {"firstNodePort": 32753}),
        None,
    ),
    (
        "frontgroup",
        "autoscaling.minReplicas must",
        fronts(autoscaling={"minReplicas": 4, "maxReplicas": 3}),
        None,
    ),
    *(
        ("frontgroup", "a peer takes", fronts(networkPolicy={which: [peer]}), None)
        for which in ("clientsFrom", "metricsFrom")
        for peer in PEERS
    ),
]


@pytest.mark.parametrize(("kind", "new", "old"), ACCEPTED)
def test_a_good_resource_passes(kind: str, new: Json, old: Json | None) -> None:
    assert rules.run(new, old, SCHEMAS[kind]) == []


@pytest.mark.parametrize(("kind", "why", "new", "old"), REFUSED)
def test_a_rule_refuses_what_breaks_it_alone(
    kind: str, why: str, new: Json, old: Json | None
) -> None:
    (cause,) = rules.run(new, old, SCHEMAS[kind])
    assert cause.message.startswith(f'Invalid value: "object": {why}')


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_rule_is_broken_by_something(kind: str) -> None:
    broken = tuple(why for of, why, *_ in REFUSED if of == kind)
    found = messages(SCHEMAS[kind])
    assert len(found) >= (8 if kind in ("brokergroup", "controllergroup", "frontgroup") else 3)
    assert [message for message in found if not message.startswith(broken)] == []
