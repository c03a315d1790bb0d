"""The groups that queues are proposed to go to: those that can take messages."""

from __future__ import annotations

from gantry_controller.metadata.candidates import candidates, may_have_queues
from gantry_controller.metadata.events import MapQueues, RetireGroup, TakeTopics
from gantry_controller.metadata.given_up import WAIT_S, GoneGroups
from gantry_controller.metadata.leaving import DrainedGroups
from gantry_controller.metadata.queue_maps import places_for
from gantry_controller.metadata.shares import Shares
from gantry_controller.metadata.state import BrokerGroup
from support.metadata_cluster import Cluster
from support.metadata_world import CLUSTER


class World(Cluster):
    """Groups a and b with queues of a topic, and one that was only declared."""

    def __init__(self, *names: str) -> None:
        super().__init__(*(names or ("a", "b")))
        assert self.apply(MapQueues(cluster=CLUSTER, topic="t", queues=6)).ok
        self.add("new")
        self.dead: set[str] = set()

    def serves(self, group: BrokerGroup) -> bool:
        return group.name not in self.dead

    def candidates(self) -> list[str]:
        return candidates(self.state, CLUSTER, self.serves)


def test_a_group_that_never_had_a_master_is_proposed_for_no_queue() -> None:
    world = World()
    assert may_have_queues(world.state, CLUSTER) == ["a", "b", "new"], "what the log may name"
    places = places_for(world.state, CLUSTER, "u", 8, {}, world.serves)
    assert {group for _, group in places} == {"a", "b"}
    assert world.drain("a").ok
    (event,) = DrainedGroups(world.state, world.serves).due(0.0)
    assert [target for _, target in event.places] == ["b"] * 3


def test_queues_of_a_group_that_is_gone_wait_for_a_living_master() -> None:
    world = World()
    gone = GoneGroups(world.state, world.serves)
    assert world.apply(RetireGroup(cluster=CLUSTER, name="a", uid="u-a")).ok
    world.dead = {"b"}
    gone.due(0.0)
    assert gone.due(WAIT_S) == []
    world.dead = set()
    (event,) = gone.due(2 * WAIT_S)
    assert {target for _, target in event.places} == {"b"}


def test_a_share_counts_the_groups_that_had_a_master() -> None:
    world = World()
    world.add("c")
    world.apply(TakeTopics(cluster=CLUSTER, name="c", shares=True))
    world.lead("c")
    event = Shares(world.state, world.serves).due(0.0)[0]
    assert isinstance(event, MapQueues)
    assert len(event.places) == 2, "one of three, not one of four"


def test_groups_with_a_living_master_come_before_the_dead_and_these_before_the_new() -> None:
    world = World()
    assert world.candidates() == ["a", "b"]
    world.dead = {"a"}
    assert world.candidates() == ["b"]
    world.dead = {"a", "b"}
    assert world.candidates() == ["a", "b"]
    for name in ("a", "b"):
        assert world.apply(RetireGroup(cluster=CLUSTER, name=name, uid=f"u-{name}")).ok
    assert world.candidates() == ["new"]
