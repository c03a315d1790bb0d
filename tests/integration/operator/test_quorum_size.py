"""A quorum gets another size, with operators that end after each of its steps."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from gantry_operator import names
from gantry_operator.api.kinds import CLAIM, CONFIG_MAP, CONTROLLER_GROUP, STATEFULSET
from integration.operator.test_announced import gantry
from integration.operator.test_steps import deletions

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_local.apiserver.store import Event
    from integration.operator.operator_world import World

DELETES = {"size": "1Gi", "whenScaled": "Delete"}


def resize(world: World, size: int) -> None:
    world.patch(CONTROLLER_GROUP, "gantry", {"spec": {"replicas": size}})


def pods(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.quorum.pods("controller", "gantry")]


def is_of(world: World, size: int) -> bool:
    return (
        world.is_true("Ready", "gantry", CONTROLLER_GROUP)
        and world.quorum.voters == set(range(1, size + 1))
        and not world.quorum.learners
        and pods(world) == [f"gantry-controller-{n}" for n in range(size)]
    )


def revision(world: World, name: str) -> str:
    return str(world.require(STATEFULSET, name)["status"]["updateRevision"])


def progressing(world: World) -> Any:
    return world.condition("Progressing", "gantry", CONTROLLER_GROUP)


def watch_members(world: World) -> list[str]:
    """Complaints: a member whose pod or volume was deleted, though it took part."""
    found: list[str] = []

    def note(event: Event) -> None:
        body = event.record.obj
        name = str(body["metadata"]["name"])
        if "gantry-controller-" not in name or body.get("kind") not in {"Pod", CLAIM.kind}:
            return
        number = (names.ordinal(name) or 0) + 1
        ends = event.type == "DELETED" or "deletionTimestamp" in body["metadata"]
        if ends and number in world.quorum.voters | world.quorum.learners:
            found.append(name)

    world.cluster.registry.store.subscribe(note, name="members")
    return found


async def carried_out(world: World, size: int, done: Callable[[], bool]) -> None:
    """By operators each of which ends as soon as something has happened."""

    def seen() -> tuple[object, ...]:
        config = world.require(CONFIG_MAP, "gantry-controller")["data"]
        live = world.require(STATEFULSET, "gantry-controller")["spec"]["replicas"]
        return len(world.quorum.log), live, config.get(names.QUORUM_SIZE_KEY)

    resize(world, size)
    for _ in range(40):
        before = seen()
        async with world.operator() as task:
            await world.until(lambda before=before: seen() != before or done(), "a step")  # type: ignore[misc]
            task.cancel()
        if done():
            return
    pytest.fail("it takes more operators than steps")


@pytest.fixture
async def up(world: World) -> World:
    async with world.operator():
        world.example("controllergroup.yaml", storage=DELETES)
        world.example("brokergroup.yaml")
        await world.settled()
        await world.until(lambda: is_of(world, 3), "three")
    world.quorum.log.clear()
    return world


async def test_five_and_three_and_one_though_operators_end_after_each_step(up: World) -> None:
    world, gone, complaints = up, deletions(up), watch_members(up)
    before = revision(world, "gantry-controller"), revision(world, "orders-broker")
    for size in (5, 3, 1, 3):
        await carried_out(
            world,
            size,
            lambda size=size: (  # type: ignore[misc]
                world.quorum.voters == set(range(1, size + 1))
                and world.require(STATEFULSET, "gantry-controller")["spec"]["replicas"] == size
            ),
        )
        async with world.operator():
            await world.until(lambda size=size: is_of(world, size), f"{size}")  # type: ignore[misc]
        if size == 5:
            world.quorum.leader, world.quorum.term = 5, 9
    host = "gantry-controller-{0}.gantry-controller.default.svc".format
    assert [entry for entry in world.quorum.log if not entry.startswith("declare")] == [
        *(f"add 4 {host(3)}", f"add 5 {host(4)}", "promote 4", "promote 5"),
        *("transfer 1", "remove 5", "remove 4"),
        *("remove 3", "remove 2"),
        *(f"add 2 {host(1)}", f"add 3 {host(2)}", "promote 2", "promote 3"),
    ]
    assert gone == [f"gantry-controller-{n}" for n in (4, 3, 2, 1)], "no other pod went"
    assert not complaints
    await world.until(lambda: world.get(CLAIM, "data-gantry-controller-4") is None, "its volume")
    assert world.get(CLAIM, "data-gantry-controller-0") is not None
    assert before == (revision(world, "gantry-controller"), revision(world, "orders-broker"))


async def test_pods_are_told_of_members_before_there_are_any(up: World) -> None:
    world, told = up, []

    def note(event: Event) -> None:
        if event.record.obj.get("kind") == CONFIG_MAP.kind and event.type != "DELETED":
            data = event.record.obj.get("data") or {}
            told.append((data.get(names.QUORUM_SIZE_KEY), len(world.quorum.voters)))

    world.cluster.registry.store.subscribe(note, name="told")
    async with world.operator():
        resize(world, 5)
        await world.until(lambda: is_of(world, 5), "five")
        assert ("5", 3) in told
        resize(world, 3)
        await world.until(lambda: is_of(world, 3), "three again")
        data = world.require(CONFIG_MAP, "gantry-controller")["data"]
        assert names.QUORUM_SIZE_KEY not in data, "as many as founded it"


async def test_a_quorum_that_is_not_well_keeps_its_size_and_says_why(up: World) -> None:
    world = up
    async with world.operator():
        world.quorum.silent.add(2)
        resize(world, 5)
        await world.until(lambda: "gantry-controller-1 is not" in progressing(world)["message"])
        assert progressing(world)["reason"] == "ChangingSize"
        assert len(pods(world)) == 3
        world.quorum.silent.clear()
        await world.until(lambda: is_of(world, 5), "it goes on")
        world.quorum.silent.add(3)
        resize(world, 3)
        await world.until(lambda: "gantry-controller-2 is not" in progressing(world)["message"])
        await asyncio.sleep(1)
        assert len(pods(world)) == 5
        assert not [entry for entry in world.quorum.log if entry.startswith("remove")]
        world.quorum.silent.clear()
        await world.until(lambda: is_of(world, 3), "it goes on")


async def test_a_wish_that_is_taken_back_is_undone(up: World) -> None:
    world = up
    async with world.operator():
        world.quorum.silent.add(4)  # it is never filled
        resize(world, 5)
        await world.until(lambda: world.quorum.learners == {4, 5}, "they wait for each other")
        await world.until(lambda: "is being filled" in progressing(world)["message"])
        resize(world, 3)
        await world.until(lambda: is_of(world, 3), "as before")
    assert not [entry for entry in world.quorum.log if entry.startswith("promote")]


async def test_what_is_announced_is_what_is_done(up: World) -> None:
    """By the status, which is all that a person who plans can read."""
    world = up
    async with world.operator():
        for size in (5, 3):
            live = world.require(CONTROLLER_GROUP, "gantry")
            body = {key: live[key] for key in ("apiVersion", "kind")} | {
                "metadata": {"name": "gantry"},
                "spec": live["spec"] | {"replicas": size},
            }
            code, out, error = await gantry(
                world, "plan", "-f", "-", "-o", "json", text=yaml.safe_dump(body)
            )
            assert (code, error) == (0, "")
            found = json.loads(out)
            assert found["gapMs"] == 0
            steps = [step["message"] for step in found["course"]["steps"]]
            told = [int(word) for text in steps for word in re.findall(r"controller (\d)", text)]
            world.quorum.log.clear()
            resize(world, size)
            await world.until(lambda size=size: is_of(world, size), f"{size}")  # type: ignore[misc]
            done = [entry.split()[1] for entry in world.quorum.log if "declare" not in entry]
            assert told == list(map(int, done))
