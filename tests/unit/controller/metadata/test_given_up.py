"""Queues of mapped topics whose broker group is gone begin anew at another one."""

from __future__ import annotations

from collections import Counter

import pytest
from gantry_controller.metadata import given_up
from gantry_controller.metadata.events import (
    DrainGroup,
    MapQueues,
    RemoveGroup,
    RetireGroup,
    SealQueues,
)
from gantry_controller.metadata.given_up import WAIT_S, GoneGroups
from gantry_protocol.codes import ResponseCode
from gantry_protocol.queue_map import (
    GAP,
    MAPPED_QUEUES_MAX,
    SEGMENTS_MAX,
    MappedQueue,
    QueueMap,
    Segment,
)
from gantry_protocol.types import BrokerId, Epoch
from support.metadata_cluster import Cluster
from support.metadata_world import CLUSTER


class World(Cluster):
    """A cluster with a mapped topic, and a leader that looks every second."""

    def __init__(self, *names: str, queues: int = 6) -> None:
        super().__init__(*names)
        self.gone = GoneGroups(self.state)
        self.now_s = 0.0
        assert self.apply(MapQueues(cluster=CLUSTER, topic="t", queues=queues)).ok

    def retire(self, name: str) -> None:
        assert self.apply(RetireGroup(cluster=CLUSTER, name=name, uid=f"u-{name}")).ok

    def turn(self, after_s: float = 1.0) -> list[MapQueues]:
        self.now_s += after_s
        events = self.gone.due(self.now_s)
        for event in events:
            assert self.apply(event).ok, event
        return events

    def wait(self) -> list[MapQueues]:
        """Until what is gone now has been for long enough."""
        assert self.turn() == []
        return self.turn(WAIT_S)

    def opens(self, topic: str = "t") -> Counter[str]:
        queues = self.state.queue_maps[CLUSTER, topic].queues
        assert not any(queue.target for queue in queues)
        return Counter(queue.open.group for queue in queues)


@pytest.mark.parametrize("is_removed", [False, True])
def test_its_queues_take_messages_at_another_group(is_removed: bool) -> None:
    world = World("a", "b")
    if is_removed:
        assert world.apply(RemoveGroup(cluster=CLUSTER, name="b", uid="u-b")).ok
    else:
        world.retire("b")
    number = next(
        number
        for number, queue in enumerate(world.state.queue_maps[CLUSTER, "t"].queues)
        if queue.open.group == "b"
    )
    assert len(world.wait()) == 1
    assert world.opens() == {"a": 6}
    queue = world.state.queue_maps[CLUSTER, "t"].queues[number]
    begun = Segment("a", GAP, number + MAPPED_QUEUES_MAX)
    if is_removed:
        assert queue.segments == (begun,), "what it held is gone for good"
    else:
        assert queue.segments == (Segment("b", 0, number), begun)
        assert queue.holder(10**12).group == "b", "what it holds is read there, should it be back"
    assert world.turn() == []


def test_a_group_that_comes_back_in_time_keeps_them() -> None:
    world = World("a", "b")
    before = world.opens()
    world.retire("b")
    assert world.turn() == []
    assert world.turn(WAIT_S - 1) == []
    world.add("b")
    assert world.turn(WAIT_S) == []
    world.retire("b")
    assert world.turn() == [], "it has not been gone for long"
    assert world.opens() == before


def test_what_another_leader_saw_does_not_count() -> None:
    world = World("a", "b")
    world.retire("b")
    world.turn()
    world.gone.began()
    assert world.turn(WAIT_S) == []
    assert len(world.turn(WAIT_S)) == 1


def test_without_a_group_that_could_have_them_they_stay() -> None:
    world = World("a", "b")
    before = world.opens()
    world.retire("b")
    world.retire("a")
    assert world.wait() == []
    assert world.opens() == before


def test_a_group_that_is_drained_gets_none() -> None:
    world = World("a", "b", "c")
    assert world.apply(DrainGroup(cluster=CLUSTER, name="a")).ok
    world.retire("b")
    world.wait()
    assert world.opens()["a"] == 2
    assert world.opens()["c"] == 4


def test_a_queue_that_was_about_to_move_is_led_on() -> None:
    """Its group cannot say any more where it ends."""
    world = World("a", "b")
    there = [
        number
        for number, queue in enumerate(world.state.queue_maps[CLUSTER, "t"].queues)
        if queue.open.group == "b"
    ]
    places = tuple((number, "a") for number in there)
    assert world.apply(MapQueues(cluster=CLUSTER, topic="t", queues=6, places=places)).ok
    world.retire("b")
    world.wait()
    assert world.opens() == {"a": 6}


def test_a_group_that_is_back_says_where_its_segments_ended() -> None:
    world = World("a", "b")
    number = next(
        number
        for number, queue in enumerate(world.state.queue_maps[CLUSTER, "t"].queues)
        if queue.open.group == "b"
    )
    world.retire("b")
    world.wait()
    world.add("b")
    key = {"cluster": CLUSTER, "name": "b", "broker_id": BrokerId(1), "incarnation": "b"}

    def seal(end: int) -> int:
        event = SealQueues(**key, master_epoch=Epoch(1), topic="t", ends=((number, end),))
        return world.apply(event).code

    assert seal(GAP) == 0, "that cannot be: nothing comes of it"
    for _ in range(2):
        assert seal(3) == ResponseCode.SUCCESS
    queue = world.state.queue_maps[CLUSTER, "t"].queues[number]
    assert [(item.group, item.start) for item in queue.segments] == [("b", 0), ("", 3), ("a", GAP)]


def test_an_event_of_somebody_else_gives_nothing_up() -> None:
    world = World("a", "b")
    world.retire("b")
    number = next(
        number
        for number, queue in enumerate(world.state.queue_maps[CLUSTER, "t"].queues)
        if queue.open.group == "b"
    )
    event = MapQueues(cluster=CLUSTER, topic="t", queues=6, places=((number, "a"),))
    assert world.apply(event).ok
    queue = world.state.queue_maps[CLUSTER, "t"].queues[number]
    assert (queue.open.group, queue.target) == ("b", "a")


def test_a_queue_of_a_living_group_is_not_given_up() -> None:
    world = World("a", "b")
    places = tuple((number, "a") for number in range(6))
    event = MapQueues(cluster=CLUSTER, topic="t", queues=6, places=places, given_up=True)
    assert world.apply(event).ok
    queues = world.state.queue_maps[CLUSTER, "t"].queues
    assert all(len(queue.segments) == 1 for queue in queues)


def test_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_up, "QUEUES_AT_ONCE", 2)
    world = World("a", "b", queues=2)
    for topic in ("t2", "t3", "t4"):
        assert world.apply(MapQueues(cluster=CLUSTER, topic=topic, queues=4)).ok
    world.retire("b")
    turns = 0
    events = world.wait()
    while events:
        assert sum(len(event.places) for event in events) <= 4
        turns += 1
        events = world.turn()
    assert turns > 1
    for topic in ("t", "t2", "t3", "t4"):
        assert world.opens(topic).keys() == {"a"}


def test_a_queue_that_may_not_move_any_more_begins_anew_all_the_same() -> None:
    """It would take no message for as long as its group is away."""
    world = World("a", "b", queues=1)
    used = tuple(Segment("ab"[n % 2], n, n * MAPPED_QUEUES_MAX) for n in range(SEGMENTS_MAX))
    full = MappedQueue(used, "", SEGMENTS_MAX)
    world.state.put_queue_map(CLUSTER, "t", QueueMap(2, world.state.index, (full,)))
    world.retire(full.open.group)
    assert len(world.wait()) == 1
    (queue,) = world.state.queue_maps[CLUSTER, "t"].queues
    assert queue.segments[:-1] == used
    assert queue.open.group != full.open.group
