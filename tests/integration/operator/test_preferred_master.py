"""A master in the zone where it is wished: announced, moved there in turn, kept by a person."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver.store import Event
from gantry_operator.api.kinds import BROKER_GROUP, POD
from gantry_operator.plan import preferred
from integration.operator.operator_world import World
from integration.operator.test_announced import planned

ZONE = "topology.kubernetes.io/zone"
WISH = {"preferredMaster": {"zones": ["b", "c"]}}


def place(world: World, group: str = "orders") -> None:
    """Pods are in zones a, b and c, as Kubernetes writes on them."""
    for pod, zone in zip(world.quorum.pods("broker", group), "abc", strict=True):
        world.patch(POD, pod["metadata"]["name"], {"metadata": {"labels": {ZONE: zone}}})


def told(world: World, group: str = "orders") -> dict[str, Any]:
    found: dict[str, Any] = (world.require(BROKER_GROUP, group)["status"]).get(
        "preferredMaster", {}
    )
    return found


def leads(world: World, group: str = "orders") -> int:
    found: int = world.require(BROKER_GROUP, group)["status"]["master"]["replica"]
    return found


def states(world: World) -> list[tuple[str, str]]:
    """Groups and their states, as they change from now on."""
    found: list[tuple[str, str]] = []

    def note(event: Event) -> None:
        body = event.record.obj
        if event.record.resource[1] == BROKER_GROUP.plural and event.type != "DELETED":
            state = (body.get("status") or {}).get("preferredMaster", {}).get("state", "")
            found.append((body["metadata"]["name"], state))

    world.cluster.registry.store.subscribe(note, name="states")
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preferred, "WAIT_S", 1)


async def test_a_master_moves_to_where_it_is_wished(world: World) -> None:
    async with world.operator():
        await world.up()
        place(world)
        assert leads(world) == 0
        found = await planned(world, **WISH)
        steps = [step["message"] for step in found["course"]["steps"]]
        assert steps[-1] == "Move the mastership from orders-broker-0 to orders-broker-1."
        assert any("Prefer a master in zone b, then c." in step for step in steps)
        world.patch(BROKER_GROUP, "orders", {"spec": WISH})
        await world.until(lambda: told(world).get("state") == "Preferred", "it moves")
        assert leads(world) == 1
        assert told(world)["zone"] == "b"
        wished = world.quorum.groups["orders"]["preferred"]
        assert wished == [
            {"zone": "b", "brokerIds": [2]},
            {"zone": "c", "brokerIds": [3]},
        ]
        await world.settled()
        world.patch(BROKER_GROUP, "orders", {"spec": {"preferredMaster": None}})
        await world.until(lambda: world.quorum.groups["orders"]["preferred"] == [], "taken back")
        await world.until(lambda: not told(world), "and not told any more")
        assert leads(world) == 1, "where it is it stays"


async def test_a_switchover_wins_while_it_stands(world: World) -> None:
    async with world.operator():
        await world.up(**WISH)
        place(world)
        await world.until(lambda: told(world).get("state") == "Preferred", "it moves")
        asked = {"switchover": {"id": "by-hand", "to": 0}}
        world.patch(BROKER_GROUP, "orders", {"spec": asked})
        await world.until(lambda: told(world).get("state") == "Kept", "it goes, and stays")
        assert leads(world) == 0
        assert "switchover by-hand" in told(world)["message"]
        world.patch(BROKER_GROUP, "orders", {"spec": {"switchover": None}})
        await world.until(lambda: told(world).get("state") == "Preferred", "and back")
        assert leads(world) == 1


async def test_groups_move_one_at_a_time(world: World) -> None:
    others = ("apples", "pears")
    async with world.operator():
        await world.up(**WISH)
        for name in others:
            world.group(name, **WISH)
        for name in others:
            await world.settled(name)
        seen = states(world)
        for name in ("orders", *others):
            place(world, name)
        for name in ("orders", *others):
            await world.until(
                lambda name=name: told(world, name).get("state") == "Preferred", f"{name} moves"
            )
        now: dict[str, str] = {}
        for name, state in seen:
            now[name] = state
            assert list(now.values()).count("Moving") <= 1, now
        assert {name for name, state in seen if state == "Moving"} == {"orders", *others}


async def test_without_zones_nothing_happens_and_the_status_says_why(world: World) -> None:
    async with world.operator():
        await world.up(**WISH)
        await world.until(lambda: told(world).get("state") == "Unknown", "it says so")
        assert "The zone of orders-broker-0 is not known." in told(world)["message"]
        assert leads(world) == 0
        assert not any(line.startswith("elect") for line in world.quorum.log)
