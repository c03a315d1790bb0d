"""Disruptive steps in a world that reacts: the order, the gates, and that they end."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, EVENT, POD, STATEFULSET
from integration.operator.operator_world import World


def deletions(world: World) -> list[str]:
    """Names of pods in the order in which somebody asked for their deletion."""
    found: list[str] = []

    def note(event: Event) -> None:
        meta = event.record.obj["metadata"]
        if event.record.resource != ("", "pods") or meta["name"] in found:
            return
        if event.type == "DELETED" or "deletionTimestamp" in meta:
            found.append(meta["name"])

    world.cluster.registry.store.subscribe(note, name="test")
    return found


def rolled(world: World, group: str = "orders") -> bool:
    found, wished = world.revisions(group)
    return found == {wished}


async def test_a_rolling_update_takes_the_master_last(world: World) -> None:
    async with world.operator():
        await world.up()
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: len(gone) == 3 and rolled(world), "all pods are replaced")
        await world.settled()
        assert gone == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
        elections = [entry for entry in world.quorum.log if entry.startswith("elect")]
        assert elections == ["elect orders 2"]
        assert world.roles() == ["replica", "master", "replica"]
        assert world.require(BROKER_GROUP, "orders")["status"]["master"]["epoch"] == 2


async def test_a_replica_that_does_not_catch_up_holds_the_update(world: World) -> None:
    async with world.operator():
        await world.up()
        gone = deletions(world)
        world.quorum.lagging.add("orders-broker-2")
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(
            lambda: "not in the sync-state set" in world.condition("Progressing")["message"],
            "the update waits",
        )
        await asyncio.sleep(1)
        assert gone == ["orders-broker-2"]
        world.quorum.lagging.clear()
        await world.until(lambda: len(gone) == 3 and rolled(world), "the update goes on")
        await world.settled()


async def test_a_bad_change_breaks_one_pod_and_can_be_taken_back(world: World) -> None:
    async with world.operator():
        await world.up()
        gone = deletions(world)
        world.cluster.kubelet.unready.add("orders-broker-2")
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:broken"}})
        await world.until(lambda: gone, "the first pod is replaced")
        await asyncio.sleep(1.5)
        assert gone == ["orders-broker-2"]
        assert world.is_true("Available")
        world.cluster.kubelet.unready.clear()
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: rolled(world), "the better change goes through")
        await world.settled()


async def test_scaling_down_and_up(world: World) -> None:
    async with world.operator():
        await world.up(replicas=4)
        world.patch(BROKER_GROUP, "orders", {"spec": {"switchover": {"id": "x", "to": 3}}})
        await world.until(lambda: world.roles()[3:] == ["master"], "the last one is master")
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 2}})
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 2, "two are left")
        await world.settled()
        assert gone == ["orders-broker-3", "orders-broker-2"]
        assert world.roles().count("master") == 1
        assert world.quorum.log[-1] == "declare orders 2 2"
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 3}})
        await world.until(lambda: len(world.quorum.pods("broker", "orders")) == 3, "three again")
        await world.settled()


async def test_scaling_down_below_the_minimum_is_refused(world: World) -> None:
    async with world.operator():
        await world.up()
        world.quorum.lagging.update({"orders-broker-1", "orders-broker-2"})
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 2}})
        await world.until(
            lambda: world.condition("Progressing")["reason"] == "UnsafeScaleDown", "it is refused"
        )
        assert len(world.quorum.pods("broker", "orders")) == 3
        assert world.require(STATEFULSET, "orders-broker")["spec"]["replicas"] == 3


async def test_a_switchover_request(world: World) -> None:
    async with world.operator():
        await world.up()
        world.patch(BROKER_GROUP, "orders", {"spec": {"switchover": {"id": "a", "to": 2}}})

        def request() -> dict[str, Any]:
            status = world.require(BROKER_GROUP, "orders")["status"]
            found: dict[str, Any] = status.get("switchover", {})
            return found

        await world.until(lambda: request().get("state") == "Completed", "it is completed")
        assert request()["to"] == 2
        await world.until(lambda: world.roles() == ["replica", "replica", "master"], "labels")
        told = {"SwitchoverInProgress", "SwitchoverCompleted", "MasterElected"}
        await world.until(
            lambda: told <= {body["reason"] for body in world.all(EVENT)}, "it is told in events"
        )


async def test_a_failover_moves_the_label_quickly(world: World) -> None:
    async with world.operator():
        await world.up()
        world.cluster.kubelet.unready.add("orders-broker-0")
        world.delete(POD, "orders-broker-0")
        await world.until(lambda: world.roles()[1:] == ["master", "replica"], "the label moves")
        assert world.roles()[0] in (None, "replica")


async def test_controllers_roll_with_the_leader_last(world: World) -> None:
    async with world.operator():
        world.example("controllergroup.yaml")
        await world.until(
            lambda: world.is_true("FullyReplicated", "gantry", CONTROLLER_GROUP), "it is up"
        )
        gone = deletions(world)
        world.patch(CONTROLLER_GROUP, "gantry", {"spec": {"image": "gantry:2"}})
        await world.until(lambda: len(gone) == 3, "all are replaced")
        assert gone == [f"gantry-controller-{n}" for n in (2, 1, 0)]


async def test_nothing_is_taken_away_unseen(world: World) -> None:
    async with world.operator():
        await world.up()
        gone = deletions(world)
        world.quorum.leaderless = True
        labels = world.roles()
        world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
        await world.until(
            lambda: world.condition("Available")["status"] == "Unknown", "the loss is told"
        )
        await asyncio.sleep(1)
        assert gone == []
        assert world.roles() == labels
        world.quorum.leaderless = False
        await world.until(lambda: rolled(world), "the update goes on")


async def test_a_status_is_not_older_than_its_evidence(world: World) -> None:
    """A majority that froze says nothing and ends no connection; nothing else happens either."""
    async with world.operator():
        await world.up()
        gone, labels = deletions(world), world.roles()
        world.quorum.frozen.set()
        await world.until(
            lambda: world.condition("Available")["status"] == "Unknown", "the group's is told"
        )
        assert world.condition("Ready")["status"] == "Unknown"
        await world.until(
            lambda: world.condition("Available", "gantry", CONTROLLER_GROUP)["status"] == "Unknown",
            "the quorum's is told",
        )
        assert (gone, world.roles()) == ([], labels)
        world.quorum.frozen.clear()
        await world.settled()
        assert gone == []


async def test_a_paused_group_is_left_alone(world: World) -> None:
    async with world.operator():
        await world.up()
        gone = deletions(world)
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": True, "image": "gantry:2"}})
        await world.until(lambda: world.is_true("Paused"), "it is told")
        await asyncio.sleep(0.5)
        assert gone == []
        world.patch(BROKER_GROUP, "orders", {"spec": {"paused": False}})
        await world.until(lambda: len(gone) == 3, "the update begins")
