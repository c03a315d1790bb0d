"""Listeners of a BrokerGroup with shards: a port for each shard, at the Services of all."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.plan.actions import ApplyObject, Declare
from gantry_protocol.admin_client.outcomes import NotDeclared
from unit.operator.world import (
    IMAGE,
    NEW,
    OLD,
    brokers,
    changed,
    controllers,
    member,
    of_type,
    planned,
    pod,
    shard_view,
    shard_world,
    told,
    with_status,
)

Json = dict[str, Any]
NODES = {0: "172.18.0.2", 1: "172.18.0.3", 2: "172.18.0.4"}
FIRST_NODE_PORT = {"orders-at-outside": 30100} | {
    f"orders-at-outside-{n}": 31000 + 100 * n for n in range(3)
}
SHARDS = range(3)


def listener(**facts: Any) -> Json:
    return {"name": "outside", "type": "NodePort", "allowPlain": True} | facts


QUORUM = controllers(clients={"listeners": [listener()]})


def world(
    *, hosted: int = 3, ready: tuple[int, ...] = (0, 1, 2), route: str = "Group", **facts: Any
) -> Any:
    """Three shards in three pods; only those of ``ready`` host the last one."""
    wish = {"route": route, "listeners": [facts.pop("wish", listener())]}
    pods = tuple(
        pod(
            n,
            role=None,
            host_ip=NODES[n],
            shards=hosted if n in ready else hosted - 1,
            revision=NEW if n in ready else OLD,
        )
        for n in range(3)
    )
    group = brokers(shards=3, clients=wish)
    seen = shard_world(3, hosted, group=group, controllers=QUORUM, pods=pods, **facts)
    for (kind, name), body in seen.objects.items():
        if kind == "Service" and name in FIRST_NODE_PORT and body["spec"]["type"] == "NodePort":
            for n, port in enumerate(body["spec"]["ports"]):
                port["nodePort"] = FIRST_NODE_PORT[name] + n
    return seen


def declared(seen: Any) -> dict[str, dict[int, tuple[str, str]]]:
    """What the controllers are told of each member: the address of the shard, and its own."""
    return {
        one.group: {
            row.broker_id: (row.route, row.own) for row in one.declaration.listeners["outside"]
        }
        for one in of_type(planned(seen), Declare)
    }


def as_told(seen: Any) -> Any:
    """The same world after the controllers were told."""
    wished = {one.group: one.declaration.listeners for one in of_type(planned(seen), Declare)}
    shards = tuple(
        type(one)(one.name, one.view.model_copy(update={"listeners": wished[one.name]}))
        for one in seen.shards
    )
    return with_status(changed(seen, shards=shards))


def test_services_have_the_ports_that_clients_inside_use() -> None:
    group = brokers(shards=3, clients={"listeners": [listener()]})
    made = broker_objects(group, QUORUM, image=IMAGE, replicas=3, shards=3)
    ports = {
        one["metadata"]["name"]: [
            (port["name"], port["port"], port["targetPort"]) for port in one["spec"]["ports"]
        ]
        for one in made
        if one["kind"] == "Service" and "-at-" in one["metadata"]["name"]
    }
    assert set(ports) == set(FIRST_NODE_PORT)
    for found in ports.values():
        assert found == [(f"shard-{n}", 11100 + n, 11100 + n) for n in SHARDS]
    without = broker_objects(brokers(shards=3), QUORUM, image=IMAGE, replicas=3, shards=3)
    assert made[-1]["spec"] == without[-1]["spec"], "it restarts no broker"


def test_a_shard_is_at_the_node_of_its_master_and_a_port_of_its_own() -> None:
    """Whoever is its master; any replica there leads to that one."""
    assert declared(world()) == {
        f"orders_{n}": {
            at + 1: (f"{node}:{30100 + n}", f"{node}:{31000 + 100 * at + n}")
            for at, node in NODES.items()
        }
        for n in SHARDS
    }


def test_balancers_have_the_ports_of_the_services() -> None:
    seen = world(wish=listener(type="LoadBalancer"))
    for name in ("orders-at-outside", "orders-at-outside-0"):
        ingress = [{"ip": "203.0.113.5" if name == "orders-at-outside" else "203.0.113.6"}]
        seen.objects["Service", name]["status"] = {"loadBalancer": {"ingress": ingress}}
    for n in SHARDS:
        assert declared(seen)[f"orders_{n}"] == {
            1: (f"203.0.113.5:{11100 + n}", f"203.0.113.6:{11100 + n}"),
            2: (f"203.0.113.5:{11100 + n}", ""),
            3: (f"203.0.113.5:{11100 + n}", ""),
        }


def test_an_advertised_port_is_that_of_the_first_shard() -> None:
    replicas = [{"ordinal": 1, "host": "b.example", "port": 7000}]
    wish = listener(advertisedHost="mq.example", advertisedPort=8000, replicas=replicas)
    for n in SHARDS:
        assert declared(world(wish=wish))[f"orders_{n}"][2] == (
            f"mq.example:{8000 + n}",
            f"b.example:{7000 + n}",
        )


def test_a_shard_without_a_port_is_waited_for() -> None:
    seen = world(wish=listener(advertisedHost="mq.example", advertisedPort=65534))
    routes = {name: rows[1][0] for name, rows in declared(seen).items()}
    assert routes == {
        "orders_0": "mq.example:65534",
        "orders_1": "mq.example:65535",
        "orders_2": "",
    }
    found = told(as_told(seen), "ListenersServed")
    assert found[:2] == ("False", "WaitingForAddress")
    assert "of orders_2" in found[2]


def test_clients_of_pods_are_given_the_masters_own() -> None:
    found = declared(world(route="Pod"))["orders_1"]
    assert {route == own for route, own in found.values()} == {True}


def test_a_member_is_the_one_of_its_shard() -> None:
    """Ids are of a shard: the one of this pod may have another in each."""
    others = (member(7, pod_uid="uid-0"), member(8, pod_uid="uid-1"), member(9, pod_uid="uid-2"))
    view = shard_view(1, *others, master_broker_id=8, sync_state_set=[7, 8, 9])
    found = declared(world(views={1: view}))["orders_1"]
    assert {broker_id: own for broker_id, (_, own) in found.items()} == {
        7 + n: f"{node}:{31001 + 100 * n}" for n, node in NODES.items()
    }


def test_all_pods_host_a_shard_before_its_clients_are_led_to_any_of_them() -> None:
    """One that does not would refuse them; until then they are given the master's own address."""
    some = declared(world(ready=(1, 2)))["orders_2"]
    assert {route == own for route, own in some.values()} == {True}
    assert declared(world(ready=(1, 2)))["orders_1"][1][0] == "172.18.0.2:30101"
    assert declared(world())["orders_2"][1][0] == "172.18.0.2:30102"
    had_it = as_told(world())
    again = tuple(
        pod(n, role=None, host_ip=NODES[n], shards=3 if n else 2, revision=NEW if n else OLD)
        for n in range(3)
    )
    assert not of_type(planned(changed(had_it, pods=again)), Declare), "who has it keeps it"


def test_what_is_told_already_is_not_told_again() -> None:
    seen = as_told(world())
    assert not of_type(planned(seen), Declare, ApplyObject)
    assert told(seen, "ListenersServed")[:2] == ("True", "ListenersServed")


def test_the_status_has_the_addresses_of_the_masters() -> None:
    """Those of everybody would be up to a thousand."""
    status = with_status(as_told(world())).live_status
    assert status["listeners"] == [
        {
            "name": "outside",
            "addresses": ["172.18.0.2:30100", "172.18.0.3:30101", "172.18.0.4:30102"],
        }
    ]


@pytest.mark.parametrize("view", [NotDeclared(), shard_view(1)], ids=["no members", "not told"])
def test_the_first_shard_that_is_not_reached_is_named(view: Any) -> None:
    seen = as_told(world())
    shards = (seen.shards[0], type(seen.shards[1])("orders_1", view), seen.shards[2])
    found = told(changed(seen, shards=shards), "ListenersServed")
    assert found[:2] == ("False", "WaitingForAddress")
    assert "of orders_1" in found[2]


def test_names_of_ports_fit() -> None:
    assert len(names.shard_port_name(names.MAX_SHARDS - 1)) <= 15
