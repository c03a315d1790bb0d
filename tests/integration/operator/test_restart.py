"""An operator that starts in the middle of something hears of all of it."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET, Kind
from integration.operator.operator_world import World
from support.api_faults import Rule

DELETE = {"size": "1Gi", "whenDeleted": "Delete"}


def requests(world: World, patch: pytest.MonkeyPatch, verb: str, kind: Kind) -> list[str]:
    """The names that a verb is asked for, from now on."""
    found: list[str] = []
    faults = world.cluster.api.faults
    plain = faults.meet

    async def meet(called: str, resource: Any, name: str) -> None:
        if (called, resource.plural) == (verb, kind.plural):
            found.append(name)
        await plain(called, resource, name)

    patch.setattr(faults, "meet", meet)
    return found


async def test_what_is_deleted_while_the_operator_starts_is_heard_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its own list and that of the watch a deletion is reported by nobody."""
    async with world.operator():
        await world.up(storage=DELETE)
    world.delete(BROKER_GROUP, "orders")
    deletes = requests(world, monkeypatch, "delete", STATEFULSET)
    world.cluster.api.faults.add(
        Rule(code=200, verb="list", plural="statefulsets", count=2, delay_s=1.0)
    )
    async with world.operator():
        await world.until(lambda: world.get(BROKER_GROUP, "orders") is None, "it is gone")
    assert deletes == ["orders-broker"]
