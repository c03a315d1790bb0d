"""The sync-state set: shrink, expand, and attempts of unknown outcome (H5, H6, H7)."""

from __future__ import annotations

import pytest
from gantry_broker.replica import DEFAULT_LIMITS, ControllerView
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.events import Adopted, Event, ProposalFinished, Refused, Unknown
from gantry_broker.replica.syncset import Member, SyncStateSet
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.replicas import Group

LINK_CLOSED_MS = DEFAULT_LIMITS.link_closed_ms
LAG_MS = DEFAULT_LIMITS.lag_ms


def ids(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, numbers))


# ---- shrink


def test_a_closed_link_costs_the_membership_soon() -> None:
    group = Group(3)
    group.elect(1)
    group.unreachable = {3}
    group.cut_links(3)
    group.tick(LINK_CLOSED_MS - 40)
    assert group[1].asked(fx.Propose) == []
    group.tick(40)
    assert group[1].last_proposal() == fx.Propose(
        attempt=1, master_epoch=Epoch(1), sync_state_set=ids(1, 2), sync_state_set_epoch=1
    )


def test_a_link_that_comes_back_in_time_costs_nothing() -> None:
    group = Group(3)
    group.elect(1)
    group.cut_links(3)
    group.tick(2 * LINK_CLOSED_MS)
    assert group[1].asked(fx.Propose) == []


def test_a_member_that_never_connects_gets_time_to_learn_of_the_epoch() -> None:
    group = Group(3)
    group.unreachable = {3}
    group.elect(1)
    group.tick(DEFAULT_LIMITS.connect_grace_ms - 60)
    assert group[1].asked(fx.Propose) == []
    group.tick(60)
    assert group[1].last_proposal().sync_state_set == ids(1, 2)


@pytest.mark.parametrize("writing", [True, False], ids=["under load", "idle"])
def test_a_member_that_stands_still_leaves_after_the_lag(writing: bool) -> None:
    group = Group(3)
    group.elect(1)
    group.held = {3}
    for _ in range(LAG_MS // 20 + 2):
        if writing:
            group.write(1, b"x")
        group.tick(20)
    assert group[1].last_proposal().sync_state_set == ids(1, 2)


def test_a_slow_member_that_keeps_passing_old_ends_stays() -> None:
    """It is never quite at the end, but never LAG_MS behind either."""
    group = Group(2)
    group.elect(1)
    for _ in range(LAG_MS // 20 * 2):
        group.held = {2}
        group.write(1, b"x" * 10)
        group.held = set()
        group.write(1, b"x")
        group.release(2)
        group.tick(20)
    assert group[1].asked(fx.Propose) == []


def test_a_member_that_falls_further_and_further_behind_leaves() -> None:
    """It acknowledges all the time, but never what was written within the lag."""
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    disk = group[2].disk
    for _ in range(3 * LAG_MS // 20):
        group.write(1, b"x" * 10)
        group.tick(20)
        done = disk.flushed + 2
        disk.flushed = done
        group[2].step(ev.LogFlushed(Offset(done), group[2].facts.cuts))
        group.run()
    assert group[1].last_proposal().sync_state_set == ids(1)


@pytest.mark.parametrize(("behind_ms", "stays"), [(LAG_MS // 4, True), (LAG_MS * 3 // 4, False)])
def test_a_member_that_is_steadily_behind(behind_ms: int, stays: bool) -> None:
    """The moment it is known to have had everything is between one and two lags old."""
    group = Group(2)
    group.elect(1)
    group[2].flushing = False
    ends: list[int] = []
    for _ in range(3 * LAG_MS // 20):
        group.write(1, b"x")
        ends.append(group[1].facts.end)
        if len(ends) > behind_ms // 20:
            flushed = Offset(ends[-1 - behind_ms // 20])
            group[2].step(ev.LogFlushed(flushed, group[2].facts.cuts))
        group.tick(20)
    assert bool(group[1].asked(fx.Propose)) is not stays


def test_our_own_standing_still_is_no_evidence() -> None:
    group = Group(3)
    group.elect(1)
    group.now_ms += 10 * LAG_MS
    group.tick(20)
    group.tick(LAG_MS // 2)
    assert group[1].asked(fx.Propose) == []


def test_a_leaving_member_goes_at_once_while_enough_stay() -> None:
    group = Group(3)
    group.elect(1)
    group[3].step(_drain())
    group.run()
    assert group[1].last_proposal().sync_state_set == ids(1, 2)
    assert group[3].asked(fx.DrainEnded) == []
    group.accept(group[1])
    group.tick(20)
    assert len(group[3].asked(fx.DrainEnded)) == 1


def test_a_leaving_member_stays_in_the_set_when_it_is_needed() -> None:
    group = Group(2)
    group.elect(1)
    group[2].step(_drain())
    group.tick(DEFAULT_LIMITS.drain_wait_ms - 40)
    assert group[1].asked(fx.Propose) == []
    assert group[2].asked(fx.DrainEnded) == []
    group.tick(60)
    assert len(group[2].asked(fx.DrainEnded)) == 1


def _drain() -> Event:
    from gantry_broker.replica.events import DrainRequested

    return DrainRequested()


# ---- expand


def test_a_replica_joins_at_confirm_and_not_before() -> None:
    group = Group(3)
    group.unreachable = {3}
    group.elect(1, {1, 2})
    group.write(1, b"abc")
    group.unreachable = set()
    group[3].flushing = False
    group.tick(200)
    assert group[1].asked(fx.Propose) == []
    group[3].flush()
    group.run()
    assert group[1].last_proposal().sync_state_set == ids(1, 2, 3)


def test_a_replica_joins_only_with_the_whole_log_of_the_epochs_beginning() -> None:
    """End >= epoch_start, though confirm is lower: records below may yet be confirmed."""
    group = Group(3)
    group.elect(1)
    group[2].flushing = False
    group.held = {3}
    group.write(1, b"abcdef")
    assert group[1].facts.confirm == 0
    group.held = set()
    group.unreachable = {2, 3}
    group.elect(1, {1, 2})
    group[3].flushing = False
    group.unreachable = {2}
    group.tick(200)
    assert group[3].facts.end == 6
    assert group[1].asked(fx.Propose) == []
    group[3].flush()
    group.run()
    assert group[1].last_proposal().sync_state_set == ids(1, 2, 3)


def counted(group: Group) -> frozenset[BrokerId]:
    assert group[1].core.serving is not None
    return group[1].core.serving.counted


@pytest.mark.parametrize("is_back", [False, True], ids=["new", "back in a newer epoch"])
def test_nobody_waits_for_a_replica_that_has_much_to_copy(is_back: bool) -> None:
    group = Group(3)
    if is_back:
        group.elect(2)
        group.write(2, b"abc")
    group.unreachable = {3}
    group.elect(1, {1, 2})
    group.write(1, bytes(3 * DEFAULT_LIMITS.window_bytes))
    group[3].flushing = False
    group.unreachable = set()
    group.tick(200)
    for _ in range(2):
        group[3].flush()
        group.run()
        assert 0 < group[3].facts.flushed < group[1].facts.confirm
        assert counted(group) == ids(1, 2)
        group.write(1, b"abc")
        assert group[1].facts.confirm == group[1].facts.end, "writes go on"
    group[3].flush()
    group.run()
    assert counted(group) == ids(1, 2, 3), "it has what there was when it came"
    group[3].flush()
    group.run()
    assert group[1].last_proposal().sync_state_set == ids(1, 2, 3)


def test_who_opens_another_link_shows_again_that_it_is_close() -> None:
    """What it held on the link before may have been cut since."""
    member = Member(BrokerId(3), 0)
    for link in (1, 2):
        member.greeted(link, Offset(3), Offset(6), draining=False)
        member.sent = Offset(6)
        assert member.acknowledged(Offset(3), Offset(6), 10) is None
        assert member.seen_whole_ms is None
        assert member.acknowledged(Offset(6), Offset(6), 20) is None
        assert member.seen_whole_ms == 20
    member.excuse(500)
    assert member.seen_whole_ms == 520


def test_a_leaving_replica_does_not_join() -> None:
    group = Group(3)
    group.unreachable = {3}
    group.elect(1, {1, 2})
    group[3].step(_drain())
    group.unreachable = set()
    group.tick(400)
    assert group[1].asked(fx.Propose) == []


def test_a_stopped_replica_that_was_at_the_end_does_not_flap_back() -> None:
    group = Group(3)
    group.elect(1)
    group.stopped = {3}
    group.tick(LAG_MS + 40)
    group.accept(group[1])
    group.tick(LAG_MS)
    assert len(group[1].asked(fx.Propose)) == 1
    group.release(3)
    group.tick(400)
    assert group[1].last_proposal().sync_state_set == ids(1, 2, 3)


# ---- attempts


def fresh(*members: int) -> SyncStateSet:
    view = ControllerView(
        master_epoch=Epoch(4), sync_state_set=ids(*members), sync_state_set_epoch=7
    )
    return SyncStateSet(BrokerId(1), view, DEFAULT_LIMITS)


def finish(one: SyncStateSet, outcome: Adopted | Refused | Unknown, now_ms: int = 0) -> bool:
    assert one.pending is not None
    return one.finished(ProposalFinished(one.pending.attempt, outcome), now_ms)


def test_one_attempt_at_a_time_with_both_epochs() -> None:
    one = fresh(1, 2)
    assert one.plan(ids(1, 2), 0) is None
    assert one.plan(ids(1, 2, 3), 0) == fx.Propose(
        attempt=1, master_epoch=Epoch(4), sync_state_set=ids(1, 2, 3), sync_state_set_epoch=7
    )
    assert one.plan(ids(1), 0) is None
    assert one.counted == ids(1, 2, 3)


def test_an_adopted_attempt_is_the_set() -> None:
    one = fresh(1, 2)
    one.plan(ids(1), 0)
    assert one.counted == ids(1, 2)
    assert finish(one, Adopted(ids(1), 8))
    assert (one.members, one.epoch, one.counted) == (ids(1), 8, ids(1))


def test_a_refused_attempt_changes_nothing_and_is_not_repeated_at_once() -> None:
    one = fresh(1, 2)
    one.plan(ids(1, 2, 3), 0)
    assert not finish(one, Refused("not alive"))
    assert one.counted == ids(1, 2)
    assert one.plan(ids(1, 2, 3), DEFAULT_LIMITS.retry_first_ms - 1) is None
    assert one.plan(ids(1, 2, 3), DEFAULT_LIMITS.retry_first_ms) is not None


def test_an_attempt_of_unknown_outcome_counts_until_the_set_epoch_moves() -> None:
    one = fresh(1, 2)
    one.plan(ids(1, 2, 3), 0)
    finish(one, Unknown())
    assert one.counted == ids(1, 2, 3)
    later = 10_000
    again = one.plan(ids(1, 2), later)
    assert again is not None
    assert again.sync_state_set == ids(1, 2, 3)
    finish(one, Refused("not alive"), later)
    assert one.counted == ids(1, 2, 3), "the first attempt may still be on its way"


def test_a_fence_closes_an_attempt_that_cannot_be_repeated() -> None:
    one = fresh(1, 2)
    one.plan(ids(1, 2, 3), 0)
    finish(one, Unknown())
    one.plan(ids(1, 2), 10_000)
    finish(one, Refused("not alive"), 10_000)
    fence = one.plan(ids(1, 2), 20_000)
    assert fence is not None
    assert fence.sync_state_set == ids(1)
    assert finish(one, Adopted(ids(1), 8), 20_000)
    assert one.counted == ids(1)
    back = one.plan(ids(1, 2), 20_000)
    assert back is not None
    assert back.sync_state_set == ids(1, 2)


def test_an_unknown_shrink_needs_no_fence() -> None:
    one = fresh(1, 2)
    one.plan(ids(1), 0)
    finish(one, Unknown())
    assert one.counted == ids(1, 2)
    assert one.plan(ids(1, 2), 10_000) is None


def test_a_view_with_a_higher_set_epoch_closes_everything() -> None:
    one = fresh(1, 2)
    one.plan(ids(1, 2, 3), 0)
    finish(one, Unknown())
    assert not one.adopt(ids(1, 2), 7)
    assert one.adopt(ids(1, 2), 8)
    assert one.counted == ids(1, 2)


def test_an_attempt_overtaken_by_a_view_leaves_no_doubt() -> None:
    one = fresh(1, 2)
    one.plan(ids(1, 2, 3), 0)
    one.adopt(ids(1, 2), 8)
    finish(one, Unknown())
    assert one.counted == ids(1, 2)
    assert one.plan(ids(1, 2, 3), 0) is not None


def test_an_answer_to_an_attempt_that_is_not_pending_is_ignored() -> None:
    one = fresh(1, 2)
    assert not one.finished(ProposalFinished(99, Adopted(ids(1), 50)), 0)
    assert one.epoch == 7


def test_a_refusal_makes_the_master_read_the_group_anew() -> None:
    group = Group(3)
    group.elect(1, {1, 2})
    group.answer(group[1], Refused("fenced"))
    assert any("fenced" in effect.reason for effect in group[1].asked(fx.AskView))  # type: ignore[attr-defined]  # AskView
