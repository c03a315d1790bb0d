"""NetworkPolicies: every port of every pod is opened to those who need it, and to nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker, broker_objects, controller, controller_objects
from gantry_operator.models import InvalidSpecError
from gantry_operator.plan.actions import ApplyObject, DeleteObject
from unit.operator.world import (
    broker_world,
    brokers,
    changed,
    controller_world,
    controllers,
    of_type,
    planned,
)

Body = dict[str, Any]
Pod = tuple[str, dict[str, str]]
"""Namespace and labels; the groups are in mq, the operator in ops."""

SHOP: Pod = ("shop", {"app": "shop"})
NEIGHBOUR: Pod = ("mq", {"app": "neighbour"})
OPERATOR: Pod = ("ops", {names.LABEL_NAME: "gantry", names.LABEL_COMPONENT: "operator"})
IMPOSTOR: Pod = ("shop", OPERATOR[1])
TOOL: Pod = ("mq", {"mq.gantry.dev/tools": "true"})
CONTROLLER: Pod = ("mq", names.labels(names.CONTROLLER, "gantry"))
OTHER_CONTROLLER: Pod = ("mq", names.labels(names.CONTROLLER, "second"))
BROKER: Pod = ("mq", names.labels(names.BROKER, "orders"))
OTHER_BROKER: Pod = ("mq", names.labels(names.BROKER, "payments"))
FAR_BROKER: Pod = ("shop", names.labels(names.BROKER, "orders"))
PROMETHEUS: Pod = ("monitoring", {"app": "prometheus"})
ALL = {
    "shop": SHOP, "neighbour": NEIGHBOUR, "operator": OPERATOR, "impostor": IMPOSTOR, "tool": TOOL,
    "controller": CONTROLLER, "other-controller": OTHER_CONTROLLER, "broker": BROKER,
    "other-broker": OTHER_BROKER, "far-broker": FAR_BROKER, "prometheus": PROMETHEUS,
}  # fmt: skip
EVERYBODY = set(ALL)
FROM_MONITORING = [
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        "podSelector": {"matchLabels": {"app": "prometheus"}},
    }
]
FROM_SHOP = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}]


def policy(manifests: list[Body]) -> Body | None:
    found = [m for m in manifests if m["kind"] == "NetworkPolicy"]
    assert len(found) <= 1
    return found[0] if found else None


def of_quorum(namespace: str = "ops", **spec: Any) -> Body | None:
    group = controllers(**spec)
    return policy(controller_objects(group, image="i", operator_namespace=namespace))


def of_brokers(**spec: Any) -> Body | None:
    return policy(broker_objects(brokers(**spec), controllers(), image="i", replicas=3))


def let_in(found: Body | None, port: int) -> set[str]:
    """Who reaches a port of a selected pod, by the rules of NetworkPolicies."""
    assert found is not None
    reached: set[str] = set()
    for rule in found["spec"]["ingress"]:
        if port not in [p["port"] for p in rule["ports"]]:
            continue
        reached |= {n for n, pod in ALL.items() if "from" not in rule or matches(rule["from"], pod)}
    return reached


def matches(peers: list[Body], pod: Pod) -> bool:
    namespace, labels = pod
    for peer in peers:
        wanted = peer.get("namespaceSelector")
        named = {names.LABEL_NAME: "", "kubernetes.io/metadata.name": namespace}
        inside = namespace == "mq" if wanted is None else selects(wanted, named)
        if inside and selects(peer.get("podSelector", {}), labels):
            return True
    return False


def selects(selector: Body, labels: dict[str, str]) -> bool:
    return (selector.get("matchLabels") or {}).items() <= labels.items()


BY_DEFAULT = [
    (of_quorum, 9876, EVERYBODY),
    (of_quorum, 9878, {"operator", "tool", "controller", "broker", "other-broker"}),
    (of_quorum, 9879, {"controller"}),
    (of_quorum, 9880, {"operator", "tool"}),
    (of_brokers, 10910, EVERYBODY),
    (of_brokers, 10911, EVERYBODY),
    (of_brokers, 10912, {"broker"}),
    (of_brokers, 10913, EVERYBODY),
    (of_brokers, 10920, EVERYBODY),
    (of_brokers, 10914, set[str]()),  # as a store would: no rule, so closed
]


@pytest.mark.parametrize(("of", "port", "wanted"), BY_DEFAULT)
def test_by_default_a_port_is_open_to(of: Any, port: int, wanted: set[str]) -> None:
    assert let_in(of(), port) == wanted


def test_every_port_of_a_pod_has_a_rule() -> None:
    closed = of_brokers(clients={"door": {"enabled": False}})  # pods that had one may be there yet
    of_pod = broker.PORTS + broker.DOOR_PORTS
    for found, ports in ((of_quorum(), controller.PORTS), (of_brokers(), of_pod), (closed, of_pod)):
        assert found is not None
        rules = found["spec"]["ingress"]
        assert {p["port"] for r in rules for p in r["ports"]} == {port for _, port in ports}


def test_the_pods_of_the_group_are_selected_and_only_connections_to_them_limited() -> None:
    found = of_quorum()
    assert found is not None
    assert found["spec"]["podSelector"] == {"matchLabels": names.selector("controller", "gantry")}
    assert found["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize(
    ("found", "port", "wanted"),
    [
        pytest.param(
            lambda: of_quorum(networkPolicy={"clientsFrom": FROM_SHOP}),
            9876,
            {"shop", "impostor", "far-broker"},
            id="clients-of-the-name-service",
        ),
        pytest.param(
            lambda: of_quorum(networkPolicy={"toolsFrom": FROM_MONITORING}),
            9878,
            {"operator", "tool", "controller", "broker", "other-broker", "prometheus"},
            id="tools",
        ),
        pytest.param(
            lambda: of_quorum(networkPolicy={"metricsFrom": FROM_MONITORING}),
            9880,
            {"operator", "tool", "prometheus"},
            id="metrics-of-controllers",
        ),
        pytest.param(
            lambda: of_quorum(networkPolicy={"metricsFrom": FROM_MONITORING}),
            9878,
            {"operator", "tool", "controller", "broker", "other-broker"},
            id="who-scrapes-commands-nothing",
        ),
        pytest.param(
            lambda: of_brokers(networkPolicy={"clientsFrom": FROM_SHOP}),
            10911,
            {"shop", "impostor", "far-broker", "broker", "controller"},
            id="clients-of-brokers",
        ),
        pytest.param(
            lambda: of_brokers(networkPolicy={"clientsFrom": FROM_SHOP}),
            10910,
            {"shop", "impostor", "far-broker", "broker", "controller"},
            id="clients-of-doors",
        ),
        pytest.param(
            lambda: of_brokers(networkPolicy={"metricsFrom": FROM_MONITORING}),
            10913,
            {"prometheus"},
            id="metrics-of-brokers",
        ),
        pytest.param(
            lambda: of_brokers(networkPolicy={"metricsFrom": FROM_MONITORING}),
            10920,
            {"prometheus"},
            id="metrics-of-doors",
        ),
        pytest.param(
            lambda: of_quorum(namespace=""), 9880, {"tool"}, id="an-operator-outside-a-cluster"
        ),
    ],
)
def test_what_is_named_is_let_in(found: Any, port: int, wanted: set[str]) -> None:
    assert let_in(found(), port) == wanted


def test_it_can_be_switched_off() -> None:
    off = {"networkPolicy": {"enabled": False}}
    assert of_quorum(**off) is None
    assert of_brokers(**off) is None


@pytest.mark.parametrize("world", [broker_world, controller_world])
def test_the_plan_keeps_it_and_removes_it_when_it_is_switched_off(world: Any) -> None:
    seen = world()
    key = next(key for key in seen.objects if key[0] == "NetworkPolicy")
    assert of_type(planned(seen), ApplyObject, DeleteObject) == []
    without = {k: v for k, v in seen.objects.items() if k != key}
    (action,) = of_type(planned(changed(seen, objects=without)), ApplyObject)
    assert action.manifest["kind"] == "NetworkPolicy"
    make = brokers if world is broker_world else controllers
    off = changed(seen, group=make(networkPolicy={"enabled": False}))
    (gone,) = of_type(planned(off), DeleteObject)
    assert (gone.kind, gone.name) == key


@pytest.mark.parametrize(
    "peer",
    [
        {},
        {"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}},
        {"ipBlock": {"cidr": "everybody"}},
        {"podSelector": ["app"]},
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}},
    ],
    ids=str,
)
def test_a_peer_that_the_api_server_would_refuse_is_refused_in_the_spec(peer: Any) -> None:
    with pytest.raises(InvalidSpecError):
        controllers(networkPolicy={"toolsFrom": [peer]})


def test_a_peer_is_passed_on_as_it_is_written() -> None:
    peers: list[Body] = [
        {"podSelector": {}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    ]
    found = of_quorum(networkPolicy={"clientsFrom": peers})
    assert found is not None
    assert found["spec"]["ingress"][0]["from"] == peers
