"""A ControllerGroup is deleted while BrokerGroups depend on it, and created again."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CLAIM,
    CONTROLLER_GROUP,
    EVENT,
    NAMESPACE,
    POD,
    STATEFULSET,
)
from integration.operator.operator_world import World

CLAIMS = [f"data-gantry-controller-{ordinal}" for ordinal in range(3)]


def marks(world: World) -> list[str | None]:
    bodies = [world.get(CLAIM, name) or {"metadata": {}} for name in CLAIMS]
    return [
        (body["metadata"].get("annotations") or {}).get(names.ANNOTATION_QUORUM) for body in bodies
    ]


def identity(world: World) -> str | None:
    """Under which identity the controllers are started."""
    live = world.get(STATEFULSET, "gantry-controller")
    if live is None:
        return None
    (container,) = live["spec"]["template"]["spec"]["containers"]
    env: dict[str, str] = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return env["GANTRY_CLUSTER_UID"]


async def test_a_quorum_outlives_those_that_depend_on_it(world: World) -> None:
    async with world.operator():
        await world.up()
        world.delete(CONTROLLER_GROUP, "gantry")
        await world.until(
            lambda: (
                "orders" in world.condition("Progressing", "gantry", CONTROLLER_GROUP)["message"]
            ),
            "the group that is waited for is named",
        )
        progressing = world.condition("Progressing", "gantry", CONTROLLER_GROUP)
        assert progressing["reason"] == "Deleting"
        await world.until(
            lambda: any(event["reason"] == "Deleting" for event in world.all(EVENT)), "an event"
        )
        world.delete(POD, "gantry-controller-2")
        await world.until(
            lambda: len(world.quorum.pods("controller", "gantry")) == 3, "it is kept whole"
        )
        await world.settled()
        world.delete(BROKER_GROUP, "orders")
        await world.until(lambda: world.get(CONTROLLER_GROUP, "gantry") is None, "it goes at last")
        await world.until(lambda: world.get(STATEFULSET, "gantry-controller") is None, "all of it")


async def test_a_quorum_created_again_takes_its_volumes_up_by_itself(world: World) -> None:
    async with world.operator():
        await world.up()
        old = world.require(CONTROLLER_GROUP, "gantry")["metadata"]["uid"]
        await world.until(lambda: marks(world) == [old] * 3, "the volumes say whose they are")
        world.delete(CONTROLLER_GROUP, "gantry")
        world.patch(CONTROLLER_GROUP, "gantry", {"metadata": {"finalizers": None}})
        await world.until(lambda: world.get(STATEFULSET, "gantry-controller") is None, "it goes")
        assert marks(world) == [old] * 3
        world.example("controllergroup.yaml")
        await world.until(lambda: identity(world) is not None, "the quorum is made again")
        assert identity(world) == old
        await world.until(
            lambda: (
                (world.require(CONTROLLER_GROUP, "gantry").get("status") or {}).get("clusterUid")
                == old
            ),
            "the status says which",
        )
        assert world.require(CONTROLLER_GROUP, "gantry")["metadata"]["uid"] != old
        await world.settled()


async def test_an_empty_quorum_begins_where_the_volumes_were_deleted(world: World) -> None:
    async with world.operator():
        world.example("controllergroup.yaml", storage={"size": "1Gi", "whenDeleted": "Delete"})
        old = world.require(CONTROLLER_GROUP, "gantry")["metadata"]["uid"]
        await world.until(lambda: marks(world) == [old] * 3, "the volumes say whose they are")
        world.delete(CONTROLLER_GROUP, "gantry")
        await world.until(lambda: marks(world) == [None] * 3, "the volumes go")
        world.example("controllergroup.yaml")
        new = world.require(CONTROLLER_GROUP, "gantry")["metadata"]["uid"]
        await world.until(lambda: identity(world) == new, "another quorum begins")
        await world.until(lambda: marks(world) == [new] * 3, "its volumes say so")


def finalizers(world: World, kind: Any, name: str) -> list[str]:
    body = world.get(kind, name) or {"metadata": {}}
    return body["metadata"].get("finalizers") or []


def delete_namespace(world: World) -> None:
    resource = world.cluster.registry.catalogue.type(NAMESPACE.group, NAMESPACE.plural)
    world.cluster.registry.delete(resource, "", world.namespace, DeleteOptions())


def namespace(world: World) -> Any:
    return world.cluster.registry.store.get((NAMESPACE.group, NAMESPACE.plural), ("", "mq"))


@pytest.mark.parametrize("when_deleted", ["Retain", "Delete"])
async def test_the_operators_own_namespace_goes_with_all_that_is_in_it(
    world: World, when_deleted: str
) -> None:
    """Its pod goes before the resources hear of it; whatever has a finalizer then keeps it."""
    world.move_to("mq")
    async with world.operator(leader_election=True, lease_namespace="mq"):
        world.example("controllergroup.yaml")
        world.example("brokergroup.yaml", storage={"whenDeleted": when_deleted})
        world.patch(CONTROLLER_GROUP, "gantry", {"metadata": {"finalizers": ["others/one"]}})
        await world.settled()
        await world.until(
            lambda: names.QUORUM_FINALIZER in finalizers(world, CONTROLLER_GROUP, "gantry"), "held"
        )
        hold_pods(world)
        delete_namespace(world)
        await world.until(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in world.all(POD)),
            "pods go first",
        )
        for kind, name in ((CONTROLLER_GROUP, "gantry"), (BROKER_GROUP, "orders")):
            assert "deletionTimestamp" not in world.require(kind, name)["metadata"]
    assert finalizers(world, CONTROLLER_GROUP, "gantry") == ["others/one"]
    world.patch(CONTROLLER_GROUP, "gantry", {"metadata": {"finalizers": None}})
    release_pods(world)
    await world.until(lambda: namespace(world) is None, "the namespace goes")


def hold_pods(world: World) -> None:
    """As in the seconds in which they end."""
    for pod in world.all(POD):
        world.patch(POD, pod["metadata"]["name"], {"metadata": {"finalizers": ["test/ends"]}})


def release_pods(world: World) -> None:
    for pod in world.all(POD):
        world.patch(POD, pod["metadata"]["name"], {"metadata": {"finalizers": None}})


async def test_what_is_deleted_and_waits_for_the_operator_alone_is_finished(world: World) -> None:
    async with world.operator(leader_election=True, lease_namespace="default"):
        await world.up(storage={"whenDeleted": "Delete"})
        await world.until(
            lambda: finalizers(world, BROKER_GROUP, "orders") == [names.FINALIZER], "held"
        )
        world.delete(CONTROLLER_GROUP, "gantry")
        world.delete(BROKER_GROUP, "orders")
        await world.until(
            lambda: (
                world.get(BROKER_GROUP, "orders") is None  # on a busy machine nobody sees it begin
                or world.condition("Progressing")["reason"] == "Deleting"
            ),
            "it is heard of",
        )
    assert world.get(BROKER_GROUP, "orders") is None
    assert world.get(CONTROLLER_GROUP, "gantry") is None
