"""Segments of queue maps that are released: by whose word, and what is never dropped."""

from __future__ import annotations

import pytest
from gantry_controller.metadata.events import (
    MapQueues,
    ReleaseSegments,
    RemoveGroup,
    RetireGroup,
    SealQueues,
)
from gantry_controller.metadata.leaving import DrainedGroups
from gantry_controller.metadata.results import Result
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

AGAIN = MAPPED_QUEUES_MAX
A, B, BACK = Segment("a", 0, 0), Segment("b", 5, AGAIN), Segment("a", 9, 2 * AGAIN)


class World(Cluster):
    """Three groups, and a topic of one queue that was at two of them and came back."""

    def __init__(self, *segments: Segment) -> None:
        super().__init__("a", "b", "c")
        self.put(MappedQueue(segments or (A, B, BACK), "", 2))

    def put(self, *queues: MappedQueue) -> None:
        self.state.put_queue_map(CLUSTER, "t", QueueMap(7, self.state.index, queues))

    def move(self, number: int, group: str) -> Result:
        places = ((number, group),)
        queues = len(self.map.queues)
        return self.apply(MapQueues(cluster=CLUSTER, topic="t", queues=queues, places=places))

    def release(self, group: str, *least: tuple[int, int, int], **fields: object) -> Result:
        known = self.state.groups[CLUSTER, group]
        evidence = {
            "topic": "t",
            "broker_id": BrokerId(1),
            "master_epoch": known.master_epoch,
            "incarnation": known.master_incarnation,
            **fields,
        }
        return self.apply(ReleaseSegments(cluster=CLUSTER, name=group, least=least, **evidence))

    @property
    def map(self) -> QueueMap:
        return self.state.queue_maps[CLUSTER, "t"]

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.map.queues[0].segments


def test_the_first_segment_goes_once_nothing_is_left_of_it() -> None:
    world = World()
    assert not world.release("a", (0, 0, 4)).changed, "one message is left"
    assert world.release("a", (0, 0, 5)).changed
    assert world.segments == (B, BACK)
    assert (world.map.epoch, world.map.changed) == (8, world.state.index)
    assert world.map.queues[0].moves == 2, "no id of a segment comes again"
    before = world.map
    assert world.release("a", (0, 0, 5)).ok, "a report that comes again"
    assert world.map is before
    assert world.release("b", (0, AGAIN, 9)).changed
    assert world.segments == (BACK,)


@pytest.mark.parametrize(
    ("group", "least"),
    [
        ("b", (0, AGAIN, 9)),  # not the first one
        ("b", (0, 0, 5)),  # another group's
        ("a", (0, 2 * AGAIN, 9)),  # the open one
        ("c", (0, 0, 99)),  # never had it
    ],
)
def test_nothing_else_goes(group: str, least: tuple[int, int, int]) -> None:
    world = World()
    before = world.map
    assert world.release(group, least).ok
    assert world.map is before


def test_the_open_segment_stays_whatever_its_master_says() -> None:
    world = World(BACK)
    assert world.release("a", (0, 2 * AGAIN, 10**9)).ok
    assert world.segments == (BACK,)


def test_a_segment_without_a_message_goes_at_its_masters_word() -> None:
    empty, following = Segment("b", 9, AGAIN), Segment("a", 9, 2 * AGAIN)
    world = World(empty, following)
    assert not world.release("b", (0, AGAIN, 8)).changed
    assert world.release("b", (0, AGAIN, 9)).changed
    assert world.segments == (following,)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"master_epoch": Epoch(0)}, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
        ({"broker_id": BrokerId(2)}, ResponseCode.CONTROLLER_INVALID_MASTER),
        ({"incarnation": "another"}, ResponseCode.CONTROLLER_INVALID_MASTER),
        ({"topic": "unknown"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_only_the_master_of_the_present_epoch_says_so(
    fields: dict[str, object], code: ResponseCode
) -> None:
    world = World()
    digest = world.state.digest()
    assert world.release("a", (0, 0, 5), **fields).code == code
    assert world.release("a", (0, 0, 5), (1, 0, 5)).code == ResponseCode.INVALID_PARAMETER
    assert world.state.digest() == digest


def test_what_a_group_that_is_away_holds_stays() -> None:
    world = World()
    assert world.apply(RetireGroup(cluster=CLUSTER, name="a", uid="u-a")).ok
    assert world.segments == (A, B, BACK)
    assert world.release("b", (0, AGAIN, 9)).ok
    assert world.segments == (A, B, BACK)


def test_a_segment_that_was_given_up_goes_once_it_has_its_end() -> None:
    anew = Segment("b", GAP, AGAIN)
    world = World(A, anew)
    assert not world.release("a", (0, 0, 5)).changed, "its end is not known"
    known = world.state.groups[CLUSTER, "a"]
    ends = SealQueues(
        cluster=CLUSTER,
        name="a",
        topic="t",
        broker_id=BrokerId(1),
        master_epoch=known.master_epoch,
        incarnation=known.master_incarnation,
        ends=((0, 5),),
    )
    assert world.apply(ends).changed
    assert world.segments == (A, Segment("", 5, -1), anew)
    assert world.release("a", (0, 0, 5)).changed
    assert world.segments == (anew,), "and with it what is nobody's"


def test_what_a_removed_group_held_is_nobodys() -> None:
    """Its name may come again, with other volumes, where readers would wait for ever."""
    third = Segment("c", 20, 3 * AGAIN)
    world = World(A, B, BACK, third)
    assert world.apply(RemoveGroup(cluster=CLUSTER, name="b", uid="u-b")).ok
    assert world.segments == (A, Segment("", 5, -1), BACK, third)
    assert world.map.changed == world.state.index, "brokers hear of it"
    assert world.release("a", (0, 0, 5)).changed
    assert world.segments == (BACK, third)
    assert world.apply(RemoveGroup(cluster=CLUSTER, name="c", uid="u-c")).ok
    assert world.segments == (BACK, third), "an open one is given up later"
    assert world.apply(RemoveGroup(cluster=CLUSTER, name="a", uid="u-a")).ok
    assert world.segments == (third,)


def test_neighbours_that_are_nobodys_become_one() -> None:
    world = World(A, B, Segment("c", 7, 2 * AGAIN), Segment("a", 9, 3 * AGAIN))
    for name in ("b", "c"):
        assert world.apply(RemoveGroup(cluster=CLUSTER, name=name, uid=f"u-{name}")).ok
    assert world.segments == (A, Segment("", 5, -1), Segment("a", 9, 3 * AGAIN))


def full(*, oldest: str = "a", last: str = "b") -> MappedQueue:
    names = [oldest, *"ab" * SEGMENTS_MAX][: SEGMENTS_MAX - 1]
    segments = [Segment(name, n, n * AGAIN) for n, name in enumerate([*names, last])]
    return MappedQueue(tuple(segments), "", SEGMENTS_MAX)


def test_a_full_queue_says_what_lets_it_move() -> None:
    world = World()
    world.put(full())
    assert world.state.segments_most() == SEGMENTS_MAX
    refusal = world.move(0, "c")
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert "64 segments" in (refusal.remark or "")
    assert "broker group a has deleted the oldest messages" in (refusal.remark or "")
    assert world.apply(RetireGroup(cluster=CLUSTER, name="a", uid="u-a")).ok
    assert "a, which has the oldest one, is back" in (world.move(0, "c").remark or "")
    world.add("a")
    assert world.release("a", (0, 0, 1)).changed
    assert world.move(0, "c").ok
    assert world.state.segments_most() == SEGMENTS_MAX - 1


def test_a_full_queue_holds_up_no_other() -> None:
    world = World()
    world.put(full(), MappedQueue((Segment("b", 0, 1),), "", 0))
    world.drain("b")
    (event,) = DrainedGroups(world.state, lambda _: True).due(0.0)
    assert [number for number, _ in event.places] == [1]
