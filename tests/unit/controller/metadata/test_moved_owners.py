"""Owners of mapped queues: they move with their queue, also from a group that is gone."""

from __future__ import annotations

import pytest
from gantry_controller.metadata import locks as module
from gantry_controller.metadata import snapshot
from gantry_controller.metadata.clients import QueueOwner
from gantry_controller.metadata.events import (
    CleanBrokerData,
    MapQueues,
    RemoveGroup,
    ReportLocks,
    RetireGroup,
    SealQueues,
)
from gantry_controller.metadata.given_up import WAIT_S, GoneGroups
from gantry_protocol.queue_map import MAPPED_QUEUES_MAX
from gantry_protocol.types import BrokerId, Epoch
from support.metadata_cluster import Cluster
from support.metadata_world import CLUSTER

TOPIC = "t"
CAME = MAPPED_QUEUES_MAX  # to be added to a queue's number for each move

Owners = dict[tuple[str, int], str]


class World(Cluster):
    """Groups ``a`` and ``b``; queues 0 and 1 are at ``a``, and 2 is at ``b``."""

    def __init__(self) -> None:
        super().__init__("a", "b")
        self.place({0: "a", 1: "a", 2: "b"})

    def place(self, places: dict[int, str]) -> None:
        event = MapQueues(
            cluster=CLUSTER, topic=TOPIC, queues=3, places=tuple(sorted(places.items()))
        )
        assert self.apply(event).ok

    def report(self, name: str, serial: int, owners: Owners, topic: str = TOPIC) -> bool:
        """By consumer group and queue of the group, who owns it now."""
        groups: dict[str, tuple[QueueOwner, ...]] = {}
        for (group, queue_id), client in owners.items():
            groups[group] = (*groups.get(group, ()), QueueOwner(topic, queue_id, client))
        event = ReportLocks(
            cluster=CLUSTER,
            name=name,
            broker_id=BrokerId(1),
            master_epoch=Epoch(1),
            incarnation=name,
            serial=serial,
            groups=groups,
        )
        return self.apply(event).ok

    def seal(self, name: str, *numbers: int, owners: bool = True) -> None:
        event = SealQueues(
            cluster=CLUSTER,
            name=name,
            broker_id=BrokerId(1),
            master_epoch=Epoch(1),
            incarnation=name,
            topic=TOPIC,
            ends=tuple((number, 10) for number in numbers),
            owners=owners,
        )
        assert self.apply(event).ok

    def owners(self, name: str, topic: str = TOPIC) -> Owners:
        return {
            (group, item.queue_id): item.client_id
            for group, items in self.state.lock_table((CLUSTER, name)).groups.items()
            for item in items
            if item.topic == topic
        }

    def give_up(self) -> None:
        """What is gone now has been for long enough."""
        gone = GoneGroups(self.state)
        assert gone.due(0.0) == []
        events = gone.due(WAIT_S)
        assert events
        for event in events:
            assert self.apply(event).ok


def test_owners_are_known_where_their_queue_goes_on() -> None:
    world = World()
    world.report("a", 1, {("g", 0): "x", ("h", 0): "y", ("g", 1): "z"})
    world.report("a", 2, {("g", 0): "plain"}, topic="u")
    world.report("b", 1, {("g", 2): "w"})
    world.place({0: "b", 1: "b"})
    world.seal("a", 0)
    assert world.owners("b") == {("g", 2): "w", ("g", CAME): "x", ("h", CAME): "y"}
    assert world.state.lock_table((CLUSTER, "b")).count == 3
    assert world.owners("b", "u") == {}, "a queue of that id of another topic stays"
    world.seal("a", 1)
    assert world.owners("b")["g", CAME + 1] == "z"
    assert world.report("b", 2, {("g", CAME): ""}), "its master goes on counting"
    assert ("g", CAME) not in world.owners("b")


def test_the_group_before_keeps_its_owners_until_its_master_frees_them() -> None:
    """Clients that see the queues of each group lock them by the same numbers."""
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.place({0: "b"})
    world.seal("a", 0)
    assert world.owners("a") == {("g", 0): "x"}
    assert world.report("a", 2, {("g", 0): ""})
    assert (world.owners("a"), world.owners("b")) == ({}, {("g", CAME): "x"})


def test_who_owned_it_at_its_last_place_counts_and_nobody_from_before() -> None:
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.place({0: "b"})
    world.seal("a", 0)
    world.report("b", 1, {("g", CAME): "y"})
    world.place({0: "a"})
    world.seal("b", 0)
    assert world.owners("a") == {("g", 0): "x", ("g", 2 * CAME): "y"}


def test_a_move_that_was_taken_back_moves_nobody() -> None:
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.place({0: "b"})
    world.place({0: "a"})
    world.seal("a", 0)
    assert (world.owners("a"), world.owners("b")) == ({("g", 0): "x"}, {})


def test_an_event_of_before_moves_queues_alone() -> None:
    """Controllers that applied it as an older version have the same state."""
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.place({0: "b"})
    world.seal("a", 0, owners=False)
    assert world.owners("b") == {}


@pytest.mark.parametrize("how", ["retired", "removed"])
def test_the_last_known_owners_of_a_group_that_is_gone_have_its_queues(how: str) -> None:
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.report("a", 2, {("g", 5): "plain"}, topic="u")
    if how == "retired":
        world.apply(RetireGroup(cluster=CLUSTER, name="a", uid="u-a"))
    else:
        world.apply(RemoveGroup(cluster=CLUSTER, name="a", uid="u-a", owners=True))
        assert world.owners("a") == {("g", 0): "x"}
        assert world.owners("a", "u") == {}
    world.give_up()
    assert world.owners("b") == {("g", CAME): "x"}
    left = {("g", 0): "x"} if how == "retired" else {}
    assert world.owners("a") == left, "nobody is there to free what a removed group has"
    assert ((CLUSTER, "a") in world.state.locks) == bool(left)


def test_a_group_without_declaration_that_is_struck_keeps_them_likewise() -> None:
    world = World()
    key = (CLUSTER, "a")
    world.state.put(world.state.groups[key], declaration=None)
    world.report("a", 1, {("g", 0): "x"})
    world.apply(CleanBrokerData(cluster=CLUSTER, name="a", clean_living=True, owners=True))
    assert world.state.groups[key].removed
    world.give_up()
    assert world.owners("b") == {("g", CAME): "x"}


def test_owners_of_a_removed_group_end_with_it_for_an_event_of_before() -> None:
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.apply(RemoveGroup(cluster=CLUSTER, name="a", uid="u-a"))
    assert (CLUSTER, "a") not in world.state.locks


def test_a_full_group_takes_those_who_come_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOCKS_MAX", 1)
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.report("b", 1, {("g", 2): "w"})
    world.place({0: "b"})
    world.seal("a", 0)
    assert world.owners("b") == {("g", 2): "w", ("g", CAME): "x"}
    assert not world.report("b", 2, {("h", 2): "v"})
    assert world.report("b", 2, {("g", CAME): "y"})


def test_a_snapshot_has_them() -> None:
    world = World()
    world.report("a", 1, {("g", 0): "x"})
    world.place({0: "b"})
    world.seal("a", 0)
    again = snapshot.assemble(list(snapshot.take(world.state)))
    assert again.locks == world.state.locks
    assert again.digest() == world.state.digest()


def test_a_group_that_was_back_for_a_moment_is_not_given_up_for_the_time_before() -> None:
    """Its master has told owners since, and is to know that the group is gone."""
    world = World()
    gone = GoneGroups(world.state)
    world.apply(RetireGroup(cluster=CLUSTER, name="a", uid="u-a"))
    assert gone.due(0.0) == []
    assert gone.due(WAIT_S - 1) == []
    world.add("a")
    gone.applied(world.state.groups[CLUSTER, "a"])
    gone.applied(world.apply(RetireGroup(cluster=CLUSTER, name="a", uid="u-a")).group)  # type: ignore[arg-type]
    assert gone.due(WAIT_S) == []
    assert gone.due(2 * WAIT_S - 1) == []
    assert gone.due(2 * WAIT_S)
