"""Fronts in the operator's shell: what is heard, observed, carried out, and let go."""

from __future__ import annotations

from typing import Any, cast

import pytest
from gantry_operator import farewell, names
from gantry_operator.api.errors import Unavailable
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    DEPLOYMENT,
    FRONT_GROUP,
    POD,
    SERVICE,
    STATEFULSET,
)
from gantry_operator.builders import front_objects
from gantry_operator.cache import Cache, Key
from gantry_operator.plan import actions as act
from gantry_operator.plan.deletion import let_go
from gantry_operator.plan.observed import BrokerObserved, FrontObserved
from gantry_operator.plan.turns import Place, line_up
from gantry_operator.reconcile.apply import Applier
from gantry_operator.reconcile.fleet import Fleet
from gantry_operator.reconcile.quorum_secrets import Secrets
from gantry_protocol.admin import DeclaredFronts, FrontIndex, FrontsDeclaration, FrontsView
from gantry_protocol.admin_client.errors import AdminRefusedError
from unit.operator.fake_admin import FakeAdmin, FakeDirectory
from unit.operator.fake_api import FakeApi
from unit.operator.test_reconcile import World
from unit.operator.world import controllers, front_world, fronts, live

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
CLIENTS = Key("FrontGroup", "mq", "clients")
OTHERS = Key("FrontGroup", "mq", "others")
ORDERS = Key("BrokerGroup", "mq", "orders")
GANTRY = Key("ControllerGroup", "mq", "gantry")
DECLARATION = FrontsDeclaration(address="10.96.0.7", first_port=10950, ports=16)


def world() -> World:
    made = World()
    made.groups()
    return made


def front(made: World, name: str = "clients", since: str = "10:00:00Z", **spec: Any) -> Any:
    meta = {"generation": 1, "creationTimestamp": f"2026-11-21T{since}"}
    return made.have(FRONT_GROUP, name, metadata=meta, spec=spec)


async def seen(made: World, key: Key) -> Any:
    return await made.observer.observe(key)


# What is heard


async def test_fronts_that_come_or_go_are_the_brokers_matter() -> None:
    made = world()
    await made.drain()
    body = front(made)
    assert set(await made.drain()) == {CLIENTS, ORDERS, GANTRY}
    changed = made.api.have(FRONT_GROUP, "clients", metadata=body["metadata"], spec={"replicas": 3})
    made.listener.hear(FRONT_GROUP, "MODIFIED", changed)
    assert await made.drain() == [CLIENTS]
    made.listener.hear(FRONT_GROUP, "DELETED", changed)
    assert set(await made.drain()) == {CLIENTS, ORDERS, GANTRY}


async def test_broker_groups_that_come_or_go_are_the_fronts_matter() -> None:
    made = world()
    front(made)
    front(made, "elsewhere", controllerRef={"name": "another"})
    await made.drain()
    made.have(BROKER_GROUP, "returns", metadata={"generation": 1}, spec={})
    assert CLIENTS in (found := await made.drain())
    assert Key("FrontGroup", "mq", "elsewhere") not in found


async def test_controllers_that_fall_silent_are_the_fronts_matter() -> None:
    made = world()
    front(made)
    await made.drain()
    made.listener.evidence_changed("mq", "gantry")
    assert CLIENTS in await made.drain()


async def test_a_pod_of_a_deployment_brings_its_front_group() -> None:
    made = world()
    front(made)
    await made.drain()
    labels = names.labels(names.FRONT, "clients")
    made.have(POD, "clients-front-5f6-abcde", metadata={"labels": labels})
    assert await made.drain() == [CLIENTS]


# What is observed


async def test_the_front_group_that_was_there_first_serves_the_cluster() -> None:
    made = world()
    front(made, "clients", "10:00:01Z")
    front(made, "others", "10:00:00Z")
    front(made, "abroad", "09:00:00Z", controllerRef={"name": "another"})
    assert (await seen(made, CLIENTS)).before == "others"
    assert (await seen(made, OTHERS)).before == ""


async def test_of_two_of_one_second_the_first_by_name_serves() -> None:
    made = world()
    front(made, "others")
    front(made, "clients")
    assert (await seen(made, OTHERS)).before == "clients"


async def test_the_last_front_group_may_go_while_the_controllers_are_asked() -> None:
    made = world()
    body, admin = front(made), made.directory.admin("mq", "gantry")

    async def answered() -> Any:
        made.listener.hear(FRONT_GROUP, "DELETED", body)
        return FrontsView(fronts=(), groups=())

    admin.fronts = answered
    assert (await seen(made, CLIENTS)).before == ""


async def test_the_deletion_of_a_quorum_waits_for_the_fronts_of_its_clients() -> None:
    """Its volumes would lead clients there when it is created again."""
    made = world()
    assert (await seen(made, GANTRY)).dependents == ("orders",)
    made.listener.hear(BROKER_GROUP, "DELETED", made.cache.get(BROKER_GROUP, "mq", "orders") or {})
    front(made)
    front(made, "abroad", controllerRef={"name": "another"})
    assert (await seen(made, GANTRY)).dependents == ("FrontGroup clients",)


async def test_brokers_learn_whether_their_cluster_has_fronts() -> None:
    made = world()
    observed = await seen(made, ORDERS)
    assert isinstance(observed, BrokerObserved)
    assert observed.fronts is False
    front(made, controllerRef={"name": "another"})
    assert (await seen(made, ORDERS)).fronts is False
    front(made, "others")
    assert (await seen(made, ORDERS)).fronts is True


async def test_an_invalid_front_group_says_why() -> None:
    made = world()
    front(made, service={"type": "NodePort"})
    observed = await seen(made, CLIENTS)
    assert isinstance(observed, FrontObserved)
    assert "service.advertisedAddress" in observed.invalid
    assert observed.broker_groups == ("orders",)


async def test_a_broker_group_that_goes_is_waited_for_no_more() -> None:
    made = world()
    front(made)
    going = {"generation": 1, "deletionTimestamp": "2026-11-21T11:59:00Z"}
    made.have(BROKER_GROUP, "returns", metadata=going, spec={})
    assert (await seen(made, CLIENTS)).broker_groups == ("orders",)


async def test_each_shard_of_a_broker_group_is_waited_for() -> None:
    made = world()
    front(made)
    made.have(BROKER_GROUP, "returns", metadata={"generation": 1}, spec={"shards": 2})
    assert (await seen(made, CLIENTS)).broker_groups == ("orders", "returns_0", "returns_1")


async def test_from_nothing_to_clients_that_are_led_there() -> None:
    """And nobody else's clients: the name of the quorum is that of the cluster."""
    made = world()
    await made.settle()
    front(made)
    await made.settle()
    assert made.api.find(DEPLOYMENT, "clients-front") is not None
    assert [text for text in made.admin.asked if "fronts" in text] == []
    service = made.api.find(SERVICE, "clients-front")
    assert service is not None
    service["spec"]["clusterIP"] = "10.96.0.7"
    service["metadata"]["resourceVersion"] = "1000"
    made.listener.hear(SERVICE, "MODIFIED", service)
    labels = names.labels(names.FRONT, "clients")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    made.admin.leads = FrontsView(groups=[FrontIndex(group="orders", index=0)])
    made.have(POD, "clients-front-5f6-abcde", metadata={"labels": labels}, status=ready)
    key = await made.queue.get()
    await made.reconciler.reconcile(key)
    made.queue.done(key)
    assert "declare-fronts clients 10.96.0.7 16" in made.admin.asked
    made.admin.leads = FrontsView(
        fronts=[DeclaredFronts(name="clients", address="10.96.0.7", first_port=10950, ports=16)],
        groups=[FrontIndex(group="orders", index=0)],
    )
    await made.settle()
    found = made.api.find(FRONT_GROUP, "clients")
    assert found is not None
    assert found["status"]["address"] == "10.96.0.7:10950"
    labels = {"namespace": "mq", "group": "clients"}
    metric = "gantry_operator_fronts_available"
    assert made.metrics.registry.get_sample_value(metric, labels) == 1.0
    orders = made.api.find(STATEFULSET, "orders-broker")
    assert orders is not None
    assert "GANTRY_STORE_PORT" in str(orders["spec"]["template"])
    made.listener.hear(FRONT_GROUP, "DELETED", found)
    await made.settle()
    assert made.metrics.registry.get_sample_value(metric, labels) is None


# What is carried out


class Hands:
    """An applier and the fronts that it acts for."""

    def __init__(self) -> None:
        self.api, self.cache, self.admin = FakeApi(), Cache(), FakeAdmin()
        self.directory = FakeDirectory(self.admin)
        self.applier = Applier(self.api, self.cache, cast("Any", self.directory), Secrets(self.api))
        self.seen = front_world()
        self.api.have(FRONT_GROUP, "clients", metadata={"uid": "fg-uid"})

    async def apply(self, *actions: act.Action) -> Any:
        return await self.applier.apply(CLIENTS, self.seen, list(actions))


async def test_clients_are_led_at_the_quorum_of_the_cluster() -> None:
    hands = Hands()
    outcome = await hands.apply(act.DeclareFronts(declaration=DECLARATION))
    assert outcome.again, "what was declared has to be planned with"
    await hands.apply(act.RemoveFronts())
    assert hands.admin.asked == ["declare-fronts clients 10.96.0.7 16", "remove-fronts clients"]
    assert hands.directory.named == [("mq", "gantry")] * 2


async def test_what_the_controllers_refuse_is_told() -> None:
    hands = Hands()
    hands.admin.failure["declare-fronts"] = AdminRefusedError(409, "taken", "others are there")
    outcome = await hands.apply(act.DeclareFronts(declaration=DECLARATION))
    (refusal,) = outcome.refusals
    assert "the controllers refuse" in refusal.message


def deployment(**spec: Any) -> dict[str, Any]:
    objects = front_objects(fronts(**spec), controllers(), image="gantry:1")
    return next(found for found in objects if found["kind"] == "Deployment")


async def test_replicas_have_another_owner_before_the_operator_lets_go_of_them() -> None:
    hands = Hands()
    kept = {"metadata": {"name": "clients-front", "namespace": "mq"}, "spec": {"replicas": 5}}
    manifest = deployment(autoscaling={"enabled": True})
    action = act.ApplyObject(manifest=manifest, exists=True, kept=kept)
    await hands.apply(action)
    assert hands.api.calls == [
        "apply Deployment clients-front as gantry-operator-replicas",
        "apply Deployment clients-front",
    ]


async def test_the_operator_does_not_let_go_of_replicas_that_nobody_took() -> None:
    hands = Hands()
    hands.api.refuse("apply", DEPLOYMENT, Unavailable(503, "Down", "down"))
    kept = {"metadata": {"name": "clients-front", "namespace": "mq"}, "spec": {"replicas": 5}}
    action = act.ApplyObject(manifest=deployment(), exists=True, kept=kept)
    await hands.apply(action)
    assert hands.api.calls == ["apply Deployment clients-front as gantry-operator-replicas"]


# The fleet, and the operator's end


def place(kind: str, name: str) -> Place:
    return Place(kind=kind, namespace="mq", name=name, image="gantry:1", well=True)


async def test_fronts_get_a_new_image_after_what_they_serve() -> None:
    kinds = ("FrontGroup", "BrokerGroup", "ControllerGroup")
    line = line_up([place(kind, "a") for kind in kinds], "gantry:2", 1)
    assert [kind for kind, _, _ in line.waiting] == list(reversed(kinds))


@pytest.mark.parametrize(("updated", "waits"), [(2, False), (1, True)])
async def test_a_roll_of_fronts_holds_the_next_group_back(updated: int, waits: bool) -> None:
    made = world()
    body = front(made)
    for manifest in live(front_objects(fronts(), controllers(), image="gantry:2")).values():
        if manifest["kind"] == "Deployment":
            manifest["status"]["updatedReplicas"] = updated
            made.cache.put(DEPLOYMENT, manifest)
    spec = {"template": {"spec": {"containers": [{"name": "broker", "image": "gantry:1"}]}}}
    labels = names.labels(names.BROKER, "orders")
    meta = {"labels": labels, "generation": 1}
    made.have(STATEFULSET, "orders-broker", metadata=meta, spec=spec)
    fleet = Fleet(made.cache, "gantry:2", 1, made.metrics)
    orders = made.cache.get(BROKER_GROUP, "mq", "orders")
    assert orders is not None
    assert (fleet.image_of(ORDERS, orders)[1] is not None) is waits
    assert fleet.image_of(CLIENTS, body) == ("gantry:2", None)


async def test_the_operator_stays_for_fronts_that_wait_for_it_alone() -> None:
    meta = {"name": "clients", "namespace": "mq", "uid": "u", "resourceVersion": "1"}
    going = {"deletionTimestamp": "now", "finalizers": [names.FRONTS_FINALIZER]}
    cache = Cache()
    cache.put(FRONT_GROUP, {"metadata": meta | going})
    assert farewell.is_awaited(cache)
    patch = let_go(meta | going)
    assert patch is not None
    assert patch["metadata"]["finalizers"] == []
