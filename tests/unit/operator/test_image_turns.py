"""A new default image rolls through the fleet a few groups at a time."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, POD, STATEFULSET
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.cache import Cache, Key
from gantry_operator.metrics import Metrics
from gantry_operator.plan.actions import ApplyObject, CheckAgain
from gantry_operator.plan.turns import ImageWait, Place, line_up
from gantry_operator.reconcile.fleet import GIVEN_S, Fleet
from prometheus_client import CollectorRegistry
from unit.operator.world import (
    broker_world,
    brokers,
    changed,
    controller_world,
    controllers,
    live,
    of_type,
    planned,
    told,
    with_status,
)

OLD, NEW = "gantry:1", "gantry:2"


def place(name: str, image: str = OLD, **facts: Any) -> Place:
    defaults: dict[str, Any] = {"kind": "BrokerGroup", "namespace": "mq", "well": True}
    return Place(**(defaults | {"name": name, "image": image} | facts))


def next_ones(*fleet: Place, at_a_time: int = 1) -> list[str]:
    line = line_up(fleet, NEW, at_a_time)
    return [name for _, _, name in line.waiting if line.has_turn(("BrokerGroup", "mq", name))]


LINES = [
    pytest.param([place("b"), place("a")], 1, ["a"], id="by-name"),
    pytest.param([place("b"), place("a"), place("c")], 2, ["a", "b"], id="two-at-a-time"),
    pytest.param([place("a", NEW), place("b")], 1, ["b"], id="one-is-done"),
    pytest.param([place("a", NEW, well=False), place("b")], 1, [], id="one-is-under-way"),
    pytest.param([place("a", NEW, well=False), place("b")], 2, ["b"], id="one-of-two-is"),
    pytest.param([place("a"), place("z", well=False)], 1, ["z"], id="mends-first"),
    pytest.param([place("a", rolls=False), place("b")], 1, ["b"], id="paused-takes-no-turn"),
    pytest.param(
        [place("a", NEW, well=False, rolls=False), place("b")], 1, ["b"], id="paused-holds-nobody"
    ),
    pytest.param([place("a", usable=False), place("b")], 1, ["b"], id="refused-takes-no-turn"),
    pytest.param([place("a", NEW, well=False, usable=False), place("b")], 1, [], id="but-holds"),
]


@pytest.mark.parametrize(("fleet", "at_a_time", "wanted"), LINES)
def test_whose_turn_it_is(fleet: list[Place], at_a_time: int, wanted: list[str]) -> None:
    assert next_ones(*fleet, at_a_time=at_a_time) == wanted
    assert next_ones(*reversed(fleet), at_a_time=at_a_time) == wanted, "the order is the fleet's"


def test_quorums_go_before_the_groups_that_depend_on_them() -> None:
    line = line_up([place("a"), place("gantry", kind="ControllerGroup")], NEW, 1)
    assert [name for _, _, name in line.waiting] == ["gantry", "a"]


def test_who_is_far_behind_looks_seldom_and_never_never() -> None:
    checks = [ImageWait(NEW, 1, position).check_after_s for position in range(5000)]
    assert checks[0] == 2.0
    assert checks == sorted(checks)
    assert checks[-1] == 300.0
    assert sum(1 / check for check in checks) < 20, "looks of the whole fleet, each second"


@pytest.mark.parametrize("world", [broker_world, controller_world])
def test_a_group_that_waits_says_so_and_goes_on_otherwise(world: Any) -> None:
    waiting = with_status(changed(world(), image_wait=ImageWait(NEW, 1, 3)))
    status, reason, message = told(waiting, "Progressing")
    assert (status, reason) == ("False", "WaitingForTurn")
    assert NEW in message
    assert of_type(planned(waiting), CheckAgain) == [CheckAgain(after_s=8.0)]
    assert of_type(planned(waiting), ApplyObject) == []
    other = changed(waiting, image_wait=ImageWait(NEW, 1, 7))
    assert told(other, "Progressing")[2] == message, "no status write for each one that is done"


def test_a_group_gets_its_doors_with_the_image_that_knows_them() -> None:
    seen = broker_world()
    manifests = broker_objects(brokers(), controllers(), image=OLD, replicas=3, door=False)
    before = changed(seen, image=OLD, objects=live(manifests))
    waiting = changed(before, image_wait=ImageWait(NEW, 1, 3))
    assert of_type(planned(waiting), ApplyObject) == []
    (applied,) = of_type(planned(changed(before, image=NEW)), ApplyObject)
    made = applied.manifest["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in made] == [("broker", NEW), ("door", NEW)]
    # One that has doors keeps them while it waits for the next image.
    manifests = broker_objects(brokers(), controllers(), image=OLD, replicas=3)
    has_them = changed(waiting, objects=live(manifests))
    assert of_type(planned(has_them), ApplyObject) == []
    # One with an image of its own gets them with the next one of its own.
    own = brokers(image=OLD)
    manifests = broker_objects(own, controllers(), image=NEW, replicas=3, door=False)
    pinned = changed(before, image=NEW, group=own, objects=live(manifests))
    assert of_type(planned(pinned), ApplyObject) == []
    (applied,) = of_type(planned(changed(pinned, group=brokers(image="own:2"))), ApplyObject)
    assert len(applied.manifest["spec"]["template"]["spec"]["containers"]) == 2


def test_a_group_whose_image_knows_doors_may_go_without_and_get_them_back() -> None:
    closed = brokers(clients={"door": {"enabled": False}})
    (applied,) = of_type(planned(changed(broker_world(), group=closed)), ApplyObject)
    assert len(applied.manifest["spec"]["template"]["spec"]["containers"]) == 1
    (applied,) = of_type(planned(changed(broker_world(closed), group=brokers())), ApplyObject)
    assert len(applied.manifest["spec"]["template"]["spec"]["containers"]) == 2


def test_a_group_opens_its_store_to_fronts_with_the_image_that_serves_both() -> None:
    """An older broker that is told of a store port would serve no client itself."""

    def store_ports(seen: Any) -> list[str]:
        return [
            entry["value"]
            for applied in of_type(planned(seen), ApplyObject)
            if applied.manifest["kind"] == "StatefulSet"
            for entry in applied.manifest["spec"]["template"]["spec"]["containers"][0]["env"]
            if entry["name"] == "GANTRY_STORE_PORT"
        ]

    older = broker_objects(brokers(), controllers(), image=OLD, replicas=3, knows_fronts=False)
    before = broker_world(image=OLD, objects=live(older), fronts=True)
    assert store_ports(before) == []
    assert store_ports(changed(before, image=NEW)) == ["10914"]
    present = broker_objects(brokers(), controllers(), image=OLD, replicas=3)
    knows = broker_world(image=OLD, objects=live(present), fronts=True)
    assert store_ports(knows) == ["10914"]
    closed = live(broker_objects(brokers(), controllers(), image=OLD, replicas=3, fronts=True))
    (applied,) = of_type(planned(broker_world(image=OLD, objects=closed)), ApplyObject)[-1:]
    assert "GANTRY_STORE_PORT" not in str(applied.manifest), "it closes when the fronts are gone"


# The fleet in the cache


class World:
    def __init__(self, at_a_time: int = 1) -> None:
        self.cache = Cache()
        self.metrics = Metrics(CollectorRegistry())
        self.fleet = Fleet(self.cache, NEW, at_a_time, self.metrics)
        self._version = 1

    def put(self, kind: Any, body: dict[str, Any]) -> None:
        self._version += 1
        body = copy.deepcopy(body)
        body["metadata"] |= {"resourceVersion": str(self._version)}
        self.cache.put(kind, body)

    def group(self, name: str, image: str = OLD, *, generation: int = 2, spec: Any = None) -> None:
        """A broker group that is well, with this image."""
        spec = spec or {}
        meta = {"name": name, "namespace": "mq", "uid": f"uid-{name}"}
        self.put(BROKER_GROUP, {"metadata": meta, "spec": spec})
        group = brokers(meta, **spec)
        manifest = broker_objects(group, controllers(), image=image, replicas=3)[-1]
        self.roll(manifest, generation=generation, outdated=0)

    def quorum(self, image: str = OLD) -> None:
        meta = {"name": "gantry", "namespace": "mq", "uid": "cg-uid"}
        self.put(CONTROLLER_GROUP, {"metadata": meta, "spec": {}})
        manifest = controller_objects(controllers(), image=image)[-1]
        self.roll(manifest, generation=2, outdated=0)

    def roll(self, manifest: dict[str, Any], *, generation: int, outdated: int) -> None:
        status = {"observedGeneration": generation, "updateRevision": "new"}
        meta = manifest["metadata"] | {"uid": "set", "generation": generation}
        self.put(STATEFULSET, manifest | {"metadata": meta, "status": status})
        for ordinal in range(manifest["spec"]["replicas"]):
            revision = "old" if ordinal < outdated else "new"
            labels = meta["labels"] | {names.LABEL_REVISION: revision}
            pod = {"name": f"{meta['name']}-{ordinal}", "namespace": "mq", "uid": f"p-{ordinal}"}
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.put(POD, {"metadata": pod | {"labels": labels}, "status": ready})

    def image(self, name: str, kind: Any = BROKER_GROUP) -> str:
        body = self.cache.get(kind, "mq", name)
        assert body is not None
        image, wait = self.fleet.image_of(Key(kind.kind, "mq", name), body)
        assert (wait is None) == (image == NEW)
        return image

    def take(self, name: str, outdated: int) -> None:
        """What came of a turn: the image is in the set, and so many pods are not from it yet."""
        group = brokers({"name": name, "uid": f"uid-{name}"})
        manifest = broker_objects(group, controllers(), image=NEW, replicas=3)[-1]
        self.roll(manifest, generation=3, outdated=outdated)


pytestmark = [pytest.mark.looptime]


async def test_who_waits_for_a_person_keeps_nobody_waiting_and_then_stands_in_line() -> None:
    world = World()
    world.group("a", spec={"update": {"strategy": "Supervised"}})
    world.group("b")
    world.group("c")
    key = Key(BROKER_GROUP.kind, "mq", "a")

    def ask(approved: str = "", announced: str = "") -> tuple[str, ImageWait | None]:
        update = {"strategy": "Supervised"} | ({"approved": approved} if approved else {})
        status = {"pendingChange": {"id": announced}} if announced else {}
        meta = {"name": "a", "namespace": "mq", "uid": "uid-a"}
        world.put(BROKER_GROUP, {"metadata": meta, "spec": {"update": update}, "status": status})
        body = world.cache.get(BROKER_GROUP, "mq", "a")
        assert body is not None
        return world.fleet.image_of(key, body)

    assert ask() == (NEW, None), "to be announced"
    assert ask(announced="1") == (NEW, None)
    assert ask(approved="2", announced="1") == (NEW, None), "another change"
    assert ask(approved="1") == (NEW, None), "not announced yet"
    assert world.image("b") == NEW
    world.take("b", outdated=1)
    image, wait = ask(approved="1", announced="1")
    assert (image, wait is None) == (NEW, False), "approved, and b is under way"
    world.take("b", outdated=0)
    assert ask(approved="1", announced="1") == (NEW, None), "its turn"
    assert world.image("c") == OLD


async def test_a_group_gets_the_image_when_the_one_before_is_well() -> None:
    world = World()
    for name in ("b", "a", "c"):
        world.group(name)
    assert [world.image(name) for name in ("c", "b", "a")] == [OLD, OLD, NEW]
    world.take("a", outdated=2)
    assert [world.image(name) for name in ("a", "b", "c")] == [NEW, OLD, OLD]
    world.take("a", outdated=0)
    await asyncio.sleep(10)
    assert [world.image(name) for name in ("a", "b", "c")] == [NEW, NEW, OLD]
    gauge = "gantry_operator_default_image_groups"
    registry = world.metrics.registry
    assert registry.get_sample_value(gauge, {"state": "waiting"}) == 2.0


async def test_an_operator_that_takes_over_goes_on_where_the_last_one_stopped() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.group(name)
    world.take("b", outdated=1)
    fresh = Fleet(world.cache, NEW, 1, world.metrics)
    world.fleet = fresh
    assert [world.image(name) for name in ("a", "b", "c")] == [OLD, NEW, OLD]


async def test_a_turn_that_was_given_is_given_to_nobody_else_before_it_is_seen() -> None:
    world = World()
    world.group("b")
    world.group("c")
    assert world.image("b") == NEW
    world.group("a")  # comes to stand before it, while its StatefulSet is being written
    await asyncio.sleep(10)
    assert world.image("a") == OLD
    assert world.image("c") == OLD
    await asyncio.sleep(GIVEN_S)
    assert world.image("a") == NEW, "a turn that nobody used is given to another at last"


async def test_an_image_of_its_own_waits_for_nobody_and_a_quorum_stands_in_the_same_line() -> None:
    world = World()
    world.quorum()
    world.group("a", image="mine:3", spec={"image": "mine:3"})
    world.group("b")
    assert world.image("a") == NEW, "the default, which the spec overrides"
    assert world.image("b") == OLD
    assert world.image("gantry", CONTROLLER_GROUP) == NEW


async def test_what_is_new_has_no_roll_that_others_would_wait_for() -> None:
    world = World()
    world.group("a", image=NEW, generation=1)
    world.cache.remove(POD, {"metadata": {"name": "a-broker-0", "namespace": "mq", "uid": "p-0"}})
    world.group("b")
    assert world.image("b") == NEW
    body = {"metadata": {"name": "z", "namespace": "mq", "uid": "z"}, "spec": {}}
    world.put(BROKER_GROUP, body)
    assert world.image("z") == NEW, "without a StatefulSet there is nothing to restart"


async def test_a_fenced_replica_that_keeps_its_image_keeps_nobody_waiting() -> None:
    world = World()
    world.group("a", spec={"fenced": [0]})
    world.group("b")
    assert world.image("a") == NEW
    world.take("a", outdated=1)
    await asyncio.sleep(10)
    assert world.image("b") == NEW
