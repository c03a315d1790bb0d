"""A master whose log is damaged: a member of the set takes over, and it repairs as a replica."""

from __future__ import annotations

from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_protocol.types import Offset
from support.replicas import Group, Node


def hand_overs(node: Node) -> list[int]:
    return [one.target for one in node.asked(fx.HandOver) if isinstance(one, fx.HandOver)]


def serving(members: int) -> Group:
    group = Group(members)
    group.elect(1)
    group.write(1, b"abc")
    return group


def test_a_master_with_damage_has_a_member_of_the_set_take_over() -> None:
    group = serving(3)
    group.tick(40)
    assert hand_overs(group[1]) == []
    group[1].step(ev.LogDamaged(Offset(0)))
    group.tick(40)
    (heir,) = hand_overs(group[1])
    assert heir in (2, 3)
    assert group[1].core.serving is not None, "until the controllers agree, it serves"
    group.elect(heir)
    group.tick(2_000)
    assert hand_overs(group[heir]) == [], "it knows of no damage"


def test_alone_it_stays_the_master() -> None:
    group = serving(1)
    group[1].step(ev.LogDamaged(Offset(0)))
    group.tick(5_000)
    assert hand_overs(group[1]) == []
    assert group[1].core.serving is not None


def test_a_replica_asks_for_nothing() -> None:
    group = serving(3)
    group[2].step(ev.LogDamaged(Offset(0)))
    group.tick(1_000)
    group.elect(2)
    group.tick(1_000)
    assert hand_overs(group[2]) == [], "what it could not repair it says again when it is promoted"


def test_members_that_lack_the_same_range_ask_each_other_a_few_times_only() -> None:
    """And not the same member twice while there is another, who may have it."""
    group = serving(3)
    lack, master, asked = {1, 2}, 1, []
    for _ in range(12):
        if master in lack:
            group[master].step(ev.LogDamaged(Offset(7)))
        group.tick(400)
        heirs = hand_overs(group[master])
        new = heirs[sum(who == master for who, _ in asked) :]
        if not new:
            break
        asked.append((master, new[0]))
        group[master].step(ev.HandOverFinished(accepted=True))
        master = new[0]
        group.elect(master)
        group.tick(2_000)
    assert asked == [(1, 2), (2, 1), (1, 3)]
    for _ in range(8):  # and where it has it no more, either
        group.elect(1)
        group.tick(2_000)
        group[1].step(ev.LogDamaged(Offset(7)))
        group.tick(2_000)
    assert len(hand_overs(group[1])) == 2


def test_a_refusal_is_no_mastership_given_away() -> None:
    group = serving(3)
    group[1].step(ev.LogDamaged(Offset(7)))
    for _ in range(6):
        group.tick(3_000)
        group[1].step(ev.HandOverFinished(accepted=False))
    assert len(hand_overs(group[1])) >= 5
