"""A BrokerGroup with shards in a world that reacts, and operators that end in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, POD, STATEFULSET
from integration.operator.operator_world import World

ROLL = {"spec": {"image": "gantry:2"}}


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = (world.get(BROKER_GROUP, "orders") or {}).get("status") or {}
    return found


def is_ready(world: World, count: int) -> bool:
    shards = status(world).get("shards") or {}
    return world.is_true("Ready") and shards.get("ready") == f"{count}/{count}"


async def up(world: World, count: int) -> None:
    """The examples, with so many shards."""
    world.example("controllergroup.yaml")
    world.example("brokergroup.yaml", shards=count)
    await world.until(lambda: is_ready(world, count), "all shards are ready")


def deletions(world: World) -> list[str]:
    """Names of pods in the order of their deletion."""
    found: list[str] = []

    def note(event: Event) -> None:
        if event.record.resource == ("", "pods") and event.type == "DELETED":
            found.append(event.record.obj["metadata"]["name"])

    world.cluster.registry.store.subscribe(note, name="test")
    return found


def hosted(world: World) -> set[str]:
    """The shards that pods say they host."""
    pods = world.quorum.pods("broker", "orders")
    return {pod["metadata"]["labels"]["mq.gantry.dev/shards"] for pod in pods}


async def test_masterships_of_all_shards_leave_the_last_pod_before_it_goes(world: World) -> None:
    async with world.operator():
        await up(world, 3)
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", ROLL)
        await world.until(lambda: len(gone) == 3 and is_ready(world, 3), "all pods are replaced")
    assert gone == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
    elections = {entry for entry in world.quorum.log if entry.startswith("elect")}
    assert {entry.split()[1] for entry in elections} == {"orders_0", "orders_1", "orders_2"}
    assert {one["pod"][-1] for one in status(world)["shards"]["masters"] if one["masters"]} == {
        *("1", "2")
    }


async def test_one_shard_holds_a_roll_also_for_the_next_operator(world: World) -> None:
    async with world.operator():
        await up(world, 3)
        gone = deletions(world)
        world.quorum.lagging.add("orders-broker-2 of orders_1")
        world.patch(BROKER_GROUP, "orders", ROLL)
        await world.until(
            lambda: "set of orders_1 yet" in world.condition("Progressing")["message"], "it waits"
        )
    assert status(world)["shards"]["worst"]["name"] == "orders_1"
    async with world.operator():
        await asyncio.sleep(1)
        assert gone == ["orders-broker-2"]
        world.quorum.lagging.clear()
        await world.until(lambda: len(gone) == 3 and is_ready(world, 3), "it goes on")


async def test_shards_are_added(world: World) -> None:
    async with world.operator():
        await up(world, 2)
        world.patch(BROKER_GROUP, "orders", {"spec": {"shards": 3}})
        await world.until(lambda: is_ready(world, 3), "there are three")
        assert hosted(world) == {"3"}
        address = world.quorum.groups["orders_2"]["routeAddress"]
        assert address.endswith(":11102")


async def test_shards_leave_when_they_are_read_also_with_the_next_operator(world: World) -> None:
    async with world.operator():
        await up(world, 3)
        world.quorum.unread = {"orders_1": 7}
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"shards": 1}})
        await world.until(lambda: (status(world).get("drain") or {}).get("unread") == 7, "7 left")
    assert {"drain orders_1", "drain orders_2"} <= set(world.quorum.log)
    async with world.operator():
        await asyncio.sleep(1)
        assert "retire orders_1" not in " ".join(world.quorum.log)
        assert world.require(STATEFULSET, "orders-broker") is not None
        world.quorum.unread.clear()
        await world.until(lambda: is_ready(world, 1), "one is left")
    assert hosted(world) == {"1"}
    assert not world.quorum.groups["orders_0"]["retired"]
    assert all(world.quorum.groups[f"orders_{n}"]["retired"] for n in (1, 2))
    assert set(gone) == {f"orders-broker-{n}" for n in range(3)}


async def test_a_shard_that_is_wished_again_stays(world: World) -> None:
    async with world.operator():
        await up(world, 2)
        world.quorum.unread = {"orders_1": 7}
        world.patch(BROKER_GROUP, "orders", {"spec": {"shards": 1}})
        await world.until(lambda: "drain orders_1" in world.quorum.log, "it is drained")
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"shards": 2}})
        await world.until(lambda: is_ready(world, 2) and not status(world).get("drain"), "it stays")
    assert "end drain of orders_1" in world.quorum.log
    assert gone == []


async def test_every_shard_is_retired_with_its_resource(world: World) -> None:
    async with world.operator():
        await up(world, 2)
    world.delete(BROKER_GROUP, "orders")
    async with world.operator():
        await world.until(
            lambda: all(group["retired"] for group in world.quorum.groups.values()), "both are"
        )
    assert set(world.quorum.groups) == {"orders_0", "orders_1"}
    assert world.get(POD, "orders-broker-0") is None
