"""What appears for a resource, whose it is, and what happens when others touch it."""

from __future__ import annotations

import asyncio
import base64

from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BUDGET,
    CONFIG_MAP,
    CONTROLLER_GROUP,
    SECRET,
    SERVICE,
    STATEFULSET,
)
from integration.operator.operator_world import World

OF_BROKERS = [
    (STATEFULSET, "orders-broker"),
    (SERVICE, "orders-broker"),
    (SERVICE, "orders"),
    (SERVICE, "orders-master"),
    (BUDGET, "orders-broker"),
    (CONFIG_MAP, "orders-broker"),
]
OF_CONTROLLERS = [
    (STATEFULSET, "gantry-controller"),
    (SERVICE, "gantry-controller"),
    (SERVICE, "gantry-nameserver"),
    (BUDGET, "gantry-controller"),
    (CONFIG_MAP, "gantry-controller"),
    (SECRET, "gantry-admin"),
]


async def test_the_examples_come_up(world: World) -> None:
    async with world.operator():
        await world.up()
        for owner_kind, owner_name, owned in (
            (BROKER_GROUP, "orders", OF_BROKERS),
            (CONTROLLER_GROUP, "gantry", OF_CONTROLLERS),
        ):
            owner = world.require(owner_kind, owner_name)
            for kind, name in owned:
                (reference,) = world.require(kind, name)["metadata"]["ownerReferences"]
                assert reference["uid"] == owner["metadata"]["uid"]
                assert reference["controller"] is True
        assert world.roles() == ["master", "replica", "replica"]
        status = world.require(BROKER_GROUP, "orders")["status"]
        assert (status["ready"], status["inSync"]) == ("3/3", "3/3")
        assert status["master"]["pod"] == "orders-broker-0"
        address = world.require(SERVICE, "orders")["spec"]["clusterIP"]
        assert world.quorum.groups["orders"]["routeAddress"] == f"{address}:10911"
        await world.until(lambda: world.is_true("Available", "gantry", CONTROLLER_GROUP))


async def test_a_settled_group_is_left_in_peace(world: World) -> None:
    async with world.operator(resync_interval_s=1.0):
        await world.up()
        kinds = [(BROKER_GROUP, "orders"), (STATEFULSET, "orders-broker"), (SERVICE, "orders")]

        def versions() -> list[str]:
            return [world.require(k, n)["metadata"]["resourceVersion"] for k, n in kinds]

        before, log = versions(), list(world.quorum.log)
        world.patch(CONTROLLER_GROUP, "gantry", {"metadata": {"labels": {"touched": "x"}}})
        await asyncio.sleep(2.5)  # at least two comparisons, each of which looks at everything
        assert versions() == before
        assert world.quorum.log == log


async def test_the_token_is_made_once(world: World) -> None:
    async with world.operator():
        world.example("controllergroup.yaml")
        await world.until(lambda: world.get(SECRET, "gantry-admin"))
    secret = world.require(SECRET, "gantry-admin")
    token = base64.b64decode(secret["data"]["token"])
    assert len(token) >= 32
    async with world.operator():
        await world.until(lambda: world.is_true("Available", "gantry", CONTROLLER_GROUP))
    assert world.require(SECRET, "gantry-admin") == secret


async def test_edits_by_others_are_undone(world: World) -> None:
    async with world.operator():
        await world.up()
        world.patch(SERVICE, "orders-master", {"spec": {"selector": {"mq.gantry.dev/role": "x"}}})

        def role() -> str:
            selector = world.require(SERVICE, "orders-master")["spec"]["selector"]
            return str(selector["mq.gantry.dev/role"])

        await world.until(lambda: role() == "master", "the selector is restored")
        world.delete(SERVICE, "orders")
        await world.until(lambda: world.get(SERVICE, "orders"), "the service is made again")
        await world.settled()


async def test_a_field_taken_out_of_the_wish_is_taken_out(world: World) -> None:
    async with world.operator():
        await world.up(template={"spec": {"priorityClassName": "high"}})

        def priority() -> object:
            live = world.require(STATEFULSET, "orders-broker")
            return live["spec"]["template"]["spec"].get("priorityClassName")

        assert priority() == "high"
        world.patch(BROKER_GROUP, "orders", {"spec": {"template": {"spec": None}}})
        await world.until(lambda: priority() is None, "the field is gone")


async def test_a_name_that_is_taken_is_left_alone_and_told(world: World) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "orders", "namespace": "default"},
        "spec": {"ports": [{"port": 1}], "selector": {"app": "other"}},
    }
    world.apply(foreign)
    async with world.operator():
        world.example("controllergroup.yaml")
        world.example("brokergroup.yaml")
        await world.until(
            lambda: world.condition("Accepted")["reason"] == "NameTaken", "the name is told"
        )
        assert "Service orders" in world.condition("Accepted")["message"]
        assert world.require(SERVICE, "orders")["spec"]["selector"] == {"app": "other"}
        world.delete(SERVICE, "orders")
        await world.settled()
        assert world.is_true("Accepted")


async def test_deletion_takes_everything_along(world: World) -> None:
    async with world.operator():
        await world.up()
        world.delete(BROKER_GROUP, "orders")
        await world.until(
            lambda: not any(world.get(kind, name) for kind, name in OF_BROKERS), "objects go"
        )
        assert "orders" in world.quorum.groups, "Retain keeps the metadata"


async def test_deletion_with_delete_cleans_the_metadata(world: World) -> None:
    async with world.operator():
        await world.up(storage={"size": "20Gi", "whenDeleted": "Delete"})
        body = world.require(BROKER_GROUP, "orders")
        assert body["metadata"]["finalizers"] == ["mq.gantry.dev/controller-metadata"]
        world.delete(BROKER_GROUP, "orders")
        await world.until(lambda: world.get(BROKER_GROUP, "orders") is None, "the group goes")
        assert world.quorum.log[-1] == f"forget orders {body['metadata']['uid']}"
        assert world.quorum.pods("broker", "orders") == []
