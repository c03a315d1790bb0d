"""One group of the fleet moves its master to a preferred zone at a time; where zones come from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_operator.api.errors import Denied
from gantry_operator.api.kinds import BROKER_GROUP, NODE
from gantry_operator.cache import Cache, Key
from gantry_operator.reconcile.fleet import GIVEN_S
from gantry_operator.reconcile.moves import Moves
from gantry_operator.reconcile.zones import KNOWN_S, UNKNOWN_S, Zones
from unit.operator.world import pod

pytestmark = [pytest.mark.looptime]


class World:
    def __init__(self) -> None:
        self.cache = Cache()
        self.moves = Moves(self.cache)
        self._version = 1

    def group(self, name: str, state: str | None, since: str = "1") -> None:
        self._version += 1
        told = {"state": state, "since": since}
        status = {"preferredMaster": told} if state is not None else {}
        meta = {"name": name, "namespace": "mq", "uid": f"uid-{name}"}
        meta["resourceVersion"] = str(self._version)
        self.cache.put(BROKER_GROUP, {"metadata": meta, "spec": {}, "status": status})

    def turn(self, name: str) -> bool:
        body = self.cache.get(BROKER_GROUP, "mq", name)
        assert body is not None
        return self.moves.turn_of(Key(BROKER_GROUP.kind, "mq", name), body)


async def test_one_moves_at_a_time(looptime: Any) -> None:
    world = World()
    for name in ("a", "b"):
        world.group(name, "Due")
    assert [world.turn("a"), world.turn("b"), world.turn("a")] == [True, False, True]
    world.group("a", "Moving")
    assert [world.turn("a"), world.turn("b")] == [True, False]
    world.group("a", "Preferred")
    assert world.turn("b")


@pytest.mark.parametrize("state", [None, "Preferred", "Waiting", "Kept", "Unknown"])
async def test_who_does_not_ask_gets_no_turn(state: str | None) -> None:
    world = World()
    world.group("a", state)
    assert not world.turn("a")


async def test_another_operators_move_is_waited_for_but_not_for_ever(looptime: Any) -> None:
    world = World()
    world.group("a", "Moving")
    world.group("b", "Due")
    assert not world.turn("b")
    await asyncio.sleep(GIVEN_S - 1)
    assert not world.turn("b")
    await asyncio.sleep(1)
    assert world.turn("b"), "nobody can reach the controllers of the other"
    world.group("b", "Preferred")
    world.group("a", "Moving", since="2")
    world.group("c", "Due")
    assert not world.turn("c"), "another attempt is another move"


async def test_a_turn_that_is_not_used_goes_to_the_next(looptime: Any) -> None:
    world = World()
    world.group("a", "Due")
    world.group("b", "Due")
    assert world.turn("a")
    world.group("a", "Waiting")
    assert world.turn("b"), "something became amiss in the first"
    world.group("a", "Due")
    assert not world.turn("a")
    await asyncio.sleep(GIVEN_S)
    assert world.turn("a")


class Nodes:
    """An API server with nodes, or none that may be read."""

    def __init__(self, **zones: str) -> None:
        self.zones = zones
        self.asked: list[str] = []
        self.denies = False

    async def get(self, kind: Any, namespace: str | None, name: str) -> dict[str, Any]:
        assert (kind, namespace) == (NODE, None)
        self.asked.append(name)
        if self.denies:
            raise Denied(403, "Forbidden", "no")
        labels = {"topology.kubernetes.io/zone": self.zones[name]} if self.zones[name] else {}
        return {"metadata": {"name": name, "labels": labels}}


async def test_a_node_is_asked_for_the_zone_of_a_pod_without_one(looptime: Any) -> None:
    nodes = Nodes(n1="a", n2="")
    zones = Zones(nodes)  # type: ignore[arg-type]  # one verb is all it needs
    pods = (pod(0, node="n1"), pod(1, node="n2"), pod(2), pod(3, node="n9", zone="c"))
    assert [one.zone for one in await zones.complete(pods)] == ["a", "", "", "c"]
    assert nodes.asked == ["n1", "n2"]
    await zones.complete(pods)
    assert nodes.asked == ["n1", "n2"], "remembered for a while"
    await asyncio.sleep(UNKNOWN_S)
    await zones.complete(pods)
    assert nodes.asked == ["n1", "n2", "n2"]


async def test_what_was_read_holds_while_nobody_may_read(looptime: Any) -> None:
    nodes = Nodes(n1="a", n2="b")
    zones = Zones(nodes)  # type: ignore[arg-type]  # as above
    await zones.complete([pod(0, node="n1")])
    nodes.denies = True
    await asyncio.sleep(KNOWN_S)
    pods = (pod(0, node="n1"), pod(1, node="n2"))
    assert [one.zone for one in await zones.complete(pods)] == ["a", ""]
