"""An operator with another default image meets a fleet that runs the old one."""

from __future__ import annotations

from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, STATEFULSET
from integration.operator.operator_world import World

GROUPS = ("orders", "payments", "returns")
SETS = ("gantry-controller", *(f"{name}-broker" for name in GROUPS))
NEW = "gantry:new"


def image(world: World, name: str) -> str:
    spec = world.require(STATEFULSET, name)["spec"]["template"]["spec"]
    return str(spec["containers"][0]["image"])


def is_rolling(world: World, name: str) -> bool:
    """Whether a set has the new image and a pod of it has not, or is not Ready."""
    live = world.get(STATEFULSET, name)
    if live is None or image(world, name) != NEW:
        return False
    component, instance = name.rpartition("-")[2], name.rpartition("-")[0]
    status = live.get("status") or {}
    if status.get("observedGeneration") != live["metadata"]["generation"]:
        return True
    pods = world.quorum.pods(component, instance)
    return len(pods) < 3 or any(
        pod["metadata"]["labels"]["controller-revision-hash"] != status["updateRevision"]
        for pod in pods
    )


async def test_a_new_default_image_rolls_one_group_at_a_time(world: World) -> None:
    async with world.operator():
        world.example("controllergroup.yaml")
        for name in GROUPS:
            world.group(name)
        for name in GROUPS:
            await world.settled(name)
    most, order = [0], list[str]()

    def note(event: Event) -> None:
        rolling = [name for name in SETS if is_rolling(world, name)]
        most[0] = max(most[0], len(rolling))
        order.extend(name for name in rolling if name not in order)

    world.cluster.registry.store.subscribe(note, name="the count of rolls")
    async with world.operator(image=NEW):
        await world.until(lambda: most[0], "the first begins")
        await world.until(
            lambda: world.condition("Progressing", "returns")["reason"] == "WaitingForTurn",
            "the others say that they wait",
        )
        await world.until(lambda: "payments-broker" in order, "half of it is done")
    async with world.operator(image=NEW):
        await world.until(
            lambda: all(image(world, name) == NEW for name in SETS), "everybody had a turn"
        )
        for name in GROUPS:
            await world.settled(name)
        await world.until(lambda: not any(is_rolling(world, name) for name in SETS), "all is done")
    assert most == [1]
    assert order == list(SETS)


async def test_a_group_that_fails_under_the_new_image_keeps_it_from_the_others(
    world: World,
) -> None:
    async with world.operator():
        world.example("controllergroup.yaml")
        for name in GROUPS:
            world.group(name)
        for name in GROUPS:
            await world.settled(name)
    world.quorum.lagging.update(f"orders-broker-{n}" for n in (1, 2))
    async with world.operator(image=NEW):
        await world.until(lambda: image(world, "orders-broker") == NEW, "it begins")
        await world.until(
            lambda: world.condition("Progressing", "orders")["reason"] == "RollingUpdate",
            "it hangs",
        )
        # What people want of the others is done meanwhile: with the image that they have.
        world.patch(BROKER_GROUP, "returns", {"spec": {"config": {"log_segment_bytes": "1048576"}}})
        before = world.revisions("returns")[0]
        await world.until(
            lambda: world.revisions("returns")[0] == {world.revisions("returns")[1]} != before,
            "a change of the spec is rolled out",
        )
        assert image(world, "returns-broker") == "gantry:test"
        assert image(world, "payments-broker") == "gantry:test"
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": True}})
        await world.until(lambda: image(world, "payments-broker") == NEW, "the line moves on")
        assert world.is_true("Available", "gantry", CONTROLLER_GROUP)
