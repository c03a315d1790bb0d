"""A group sleeps and wakes with its volumes and members, whenever operators die."""

from __future__ import annotations

import asyncio

from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, CLAIM, STATEFULSET
from integration.operator.operator_world import World
from integration.operator.test_announced import gantry, wish
from integration.operator.test_steps import deletions
from integration.operator.test_supervised import status


def sleep(world: World, *, asleep: bool = True) -> None:
    world.patch(BROKER_GROUP, "orders", {"spec": {"hibernated": asleep}})


def claims(world: World) -> dict[str, str]:
    """The volumes of brokers, by name, with their identities."""
    found = (body["metadata"] for body in world.all(CLAIM))
    return {meta["name"]: meta["uid"] for meta in found if "broker" in meta["name"]}


def is_asleep(world: World) -> bool:
    return world.is_true("Hibernated") and world.is_true("Ready")


async def test_a_group_sleeps_and_wakes_through_deaths_of_operators(world: World) -> None:
    async with world.operator():
        await world.up(storage={"size": "1Gi", "whenScaled": "Delete"})
        kept = claims(world)
        assert len(kept) == 3
    sizes: list[tuple[int, str]] = []

    def note(event: Event) -> None:
        body = event.record.obj
        if body["metadata"]["name"] == "orders-broker" and "replicas" in body.get("spec", {}):
            policy = body["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"]
            if sizes[-1:] != [(body["spec"]["replicas"], policy)]:
                sizes.append((body["spec"]["replicas"], policy))

    world.cluster.registry.store.subscribe(note, name="sizes")
    gone = deletions(world)
    sleep(world)
    async with world.operator() as task:
        await world.until(lambda: (3, "Retain") in sizes, "claims are to stay")
        task.cancel()
    async with world.operator() as task:
        await world.until(lambda: gone, "the first pod goes")
        task.cancel()
    async with world.operator():
        await world.until(lambda: is_asleep(world), "all of them sleep")
        assert status(world)["summary"] == "Hibernated"
        assert status(world)["ready"] == "0/3"
        assert claims(world) == kept
        assert [group for group in world.quorum.log if group.startswith("forget")] == []
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 2}})
        await world.until(lambda: is_asleep(world), "they sleep on")
        sleep(world, asleep=False)
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 3, "all wake")
        assert claims(world) == kept
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 2, "one leaves")
        await world.settled()
    assert sizes[:3] == [(3, "Retain"), (0, "Retain"), (3, "Delete")]
    assert world.quorum.log[-1] == "declare orders 2 2"
    assert sorted(gone) == ["orders-broker-0", "orders-broker-1", "orders-broker-2"]


async def test_a_wish_that_is_taken_back_in_time_stops_nobody(world: World) -> None:
    async with world.operator():
        await world.up()
        gone = deletions(world)
        world.quorum.lagging.update({"orders-broker-1", "orders-broker-2"})
        sleep(world)
        await world.until(
            lambda: world.condition("Progressing")["reason"] == "UnsafeHibernation", "it is refused"
        )
        code, out, _ = await gantry(world, "plan", "-f", "-", text=wish(world))
        assert code == 0
        assert "UnsafeHibernation: The pods are kept" in out
        await asyncio.sleep(0.5)
        sleep(world, asleep=False)
        world.quorum.lagging.clear()
        await world.settled()
        assert gone == []
        assert world.condition("Hibernated")["status"] == ""
        assert world.require(STATEFULSET, "orders-broker")["spec"]["replicas"] == 3
