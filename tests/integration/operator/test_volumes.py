"""Volumes that grow under an operator that dies, refuse to, or wait for a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_operator.api.kinds import BROKER_GROUP, CLAIM, CONTROLLER_GROUP, POD, STATEFULSET
from gantry_operator.plan import growth
from integration.operator.operator_world import World

SMALL: dict[str, Any] = {"size": "10Gi"}


def sizes(world: World, base: str = "orders-broker") -> list[str]:
    """The capacities of a group's claims, by ordinal."""
    claims = [one for one in world.all(CLAIM) if one["metadata"]["name"].startswith(f"data-{base}")]
    ordered = sorted(claims, key=lambda one: one["metadata"]["name"])
    return [(one["status"].get("capacity") or {}).get("storage", "") for one in ordered]


def pods(world: World) -> dict[str, str]:
    """Uids by name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in world.all(POD)}


def summary(world: World) -> str:
    return str((world.require(BROKER_GROUP, "orders").get("status") or {}).get("summary", ""))


def wish(world: World, size: str, kind: Any = BROKER_GROUP, name: str = "orders") -> None:
    world.patch(kind, name, {"spec": {"storage": {"size": size}}})


async def test_volumes_grow_and_no_pod_restarts(world: World) -> None:
    async with world.operator():
        await world.up(storage=SMALL)
        before = pods(world)
        wish(world, "20Gi")
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the volumes grow")
        await world.until(lambda: world.is_true("Ready"), "the growth ends")
        wish(world, "2Gi", CONTROLLER_GROUP, "gantry")
        await world.until(lambda: sizes(world, "gantry-controller") == ["2Gi"] * 3, "controllers'")
    assert pods(world) == before
    change = world.require(BROKER_GROUP, "orders")["status"]["lastChange"]
    assert (change["kind"], change["steps"], change["predictedGapMs"]) == ("GrowVolumes", 3, 0)
    assert "finishedAt" in change


async def test_a_later_replica_gets_the_size_too(world: World) -> None:
    async with world.operator():
        await world.up(storage=SMALL)
        wish(world, "20Gi")
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the volumes grow")
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 4}})
        await world.until(lambda: sizes(world) == ["20Gi"] * 4, "the new one grows")
        await world.settled()


async def test_an_operator_that_dies_between_claims_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at the second claim, which it never gets to."""
    asked = asyncio.Event()
    plain = world.cluster.api.faults.meet

    async def meet(verb: str, resource: Any, name: str) -> None:
        if (verb, name) == ("patch", "data-orders-broker-1"):
            asked.set()
            await asyncio.Event().wait()
        await plain(verb, resource, name)

    monkeypatch.setattr(world.cluster.api.faults, "meet", meet)
    async with world.operator() as first:
        await world.up(storage=SMALL)
        before = pods(world)
        wish(world, "20Gi")
        await world.until(asked.is_set, "the second is asked for")
        first.cancel()
    assert sizes(world) == ["10Gi", "10Gi", "20Gi"]
    monkeypatch.setattr(world.cluster.api.faults, "meet", plain)
    async with world.operator():
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the others grow")
        await world.until(lambda: world.is_true("Ready"), "the growth ends")
    assert pods(world) == before


async def test_a_class_without_growth_is_told_and_holds_nothing_up(world: World) -> None:
    async with world.operator():
        await world.up(storage=SMALL | {"className": "fixed"})
        wish(world, "20Gi")
        await world.until(
            lambda: world.condition("Progressing")["reason"] == "VolumeExpansionRefused", "told"
        )
        assert (
            "storageclass that provisions the pvc must support resize"
            in (world.condition("Progressing")["message"])
        )
        await world.until(lambda: summary(world) == "Volumes not grown 0/3", "the line")
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 4}})
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 4, "all else goes")
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:next"}})
        await world.until(
            lambda: world.revisions()[0] == {world.revisions()[1]}, "so does a new image"
        )
    assert sizes(world) == ["10Gi"] * 4


async def test_a_shrink_changes_nothing(world: World) -> None:
    async with world.operator():
        await world.up(storage=SMALL)
        wish(world, "20Gi")
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the volumes grow")
        wish(world, "15Gi")
        await world.until(lambda: world.condition("Accepted")["status"] == "False", "refused")
        assert "set it back to 20Gi" in world.condition("Accepted")["message"]
        wish(world, "20Gi")
        await world.until(lambda: world.is_true("Ready"), "it is back")


async def test_file_systems_that_wait_for_a_restart_get_it_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "FILE_SYSTEM_WAIT_S", 0.0)
    async with world.operator():
        await world.up(storage=SMALL | {"className": "offline"})
        before = pods(world)
        await asyncio.sleep(1.1)  # the API server's moments are whole seconds
        wish(world, "20Gi")
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the volumes grow")
        await world.settled()
        await world.until(lambda: world.is_true("Ready"), "the growth ends")
    after = pods(world)
    restarted = {name for name in before if before[name] != after[name]}
    assert restarted == {f"orders-broker-{n}" for n in range(3)}
    assert world.require(STATEFULSET, "orders-broker")["spec"]["replicas"] == 3


async def test_claims_of_a_deleted_group_grow_with_the_next_one(world: World) -> None:
    async with world.operator():
        await world.up(storage=SMALL)
        world.delete(BROKER_GROUP, "orders")
        await world.until(lambda: not world.quorum.pods("broker", "orders"), "its pods are gone")
        assert sizes(world) == ["10Gi"] * 3
        world.example("brokergroup.yaml", storage={"size": "20Gi"})
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the volumes grow")
        await world.until(lambda: world.is_true("Ready"), "the growth ends")


async def test_a_paused_group_waits(world: World) -> None:
    async with world.operator():
        await world.up(storage=SMALL)
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": True, "storage": {"size": "20Gi"}}})
        await world.until(lambda: world.is_true("Paused"), "it pauses")
        assert sizes(world) == ["10Gi"] * 3
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": False}})
        await world.until(lambda: sizes(world) == ["20Gi"] * 3, "then the volumes grow")
