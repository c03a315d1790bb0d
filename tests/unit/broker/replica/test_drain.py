"""Hand-over: a leaving master loses nothing, waits little, and never comes back in its epoch."""

from __future__ import annotations

from gantry_broker.replica import DEFAULT_LIMITS, Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_protocol.types import BrokerId, Epoch
from msgspec.structs import replace
from support.replicas import Group


def hand_overs(group: Group, number: int = 1) -> list[fx.Effect]:
    return group[number].asked(fx.HandOver)


def drained(group: Group, number: int = 1) -> list[str]:
    return [
        effect.reason
        for effect in group[number].asked(fx.DrainEnded)
        if isinstance(effect, fx.DrainEnded)
    ]


def leaving_group() -> Group:
    group = Group(3)
    group.elect(1)
    group.write(1, b"abc")
    return group


def test_it_hands_over_at_once_to_a_member_that_holds_everything() -> None:
    group = leaving_group()
    group[1].step(ev.DrainRequested())
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(2), epoch=Epoch(1))]
    assert group[1].core.serving is not None
    assert group[1].core.serving.drain is not None


def test_it_waits_for_a_member_to_reach_its_end() -> None:
    group = leaving_group()
    group[2].flushing = group[3].flushing = False
    group.write(1, b"def")
    group[1].step(ev.DrainRequested())
    assert hand_overs(group) == []
    group[3].flush()
    group.tick(DEFAULT_LIMITS.drain_settle_ms - 20)
    assert hand_overs(group) == [], "the slower one may still come, and with it every answer"
    group.tick(20)
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(3), epoch=Epoch(1))]


def test_it_hands_over_as_soon_as_every_send_is_acknowledged() -> None:
    group = leaving_group()
    group[2].flushing = group[3].flushing = False
    group.write(1, b"def")
    group[1].step(ev.DrainRequested())
    group[3].flush()
    group[2].flush()
    group.run()
    assert group[1].facts.confirm == 6
    assert len(hand_overs(group)) == 1


def test_it_does_not_wait_for_ever() -> None:
    group = leaving_group()
    group[2].flushing = group[3].flushing = False
    group.write(1, b"def")
    group[1].step(ev.DrainRequested())
    group.tick(DEFAULT_LIMITS.drain_wait_ms - 40)
    assert hand_overs(group) == []
    group.tick(40)
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(2), epoch=Epoch(1))]


def test_it_never_hands_over_to_a_member_that_leaves_too() -> None:
    group = leaving_group()
    group[2].step(ev.DrainRequested())
    group.run()
    group[1].step(ev.DrainRequested())
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(3), epoch=Epoch(1))]


def test_the_controllers_word_that_a_member_leaves_counts_too() -> None:
    group = leaving_group()
    group.set_epoch += 1
    leaving = replace(group.view(1), draining=frozenset({BrokerId(2)}))
    group[1].step(ev.ViewLearned(leaving))
    group[1].step(ev.DrainRequested())
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(3), epoch=Epoch(1))]


def test_it_never_hands_over_outside_the_set() -> None:
    group = Group(3)
    group.elect(1, {1, 2})
    group.unreachable = {2}
    group.cut_links(2)
    group[1].step(ev.DrainRequested())
    group.tick(DEFAULT_LIMITS.drain_wait_ms)
    assert hand_overs(group) == []
    assert drained(group) == ["no other member of the sync-state set stays"]


def test_all_leave_together_and_the_set_stays() -> None:
    group = leaving_group()
    group[2].step(ev.DrainRequested())
    group[3].step(ev.DrainRequested())
    group.run()
    group[1].step(ev.DrainRequested())
    group.tick(DEFAULT_LIMITS.drain_wait_ms + 40)
    assert hand_overs(group) == []
    assert drained(group) == ["no other member of the sync-state set stays"]
    assert all(
        len(effect.sync_state_set) >= group.min_in_sync
        for effect in group[1].asked(fx.Propose)
        if isinstance(effect, fx.Propose)
    )


def test_a_sole_member_just_goes() -> None:
    group = Group(1, min_in_sync=1)
    group.elect(1)
    group[1].step(ev.DrainRequested())
    assert drained(group) == ["no other member is there to take over"]


def test_a_refused_target_is_not_asked_again() -> None:
    group = leaving_group()
    group[1].step(ev.DrainRequested())
    group[1].step(ev.HandOverFinished(accepted=False))
    group.tick(100)
    assert hand_overs(group)[1:] == [fx.HandOver(target=BrokerId(3), epoch=Epoch(1))]
    group[1].step(ev.HandOverFinished(accepted=False))
    group.tick(100)
    assert drained(group) == ["no other member of the sync-state set stays"]


def test_who_could_not_be_asked_for_is_asked_for_again() -> None:
    """The controllers' leader leaves the node with this master."""
    group = leaving_group()
    group[1].step(ev.DrainRequested())
    for asked in range(1, 5):
        assert hand_overs(group) == [fx.HandOver(target=BrokerId(2), epoch=Epoch(1))] * asked
        group[1].step(ev.HandOverFinished(accepted=False, answered=False))
        assert len(hand_overs(group)) == asked, "not at once"
        group.tick(DEFAULT_LIMITS.retry_first_ms + 20)
    assert drained(group) == []
    group.tick(DEFAULT_LIMITS.drain_give_up_ms)
    assert drained(group) == ["no member took over in time"]


def test_it_gives_up_in_the_end() -> None:
    group = leaving_group()
    group[1].step(ev.DrainRequested())
    group[1].step(ev.HandOverFinished(accepted=True))
    group.tick(DEFAULT_LIMITS.drain_give_up_ms - 40)
    assert drained(group) == []
    group.tick(60)
    assert drained(group) == ["no member took over in time"]


def test_the_old_master_leaves_once_the_new_one_does_not_count_on_it() -> None:
    group = leaving_group()
    group[1].step(ev.DrainRequested())
    group[1].step(ev.HandOverFinished(accepted=True))
    group.elect(2)
    assert group[1].core.role is Role.FOLLOWING
    assert group[2].last_proposal().sync_state_set == {2, 3}
    assert drained(group) == []
    group.accept(group[2])
    group.tick(20)
    assert drained(group) == ["the master does not wait for this replica"]
    assert group[1].asked(fx.Demoted) == [fx.Demoted(Epoch(1))]


def test_a_leaving_broker_that_is_elected_all_the_same_hands_over_again() -> None:
    group = leaving_group()
    group[2].step(ev.DrainRequested())
    group.elect(2)
    assert hand_overs(group, 2) == [fx.HandOver(target=BrokerId(1), epoch=Epoch(2))]


def test_leaving_twice_is_leaving_once() -> None:
    group = leaving_group()
    group[1].step(ev.DrainRequested())
    group[1].step(ev.DrainRequested())
    assert len(hand_overs(group)) == 1


def test_of_members_that_hold_everything_one_in_a_preferred_place_gets_it() -> None:
    group = leaving_group()
    wished = replace(group.view(1), preferred=(frozenset({BrokerId(3)}),))
    group[1].step(ev.ViewLearned(wished))
    group[1].step(ev.DrainRequested())
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(3), epoch=Epoch(1))]


def test_a_preferred_place_costs_no_answer() -> None:
    group = leaving_group()
    wished = replace(group.view(1), preferred=(frozenset({BrokerId(3)}),))
    group[1].step(ev.ViewLearned(wished))
    group[2].flushing = group[3].flushing = False
    group.write(1, b"def")
    group[1].step(ev.DrainRequested())
    group[2].flush()
    group.tick(DEFAULT_LIMITS.drain_settle_ms)
    assert hand_overs(group) == [fx.HandOver(target=BrokerId(2), epoch=Epoch(1))]
