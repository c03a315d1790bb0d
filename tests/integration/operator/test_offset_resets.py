"""Requests to reset offsets under the real operator: once each, whoever dies in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_local.apiserver.errors import StatusError, internal
from gantry_operator.api.kinds import CONSUMER_GROUP, TOPIC
from gantry_operator.plan import offset_resets
from gantry_operator.reconcile import tables
from integration.operator.operator_world import World

CLUSTER, MASTER = "gantry", "10.0.0.1:10911"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is tried again within a moment."""
    monkeypatch.setattr(tables, "LOOK_S", 0.1)
    monkeypatch.setattr(tables, "FRESH_S", 0.05)
    monkeypatch.setattr(offset_resets, "AGAIN_S", 0.1)


def wish(world: World, request: int = 1, to: str = "Earliest", **more: Any) -> None:
    reset = {"request": request, "to": to, "topics": ["orders"]} | more
    world.apply(
        {
            "apiVersion": CONSUMER_GROUP.api_version,
            "kind": CONSUMER_GROUP.kind,
            "metadata": {"name": "billing"},
            "spec": {"resetOffsets": reset},
        }
    )


async def with_a_topic(world: World) -> None:
    await world.up()
    world.quorum.metadata.elect(CLUSTER, "orders", MASTER)
    world.apply(
        {
            "apiVersion": TOPIC.api_version,
            "kind": TOPIC.kind,
            "metadata": {"name": "orders"},
            "spec": {"queues": 4},
        }
    )
    await world.until(lambda: world.is_true("Ready", "orders", TOPIC), "the topic is there")


def carried_out(world: World) -> list[tuple[int, int]]:
    """Number and time of each."""
    return [(number, at) for _, _, number, at in world.quorum.metadata.masters.carried_out]


def reset_status(world: World) -> Any:
    return ((world.get(CONSUMER_GROUP, "billing") or {}).get("status") or {}).get("offsetReset")


async def is_done(world: World) -> None:
    await world.until(
        lambda: world.is_true(offset_resets.CONDITION, "billing", CONSUMER_GROUP), "it is done"
    )


async def test_each_number_is_carried_out_once(world: World) -> None:
    async with world.operator():
        await with_a_topic(world)
        wish(world)
        await is_done(world)
        assert carried_out(world) == [(1, 0)]
        assert reset_status(world) == {"request": 1, "queues": 4, "refused": ""}
        asked = len(world.quorum.metadata.masters.asked)
        wish(world, to="Latest")  # the same number
        await is_done(world)
        assert len(world.quorum.metadata.masters.asked) == asked
        wish(world, 2, "Latest")
        await world.until(lambda: (reset_status(world) or {}).get("request") == 2, "the next one")
        assert carried_out(world) == [(1, 0), (2, -1)]
        assert world.is_true("Ready", "billing", CONSUMER_GROUP)


async def test_an_operator_that_dies_before_it_writes_that_down_asks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers have done it, and nobody in the cluster knows."""
    masters, faults = world.quorum.metadata.masters, world.cluster.api.faults
    plain, refused = faults.meet, 0

    async def meet(verb: str, resource: Any, name: str) -> None:
        nonlocal refused
        if (verb, resource.plural) == ("patch", CONSUMER_GROUP.plural) and masters.carried_out:
            refused += 1
            raise internal("nothing is written any more")
        await plain(verb, resource, name)

    monkeypatch.setattr(faults, "meet", meet)
    async with world.operator():
        await with_a_topic(world)
        wish(world)
        await world.until(lambda: refused, "brokers have done it, and the status is not written")
    assert reset_status(world) is None
    monkeypatch.setattr(faults, "meet", plain)
    asked = len(masters.asked)
    async with world.operator():
        await is_done(world)
    assert len(masters.asked) > asked
    assert carried_out(world) == [(1, 0)]
    asked = len(masters.asked)
    async with world.operator():
        await world.until(lambda: world.is_true("Ready", "billing", CONSUMER_GROUP), "it is back")
        await asyncio.sleep(0.5)
    assert len(masters.asked) == asked, "what is written down is not asked for"


async def test_a_group_without_a_master_is_waited_for(world: World) -> None:
    async with world.operator():
        await with_a_topic(world)
        world.quorum.metadata.masters.away.add(MASTER)
        wish(world)
        condition = lambda: world.condition(  # noqa: E731
            offset_resets.CONDITION, "billing", CONSUMER_GROUP
        )
        await world.until(lambda: "orders in orders: " in condition()["message"], "it is told")
        assert condition()["status"] == "False"
        assert reset_status(world) is None
        world.quorum.metadata.masters.away.clear()
        await is_done(world)
        assert carried_out(world) == [(1, 0)]


async def test_what_is_refused_is_told_and_the_next_number_counts(world: World) -> None:
    async with world.operator():
        await with_a_topic(world)
        world.quorum.metadata.masters.refusals["orders"] = "their own"
        wish(world)
        await world.until(lambda: "their own" in str(reset_status(world)), "it is told")
        asked = len(world.quorum.metadata.masters.asked)
        world.quorum.metadata.masters.refusals.clear()
        wish(world, to="Latest")
        wish(world, 2, "Latest")
        await is_done(world)
        assert carried_out(world) == [(2, -1)]
        assert len(world.quorum.metadata.masters.asked) == asked + 1


@pytest.mark.parametrize(
    ("reset", "why"),
    [
        ({"request": 0}, "request"),
        ({"to": "yesterday"}, "to"),
        ({"topics": []}, "topics"),
    ],
)
async def test_what_cannot_be_is_refused_when_it_is_applied(
    world: World, reset: dict[str, Any], why: str
) -> None:
    with pytest.raises(StatusError, match=why):
        wish(world, **reset)
