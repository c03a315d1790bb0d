"""The chart's Roles: an operator uses every right that they give, and asks for nothing else.

Every operator of these tests has those rights alone, and asking for more fails its test
(`World.judge_rights`). Here one does all that operators ever do.
"""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator.api.kinds import (
    AUTOSCALER,
    BROKER_GROUP,
    CONSUMER_GROUP,
    CONTROLLER_GROUP,
    CRON_JOB,
    DEPLOYMENT,
    ENTITIES,
    FRONT_GROUP,
    MESSAGE_USER,
    NETWORK_POLICY,
    SERVICE,
    STATEFULSET,
    TOPIC,
    Kind,
)
from gantry_operator.plan import front_steps
from integration.operator.operator_world import World
from integration.operator.test_fronts import fronts, served
from integration.operator.test_steps import rolled
from integration.operator.test_volumes import SMALL, sizes, wish
from support.api_faults import Rule
from support.rights import Right, chart

UNUSED: dict[Right, str] = {}
"""Rights that the Roles give and no operator uses, each with the reason why they give it."""
TIER = {"url": "s3://bucket", "credentialsSecret": {"name": "keys"}}
AUDIT = {"audit": {"schedule": "0 3 * * *"}}
OUTSIDE = {"listeners": [{"name": "outside", "type": "NodePort", "allowPlain": True}]}
OFF = {"spec": {"networkPolicy": {"enabled": False}, "clients": {"listeners": None}}}


def entity(world: World, kind: Kind, **spec: Any) -> None:
    """A resource that goes with what it stands for."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "shop"}}
    world.apply(head | {"spec": spec})


async def in_place(world: World) -> None:
    for kind in ENTITIES:
        await world.until(
            lambda kind=kind: world.is_true("Ready", "shop", kind), f"{kind.kind} in place"
        )


async def test_every_right_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_steps, "SERVES_ON_S", 0.5)
    async with world.operator(leader_election=True, lease_namespace="default"):
        storage = SMALL | {"whenDeleted": "Delete"}
        await world.up(storage=storage, tier=TIER, pipeline=AUDIT, clients=OUTSIDE)
        await all_is_made(world)
        await all_is_changed(world)
        await all_is_found_anew(world)
        await all_goes(world)
    given = chart().served | chart().home
    assert given - world.used() == set(UNUSED)
    assert world.used() <= given


async def all_is_made(world: World) -> None:
    """Each kind of resource, in the fullest form."""
    for kind in ENTITIES:  # each of them reads its own resource anew when it is told of a conflict
        world.cluster.api.faults.add(Rule(409, "patch", kind.plural))
    entity(world, TOPIC, deletionPolicy="Delete")
    entity(world, CONSUMER_GROUP, deletionPolicy="Delete")
    entity(world, MESSAGE_USER)
    fronts(world, autoscaling={"enabled": True})
    await served(world)
    await in_place(world)
    await world.until(lambda: world.all(CRON_JOB), "the audit")
    await world.settled()


async def all_is_changed(world: World) -> None:
    """Pods are replaced, volumes grow, and what may be switched off is."""
    wish(world, "20Gi")
    await world.until(lambda: sizes(world) == ["20Gi"] * 3, "the volumes grow")
    world.patch(BROKER_GROUP, "orders", {"spec": {"image": "gantry:2"}})
    await world.until(lambda: rolled(world), "all pods are replaced")
    await world.settled()
    world.patch(BROKER_GROUP, "orders", {"spec": {"pipeline": {"audit": None}}})
    world.patch(BROKER_GROUP, "orders", OFF)
    world.patch(FRONT_GROUP, "clients", {"spec": {"autoscaling": {"enabled": False}}})
    for kind, name in (
        (NETWORK_POLICY, "orders-broker"),
        (SERVICE, "orders-at-outside"),
        (AUTOSCALER, "clients-front"),
    ):
        await world.until(
            lambda kind=kind, name=name: world.get(kind, name) is None, f"{kind.kind} goes"
        )
    await world.until(lambda: not world.all(CRON_JOB), "the audit goes")
    await world.settled()


def owners(world: World, kind: Kind, name: str) -> Any:
    return world.require(kind, name)["metadata"].get("ownerReferences")


async def all_is_found_anew(world: World) -> None:
    """An object without its owner: before it is owned again, the owner is looked at."""
    orphans = ((SERVICE, "orders"), (SERVICE, "gantry-controller"), (DEPLOYMENT, "clients-front"))
    for kind, name in orphans:
        world.patch(kind, name, {"metadata": {"ownerReferences": None}})
    for kind, name in orphans:
        await world.until(
            lambda kind=kind, name=name: owners(world, kind, name),
            f"{kind.kind} {name} is owned again",
        )


async def all_goes(world: World) -> None:
    """Finalizers go, and what they kept."""
    for kind in ENTITIES:
        world.delete(kind, "shop")
        await world.until(lambda kind=kind: world.get(kind, "shop") is None, f"{kind.kind} goes")
    for kind, name in (
        (FRONT_GROUP, "clients"),
        (BROKER_GROUP, "orders"),
        (CONTROLLER_GROUP, "gantry"),
    ):
        world.delete(kind, name)
        await world.until(
            lambda kind=kind, name=name: world.get(kind, name) is None, f"{kind.kind} goes"
        )
    await world.until(lambda: not world.all(STATEFULSET), "nothing runs")
