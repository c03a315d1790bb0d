"""Full lists: what they cure, and when a watch is called frozen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.api.errors import Gone, Unavailable
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, POD, WATCHED
from gantry_operator.cache import Cache, Key
from gantry_operator.metrics import Metrics
from gantry_operator.resync import GRACE_S, Resync, WatchFrozenError
from prometheus_client import CollectorRegistry
from unit.operator.fake_api import FakeApi

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
ORDERS = Key("BrokerGroup", "mq", "orders")
LABELS = {"labels": names.labels(names.BROKER, "orders")}


class World:
    def __init__(self, *namespaces: str) -> None:
        self.api = FakeApi()
        self.cache = Cache()
        self.keys: list[Key] = []
        self.metrics = Metrics(CollectorRegistry())
        self.resync = Resync(self.api, self.cache, namespaces, self.keys.append, self.metrics)
        self.api.have(CONTROLLER_GROUP, "gantry")
        self.api.have(BROKER_GROUP, "orders")
        for kind in WATCHED:
            for scope in namespaces or (None,):
                self.resync.listed(kind, scope)

    def count(self, name: str, kind: str) -> float:
        value = self.metrics.registry.get_sample_value(f"gantry_operator_{name}", {"kind": kind})
        return value or 0.0


async def test_the_first_lists_fill_the_cache() -> None:
    world = World()
    world.api.have(POD, "orders-broker-0", metadata=LABELS)
    assert world.resync.age_s == float("inf")
    await world.resync.fill()
    assert set(world.keys) == {ORDERS, Key("ControllerGroup", "mq", "gantry")}
    assert len(world.cache.owned(ORDERS, POD)) == 1
    assert [call for call in world.api.calls if call.startswith("list")] == [
        f"list {kind.kind} *" for kind in WATCHED
    ]
    assert world.resync.age_s == 0


async def test_the_resource_of_shards_that_controllers_have_named_is_looked_at_once() -> None:
    world = World()
    world.resync.named = lambda: {("mq", f"returns_{n}") for n in range(3)}
    world.resync.look_at_all()
    assert world.keys == [Key("BrokerGroup", "mq", "returns")]


async def test_only_the_served_namespaces_are_listed() -> None:
    world = World("mq", "other")
    await world.resync.fill()
    assert f"list {POD.kind} mq" in world.api.calls
    assert f"list {POD.kind} other" in world.api.calls
    assert f"list {POD.kind} *" not in world.api.calls


async def test_nothing_is_listed_before_every_watch_has_begun() -> None:
    world = World()
    late = Resync(world.api, world.cache, (), world.keys.append, world.metrics)
    task = asyncio.create_task(late.fill())
    for kind in WATCHED:
        await asyncio.sleep(30)
        assert world.api.calls == []
        late.listed(kind, None)
    await task
    assert len(world.api.calls) == len(WATCHED)


async def test_a_watch_that_begins_anew_is_followed_by_a_list() -> None:
    """What was deleted before the list that the watch began with is reported by nobody."""
    world = World()
    for number in range(2):
        world.api.have(POD, f"orders-broker-{number}", metadata=LABELS)
    await world.resync.fill()
    world.keys.clear()
    closing = asyncio.create_task(world.resync.close_gaps())
    await asyncio.sleep(1)
    del world.api.objects["Pod", "mq", "orders-broker-0"]
    world.api.refuse("list", POD, Unavailable(503, "ServerError", "down"), times=2)
    world.resync.listed(POD, None)
    await asyncio.sleep(30)
    assert [pod["metadata"]["name"] for pod in world.cache.owned(ORDERS, POD)] == [
        "orders-broker-1"
    ]
    assert world.keys == [ORDERS]
    assert world.count("relists_total", "Pod") == 1
    assert world.count("stalled_watches_total", "Pod") == 0
    closing.cancel()


async def test_a_deletion_in_a_gap_is_found() -> None:
    world = World()
    world.api.have(POD, "orders-broker-0", metadata=LABELS)
    await world.resync.fill()
    del world.api.objects["Pod", "mq", "orders-broker-0"]
    world.keys.clear()
    await world.resync.compare()
    assert world.cache.owned(ORDERS, POD) == []
    assert ORDERS in world.keys
    assert world.count("pruned_objects_total", "Pod") == 1
    assert world.count("stalled_watches_total", "Pod") == 0


async def test_everything_is_looked_at_after_a_comparison() -> None:
    """Whatever was missed and left no difference behind, such as the controllers' word."""
    world = World()
    await world.resync.fill()
    world.keys.clear()
    await world.resync.compare()
    assert {ORDERS, Key("ControllerGroup", "mq", "gantry")} <= set(world.keys)


async def test_a_watch_that_catches_up_in_time_is_no_strike(looptime: Any) -> None:
    world = World()
    await world.resync.fill()
    late = world.api.have(POD, "orders-broker-0", metadata=LABELS)
    task = asyncio.create_task(world.resync.compare())
    await asyncio.sleep(GRACE_S / 2)
    world.cache.put(POD, late)  # the watch delivers
    await task
    assert world.count("stalled_watches_total", "Pod") == 0
    assert looptime == GRACE_S


async def test_a_watch_that_is_behind_twice_is_frozen() -> None:
    world = World()
    await world.resync.fill()
    world.api.have(POD, "orders-broker-0", metadata=LABELS)
    await world.resync.compare()
    assert world.count("stalled_watches_total", "Pod") == 1
    assert len(world.cache.owned(ORDERS, POD)) == 1, "what was missed is taken in"
    world.api.have(POD, "orders-broker-0", metadata=LABELS)
    with pytest.raises(WatchFrozenError, match="watch of pods"):
        await world.resync.compare()


async def test_a_good_comparison_in_between_wipes_the_slate() -> None:
    world = World()
    await world.resync.fill()
    for _ in range(3):
        world.api.have(POD, "orders-broker-0", metadata=LABELS)
        await world.resync.compare()
        await world.resync.compare()
    assert world.count("stalled_watches_total", "Pod") == 3


async def test_a_list_that_became_too_old_is_read_again() -> None:
    world = World()
    world.api.refuse("list", POD, Gone(410, "Expired", "too old"), times=2)
    await world.resync.fill()
    assert world.api.calls.count("list Pod *") == 3


async def test_a_list_that_is_always_too_old_is_an_error() -> None:
    world = World()
    world.api.refuse("list", POD, Gone(410, "Expired", "too old"))
    with pytest.raises(Gone):
        await world.resync.fill()
    assert world.resync.age_s == float("inf")


async def test_failing_comparisons_are_repeated_soon_and_age() -> None:
    world = World()
    await world.resync.fill()
    world.api.refuse("list", BROKER_GROUP, Unavailable(503, "ServerError", "down"))
    task = asyncio.create_task(world.resync.run(300.0))
    await asyncio.sleep(500)
    lists = world.api.calls.count("list BrokerGroup *")
    assert lists > 10
    assert world.resync.age_s == 500
    world.api.fault = lambda *_: None
    await asyncio.sleep(10)
    assert world.resync.age_s < 10
    task.cancel()


async def test_comparisons_are_spread() -> None:
    world = World()
    await world.resync.fill()
    task = asyncio.create_task(world.resync.run(100.0))
    await asyncio.sleep(1000)
    runs = world.api.calls.count("list Pod *") - 1
    assert 8 <= runs <= 12
    task.cancel()
