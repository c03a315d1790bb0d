"""Queues of mapped topics leave a group that is drained."""

from __future__ import annotations

from collections import Counter

import pytest
from gantry_controller.metadata import leaving
from gantry_controller.metadata.events import EndDrain, MapQueues
from gantry_controller.metadata.leaving import AGAIN_AFTER_S, DrainedGroups
from gantry_controller.metadata.state import BrokerGroup
from support.metadata_cluster import Cluster
from support.metadata_world import CLUSTER


class World(Cluster):
    """Groups with a mapped topic of six queues, and a leader that looks at them."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.dead: set[str] = set()
        self.leaving = DrainedGroups(self.state, self.serves)
        self.now_s = 0.0
        self.make("t")

    def serves(self, group: BrokerGroup) -> bool:
        return group.name not in self.dead

    def make(self, topic: str, queues: int = 6) -> None:
        assert self.apply(MapQueues(cluster=CLUSTER, topic=topic, queues=queues)).ok

    def propose(self, after_s: float = 0.1) -> list[MapQueues]:
        self.now_s += after_s
        return self.leaving.due(self.now_s)

    def turn(self, after_s: float = 0.1) -> list[MapQueues]:
        events = self.propose(after_s)
        for event in events:
            assert self.apply(event).ok, event
        return events

    def goals(self, topic: str = "t") -> Counter[str]:
        return Counter(queue.goal for queue in self.state.queue_maps[CLUSTER, topic].queues)


def test_they_leave_without_a_further_word_and_once() -> None:
    world = World("a", "b", "c")
    assert world.turn() == []
    assert world.drain("a").ok
    (event,) = world.turn()
    assert len(event.places) == 2
    assert world.goals() == {"b": 3, "c": 3}
    assert world.turn() == []
    assert world.turn(AGAIN_AFTER_S) == []


def test_what_came_to_nothing_is_proposed_again_and_at_once_by_the_next_leader() -> None:
    world = World("a", "b")
    assert world.drain("a").ok
    lost = world.propose()
    assert lost
    assert [world.propose(), world.propose()] == [[], []]
    assert world.propose(AGAIN_AFTER_S) == lost
    world.leaving.began()
    assert world.turn() == lost
    assert world.goals() == {"b": 6}


def test_a_goal_that_is_drained_meanwhile_is_none_any_more() -> None:
    world = World("a", "b", "c")
    assert world.drain("a").ok
    assert world.turn()
    assert world.drain("b").ok
    while world.turn():
        pass
    world.turn()
    assert world.goals() == {"c": 6}


def test_they_wait_for_a_living_master() -> None:
    world = World("a", "b")
    world.add("new")
    assert world.drain("a").ok
    world.dead = {"b"}
    assert world.turn() == []
    assert world.turn() == []
    world.dead = set()
    assert world.turn(AGAIN_AFTER_S)
    assert world.goals() == {"b": 6}


def test_a_drain_that_ends_moves_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "QUEUES_AT_ONCE", 6)
    world = World("a", "b")
    world.make("u")
    assert world.drain("a").ok
    assert len(world.turn()) == 1
    assert world.apply(EndDrain(cluster=CLUSTER, name="a")).ok
    assert world.turn() == []
    assert sorted([world.goals()["a"], world.goals("u")["a"]]) == [0, 3]


def test_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "QUEUES_AT_ONCE", 12)
    world = World("a", "b", "c")
    for number in range(9):
        world.make(f"t{number}")
    assert world.drain("a").ok
    assert [len(world.turn()) for _ in range(6)] == [2, 2, 2, 2, 2, 0]
    assert world.state.maps_of(CLUSTER).load == {"b": 30, "c": 30}
