"""Fronts under the real operator: clients are led there and back, and nobody is one less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import (
    AUTOSCALER,
    BROKER_GROUP,
    CONTROLLER_GROUP,
    DEPLOYMENT,
    FRONT_GROUP,
    SERVICE,
    STATEFULSET,
)
from gantry_operator.plan import front_steps
from integration.operator.operator_world import World

SERVES_ON_S = 1.0
READY = "Ready"


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of these tests read routes more often."""
    monkeypatch.setattr(front_steps, "SERVES_ON_S", SERVES_ON_S)


def fronts(world: World, name: str = "clients", **spec: Any) -> None:
    world.apply(
        {
            "apiVersion": FRONT_GROUP.api_version,
            "kind": FRONT_GROUP.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def ready(world: World, name: str = "clients") -> int:
    """How many pods of fronts are Ready."""
    return sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for pod in world.quorum.pods("front", name)
        if "deletionTimestamp" not in pod["metadata"]
        for condition in (pod.get("status") or {}).get("conditions", ())
    )


async def served(world: World, name: str = "clients") -> None:
    await world.until(lambda: world.is_true(READY, name, FRONT_GROUP), f"{name} serves")


def status(world: World, name: str = "clients") -> Any:
    return world.require(FRONT_GROUP, name)["status"]


async def up(world: World, **spec: Any) -> None:
    """Two broker groups, and fronts that serve both."""
    world.example("controllergroup.yaml")
    world.group("orders")
    world.group("returns")
    for name in ("orders", "returns"):
        await world.settled(name)
    fronts(world, **spec)
    await served(world)


def log_of(world: World) -> list[str]:
    return [line for line in world.quorum.log if "fronts" in line]


async def test_clients_are_led_to_fronts_that_serve_and_brokers_open_their_store(
    world: World,
) -> None:
    led: list[int] = []
    world.quorum.on_fronts = lambda: led.append(ready(world))
    async with world.operator():
        await up(world)
        address = world.require(SERVICE, "clients-front")["spec"]["clusterIP"]
        assert log_of(world) == [f"declare fronts clients {address} 10950 16"]
        assert led[0] >= 1
        assert status(world)["address"] == f"{address}:10950"
        assert status(world)["served"] == "2/2"
        for name in ("orders", "returns"):
            await world.settled(name)
            template = world.require(STATEFULSET, f"{name}-broker")["spec"]["template"]
            assert {"name": "GANTRY_STORE_PORT", "value": "10914"} in template["spec"][
                "containers"
            ][0]["env"]


def watch_ready(world: World) -> Callable[[], int]:
    """The fewest fronts that were Ready at a time from now on."""
    seen = [ready(world)]

    def note(event: Event) -> None:
        if event.record.resource == ("", "pods"):
            seen.append(ready(world))

    world.cluster.registry.store.subscribe(note, name="fronts that are Ready")
    return lambda: min(seen)


async def test_a_new_image_leaves_no_front_less(world: World) -> None:
    async with world.operator():
        await up(world, replicas=3)
        fewest = watch_ready(world)
        before = {pod["metadata"]["name"] for pod in world.quorum.pods("front", "clients")}
        world.patch(FRONT_GROUP, "clients", {"spec": {"image": "gantry:2"}})
        await world.until(
            lambda: (
                not before & {p["metadata"]["name"] for p in world.quorum.pods("front", "clients")}
            ),
            "all are replaced",
        )
        await served(world)
        assert fewest() == 3
        assert len(log_of(world)) == 1, "nobody was led elsewhere meanwhile"


async def test_a_deletion_leads_clients_back_before_the_pods_go(world: World) -> None:
    async with world.operator():
        await up(world)
        present: list[int] = []
        world.quorum.on_fronts = lambda: present.append(ready(world))
        world.delete(FRONT_GROUP, "clients")
        await world.until(lambda: "remove fronts clients" in log_of(world), "clients are led back")
        assert present == [2], "both serve while clients are led back"
        await world.until(lambda: status(world).get("withdrawnAt"), "the operator saw it")
        assert ready(world) == 2
        await world.until(lambda: world.get(FRONT_GROUP, "clients") is None, "the resource goes")
        await world.until(lambda: world.quorum.pods("front", "clients") == [], "so do the pods")
        for name in ("orders", "returns"):
            await world.until(
                lambda name=name: (
                    "GANTRY_STORE_PORT"
                    not in str(world.require(STATEFULSET, f"{name}-broker")["spec"]["template"])
                ),
                f"the store of {name} closes",
            )


async def test_an_autoscaler_finds_the_replicas_as_they_were_and_keeps_them(world: World) -> None:
    """The API server falls back to one where an apply names replicas no more."""
    async with world.operator():
        await up(world, replicas=3)
        fewest = watch_ready(world)
        world.patch(FRONT_GROUP, "clients", {"spec": {"autoscaling": {"enabled": True}}})
        await world.until(lambda: world.get(AUTOSCALER, "clients-front"), "there is an autoscaler")
        await served(world)
        assert world.require(DEPLOYMENT, "clients-front")["spec"]["replicas"] == 3
        world.patch(DEPLOYMENT, "clients-front", {"spec": {"replicas": 5}})  # as an autoscaler does
        await world.until(lambda: ready(world) == 5, "there are more")
        world.patch(FRONT_GROUP, "clients", {"spec": {"image": "gantry:2"}})
        await world.until(
            lambda: (
                {p["spec"]["containers"][0]["image"] for p in world.quorum.pods("front", "clients")}
                == {"gantry:2"}
            ),
            "they are replaced",
        )
        await served(world)
        assert world.require(DEPLOYMENT, "clients-front")["spec"]["replicas"] == 5
        assert status(world)["ready"] == "5/5"
        assert fewest() >= 3
        world.patch(FRONT_GROUP, "clients", {"spec": {"autoscaling": {"enabled": False}}})
        await world.until(lambda: world.get(AUTOSCALER, "clients-front") is None, "it goes")
        await world.until(lambda: ready(world) == 3, "there are as many as the spec says")


async def test_what_waits_for_what(world: World) -> None:
    async with world.operator():
        fronts(world)
        await world.until(
            lambda: (
                world.condition("Accepted", "clients", FRONT_GROUP)["reason"]
                == "ControllerGroupNotFound"
            ),
            "it waits for a quorum",
        )
        world.example("controllergroup.yaml")
        await world.until(
            lambda: (
                world.condition("Available", "clients", FRONT_GROUP)["reason"] == "NoBrokerGroup"
            ),
            "it waits for brokers",
        )
        fronts(world, "others")
        await world.until(
            lambda: (
                world.condition("Accepted", "others", FRONT_GROUP)["reason"] == "ClusterHasFronts"
            ),
            "there is one already",
        )
        assert world.get(DEPLOYMENT, "others-front") is None
        world.group("orders")
        await served(world)
        assert world.is_true("Accepted", "gantry", CONTROLLER_GROUP)
        world.delete(FRONT_GROUP, "clients")
        await served(world, "others")
        assert log_of(world)[-1].startswith("declare fronts others")


async def test_fronts_that_fail_leave_clients_to_the_brokers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_steps, "NOBODY_S", 1.0)
    async with world.operator():
        await up(world)
        pods = [pod["metadata"]["name"] for pod in world.quorum.pods("front", "clients")]
        world.unready(*pods)
        await world.until(lambda: log_of(world)[-1] == "remove fronts clients", "clients go back")
        await world.settled("orders")
        world.unready()
        await served(world)
        assert log_of(world)[-1].startswith("declare fronts clients")


async def test_who_deletes_everything_waits_for_nothing(world: World) -> None:
    async with world.operator():
        await up(world)
        for kind, name in (
            (BROKER_GROUP, "orders"),
            (BROKER_GROUP, "returns"),
            (FRONT_GROUP, "clients"),
            (CONTROLLER_GROUP, "gantry"),
        ):
            world.delete(kind, name)
        for kind, name in ((FRONT_GROUP, "clients"), (CONTROLLER_GROUP, "gantry")):
            await world.until(
                lambda kind=kind, name=name: world.get(kind, name) is None, f"{name} goes"
            )
