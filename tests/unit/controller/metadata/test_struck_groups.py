"""The first election of a group that has had masters before: everything acknowledged is in it."""

from __future__ import annotations

import pytest
from gantry_controller.metadata.election import decide, first_election_is_due, majority
from gantry_controller.metadata.events import ElectMaster, LiveMember
from gantry_controller.metadata.state import BrokerGroup, Declaration, Member
from gantry_protocol.types import BrokerId, Epoch, Offset


def group(min_in_sync: int, base_epoch: int, replicas: int = 3) -> BrokerGroup:
    members = tuple(
        Member(
            broker_id=BrokerId(number),
            address="",
            check_code="",
            incarnation=f"i{number}",
            registrations=1,
        )
        for number in range(4, 4 + replicas)
    )
    return BrokerGroup(
        "c",
        "g",
        declaration=Declaration("u", replicas, min_in_sync, None),
        members=members,
        base_epoch=Epoch(base_epoch),
        master_epoch=Epoch(base_epoch),
    )


@pytest.mark.parametrize(
    ("min_in_sync", "base_epoch", "enough"),
    [(1, 0, 2), (2, 0, 2), (1, 7, 3), (2, 7, 2), (3, 7, 2)],
)
def test_how_many_must_be_there(min_in_sync: int, base_epoch: int, enough: int) -> None:
    made = group(min_in_sync, base_epoch)
    due = [first_election_is_due(made, alive, first_wait_over=True) for alive in range(4)]
    assert due.index(True) == enough
    assert not first_election_is_due(made, 2, first_wait_over=False)


@pytest.mark.parametrize("replicas", range(1, 8))
def test_whoever_elects_has_one_of_any_volumes_that_acknowledged(replicas: int) -> None:
    for minimum in range(1, replicas + 1):
        made = group(minimum, 1, replicas)
        alive = next(
            count
            for count in range(replicas + 1)
            if first_election_is_due(made, count, first_wait_over=True)
        )
        assert alive + minimum > replicas, "some volumes could all be away"
        assert alive >= majority(replicas)


@pytest.mark.parametrize(
    ("away", "reason"),
    [({"draining": True}, "it drains"), ({"connected": False}, "its connection has just ended")],
)
def test_nothing_speaks_against_the_furthest(away: dict[str, bool], reason: str) -> None:
    live = (
        LiveMember(BrokerId(4), "i4", Epoch(7), Offset(100), connected=True),
        LiveMember(
            BrokerId(5),
            "i5",
            Epoch(7),
            Offset(200),
            connected=away.get("connected", True),
            draining=away.get("draining", False),
        ),
        LiveMember(BrokerId(6), "i6", Epoch(6), Offset(900), connected=True),
    )
    event = ElectMaster(cluster="c", name="g", live=live, first_wait_over=True)
    decision = decide(group(2, 7), event)
    assert getattr(decision, "winner", None) == 5, reason


def test_of_a_group_nobody_declared_the_first_to_ask_must_not_be_behind() -> None:
    made = group(1, 7)
    undeclared = BrokerGroup(
        "c", "g", members=made.members, base_epoch=Epoch(7), master_epoch=Epoch(7)
    )
    live = (
        LiveMember(BrokerId(4), "i4", Epoch(0), Offset(0), connected=True),
        LiveMember(BrokerId(5), "i5", Epoch(7), Offset(200), connected=True),
    )
    for requester, wins in ((4, False), (5, True)):
        event = ElectMaster(cluster="c", name="g", requester=BrokerId(requester), live=live)
        assert hasattr(decide(undeclared, event), "winner") == wins


@pytest.mark.parametrize(
    ("ends", "wins", "reason"),
    [
        ((200, 0), None, "the third may have acknowledged what the first misses"),
        ((0, 200), None, "the same, the other way round"),
        ((200, None), None, "nobody knows how far the second is"),
        ((200, 100), 4, "any two meet whoever has acknowledged"),
        ((0, 0), 4, "nobody holds anything: there were no records, or their volumes are gone"),
        ((0, 300, 200), 5, "all are there"),
        ((0, 0, 200), 6, "all are there"),
        ((200, 300, None), 5, "two that hold records are enough"),
        ((200, None, None), None, "two have not said how far they are"),
    ],
)
def test_empty_volumes_do_not_stand_for_those_that_acknowledged(
    ends: tuple[int | None, ...], wins: int | None, reason: str
) -> None:
    live = tuple(
        LiveMember(BrokerId(number), f"i{number}")
        if end is None
        else LiveMember(BrokerId(number), f"i{number}", Epoch(7 if end else 0), Offset(end))
        for number, end in enumerate(ends, start=4)
    )
    event = ElectMaster(cluster="c", name="g", live=live, first_wait_over=True)
    decision = decide(group(2, 7), event)
    assert getattr(decision, "winner", None) == wins, reason


def test_a_group_without_masters_before_begins_with_empty_volumes() -> None:
    live = tuple(LiveMember(BrokerId(number), f"i{number}") for number in (4, 5))
    event = ElectMaster(cluster="c", name="g", live=live, first_wait_over=True)
    assert getattr(decide(group(2, 0), event), "winner", None) == 4
