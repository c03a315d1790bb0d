"""The fleet of `make bench-operator`: copies are as the operator would have made them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_operator.api.kinds import BROKER_GROUP, STATEFULSET
from integration.operator.fleet_copies import HOUSEKEEPING, Founder
from integration.operator.operator_world import World

if TYPE_CHECKING:
    from gantry_local.apiserver.store import Event

COPIES = {"bakery": 1, "crates": 2}
QUIET_S = 2.0


async def test_an_operator_has_nothing_to_write_about_copies(world: World) -> None:
    world.example("controllergroup.yaml")
    async with world.operator():
        for name in ("orders", "parcel"):  # one that is alone would have no neighbours to drain to
            world.group(name)
        await world.settled()
        await world.settled("parcel")
        await _quiet(world)
    founder = Founder(world, "orders", "gantry:test")
    for name, number in COPIES.items():
        founder.settle(name, number)
    await _quiet(world)
    written: list[str] = []

    def note(event: Event) -> None:
        if event.record.resource[1] not in HOUSEKEEPING:
            written.append("/".join((event.record.resource[1], *event.record.key)))

    async with world.operator():
        stop = world.cluster.registry.store.subscribe(note, name="test")
        world.patch(BROKER_GROUP, "crates", {"spec": {"config": {"lock_wait_s": "7"}}})
        await world.until(lambda: _has_setting(world), "a changed key reaches its group")
        stop()
    assert [one for one in written if "crates" not in one] == []


async def _quiet(world: World) -> None:
    """Until nothing is written any more; the operator writes a last status a second later."""
    store, before = world.cluster.registry.store, -1
    while store.revision != before:
        before = store.revision
        await asyncio.sleep(QUIET_S)


def _has_setting(world: World) -> bool:
    statefulset = world.require(STATEFULSET, "crates-broker")
    return bool(statefulset["metadata"]["generation"] > 1)
