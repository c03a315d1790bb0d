"""Groups take turns to restart their pods, whatever the change, where somebody says so."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, POD, STATEFULSET
from gantry_operator.builders import broker_objects
from gantry_operator.cache import Cache, Key
from gantry_operator.plan.actions import ApplyObject, CheckAgain
from gantry_operator.plan.turns import RollTurn
from gantry_operator.reconcile.fleet import GIVEN_S
from gantry_operator.reconcile.rolls import Rolls
from unit.operator.world import broker_world as well
from unit.operator.world import (
    brokers,
    changed,
    controllers,
    of_type,
    planned,
    settled_status,
    told,
    with_status,
)

pytestmark = [pytest.mark.looptime]


class World:
    def __init__(self, at_a_time: int | None = 1) -> None:
        self.cache = Cache()
        self.rolls = Rolls(self.cache, at_a_time)
        self._version = 1

    def put(self, kind: Any, body: dict[str, Any]) -> None:
        self._version += 1
        body = copy.deepcopy(body)
        body["metadata"] |= {"resourceVersion": str(self._version)}
        self.cache.put(kind, body)

    def group(self, name: str, *, announced: str = "1", **spec: Any) -> None:
        status = {"pendingChange": {"id": announced}} if announced else {}
        meta = {"name": name, "namespace": "mq", "uid": f"uid-{name}"}
        self.put(BROKER_GROUP, {"metadata": meta, "spec": spec, "status": status})
        if self.cache.get(STATEFULSET, "mq", names.broker_statefulset(name)) is None:
            self.roll(name, outdated=0)

    def roll(self, name: str, *, outdated: int, generation: int = 2, ready: str = "True") -> None:
        group = brokers({"name": name, "uid": f"uid-{name}"})
        manifest = broker_objects(group, controllers(), image="gantry:1", replicas=3)[-1]
        status = {"observedGeneration": generation, "updateRevision": "new"}
        meta = manifest["metadata"] | {"uid": "set", "generation": generation}
        self.put(STATEFULSET, manifest | {"metadata": meta, "status": status})
        for ordinal in range(3):
            labels = meta["labels"] | {names.LABEL_REVISION: "old" if ordinal < outdated else "new"}
            pod = {"name": f"{meta['name']}-{ordinal}", "namespace": "mq", "uid": f"p-{ordinal}"}
            conditions = {"conditions": [{"type": "Ready", "status": ready}]}
            self.put(POD, {"metadata": pod | {"labels": labels}, "status": conditions})

    def turn(self, name: str) -> bool | None:
        """Whether it is a group's turn; None if it needs none."""
        body = self.cache.get(BROKER_GROUP, "mq", name)
        assert body is not None
        found = self.rolls.turn_of(Key(BROKER_GROUP.kind, "mq", name), body)
        return None if found is None else found.given


async def test_so_many_begin_and_the_next_when_one_is_well(looptime: Any) -> None:
    world = World(at_a_time=2)
    for name in ("a", "b", "c"):
        world.group(name)
    assert [world.turn(name) for name in ("a", "b", "c")] == [True, True, False]
    assert world.turn("a") is True, "a turn that was given stays"
    world.group("a", announced="")
    world.roll("a", outdated=2, generation=3)
    assert world.turn("a") is None, "who is under way waits for nobody"
    await _pass(6)
    assert world.turn("c") is False
    world.roll("a", outdated=0, generation=3)
    await _pass(6)
    assert world.turn("c") is True


async def test_a_turn_that_nobody_uses_goes_to_the_next(looptime: Any) -> None:
    world = World()
    world.group("a")
    world.group("b")
    assert [world.turn("a"), world.turn("b")] == [True, False]
    await _pass(GIVEN_S + 6)
    assert world.turn("b") is True


async def test_what_is_not_well_waits_for_nobody() -> None:
    world = World()
    world.group("a")
    world.group("b")
    world.roll("b", outdated=0, ready="False")
    assert world.turn("b") is None, "its change may be what mends it"
    assert world.turn("a") is False, "and it is under way"
    world.roll("b", outdated=0, generation=1, ready="False")
    assert world.turn("b") is None, "also if it never was well"


async def test_nobody_is_waited_for_who_does_not_roll() -> None:
    world = World()
    world.group("a")
    for name, spec in (("paused", {"paused": True}), ("asleep", {"hibernated": True})):
        world.group(name, announced="", **spec)
        world.roll(name, outdated=3)
    found = world.cache.get(STATEFULSET, "mq", "asleep-broker")
    assert found is not None
    world.put(STATEFULSET, found | {"spec": found["spec"] | {"replicas": 0}})
    world.group("person", update={"strategy": "Supervised"})
    assert world.turn("person") is False, "until it is approved"
    assert world.turn("a") is True
    world.group("new", announced="")
    world.roll("new", outdated=0, generation=1)
    assert world.turn("a") is True


async def test_without_a_number_nobody_waits() -> None:
    world = World(at_a_time=None)
    world.group("a")
    assert world.turn("a") is None


def test_a_change_is_announced_before_its_turn_and_goes_with_it() -> None:
    waits, given = RollTurn(1, 3, given=False), RollTurn(1, 1, given=True)
    seen = changed(well(), group=brokers(image="gantry:2"), roll_turn=given)
    assert of_type(planned(seen), ApplyObject) == [], "it is not announced yet"
    assert of_type(planned(seen), CheckAgain) == [CheckAgain(after_s=0.1)]
    shown = with_status(changed(seen, roll_turn=waits))
    assert of_type(planned(shown), ApplyObject) == []
    assert told(shown, "Progressing")[:2] == ("True", "WaitingForTurn")
    assert settled_status(shown)["summary"] == "Waiting for turn"
    assert of_type(planned(shown), CheckAgain) == [CheckAgain(after_s=6.0)]
    (action,) = of_type(planned(changed(shown, roll_turn=given)), ApplyObject)
    assert action.manifest["kind"] == "StatefulSet"
    (action,) = of_type(planned(changed(shown, roll_turn=None)), ApplyObject)
    assert action.manifest["kind"] == "StatefulSet", "a group that is not well by now"


async def _pass(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def test_a_fenced_replica_keeps_its_group_well_and_nobody_waiting() -> None:
    world = World()
    world.group("a", fenced=[0])
    world.group("b")
    world.roll("a", outdated=1)  # replica 0, which is left alone
    assert world.turn("b") is True
    assert world.turn("a") is False, "it is well, so it stands in line"
    world.group("a", fenced=[])
    assert world.turn("a") is None, "it rolls"
