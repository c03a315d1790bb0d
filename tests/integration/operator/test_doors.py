"""Doors come and go with field and image; the Service leads to an open port of each pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, POD, STATEFULSET
from gantry_operator.plan import broker
from integration.operator.operator_world import World

ENDPOINTS = ("", "endpoints")
NEW = "gantry:new"
CLOSED, OPEN = {"door": {"enabled": False}}, {"door": {"enabled": True}}


def containers(body: dict[str, Any]) -> dict[str, Any]:
    """The containers of a pod's spec by name."""
    return {one["name"]: one for one in body["containers"]}


def has_door(world: World, group: str = "orders") -> bool:
    live = world.require(STATEFULSET, f"{group}-broker")
    return "door" in containers(live["spec"]["template"]["spec"])


def leads_to(world: World) -> set[tuple[str, int]]:
    """Pod and port behind the group's Service."""
    live = world.cluster.registry.store.get(ENDPOINTS, (world.namespace, "orders"))
    return {
        (address["targetRef"]["name"], port["port"])
        for subset in (live.obj.get("subsets") or ()) if live is not None
        for address in subset.get("addresses") or ()
        for port in subset["ports"]
    }  # fmt: skip


def watched(world: World) -> tuple[list[str], Callable[[], int]]:
    """What is wrong with the Service at any moment, and how many mixtures of pods it has led to."""
    wrong, mixed = list[str](), set[frozenset[int]]()

    def note(event: Event) -> None:
        if event.record.resource != ENDPOINTS or event.record.key[1] != "orders":
            return
        found = leads_to(world)
        mixed.add(frozenset(port for _, port in found))
        if len(found) < 2:
            wrong.append(f"leads to {found}")
        for name, port in found:
            pod = world.get(POD, name)
            if pod is not None and port != (10910 if "door" in containers(pod["spec"]) else 10911):
                wrong.append(f"leads to {port} of {name}")

    world.cluster.registry.store.subscribe(note, name="where the Service leads")
    return wrong, lambda: sum(len(ports) == 2 for ports in mixed)


async def rolled(world: World, group: str = "orders") -> None:
    """Until all pods are made from the present template."""
    await world.until(
        lambda: (
            world.condition("Progressing", group)["status"] == "False"
            and world.revisions(group)[0] == {world.revisions(group)[1]}
            and len(world.quorum.pods("broker", group)) == 3
        ),
        f"{group} has rolled",
    )
    await world.settled(group)


async def test_the_service_leads_to_each_pod_where_its_clients_come_in(world: World) -> None:
    async with world.operator():
        await world.up(clients=CLOSED)
        assert {port for _, port in leads_to(world)} == {10911}
        wrong, mixtures = watched(world)
        for clients, port in ((OPEN, 10910), (CLOSED, 10911), (OPEN, 10910)):
            world.patch(BROKER_GROUP, "orders", {"spec": {"clients": clients}})
            await world.until(lambda port=port: has_door(world) == (port == 10910), "it is applied")
            await rolled(world)
            await world.until(
                lambda port=port: (
                    leads_to(world) == {(f"orders-broker-{n}", port) for n in (0, 1, 2)}
                ),
                "all pods take clients",
            )
        assert wrong == []
        assert mixtures() > 0, "pods of both kinds were behind it at once"


async def test_another_route_takes_the_doors_out(world: World) -> None:
    async with world.operator():
        await world.up()
        assert has_door(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"clients": {"route": "Master"}}})
        await world.until(lambda: not has_door(world), "there is none")
        await rolled(world)
        assert {port for _, port in leads_to(world)} == {10911}


async def test_an_operator_that_brings_doors_gives_them_with_the_next_image(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old ones know none: neither that of a group in line nor one that a spec names."""
    groups = ("orders", "payments")
    with monkeypatch.context() as before:
        before.setattr(broker, "_knows", lambda *_: False)
        async with world.operator():
            world.example("controllergroup.yaml")
            for name in groups:
                world.group(name)
            world.group("pinned", image="own:1")
            for name in (*groups, "pinned"):
                await world.settled(name)
    assert not any(has_door(world, name) for name in groups)
    wrong, mixtures = watched(world)

    def note(event: Event) -> None:
        spec = event.record.obj.get("spec") or {}
        if event.record.resource == (STATEFULSET.group, STATEFULSET.plural):
            made = containers(spec["template"]["spec"])
            if "broker" in made and ("door" in made) != (made["broker"]["image"] in (NEW, "own:2")):
                wrong.append(f"{event.record.key[1]}: {sorted(made)}")

    world.cluster.registry.store.subscribe(note, name="doors and images")
    async with world.operator(image=NEW):
        await world.until(lambda: all(has_door(world, name) for name in groups), "all have doors")
        for name in groups:
            await rolled(world, name)
        assert not has_door(world, "pinned")
        world.patch(BROKER_GROUP, "pinned", {"spec": {"image": "own:2"}})
        await world.until(lambda: has_door(world, "pinned"), "it has doors, too")
        await rolled(world, "pinned")
    assert wrong == []
    assert mixtures() > 0
