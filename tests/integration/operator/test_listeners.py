"""Listeners under the real operator: Services come, their addresses are declared, and they go."""

from __future__ import annotations

from typing import Any

from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, SERVICE
from integration.operator.operator_world import World

OUTSIDE = {"name": "outside", "type": "LoadBalancer", "allowPlain": True}
SERVED = "ListenersServed"


def services(world: World) -> list[str]:
    found = (body["metadata"]["name"] for body in world.all(SERVICE))
    return sorted(name for name in found if "-at-" in name)


def give_address(world: World, service: str, address: str) -> None:
    """What a cloud's controller does."""
    ingress = {"ingress": [{"ip": address}]}
    world.patch(SERVICE, service, {"status": {"loadBalancer": ingress}}, subresource="status")


def told(world: World) -> dict[int, tuple[str, str]]:
    listeners: dict[str, Any] = world.quorum.groups["orders"]["listeners"]
    return {row["brokerId"]: (row["route"], row["own"]) for row in listeners.get("outside", ())}


async def test_addresses_are_declared_as_they_come_and_go(world: World) -> None:
    async with world.operator():
        await world.up()
        assert services(world) == []
        restarts = world.revisions()
        listeners = {"spec": {"clients": {"listeners": [OUTSIDE]}}}
        world.patch(BROKER_GROUP, "orders", listeners)
        await world.until(lambda: len(services(world)) == 4, "Services")
        await world.until(
            lambda: world.condition(SERVED)["reason"] == "ListenerUnknown", "no way in"
        )
        world.patch(CONTROLLER_GROUP, "gantry", listeners)
        await world.until(lambda: "gantry-at-outside" in services(world), "the name service's")
        await world.until(
            lambda: world.condition(SERVED)["reason"] == "WaitingForAddress", "no address yet"
        )
        give_address(world, "orders-at-outside", "203.0.113.5")
        for ordinal in range(3):
            give_address(world, f"orders-at-outside-{ordinal}", f"203.0.113.1{ordinal}")
        give_address(world, "gantry-at-outside", "203.0.113.4")
        await world.until(lambda: world.is_true(SERVED), "all addresses are declared")
        assert world.revisions() == restarts, "no broker was restarted"
        rows = told(world)
        assert {route for route, _ in rows.values()} == {"203.0.113.5:10911"}
        assert {own for _, own in rows.values()} == {
            "203.0.113.10:10911",
            "203.0.113.11:10911",
            "203.0.113.12:10911",
        }
        named = [{"name": "outside", "addresses": ["203.0.113.4:9876"]}]
        await world.until(
            lambda: world.require(CONTROLLER_GROUP, "gantry")["status"]["listeners"] == named,
            "the name servers are told",
        )

        give_address(world, "orders-at-outside", "203.0.113.6")
        await world.until(
            lambda: {route for route, _ in told(world).values()} == {"203.0.113.6:10911"},
            "the new address",
        )
        world.patch(BROKER_GROUP, "orders", {"spec": {"replicas": 2}})
        await world.until(lambda: "orders-at-outside-2" not in services(world), "its Service goes")
        world.patch(BROKER_GROUP, "orders", {"spec": {"clients": {"listeners": None}}})
        await world.until(lambda: services(world) == ["gantry-at-outside"], "the others go")
        await world.until(lambda: told(world) == {}, "nothing is declared")
        await world.until(lambda: world.condition(SERVED)["status"] == "", "nothing is said")
