"""A group whose resource is gone is taken off record once, and nobody else is."""

from __future__ import annotations

from typing import Any, cast

import pytest
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, STATEFULSET
from gantry_operator.cache import Cache, Key
from gantry_operator.reconcile import departed
from gantry_protocol.admin_client.errors import QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from unit.operator.fake_admin import FakeAdmin, FakeDirectory
from unit.operator.fake_api import FakeApi
from unit.operator.world import view

ORDERS = Key("BrokerGroup", "mq", "orders")


class World:
    """A quorum that has the group on record."""

    def __init__(self) -> None:
        self.api, self.cache, self.admin = FakeApi(), Cache(), FakeAdmin()
        self.directory = FakeDirectory(self.admin)
        for namespace in ("mq", "elsewhere"):
            self.cache.put(
                CONTROLLER_GROUP,
                {"metadata": {"name": "gantry", "namespace": namespace, "uid": "q"}},
            )

    async def retire(self) -> list[str]:
        """What the controllers were asked for."""
        await departed.retire(self.api, self.cache, cast("Any", self.directory), ORDERS)
        return [one for one in self.admin.asked if one.startswith("retire")]


async def test_who_is_gone_is_taken_off_record_at_its_own_quorum() -> None:
    world = World()
    assert await world.retire() == ["retire orders bg-uid"]
    assert world.directory.named == [("mq", "gantry")]


async def test_who_was_created_again_stays() -> None:
    world = World()
    world.api.have(BROKER_GROUP, "orders", metadata={"uid": "bg-uid"})
    assert await world.retire() == []


@pytest.mark.parametrize("known", [NotDeclared(), view(retired=True)], ids=["unknown", "retired"])
async def test_who_is_off_record_is_left_alone(known: Any) -> None:
    world = World()
    world.admin.known = known
    assert await world.retire() == []


async def test_a_quorum_that_does_not_answer_is_asked_again() -> None:
    world = World()
    world.admin.known = Unreachable("down")
    with pytest.raises(QuorumUnreachableError, match="down"):
        await world.retire()


async def test_shards_are_taken_off_record_one_by_one() -> None:
    world = World()
    world.admin.known = NotDeclared()
    world.admin.shards = {f"orders_{n}": view(name=f"orders_{n}", retired=n == 1) for n in range(3)}
    named = [*world.admin.shards, "orders-2_0", "returns"]
    world.directory.known = {("mq", name) for name in named} | {("elsewhere", "orders_7")}
    assert await world.retire() == ["retire orders_0 bg-uid", "retire orders_2 bg-uid"]


@pytest.mark.parametrize(("owner", "gone"), [("bg-uid", True), ("another", False)])
async def test_pods_of_shards_that_go_with_their_owner_keep_nothing(owner: str, gone: bool) -> None:
    world = World()
    world.admin.known = NotDeclared()
    world.admin.shards = {"orders_0": view(name="orders_0", uid="bg-uid.orders_0")}
    world.directory.known = {("mq", "orders_0")}
    world.api.have(STATEFULSET, "orders-broker", metadata={"ownerReferences": [{"uid": owner}]})
    assert await world.retire() == (["retire orders_0 bg-uid.orders_0"] if gone else [])
