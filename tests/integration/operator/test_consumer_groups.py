"""ConsumerGroups under the real operator: settings kept as they are wished."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_controller.metadata.events import DeleteSubscriptionGroup, PutSubscriptionGroup
from gantry_local.apiserver.errors import StatusError
from gantry_operator.api.kinds import CONSUMER_GROUP, EVENT
from gantry_operator.reconcile import tables
from gantry_protocol.bodies import SubscriptionGroupConfig, decode_body, encode_body
from integration.operator.operator_world import World

CLUSTER = "gantry"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others change is seen within a moment."""
    monkeypatch.setattr(tables, "LOOK_S", 0.1)
    monkeypatch.setattr(tables, "FRESH_S", 0.05)


def wish(world: World, name: str = "billing", **spec: Any) -> None:
    world.apply(
        {
            "apiVersion": CONSUMER_GROUP.api_version,
            "kind": CONSUMER_GROUP.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def held(world: World, name: str = "billing") -> SubscriptionGroupConfig | None:
    table = world.quorum.metadata.state.subscription_table((CLUSTER, "orders"))
    text = table.groups.get(name)
    return None if text is None else decode_body(SubscriptionGroupConfig, text)


async def in_place(world: World, name: str = "billing") -> None:
    await world.until(lambda: world.is_true("Ready", name, CONSUMER_GROUP), f"{name} in place")


async def test_settings_are_made_kept_and_go_only_if_that_is_wished(world: World) -> None:
    async with world.operator():
        await world.up()
        wish(world, maxRetries=3)
        await in_place(world)
        assert held(world) == SubscriptionGroupConfig("billing", retry_max_times=3)
        theirs = SubscriptionGroupConfig("billing", consume_enable=False, consume_timeout_minute=7)
        world.quorum.metadata.apply(
            PutSubscriptionGroup(
                cluster=CLUSTER, name="", group="billing", config=encode_body(theirs)
            )
        )
        ours = SubscriptionGroupConfig("billing", retry_max_times=3, consume_timeout_minute=7)
        await world.until(lambda: held(world) == ours, "undone")

        def notes() -> list[str]:
            return [b["message"] for b in world.all(EVENT) if b["reason"] == "DriftUndone"]

        await world.until(lambda: bool(notes()), "it is told")
        (note,) = notes()
        assert "enabled false, not true" in note
        world.quorum.metadata.apply(
            DeleteSubscriptionGroup(cluster=CLUSTER, name="", group="billing")
        )
        await world.until(lambda: held(world) is not None, "made again")
        world.delete(CONSUMER_GROUP, "billing")
        await world.until(lambda: world.get(CONSUMER_GROUP, "billing") is None, "it goes")
        assert held(world) is not None
        wish(world, maxRetries=3, deletionPolicy="Delete")
        await in_place(world)
        world.delete(CONSUMER_GROUP, "billing")
        await world.until(lambda: world.get(CONSUMER_GROUP, "billing") is None, "it goes again")
        assert held(world) is None


async def test_order_is_a_wish_once_the_spec_has_it(world: World) -> None:
    """A group that somebody made in order, and a resource that says nothing of that."""
    async with world.operator():
        await world.up()
        theirs = SubscriptionGroupConfig("billing", consume_message_orderly=True)
        world.quorum.metadata.apply(
            PutSubscriptionGroup(
                cluster=CLUSTER, name="", group="billing", config=encode_body(theirs)
            )
        )
        wish(world)
        await in_place(world)
        assert held(world) == theirs
        wish(world, inOrder=False)
        await world.until(lambda: held(world) == SubscriptionGroupConfig("billing"), "now it has")


@pytest.mark.parametrize(
    ("name", "spec", "why"),
    [
        ("billing", {"maxRetries": -2}, "maxRetries"),
        ("billing", {"retryQueues": 4097}, "retryQueues"),
        ("billing", {"groupName": "a b"}, "groupName"),
        ("bill.ing", {}, "no dots"),
    ],
)
async def test_what_cannot_be_is_refused_when_it_is_applied(
    world: World, name: str, spec: dict[str, Any], why: str
) -> None:
    with pytest.raises(StatusError, match=why):
        wish(world, name, **spec)
