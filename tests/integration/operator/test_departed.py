"""Groups and members that are gone: out of the routes, and off the record."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry_local.apiserver.deletion import DeleteOptions
from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET
from integration.operator.operator_world import World


def uid(world: World) -> str:
    found: str = world.require(BROKER_GROUP, "orders")["metadata"]["uid"]
    return found


async def test_a_deleted_group_is_retired_and_comes_back(world: World) -> None:
    async with world.operator():
        await world.up()
        owner = uid(world)
        world.delete(BROKER_GROUP, "orders")
        await world.until(lambda: f"retire orders {owner}" in world.quorum.log, "retired")
        await world.until(lambda: world.get(STATEFULSET, "orders-broker") is None, "pods end")
        world.example("brokergroup.yaml")
        await world.until(lambda: world.quorum.groups["orders"]["uid"] == uid(world), "declared")
        assert not world.quorum.groups["orders"]["retired"]
        await world.settled()
    assert world.quorum.log.count(f"retire orders {owner}") == 1


async def test_a_group_that_was_deleted_while_no_operator_ran_is_retired(world: World) -> None:
    async with world.operator():
        await world.up()
    owner = uid(world)
    world.delete(BROKER_GROUP, "orders")
    async with world.operator():
        await world.until(lambda: f"retire orders {owner}" in world.quorum.log, "retired")


async def test_a_group_whose_pods_are_kept_goes_on(world: World) -> None:
    """As by `kubectl delete --cascade=orphan`."""
    async with world.operator():
        await world.up()
        resource = world.cluster.registry.catalogue.type(BROKER_GROUP.group, BROKER_GROUP.plural)
        options = DeleteOptions(propagation="Orphan")
        world.cluster.registry.delete(resource, "default", "orders", options)
        await world.until(lambda: world.get(BROKER_GROUP, "orders") is None, "it is gone")
        world.group("beside")
        await world.settled("beside")  # the queue came by meanwhile
    async with world.operator():  # nor by one that starts later
        await world.settled("beside")
        await asyncio.sleep(0.5)
    assert not [line for line in world.quorum.log if line.startswith("retire")]
    assert world.require(STATEFULSET, "orders-broker")


GHOST: dict[str, Any] = {
    "brokerId": 9,
    "address": "10.0.0.99:10911",
    "podUid": "removed",
    "incarnation": "n9",
    "alive": False,
    "inSync": False,
}


def listed(world: World) -> list[int]:
    status = world.require(BROKER_GROUP, "orders")["status"]
    return [member["brokerId"] for member in status["members"]]


async def test_a_member_that_no_pod_holds_is_forgotten(world: World) -> None:
    async with world.operator():
        await world.up()
        world.quorum.groups["orders"]["gone"] = [GHOST]
        world.quorum.lose("orders")  # so that the stream has news
        await world.until(lambda: "forget orders 9" in world.quorum.log, "forgotten")
        await world.until(lambda: listed(world) == [1, 2, 3], "the status follows")


async def test_a_forgotten_member_leaves_the_status_without_a_word_of_the_stream(
    world: World,
) -> None:
    """It came and went between two lines, so that the stream had nothing to tell."""
    async with world.operator():
        await world.up()
        await world.settled()
        world.quorum.mute = True
        await asyncio.sleep(0.5)  # what it said before has been looked at
        world.quorum.groups["orders"]["gone"] = [GHOST]
        world.patch(BROKER_GROUP, "orders", {"metadata": {"annotations": {"look": "now"}}})
        await world.until(lambda: "forget orders 9" in world.quorum.log, "forgotten")
        await world.until(lambda: listed(world) == [1, 2, 3], "the status follows")
