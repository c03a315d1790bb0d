"""A new broker group is given its share of the queues of mapped topics."""

from __future__ import annotations

from collections import Counter

import pytest
from gantry_controller.metadata.events import DrainGroup, Event, MapQueues, TakeShare, TakeTopics
from gantry_controller.metadata.shares import ANSWERED_WITHIN_S, QUEUES_AT_ONCE, Share, Shares
from gantry_controller.metadata.snapshot import assemble, take
from gantry_protocol.queue_map import SEGMENTS_MAX, MappedQueue, QueueMap, Segment
from gantry_protocol.types import Index
from hypothesis import given
from hypothesis import strategies as st
from support.metadata_cluster import Cluster
from support.metadata_world import CLUSTER


def mapped(*groups: str) -> QueueMap:
    queues = (MappedQueue((Segment(group, 0, number),)) for number, group in enumerate(groups))
    return QueueMap(1, Index(1), tuple(queues))


class World(Cluster):
    """A cluster with mapped topics, and a leader that gives newcomers their share."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.living: set[str] = set(names)
        self.shares = Shares(self.state, lambda group: group.name in self.living)
        self.now_s = 0.0

    def make(self, topic: str, queues: int) -> None:
        assert self.apply(MapQueues(cluster=CLUSTER, topic=topic, queues=queues)).ok

    def join(self, name: str) -> None:
        self.add(name)
        self.apply(TakeTopics(cluster=CLUSTER, name=name, shares=True))
        self.lead(name)
        self.living.add(name)

    def turn(self) -> list[Event]:
        self.now_s += 1
        events = self.shares.due(self.now_s)
        for event in events:
            assert self.apply(event).ok, event
        return events

    def goals(self, topic: str) -> Counter[str]:
        queues = self.state.queue_maps[CLUSTER, topic].queues
        return Counter(queue.goal for queue in queues)


def test_a_newcomer_gets_one_queue_in_n_of_each_topic() -> None:
    world = World("a", "b")
    world.make("large", 24)
    world.make("small", 3)
    world.join("c")
    world.turn()
    assert world.goals("large")["c"] == 8
    assert world.goals("small")["c"] == 1
    assert world.state.maps_of(CLUSTER).load == {"a": 9, "b": 9, "c": 9}
    assert world.state.newcomers == {}
    assert world.turn() == []


def test_two_newcomers_come_one_after_the_other() -> None:
    world = World("a", "b")
    world.make("t", 24)
    world.join("c")
    world.join("d")
    while world.state.newcomers:
        world.turn()
    assert world.goals("t") == {"a": 6, "b": 6, "c": 6, "d": 6}


def test_it_waits_for_the_living_master() -> None:
    world = World("a", "b")
    world.make("t", 8)
    world.join("c")
    world.living.remove("c")
    assert world.turn() == []
    world.living.add("c")
    world.turn()
    assert world.goals("t")["c"] == 2


def test_a_group_that_somebody_empties_stays_empty() -> None:
    world = World("a", "b")
    world.make("t", 8)
    world.join("c")
    world.turn()
    away = tuple(
        (number, "a")
        for number, queue in enumerate(world.state.queue_maps[CLUSTER, "t"].queues)
        if queue.goal == "c"
    )
    assert world.apply(MapQueues(cluster=CLUSTER, topic="t", queues=8, places=away)).ok
    world.shares.began()
    assert world.turn() == []
    assert world.goals("t")["c"] == 0


@pytest.mark.parametrize("is_before", [True, False])
def test_a_newcomer_that_is_drained_is_given_nothing(is_before: bool) -> None:
    world = World("a", "b")
    world.make("t1", QUEUES_AT_ONCE)
    world.make("t2", 8)
    world.join("c")
    if not is_before:
        world.turn()
    assert world.apply(DrainGroup(cluster=CLUSTER, name="c")).ok
    assert world.turn() == [TakeShare(cluster=CLUSTER, name="c")]
    assert world.state.newcomers == {}
    assert world.goals("t2")["c"] == 0


def test_the_next_leader_goes_on_and_moves_nothing_twice() -> None:
    world = World("a", "b")
    world.make("t1", QUEUES_AT_ONCE)
    world.make("t2", 9)
    world.join("c")
    world.turn()
    first = world.goals("t1")
    assert first["c"] == QUEUES_AT_ONCE // 3
    assert (CLUSTER, "c") in assemble(take(world.state)).newcomers
    world.shares.began()
    while world.state.newcomers:
        world.turn()
    assert world.goals("t1") == first
    assert world.goals("t2")["c"] == (QUEUES_AT_ONCE + 9) // 3 - QUEUES_AT_ONCE // 3


def test_what_was_proposed_in_vain_is_proposed_again() -> None:
    world = World("a", "b")
    world.make("t", 8)
    world.join("c")
    lost = world.shares.due(1.0)
    assert [type(event) for event in lost] == [MapQueues, TakeShare]
    assert world.shares.due(2.0) == []
    assert world.shares.due(1.1 + ANSWERED_WITHIN_S) == []
    assert world.shares.due(1.2 + ANSWERED_WITHIN_S) == lost


def test_only_the_new_event_makes_a_newcomer() -> None:
    """Events of an earlier version are applied as they were then."""
    world = World("a", "b")
    world.make("t", 8)
    world.add("c")
    world.apply(TakeTopics(cluster=CLUSTER, name="c"))
    assert world.state.newcomers == {}


def test_a_newcomer_that_lacks_nothing_gets_its_share_too() -> None:
    """The mapped topic was made at every group that was declared."""
    world = World("a", "b")
    world.add("c")
    world.make("t", 9)
    assert world.may_take("c")
    world.apply(TakeTopics(cluster=CLUSTER, name="c", shares=True, beside=True))
    assert (CLUSTER, "c") in world.state.newcomers
    world.lead("c")
    assert not world.may_take("c"), "once"


def test_without_mapped_topics_there_is_nothing_to_share() -> None:
    world = World("a", "b")
    world.topic("plain", "a", "b")
    world.join("c")
    assert world.state.newcomers == {}


def test_queues_that_move_or_may_not_are_left_alone() -> None:
    moving = MappedQueue((Segment("a", 0, 0),), "b")
    segments = tuple(Segment("ab"[n % 2], n, n) for n in range(SEGMENTS_MAX))
    full = MappedQueue(segments, "", SEGMENTS_MAX)
    share = Share("c", 2, Counter(a=1, b=1))
    assert share.of("t", QueueMap(1, Index(1), (moving, full))) == []


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), max_size=8))
def test_a_share_is_one_in_n_and_taken_from_those_who_have_most(topics: list[list[str]]) -> None:
    load = Counter(group for topic in topics for group in topic)
    share = Share("d", 4, load)
    moves = [
        move
        for number, topic in enumerate(topics)
        for move in share.of(f"t{number}", mapped(*topic))
    ]
    assert len(moves) == sum(map(len, topics)) // 4
    assert len({(move.topic, move.queue) for move in moves}) == len(moves)
    assert all(move.target == "d" and move.group in "abc" for move in moves)
