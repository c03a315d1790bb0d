"""TLS of single listeners in a BrokerGroup with shards: a port of each shard for each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.builders.broker import DOOR_PORTS, PORTS, STORE_PORTS
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject, Declare
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.observed import BrokerObserved, CertificateView
from gantry_protocol.process.config import load_settings
from gantry_protocol.tls.listeners import ListenerChoice
from gantry_protocol.tls.settings import TlsMode
from unit.operator.world import (
    IMAGE,
    NEW,
    NOW,
    OLD,
    brokers,
    changed,
    controllers,
    live,
    of_type,
    planned,
    pod,
    shard_world,
    told,
    with_status,
)

Json = dict[str, Any]
NODES = {0: "172.18.0.2", 1: "172.18.0.3", 2: "172.18.0.4"}
OWN = {"secretName": "public", "mode": "Enforcing"}
SHARDS = 3


def listener(name: str = "outside", **facts: Any) -> Json:
    return {"name": name, "type": "NodePort", "tls": OWN} | facts


SHARED = listener(tls=None, allowPlain=True)
OTHER = listener("other", tls={"mode": "Disabled"}, allowPlain=True)
QUORUM = controllers(clients={"listeners": [listener()]})


def built(*listeners: Json, shards: int = SHARDS, **spec: Any) -> list[Json]:
    group = brokers(shards=shards, clients={"listeners": list(listeners)}, **spec)
    return broker_objects(group, QUORUM, image=IMAGE, replicas=3, shards=shards)


def container(objects: list[Json]) -> Json:
    (found,) = objects[-1]["spec"]["template"]["spec"]["containers"]
    return cast("Json", found)


def ports(objects: list[Json]) -> dict[str, int]:
    return {one["name"]: one["containerPort"] for one in container(objects)["ports"]}


def settings(objects: list[Json]) -> BrokerSettings:
    """What the broker reads."""
    env = {one["name"]: one.get("value", "10.0.0.1") for one in container(objects)["env"]}
    env = {name: text.replace("$(POD_IP)", "10.0.0.1") for name, text in env.items()}
    return load_settings(BrokerSettings, {}, env | {"GANTRY_CONFIG": ""})


def targets(objects: list[Json]) -> dict[str, list[tuple[str, int, str | int]]]:
    """The ports of the Services of listeners."""
    return {
        one["metadata"]["name"]: [
            (port["name"], port["port"], port["targetPort"]) for port in one["spec"]["ports"]
        ]
        for one in objects
        if one["kind"] == "Service" and "-at-" in one["metadata"]["name"]
    }


def services(name: str) -> list[str]:
    return [f"orders-at-{name}", *(f"orders-at-{name}-{n}" for n in range(3))]


def to_own(name: str = "outside", shards: int = SHARDS) -> list[tuple[str, int, str | int]]:
    return [(f"shard-{n}", 11100 + n, f"{name}-{n}") for n in range(shards)]


def to_shared(shards: int = SHARDS) -> list[tuple[str, int, str | int]]:
    return [(f"shard-{n}", 11100 + n, 11100 + n) for n in range(shards)]


class TestPods:
    def test_each_shard_has_a_port_for_each_listener_with_its_own(self) -> None:
        shared = listener("shared", tls=None, allowPlain=True)
        objects = built(shared, listener(), OTHER)
        assert ports(objects) == {
            "ha": 10912,
            "http": 10913,
            **{f"outside-{n}": 11200 + n for n in range(SHARDS)},
            **{f"other-{n}": 11300 + n for n in range(SHARDS)},
        }
        read = settings(objects)
        assert read.listener_ports == {"outside": 11200, "other": 11300}
        directory = Path("/etc/gantry/listener-tls/outside")
        assert read.listener_choices == {
            "outside": ListenerChoice(TlsMode.ENFORCING, directory),
            "other": ListenerChoice(TlsMode.DISABLED),
        }
        assert [at.port for at in read.port_map] == [11100, 11101, 11102]
        assert read.mode is TlsMode.DISABLED, "those inside have none"
        spec = objects[-1]["spec"]["template"]["spec"]
        mount = {"name": "gantry-at-outside", "mountPath": str(directory), "readOnly": True}
        assert mount in container(objects)["volumeMounts"]
        (volume,) = [one for one in spec["volumes"] if one["name"] == "gantry-at-outside"]
        assert volume["secret"]["optional"], "pods start without it"
        assert targets(objects) == {
            **dict.fromkeys(services("outside"), to_own()),
            **dict.fromkeys(services("other"), to_own("other")),
            **dict.fromkeys(services("shared"), to_shared()),
        }

    def test_each_port_is_open_to_clients(self) -> None:
        from_shop = [{"podSelector": {"matchLabels": {"app": "shop"}}}]
        objects = built(listener(), OTHER, networkPolicy={"clientsFrom": from_shop})
        (policy,) = [one for one in objects if one["kind"] == "NetworkPolicy"]
        rule = policy["spec"]["ingress"][0]
        ranges = [range(one["port"], one["endPort"] + 1) for one in rule["ports"]]
        opened = [port for one in ranges for port in one]
        own = {number for name, number in ports(objects).items() if name not in ("ha", "http")}
        assert sorted(opened) == sorted({11100, 11101, 11102} | own)
        assert from_shop[0] in rule["from"]

    def test_without_its_own_a_listener_changes_no_pod_and_no_policy(self) -> None:
        plain = broker_objects(
            brokers(shards=SHARDS), QUORUM, image=IMAGE, replicas=3, shards=SHARDS
        )
        with_one = built(SHARED)
        assert with_one[-1] == plain[-1]
        kinds = [
            [one for one in made if one["kind"] == "NetworkPolicy"] for made in (plain, with_one)
        ]
        assert kinds[0] == kinds[1]
        assert [one["endPort"] for one in kinds[0][0]["spec"]["ingress"][0]["ports"]] == [11102]

    def test_as_many_as_there_may_be_have_ports_apart(self) -> None:
        """Names of ports are bounded, and one to a container; the broker takes the numbers."""
        named = [listener(f"abcdefghijk{n}") for n in range(names.MAX_LISTENERS)]
        objects = built(*named, shards=names.MAX_SHARDS)
        found = container(objects)["ports"]
        assert len(found) == 2 + 400
        assert len({one["name"] for one in found}) == len(found)
        assert len({one["containerPort"] for one in found}) == len(found)
        assert max(len(one["name"]) for one in found) == 15
        assert settings(objects).port_map[-1].port == 11199
        others = {name for name, _ in (*PORTS, *DOOR_PORTS, *STORE_PORTS)}
        assert not [name for name in others if name.rpartition("-")[2].isdigit()]

    def test_the_certificate_may_be_that_of_all(self) -> None:
        objects = built(listener(tls={"mode": "Enforcing"}), tls={"secretName": "all"})
        assert settings(objects).listener_choices == {"outside": ListenerChoice(TlsMode.ENFORCING)}


def world(*before: Json, now: tuple[Json, ...] = (), **facts: Any) -> BrokerObserved:
    """A listener gets TLS of its own; the world is as it was with the listeners `before`."""
    old = brokers(shards=SHARDS, clients={"listeners": list(before)})
    new = brokers(shards=SHARDS, clients={"listeners": list(now or (listener(),))})
    seen = shard_world(SHARDS, group=old, controllers=QUORUM)
    return cast("BrokerObserved", changed(seen, group=new, **facts))


def rolling(*revisions: str) -> BrokerObserved:
    """The new template is applied, and pods are of these revisions."""
    pods = tuple(pod(n, role=None, shards=SHARDS, revision=one) for n, one in enumerate(revisions))
    seen = world(SHARED, pods=pods)
    return cast(
        "BrokerObserved", changed(seen, objects=seen.objects | live([built(listener())[-1]]))
    )


def applied(seen: BrokerObserved) -> dict[str, list[tuple[str, int, str | int]]]:
    """The Services of listeners that are applied now."""
    return targets([action.manifest for action in of_type(planned(seen), ApplyObject)])


class TestChange:
    def test_a_listener_serves_as_before_until_every_pod_has_its_ports(self) -> None:
        assert applied(world(SHARED)) == {}, "the template is yet to be applied"
        assert applied(rolling(NEW, OLD, NEW)) == {}
        assert applied(rolling(NEW, NEW, NEW)) == dict.fromkeys(services("outside"), to_own())

    def test_a_new_one_leads_to_its_own_ports_at_once(self) -> None:
        """Nobody is served there without the TLS that its owner wishes."""
        assert applied(world()) == dict.fromkeys(services("outside"), to_own())

    def test_one_that_shares_the_ports_again_is_led_there_at_once(self) -> None:
        back = world(listener(), now=(SHARED,))
        assert applied(back) == dict.fromkeys(services("outside"), to_shared())

    def test_a_shard_that_is_added_has_its_own_ports(self) -> None:
        """By name: nobody is led to a pod that does not host it yet, nor to another listener."""
        group = brokers(shards=SHARDS + 1, clients={"listeners": [listener()]})
        seen = changed(shard_world(SHARDS + 1, SHARDS, group=group, controllers=QUORUM))
        assert applied(seen) == dict.fromkeys(services("outside"), to_own(shards=SHARDS + 1))

    def test_another_listener_may_come_first(self) -> None:
        """Its ports are where those of the other one were; Services know them by name."""
        seen = world(listener(), now=(OTHER, listener()))
        assert applied(seen) == dict.fromkeys(services("other"), to_own("other"))
        assert ports(built(OTHER, listener()))["outside-0"] == 11300

    def test_it_is_foreseen_restart_by_restart(self) -> None:
        found = foresee(world(SHARED), NOW, plan, rolls=lambda new, old: new != old)
        said = [step.message for step in found.steps]
        restarts = [n for n, text in enumerate(said) if text.startswith("Restart ")]
        assert len(restarts) == 3
        assert said.index("Change Service orders-at-outside.") > restarts[-1]
        assert found.waits == ""


def settled() -> BrokerObserved:
    """Each pod is on a node of its own, and Services have node ports."""
    wish = brokers(shards=SHARDS, clients={"listeners": [listener()]})
    pods = tuple(pod(n, role=None, shards=SHARDS, host_ip=NODES[n]) for n in range(3))
    seen = shard_world(SHARDS, group=wish, controllers=QUORUM, pods=pods)
    for number, name in enumerate(services("outside")):
        for n, port in enumerate(seen.objects["Service", name]["spec"]["ports"]):
            port["nodePort"] = 30100 + 100 * number + n
    wished = {one.group: one.declaration.listeners for one in of_type(planned(seen), Declare)}
    shards = tuple(
        type(one)(
            one.name, cast("Any", one.view).model_copy(update={"listeners": wished[one.name]})
        )
        for one in seen.shards
    )
    return cast("BrokerObserved", with_status(changed(seen, shards=shards)))


def test_clients_are_given_what_the_services_have() -> None:
    seen = settled()
    for n, one in enumerate(seen.shards):
        rows = cast("Any", one.view).listeners["outside"]
        assert [(row.route, row.own) for row in rows] == [
            (f"{node}:{30100 + n}", f"{node}:{30200 + 100 * at + n}") for at, node in NODES.items()
        ]
    assert cast("Any", seen).live_status["listeners"] == [
        {
            "name": "outside",
            "addresses": ["172.18.0.2:30100", "172.18.0.3:30101", "172.18.0.4:30102"],
        }
    ]
    assert told(seen, "ListenersServed")[:2] == ("True", "ListenersServed")
    assert not of_type(planned(seen), Declare, ApplyObject)


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (CertificateView("public", "Missing"), "Secret public does not exist"),
        (CertificateView("public", "Unusable", "its tls.key is not"), "its tls.key is not"),
    ],
)
def test_a_certificate_that_is_no_good_is_said(view: CertificateView, said: str) -> None:
    found = told(changed(settled(), certificates=(view,)), "ListenersServed")
    assert found[:2] == ("False", "CertificateUnusable")
    assert said in found[2]
