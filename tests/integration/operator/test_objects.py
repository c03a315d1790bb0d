"""What appears for a resource, whose it is, and what happens when others touch it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BUDGET,
    CONFIG_MAP,
    CONTROLLER_GROUP,
    EVENT,
    NETWORK_POLICY,
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
    (NETWORK_POLICY, "orders-broker"),
    (CONFIG_MAP, "orders-broker"),
]
OF_CONTROLLERS = [
    (STATEFULSET, "gantry-controller"),
    (SERVICE, "gantry-controller"),
    (SERVICE, "gantry-nameserver"),
    (BUDGET, "gantry-controller"),
    (NETWORK_POLICY, "gantry-controller"),
    (CONFIG_MAP, "gantry-controller"),
    (SECRET, "gantry-admin"),
    (SECRET, "gantry-quorum-key"),
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


async def test_deleted_secrets_come_back_as_they_were(world: World) -> None:
    """The processes have them mounted: other ones would keep the operator and new pods out."""
    secrets = ("gantry-admin", "gantry-quorum-key")
    async with world.operator():
        await world.up()
        before = {name: world.require(SECRET, name) for name in secrets}
        for name in secrets:
            world.delete(SECRET, name)
        for name in secrets:
            await world.until(lambda name=name: world.get(SECRET, name), f"{name} is made again")
            again = world.require(SECRET, name)
            assert again["metadata"]["uid"] != before[name]["metadata"]["uid"]
            assert again["data"] == before[name]["data"]
        await world.settled()


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


async def test_a_container_of_somebody_else_stays_and_is_told(world: World) -> None:
    def containers() -> list[dict[str, Any]]:
        live = world.require(STATEFULSET, "orders-broker")
        found: list[dict[str, Any]] = live["spec"]["template"]["spec"]["containers"]
        return found

    def edit(wished: list[dict[str, Any]]) -> None:
        spec = {"template": {"spec": {"containers": wished}}}
        world.patch(STATEFULSET, "orders-broker", {"spec": spec})

    def said() -> str:
        return str(world.condition("Altered")["message"])

    async with world.operator():
        await world.up()
        edit([{"name": "metrics", "image": "metrics:1"}, *containers()])
        await world.until(lambda: "containers[metrics] (by somebody)" in said(), "it is told")
        await world.settled()
        version = world.require(STATEFULSET, "orders-broker")["metadata"]["generation"]
        await asyncio.sleep(1)
    async with world.operator():  # which starts from lists, and has heard of no change
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": True}})
        await world.until(lambda: world.is_true("Paused"), "the new operator has looked")
        assert "containers[metrics] (by somebody)" in said()
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": False}})
        await world.until(lambda: world.is_true("Ready"), "it is as wished")
        assert [one["name"] for one in containers()] == ["metrics", "broker", "door"]
        assert world.require(STATEFULSET, "orders-broker")["metadata"]["generation"] == version
        edit([one for one in containers() if one["name"] != "metrics"])
        await world.until(lambda: not said(), "it is told no more")
        await world.settled()
    told = [event for event in world.all(EVENT) if event["involvedObject"]["name"] == "orders"]
    reasons = [event["reason"] for event in told]
    assert reasons.count("AlteredByOthers") == 1
    assert "Repeating" not in reasons


async def test_network_policies_come_and_go_with_the_field(world: World) -> None:
    async with world.operator():
        await world.up()
        world.delete(NETWORK_POLICY, "orders-broker")
        await world.until(lambda: world.get(NETWORK_POLICY, "orders-broker"), "it is made again")
        off = {"spec": {"networkPolicy": {"enabled": False}}}
        for kind, name in ((BROKER_GROUP, "orders"), (CONTROLLER_GROUP, "gantry")):
            world.patch(kind, name, off)
        for name in ("orders-broker", "gantry-controller"):
            await world.until(
                lambda name=name: world.get(NETWORK_POLICY, name) is None, f"{name} is removed"
            )
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
