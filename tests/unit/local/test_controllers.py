"""Endpoints and label indexes by tables."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.controllers import endpoints
from gantry_local.controllers.labelindex import LabelIndex, SelectorIndex
from gantry_local.network import hosts, proxy


def service(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "n", "uid": "u"},
        "spec": {"clusterIP": "127.78.0.1", "ports": [{"name": "p", "port": 80}], **spec},
    }


def pod(
    name: str, *, ready: bool = True, ip: str | None = None, going: bool = False, **spec: Any
) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    if ip:
        status["podIP"] = ip
    metadata: dict[str, Any] = {"name": name, "namespace": "n", "uid": name}
    if going:
        metadata["deletionTimestamp"] = "now"
    return {"metadata": metadata, "spec": spec, "status": status}


READY = pod("a", ip="127.77.0.1", hostname="a", subdomain="s")
UNREADY = pod("b", ip="127.77.0.2", ready=False, hostname="b", subdomain="s")
GOING = pod("c", ip="127.77.0.3", going=True)
NO_ADDRESS = pod("d")
ALL = [READY, UNREADY, GOING, NO_ADDRESS]


def test_only_ready_pods_serve() -> None:
    made = endpoints.new_endpoints(service(), ALL)
    (subset,) = made["subsets"]
    assert [a["ip"] for a in subset["addresses"]] == ["127.77.0.1"]
    assert [a["ip"] for a in subset["notReadyAddresses"]] == ["127.77.0.2"]
    ready = {e["addresses"][0]: e["conditions"]["ready"] for e in _slice()["endpoints"]}
    assert ready == {"127.77.0.1": True, "127.77.0.2": False}


def _slice(**spec: Any) -> dict[str, Any]:
    (made,) = endpoints.new_slices(service(**spec), ALL)
    return made


def test_publishing_not_ready_addresses_includes_everything_with_an_address() -> None:
    made = _slice(publishNotReadyAddresses=True)
    assert all(e["conditions"]["ready"] for e in made["endpoints"])
    assert len(made["endpoints"]) == 3


def test_no_pods_no_subset() -> None:
    assert endpoints.new_endpoints(service(), [])["subsets"] == []


@pytest.mark.parametrize(("target", "expected"), [(8080, 8080), ("http", 9000), ("nope", None)])
def test_target_ports(target: Any, expected: int | None) -> None:
    container = {"ports": [{"name": "http", "containerPort": 9000}]}
    assert endpoints.resolve_port(target, pod("a", containers=[container])) == expected


def test_names_of_a_headless_service() -> None:
    headless = service(clusterIP="None")
    (made,) = endpoints.new_slices(headless, ALL)
    table = hosts.names([headless], [made])
    assert table["a.s.n.svc"] == table["a.s.n.svc.cluster.local"] == "127.77.0.1"
    assert "b.s.n.svc" not in table
    assert table["s.n.svc"] == "127.77.0.1"


def test_names_of_pods_that_are_published_before_they_are_ready() -> None:
    headless = service(clusterIP="None", publishNotReadyAddresses=True)
    table = hosts.names([headless], endpoints.new_slices(headless, ALL))
    assert table["b.s.n.svc"] == "127.77.0.2"


def test_names_of_a_service_with_an_address() -> None:
    assert hosts.names([service()], [_slice()])["s.n.svc.cluster.local"] == "127.78.0.1"


def test_proxies_listen_only_where_something_is_ready() -> None:
    assert proxy.wanted(service(), [_slice()]) == {("127.78.0.1", 80): [("127.77.0.1", 80)]}
    assert proxy.wanted(service(), endpoints.new_slices(service(), [UNREADY])) == {}
    assert proxy.wanted(service(clusterIP="None"), [_slice()]) == {}


def test_proxies_map_named_ports() -> None:
    ports = [{"name": "x", "port": 1, "targetPort": 10}, {"name": "y", "port": 2}]
    listening = proxy.wanted(service(ports=ports), [_slice(ports=ports)])
    assert listening == {
        ("127.78.0.1", 1): [("127.77.0.1", 10)],
        ("127.78.0.1", 2): [("127.77.0.1", 2)],
    }


def _with_port(name: str, ip: str, number: int) -> dict[str, Any]:
    ports = [{"name": "clients", "containerPort": number}]
    return pod(name, ip=ip, containers=[{"ports": ports}])


def test_a_named_port_is_looked_up_in_each_pod() -> None:
    """https://kubernetes.io/docs/concepts/services-networking/service/#field-spec-ports."""
    named = service(ports=[{"name": "p", "port": 80, "targetPort": "clients"}])
    pods = [
        _with_port("a", "127.77.0.1", 1),
        _with_port("b", "127.77.0.2", 2),
        _with_port("c", "127.77.0.3", 1),
        pod("d", ip="127.77.0.4"),
    ]
    slices = endpoints.new_slices(named, pods)
    assert len({one["metadata"]["name"] for one in slices}) == len(slices) == 3
    leads_to = [("127.77.0.1", 1), ("127.77.0.3", 1), ("127.77.0.2", 2)]
    assert proxy.wanted(named, slices) == {("127.78.0.1", 80): leads_to}
    subsets = endpoints.new_endpoints(named, pods)["subsets"]
    assert [[port["port"] for port in one["ports"]] for one in subsets] == [[1], [2], []]
    assert [len(one["addresses"]) for one in subsets] == [2, 1, 1]


def test_label_index() -> None:
    index = LabelIndex()
    index.put(("n", "a"), {"x": "1", "y": "1"})
    index.put(("n", "b"), {"x": "1"})
    index.put(("m", "c"), {"x": "1"})
    assert index.matching("n", {"x": "1"}) == [("n", "a"), ("n", "b")]
    assert index.matching("n", {"x": "1", "y": "1"}) == [("n", "a")]
    assert index.matching("n", {}) == []
    index.put(("n", "a"), {"x": "2"})
    assert index.matching("n", {"x": "1"}) == [("n", "b")]
    index.drop(("n", "b"))
    assert index.matching("n", {"x": "1"}) == []


def test_selector_index() -> None:
    index = SelectorIndex()
    index.put(("n", "all"), {"app": "x"})
    index.put(("n", "one"), {"app": "x", "role": "master"})
    index.put(("n", "none"), {})
    index.put(("m", "other"), {"app": "x"})
    assert index.selecting("n", {"app": "x"}) == [("n", "all")]
    assert index.selecting("n", {"app": "x", "role": "master"}) == [("n", "all"), ("n", "one")]
    index.put(("n", "one"), {"app": "y"})
    assert index.selecting("n", {"app": "x", "role": "master"}) == [("n", "all")]
    index.drop(("n", "all"))
    assert index.selecting("n", {"app": "x"}) == []


def test_selectors_are_filed_where_few_others_are() -> None:
    index = SelectorIndex()
    for n in range(100):
        index.put(("n", f"s{n}"), {"app": "x", "instance": str(n)})
    largest = max(len(keys) for keys in index._by_pair.values())
    assert largest <= 2
