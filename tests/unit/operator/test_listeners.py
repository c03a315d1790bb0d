"""Listeners: Services, what the controllers are told of them, and what their owner is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import POD
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.cache import Cache
from gantry_operator.models import InvalidSpecError
from gantry_operator.plan.actions import ApplyObject, Declare, DeleteObject, WriteStatus
from gantry_operator.plan.observed import BrokerObserved, pod_view
from gantry_protocol.admin import AdvertisedMember, GroupView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.tls.listeners import parse_listeners
from unit.operator.world import (
    broker_world,
    brokers,
    changed,
    controller_pod,
    controller_world,
    controllers,
    member,
    of_type,
    planned,
    pod,
    view,
    with_status,
)

Json = dict[str, Any]
NODES = {0: "172.18.0.2", 1: "172.18.0.3", 2: "172.18.0.4"}
NODE_PORTS = {"orders-at-outside": 30911} | {f"orders-at-outside-{n}": 31000 + n for n in range(3)}


def listener(**facts: Any) -> Json:
    return {"name": "outside", "type": "NodePort", "allowPlain": True} | facts


QUORUM = controllers(clients={"listeners": [listener()]})


def world(
    *listeners: Json,
    route: str = "Group",
    known: Any = None,
    nodes: dict[int, str] | None = None,
    **facts: Any,
) -> BrokerObserved:
    """Three replicas on three nodes, with all ports known, unless something else is said."""
    wish = {"route": route, "listeners": list(listeners or (listener(),))}
    on = NODES if nodes is None else nodes
    seen = broker_world(
        brokers(clients=wish),
        known=known,
        controllers=facts.pop("controllers", QUORUM),
        pods=tuple(pod(n, host_ip=on.get(n)) for n in range(3)),
        **facts,
    )
    for (kind, name), body in seen.objects.items():
        if kind == "Service" and name in NODE_PORTS and body["spec"]["type"] == "NodePort":
            body["spec"]["ports"][0]["nodePort"] = NODE_PORTS[name]
    return seen


def given_balancers(seen: Any, *services: str) -> Any:
    """The cloud has given these Services addresses."""
    for name in services:
        ingress = [{"ip": ""}, {"hostname": f"{name}.example"}]
        seen.objects["Service", name]["status"] = {"loadBalancer": {"ingress": ingress}}
    return seen


def told(seen: BrokerObserved, name: str = "outside") -> dict[int, tuple[str, str]] | None:
    """What the controllers are told of each member: the group's address, and its own."""
    found = of_type(planned(seen), Declare)
    if not found:
        return None
    (declare,) = found
    rows = declare.declaration.listeners[name]
    assert [row.broker_id for row in rows] == sorted(row.broker_id for row in rows)
    return {row.broker_id: (row.route, row.own) for row in rows}


def rows(seen: BrokerObserved) -> list[AdvertisedMember]:
    (declare,) = of_type(planned(seen), Declare)
    found: list[AdvertisedMember] = declare.declaration.listeners["outside"]
    return found


def as_told(seen: BrokerObserved) -> Any:
    """The same world after the controllers were told."""
    (declare,) = of_type(planned(seen), Declare)
    assert isinstance(seen.view, GroupView)
    update = {"listeners": declare.declaration.listeners}
    return with_status(changed(seen, view=seen.view.model_copy(update=update)))


def services(made: list[Json]) -> dict[str, Json]:
    return {
        body["metadata"]["name"]: body
        for body in made
        if body["kind"] == "Service" and "-at-" in body["metadata"]["name"]
    }


class TestServices:
    def test_of_a_broker_group(self) -> None:
        group = brokers(clients={"listeners": [listener(annotations={"a": "b"})]})
        made = services(broker_objects(group, QUORUM, image="i", replicas=3))
        assert sorted(made) == sorted(NODE_PORTS)
        of_all, own = made["orders-at-outside"], made["orders-at-outside-2"]
        assert of_all["metadata"]["annotations"]["a"] == "b"
        assert of_all["metadata"]["labels"][names.LABEL_LISTENER] == "outside"
        assert of_all["spec"] == {
            "type": "NodePort",
            "externalTrafficPolicy": "Cluster",
            "selector": names.selector("broker", "orders") | {"mq.gantry.dev/traffic": "true"},
            "ports": [
                {"name": "clients", "protocol": "TCP", "port": 10911, "targetPort": "remoting"}
            ],
        }
        pod_name = {"statefulset.kubernetes.io/pod-name": "orders-broker-2"}
        assert own["spec"] == {
            "type": "NodePort",
            "externalTrafficPolicy": "Local",
            "selector": names.selector("broker", "orders") | pod_name,
            "ports": [{"name": "clients", "protocol": "TCP", "port": 10911, "targetPort": 10911}],
        }

    def test_of_a_quorum_they_lead_to_a_port_of_their_own(self) -> None:
        two = [listener(nodePort=30876), listener(name="lb", type="LoadBalancer")]
        objects = controller_objects(controllers(clients={"listeners": two}), image="i")
        made = services(objects)
        ports = {name: body["spec"]["ports"][0] for name, body in made.items()}
        assert ports == {
            "gantry-at-outside": {
                "name": "clients",
                "protocol": "TCP",
                "port": 9876,
                "targetPort": "at-outside",
                "nodePort": 30876,
            },
            "gantry-at-lb": {
                "name": "clients",
                "protocol": "TCP",
                "port": 9876,
                "targetPort": "at-lb",
            },
        }
        (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
        (setting,) = [one["value"] for one in container["env"] if one["name"] == "GANTRY_LISTENERS"]
        by_name = {one["name"]: one["containerPort"] for one in container["ports"]}
        wanted = {name: by_name[f"at-{name}"] for name in ("outside", "lb")}
        assert parse_listeners(setting) == wanted == {"outside": 10930, "lb": 10931}
        (policy,) = [one for one in objects if one["kind"] == "NetworkPolicy"]
        open_to_clients = {one["port"] for one in policy["spec"]["ingress"][0]["ports"]}
        assert open_to_clients == {9876, 10930, 10931}

    def test_names_fit_and_differ_from_all_others(self) -> None:
        group = brokers(
            {"name": "a" * names.MAX_BROKER_GROUP_NAME},
            replicas=9,
            clients={"listeners": [listener(name="b" * names.MAX_LISTENER_NAME)]},
        )
        made = broker_objects(group, QUORUM, image="i", replicas=9)
        found = [body["metadata"]["name"] for body in made if body["kind"] == "Service"]
        assert len(set(found)) == len(found)
        assert max(map(len, found)) == 63

    def test_without_listeners_nothing_of_a_pod_changes(self) -> None:
        (container,) = controller_objects(controllers(), image="i")[-1]["spec"]["template"]["spec"][
            "containers"
        ]
        assert "GANTRY_LISTENERS" not in {one["name"] for one in container["env"]}
        assert not services(broker_objects(brokers(), controllers(), image="i", replicas=3))

    def test_a_listener_restarts_no_broker(self) -> None:
        group = brokers(clients={"listeners": [listener()]})
        with_one = broker_objects(group, QUORUM, image="i", replicas=3)[-1]
        without = broker_objects(brokers(), QUORUM, image="i", replicas=3)[-1]
        assert with_one["spec"] == without["spec"]

    def test_they_go_with_the_listener(self) -> None:
        seen = changed(world(), group=brokers())
        for body in seen.objects.values():
            body["metadata"]["ownerReferences"] = [{"uid": "bg-uid"}]
        gone = of_type(planned(seen), DeleteObject)
        assert sorted((one.kind, one.name) for one in gone) == [
            ("Service", name) for name in sorted(NODE_PORTS)
        ]

    def test_they_stay_while_a_group_is_hibernated(self) -> None:
        """Their node ports are theirs, and others would be given another time."""
        wish = brokers(hibernated=True, clients={"listeners": [listener()]})
        assert len(services(broker_objects(wish, QUORUM, image="i", replicas=0))) == 4


class TestAddresses:
    def test_node_ports_are_at_the_nodes_of_the_pods(self) -> None:
        """Clients of the group are led to the master's node, whoever is master."""
        assert told(world()) == {
            1: ("172.18.0.2:30911", "172.18.0.2:31000"),
            2: ("172.18.0.3:30911", "172.18.0.3:31001"),
            3: ("172.18.0.4:30911", "172.18.0.4:31002"),
        }

    @pytest.mark.parametrize("route", ["Master", "Pod"])
    def test_other_routes_lead_to_the_master_itself(self, route: str) -> None:
        found = told(world(route=route))
        assert found is not None
        assert found[2] == ("172.18.0.3:31001", "172.18.0.3:31001")

    def test_balancers_have_the_port_of_the_service(self) -> None:
        seen = world(listener(type="LoadBalancer"))
        given_balancers(seen, "orders-at-outside", "orders-at-outside-0")
        assert told(seen) == {
            1: ("orders-at-outside.example:10911", "orders-at-outside-0.example:10911"),
            2: ("orders-at-outside.example:10911", ""),
            3: ("orders-at-outside.example:10911", ""),
        }

    def test_balancers_need_no_node(self) -> None:
        seen = world(listener(type="LoadBalancer"), nodes={})
        assert told(given_balancers(seen, "orders-at-outside")) is not None

    def test_what_is_advertised_wins(self) -> None:
        replicas = [{"ordinal": 1, "host": "fd00::7", "port": 443}, {"ordinal": 2, "port": 444}]
        seen = world(listener(advertisedHost="mq.example", advertisedPort=8443, replicas=replicas))
        assert told(seen) == {
            1: ("mq.example:8443", "172.18.0.2:31000"),
            2: ("mq.example:8443", "[fd00::7]:443"),
            3: ("mq.example:8443", "172.18.0.4:444"),
        }

    def test_the_port_of_a_listener_may_be_the_services(self) -> None:
        found = told(world(listener(advertisedHost="mq.example")))
        assert found is not None
        assert {route for route, _ in found.values()} == {"mq.example:30911"}

    def test_a_member_is_told_of_once_its_pod_has_a_node(self) -> None:
        found = told(world(nodes={0: "172.18.0.2"}))
        assert found is not None
        assert set(found) == {1}

    def test_and_stays_as_it_was_while_it_has_none(self) -> None:
        """A pod that is being replaced; its successor will most likely be there."""
        before = as_told(world())
        moved = {0: "172.18.0.9", 1: "172.18.0.3"}
        pods = tuple(pod(n, host_ip=moved.get(n)) for n in range(3))
        assert told(changed(before, pods=pods)) == {
            1: ("172.18.0.9:30911", "172.18.0.9:31000"),
            2: ("172.18.0.3:30911", "172.18.0.3:31001"),
            3: ("172.18.0.4:30911", "172.18.0.4:31002"),
        }
        assert told(changed(before, pods=pods[1:])) is None, "what is told stays"

    def test_a_service_that_is_not_seen_takes_no_address_away(self) -> None:
        before = as_told(world())
        for name in NODE_PORTS:
            unseen = {key: body for key, body in before.objects.items() if key[1] != name}
            assert told(changed(before, objects=unseen)) is None
        without = copy.deepcopy(before.objects)
        for name in NODE_PORTS:
            without["Service", name]["spec"]["ports"][0].pop("nodePort")
        assert told(changed(before, objects=without)) is None

    def test_who_is_forgotten_is_told_of_no_more(self) -> None:
        before = as_told(world())
        left = view(member(1), member(2), listeners=before.view.listeners)
        assert [row.broker_id for row in rows(changed(before, view=left))] == [1, 2]

    def test_a_new_member_in_an_old_pod_has_the_pods_address(self) -> None:
        before = as_told(world())
        assert isinstance(before.view, GroupView)
        fresh = member(7, pod_uid="uid-2", address="10.0.0.12:10911")
        gone = member(3, alive=False)
        after = view(member(1), member(2), gone, fresh, listeners=before.view.listeners)
        found = told(changed(before, view=after))
        assert found is not None
        assert found[7] == ("172.18.0.4:30911", "172.18.0.4:31002")

    def test_of_many_ghosts_the_oldest_are_left_out(self) -> None:
        ghosts = [member(n, pod_uid=f"gone-{n}", alive=False) for n in range(4, 14)]
        listed = [AdvertisedMember(broker_id=n, route="h:1", own="h:2") for n in range(4, 14)]
        known = view(member(1), *ghosts, listeners={"outside": listed})
        found = told(world(known=known))
        assert found is not None
        assert len(found) == 9

    def test_what_is_told_already_is_not_told_again(self) -> None:
        assert not of_type(planned(as_told(world())), Declare, WriteStatus, ApplyObject)

    def test_nothing_is_told_before_there_are_members(self) -> None:
        (declare,) = of_type(planned(world(known=NotDeclared())), Declare)
        assert declare.declaration.listeners == {}

    def test_without_the_listener_its_addresses_go(self) -> None:
        seen = changed(as_told(world()), group=brokers())
        (declare,) = of_type(planned(seen), Declare)
        assert declare.declaration.listeners == {}


def condition(seen: Any, name: str = "ListenersServed") -> tuple[str, str, str] | None:
    status = with_status(seen).live_status
    for one in status["conditions"]:
        if one["type"] == name:
            return one["status"], one["reason"], one["message"]
    return None


class TestStatus:
    def test_of_a_group_has_what_clients_are_given(self) -> None:
        seen = as_told(world())
        assert seen.live_status is not None
        assert seen.live_status["listeners"] == [
            {
                "name": "outside",
                "addresses": [
                    "172.18.0.2:30911",
                    "172.18.0.2:31000",
                    "172.18.0.3:30911",
                    "172.18.0.3:31001",
                    "172.18.0.4:30911",
                    "172.18.0.4:31002",
                ],
            }
        ]
        found = condition(seen)
        assert found is not None
        assert found[:2] == ("True", "ListenersServed")
        silent = changed(seen, view=Unreachable("lost"))
        assert with_status(silent).live_status["listeners"] == seen.live_status["listeners"]
        assert condition(silent) == ("Unknown", "ControllerUnreachable", "lost")

    def test_no_word_of_listeners_without_any(self) -> None:
        assert condition(broker_world()) is None
        status = with_status(broker_world()).live_status
        assert status is not None
        assert "listeners" not in status

    @pytest.mark.parametrize(
        ("seen", "reason", "said"),
        [
            pytest.param(
                world(controllers=controllers()),
                "ListenerUnknown",
                "ControllerGroup gantry has no listener outside",
                id="not at the quorum",
            ),
            pytest.param(
                world(),
                "WaitingForAddress",
                "Listener outside has no address of broker 1 yet",
                id="not told yet",
            ),
            pytest.param(
                world(known=NotDeclared()), "WaitingForAddress", "not known yet", id="no members"
            ),
            pytest.param(
                as_told(given_balancers(world(listener(type="LoadBalancer")), "orders-at-outside")),
                "WaitingForAddress",
                "where no cloud gives one, set advertisedHost",
                id="no address of a replica",
            ),
        ],
    )
    def test_what_is_missing_is_said(self, seen: BrokerObserved, reason: str, said: str) -> None:
        found = condition(seen)
        assert found is not None
        assert found[:2] == ("False", reason)
        assert said in found[2]

    def test_those_inside_are_served_all_the_same(self) -> None:
        found = condition(world(controllers=controllers()), "Ready")
        assert found is not None
        assert found[0] == "True"

    def test_of_a_quorum_has_the_name_servers(self) -> None:
        two = [listener(), listener(name="lb", type="LoadBalancer")]
        seen = controller_world(
            controllers(clients={"listeners": two}),
            pods=tuple(controller_pod(n, host_ip=NODES.get(n % 2)) for n in range(3)),
        )
        seen.objects["Service", "gantry-at-outside"]["spec"]["ports"][0]["nodePort"] = 30876
        status = with_status(seen).live_status
        assert status["listeners"] == [
            {"name": "outside", "addresses": ["172.18.0.2:30876", "172.18.0.3:30876"]},
            {"name": "lb", "addresses": []},
        ]
        given_balancers(seen, "gantry-at-lb")
        status = with_status(seen).live_status
        assert status["listeners"][1]["addresses"] == ["gantry-at-lb.example:9876"]
        assert "listeners" not in with_status(controller_world()).live_status


def test_a_pod_says_on_which_node_it_is() -> None:
    body = {"metadata": {"name": "a-0", "namespace": "mq"}, "status": {"hostIP": "172.18.0.2"}}
    cache = Cache()
    cache.put(POD, body)
    kept = cache.get(POD, "mq", "a-0")
    assert kept is not None
    assert pod_view(kept).host_ip == "172.18.0.2"
    assert pod_view({"metadata": {"name": "a-0"}}).host_ip is None


@pytest.mark.parametrize("make", [brokers, controllers])
def test_two_of_one_name_are_refused(make: Any) -> None:
    with pytest.raises(InvalidSpecError, match="two listeners have one name"):
        make(clients={"listeners": [listener(), listener(type="LoadBalancer")]})


@pytest.mark.parametrize("make", [brokers, controllers])
def test_plain_text_is_refused_unless_it_is_allowed(make: Any) -> None:
    plain = {"listeners": [listener(allowPlain=False)]}
    with pytest.raises(InvalidSpecError, match=r"needs tls\.mode Enforcing"):
        make(clients=plain)
    with pytest.raises(InvalidSpecError, match=r"needs tls\.mode Enforcing"):
        make(clients=plain, tls={"secretName": "s"})
    make(clients=plain, tls={"secretName": "s", "mode": "Enforcing"})
