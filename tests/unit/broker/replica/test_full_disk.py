"""A disk that is full: a master gives way to a member with room, or keeps its role and says so."""

from __future__ import annotations

from gantry_broker.replica import Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.stall import GIVES_WAY, STAYS_FULL
from gantry_protocol.types import BrokerId, Epoch
from support.replicas import Group, Node

FULL = ev.RoomChanged(is_full=True, has_room=False)
BETWEEN = ev.RoomChanged(is_full=False, has_room=False)
ROOM = ev.RoomChanged(is_full=False, has_room=True)


def group_with(*rooms: ev.RoomChanged) -> Group:
    """Broker 1 is master of so many; each has said how much room it has."""
    group = Group(len(rooms))
    group.elect(1)
    group.write(1, b"abc")
    for number, room in enumerate(rooms, 1):
        group[number].step(room)
    group.write(1, b"def")  # acknowledgements carry it
    return group


def hand_overs(node: Node) -> list[int]:
    return [one.target for one in node.asked(fx.HandOver) if isinstance(one, fx.HandOver)]


def said(node: Node) -> list[str]:
    return [one.sentence for one in node.asked(fx.DiskFull) if isinstance(one, fx.DiskFull)]


def test_a_master_without_room_gives_way_to_a_member_that_has_some() -> None:
    group = group_with(ROOM, BETWEEN, ROOM)
    group.tick(100)
    assert hand_overs(group[1]) == []
    group[1].step(FULL)
    group.tick(20)
    assert said(group[1]) == [GIVES_WAY]
    assert hand_overs(group[1]) == [], "what is in memory goes to the log first"
    group.tick(20)
    assert group[1].asked(fx.HandOver) == [fx.HandOver(BrokerId(3), Epoch(1))]
    group.tick(500)
    assert len(hand_overs(group[1])) == 1, "one question at a time"
    group.elect(3)
    assert group[1].core.role is Role.FOLLOWING
    assert group[1].asked(fx.DiskHasRoom) == [], "it is as full as before"
    assert bytes(group[3].disk.log) == b"abcdef"


def test_nobody_is_asked_before_all_that_was_written_is_confirmed() -> None:
    group = group_with(ROOM, ROOM, ROOM)
    group[1].step(FULL)
    group[3].flushing = False
    group.write(1, b"ghi")
    group.tick(500)
    assert hand_overs(group[1]) == []
    group[3].flushing = True
    group[3].flush()
    group.tick(40)
    assert hand_overs(group[1]) == [2]


def test_where_nobody_has_room_it_stays_and_says_so_once() -> None:
    group = group_with(ROOM, FULL, BETWEEN)
    group[1].step(FULL)
    group.tick(10_000)
    assert hand_overs(group[1]) == []
    assert said(group[1]) == [STAYS_FULL]
    assert group[1].core.role is Role.MASTER
    group[1].step(BETWEEN)
    group.tick(40)
    assert group[1].asked(fx.DiskHasRoom) == [fx.DiskHasRoom()]


def test_a_member_that_never_spoke_of_room_is_not_asked_for() -> None:
    """An older one does not know how to; nothing follows from its silence."""
    group = Group(3)
    group.elect(1)
    group.write(1, b"abc")
    group[1].step(FULL)
    group.tick(1_000)
    assert hand_overs(group[1]) == []


def test_a_mastership_does_not_come_back_to_who_gave_it_away() -> None:
    """Neither while its disk is full, nor in the band between the two marks."""
    group = group_with(ROOM, ROOM)
    group[1].step(FULL)
    group.tick(40)
    group.elect(2)
    for room in (FULL, BETWEEN):
        group[1].step(room)
        group.write(2, b"x")
        group[2].step(FULL)
        group.tick(1_000)
        assert hand_overs(group[2]) == []
    group[1].step(ROOM)
    group.tick(1_000)
    assert hand_overs(group[2]) == [1], "half a disk later"


def test_a_master_that_leaves_is_relieved_as_one_that_leaves() -> None:
    group = group_with(ROOM, ROOM)
    group[1].step(FULL)
    group[1].step(ev.DrainRequested())
    group.tick(500)
    assert said(group[1]) == []
