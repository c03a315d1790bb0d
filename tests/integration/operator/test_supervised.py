"""Changes that wait for a person, with operators that die on the way."""

from __future__ import annotations

from typing import Any

from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, POD, STATEFULSET
from integration.operator.operator_world import World
from integration.operator.test_announced import gantry, wish
from integration.operator.test_steps import deletions, rolled
from integration.operator.test_upgrade import NEW, image, is_rolling

SUPERVISED = {"strategy": "Supervised"}


def status(world: World, name: str = "orders") -> dict[str, Any]:
    found: dict[str, Any] = world.require(BROKER_GROUP, name).get("status", {})
    return found


def waits(world: World, name: str = "orders") -> str:
    """The id of the change that waits; empty for none."""
    return str(status(world, name).get("pendingChange", {}).get("id", ""))


def approve(world: World, change: str, name: str = "orders") -> None:
    world.patch(BROKER_GROUP, name, {"spec": {"update": {"approved": change}}})


def images(world: World) -> list[str]:
    pods = world.quorum.pods("broker", "orders")
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


async def test_a_change_waits_through_deaths_of_pods_and_operators(world: World) -> None:
    async with world.operator():
        await world.up(update=SUPERVISED)
        before, _ = world.revisions()
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: waits(world), "it waits")
        change = waits(world)
        assert status(world)["summary"] == f"Waiting for approval of {change}"
        assert status(world)["image"] == "gantry:test"
        gone = deletions(world)
        world.delete(POD, "orders-broker-2")
        await world.until(lambda: gone == ["orders-broker-2"], "a pod dies")
        await world.settled()
        assert world.revisions()[0] == before, "it comes back as it was"
        assert images(world) == ["gantry:test"] * 3
    async with world.operator() as task:
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 4}})
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 4, "it grows")
        await world.settled()
        assert waits(world) == change, "the next operator says the same"
        assert images(world) == ["gantry:test"] * 4
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 3}})
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 3, "it shrinks")
        await world.settled()
        assert world.revisions()[0] == before
        task.cancel()
    approve(world, change)  # while nobody is there to hear of it
    gone = deletions(world)
    async with world.operator() as task:
        await world.until(lambda: gone, "the first pod is replaced")
        task.cancel()
    async with world.operator() as task:
        await world.until(lambda: len(gone) == 2, "the second one is")
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:3"}})
        task.cancel()
    async with world.operator():
        await world.until(lambda: len(gone) == 3 and rolled(world), "all are")
        await world.until(lambda: waits(world) not in ("", change), "the newer change waits")
        await world.settled()
        assert images(world) == ["gantry:2"] * 3
        assert gone == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
        await world.until(lambda: status(world)["lastChange"].get("finishedAt"), "it is finished")
        assert status(world)["lastChange"]["lostBytes"] == 0


async def test_a_plan_names_the_id_before_the_change_is_applied(world: World) -> None:
    """So one commit can hold a change and its approval."""
    async with world.operator():
        await world.up(update=SUPERVISED)
        code, out, error = await gantry(
            world, "plan", "-f", "-", text=wish(world, config={"lock_wait_s": "1"})
        )
        assert (code, error) == (0, "")
        assert "4 disruptive steps, 1 move of a mastership" in out
        line = next(line for line in out.splitlines() if "spec.update.approved" in line)
        change = line.rpartition(" ")[2].rstrip(".")
        gone = deletions(world)
        update = SUPERVISED | {"approved": change}
        spec = {"config": {"lock_wait_s": "1"}, "update": update}
        world.patch(BROKER_GROUP, "orders", {"spec": spec})
        await world.until(lambda: len(gone) == 3 and rolled(world), "it goes at once")
        await world.settled()
        assert waits(world) == ""


async def test_approved_images_still_go_through_the_fleet_in_turns(world: World) -> None:
    names = ("orders", "payments", "returns")
    async with world.operator():
        world.example("controllergroup.yaml")
        for name in names:
            world.group(name, update=SUPERVISED)
        for name in names:
            await world.settled(name)
    sets = [f"{name}-broker" for name in names]
    most = [0]

    def note(event: Event) -> None:
        most[0] = max(most[0], sum(is_rolling(world, name) for name in sets))

    async with world.operator(image=NEW):
        await world.until(lambda: all(waits(world, name) for name in names), "all of them wait")
        await world.until(lambda: image(world, "gantry-controller") == NEW, "who does not, goes")
        assert {image(world, name) for name in sets} == {"gantry:test"}
        approve(world, waits(world, "returns"), "returns")
        await world.until(lambda: image(world, "returns-broker") == NEW, "the approved one goes")
        await world.settled("returns")
        assert image(world, "orders-broker") == image(world, "payments-broker") == "gantry:test"
        await world.until(lambda: not is_rolling(world, "returns-broker"), "it is done")
        world.cluster.registry.store.subscribe(note, name="the count of rolls")
        for name in ("orders", "payments"):
            approve(world, waits(world, name), name)
        await world.until(lambda: {image(world, name) for name in sets} == {NEW}, "both of them go")
        await world.until(lambda: not any(is_rolling(world, name) for name in sets), "all is done")
    assert most == [1]
    assert world.require(STATEFULSET, "orders-broker")["spec"]["replicas"] == 3


async def test_a_change_of_all_specs_rolls_one_group_at_a_time(world: World) -> None:
    names = ("orders", "payments", "returns")
    sets = [f"{name}-broker" for name in names]
    async with world.operator(max_concurrent_rolls=1):
        world.example("controllergroup.yaml")
        for name in names:
            world.group(name)
        for name in names:
            await world.settled(name)
    most, order = [0], list[str]()

    def note(event: Event) -> None:
        rolling = [name for name in sets if is_rolling(world, name)]
        most[0] = max(most[0], len(rolling))
        order.extend(name for name in rolling if name not in order)

    world.cluster.registry.store.subscribe(note, name="the count of rolls")
    for name in names:
        world.patch(BROKER_GROUP, name, {"spec": {"image": NEW}})
    async with world.operator(max_concurrent_rolls=1) as task:
        await world.until(lambda: order, "the first begins")
        (first,) = order
        waiting = [name for name in names if f"{name}-broker" != first]
        await world.until(
            lambda: all(
                world.condition("Progressing", name)["reason"] == "WaitingForTurn"
                for name in waiting
            ),
            "the others say that they wait",
        )
        assert not any(world.is_true("Ready", name) for name in waiting)
        task.cancel()
    async with world.operator(max_concurrent_rolls=1):
        await world.until(lambda: {image(world, name) for name in sets} == {NEW}, "all have it")
        for name in names:
            await world.settled(name)
        await world.until(lambda: not any(is_rolling(world, name) for name in sets), "all is done")
    assert most == [1]
    assert len(order) == 3
