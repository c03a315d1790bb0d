"""A member that is slow by its history leaves the set, and has to show that it keeps up."""

from __future__ import annotations

import pytest
from gantry_broker.replica import DEFAULT_LIMITS
from gantry_broker.replica import effects as fx
from gantry_broker.replica.membership import wanted_set
from gantry_broker.replica.pace import (
    GOOD_CONDUCT_MS,
    PROBATION_MAX_MS,
    WINDOW_MS,
    Pace,
)
from gantry_protocol.types import BrokerId, Offset
from support.replicas import Group, Node

STALL_MS = DEFAULT_LIMITS.stall_ms
STILL_MS = DEFAULT_LIMITS.still_ms
SLOW_MS = DEFAULT_LIMITS.slow_ms
PROBATION_MS = DEFAULT_LIMITS.probation_ms


def ids(*numbers: int) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, numbers))


class Watched:
    """A pace on a clock of its own; the others hold what was written at once."""

    def __init__(self) -> None:
        self.now_ms, self.held, self.acked = 0, 0, 0
        self.pace = Pace(DEFAULT_LIMITS, 0)

    def run(self, ms: int, *, stalls: bool, writes: bool = True) -> None:
        for _ in range(ms // 20):
            self.now_ms += 20
            self.held += 10 * writes
            if not stalls:
                self.acked = self.held - 10 * writes  # always some records behind
            self.pace.look(Offset(self.acked), Offset(self.held), self.now_ms, waited_for=True)

    def stall(self, ms: int) -> None:
        """So long, and then it has everything of that."""
        self.run(ms, stalls=True)
        self.run(40, stalls=False)

    def be_slow(self) -> None:
        while not self.pace.is_slow:
            self.stall(300)


def test_a_member_that_is_always_a_little_behind_does_not_stall() -> None:
    one = Watched()
    one.run(60_000, stalls=False)
    assert one.pace.recent_ms == one.pace.stalled_ms == 0


def test_what_a_copy_took_does_not_count_once_it_is_complete() -> None:
    """A newcomer stands below the end of the log for as long as it copies what was before."""
    newcomer = Watched()
    newcomer.run(10 * STILL_MS, stalls=True)
    assert newcomer.pace.holds_up
    newcomer.pace.joined(newcomer.now_ms)
    assert not newcomer.pace.holds_up
    newcomer.run(STILL_MS - 100, stalls=True)
    assert not newcomer.pace.holds_up
    newcomer.run(200, stalls=True)
    assert newcomer.pace.holds_up, "it stands still as a member"


def test_a_moment_is_no_stall() -> None:
    one = Watched()
    for _ in range(200):
        one.stall(STALL_MS - 40)
    assert not one.pace.is_slow


def test_nothing_is_waited_for_while_nothing_is_written() -> None:
    one = Watched()
    one.run(WINDOW_MS, stalls=True, writes=False)
    assert one.pace.recent_ms == 0


def test_stalls_are_added_up_over_the_window() -> None:
    one = Watched()
    for _ in range(6):
        one.stall(300)
    assert not one.pace.is_slow
    assert 6 * 280 <= one.pace.recent_ms <= 6 * 340, "each with its beginning"
    one.stall(300)
    assert one.pace.is_slow
    one.run(WINDOW_MS, stalls=False)
    assert one.pace.recent_ms == 0, "and forgotten behind it"


def test_what_costs_less_than_a_quarter_of_the_time_is_borne() -> None:
    one = Watched()
    for _ in range(40):
        one.stall(300)
        one.run(1_200, stalls=False)
        assert not one.pace.is_slow


def test_our_own_standing_still_is_no_stall() -> None:
    one = Watched()
    one.run(60, stalls=True)
    one.now_ms += 10_000
    one.pace.excuse(10_000)
    one.stall(20)
    assert one.pace.recent_ms == 0


def test_who_left_for_it_comes_back_when_it_has_kept_up() -> None:
    one = Watched()
    one.be_slow()
    one.pace.left(one.now_ms)
    one.run(PROBATION_MS - 40, stalls=False)
    assert one.pace.is_out(one.now_ms)
    one.stall(300)
    one.run(PROBATION_MS - 100, stalls=False)
    assert one.pace.is_out(one.now_ms), "it begins again with each stall"
    one.run(200, stalls=False)
    assert not one.pace.is_out(one.now_ms)


def test_stalls_that_would_not_make_it_leave_do_not_keep_it_out() -> None:
    """On a busy machine everybody stalls now and then."""
    one = Watched()
    one.be_slow()
    one.pace.left(one.now_ms)
    for _ in range(5):
        one.stall(300)
        one.run(2_660, stalls=False)
    assert not one.pace.is_out(one.now_ms)
    assert one.pace.recent_ms > 0


def test_each_relapse_costs_twice_as_long_up_to_a_bound() -> None:
    one = Watched()
    waits: list[int] = []
    for _ in range(10):
        one.be_slow()
        one.pace.left(one.now_ms)
        waits.append(one.pace.out_until_ms - one.now_ms)
        one.run(waits[-1], stalls=False)
        assert not one.pace.is_out(one.now_ms)
        one.pace.joined(one.now_ms)
    assert waits[:4] == [PROBATION_MS << times for times in range(4)]
    assert waits[-2:] == [PROBATION_MAX_MS] * 2


def test_good_conduct_is_remembered_and_earlier_departures_are_not() -> None:
    one = Watched()
    for _ in range(3):
        one.be_slow()
        one.pace.left(one.now_ms)
        one.run(one.pace.out_until_ms - one.now_ms, stalls=False)
        one.pace.joined(one.now_ms)
    one.run(GOOD_CONDUCT_MS, stalls=False)
    one.be_slow()
    one.pace.left(one.now_ms)
    assert one.pace.out_until_ms - one.now_ms == PROBATION_MS


def test_who_stood_still_for_good_comes_back_at_once_the_first_time() -> None:
    one = Watched()
    one.run(1_900, stalls=True)
    one.pace.left(one.now_ms)
    assert not one.pace.is_out(one.now_ms)
    one.run(400, stalls=False)
    one.pace.joined(one.now_ms)
    one.run(1_900, stalls=True)
    one.pace.left(one.now_ms)
    assert one.pace.is_out(one.now_ms)


def test_who_stands_still_holds_others_up_from_then_on_and_until_it_goes_on() -> None:
    one = Watched()
    one.run(1_000, stalls=False)
    one.run(STILL_MS - 20, stalls=True)
    assert not one.pace.holds_up
    one.run(60, stalls=True)
    assert one.pace.holds_up
    one.run(40, stalls=False)
    assert not one.pace.holds_up


def test_our_own_pause_is_no_standing_still_of_others() -> None:
    one = Watched()
    one.run(400, stalls=True)
    one.pace.excuse(600)
    one.now_ms += 600
    one.run(200, stalls=True)
    assert not one.pace.holds_up


# ---- in a group


def stalling(group: Group, number: int, times: int = 1, ms: int = 300) -> None:
    """Broker 1 writes all the time; what the other is sent comes after ``ms``, again and again."""
    for _ in range(times):
        group.held = {number}
        for _ in range(ms // 20):
            group.write(1, b"x")
            group.tick()
        group.held = set()
        group.release(number)
        for _ in range(3):
            group.write(1, b"x")
            group.tick()


def keeping_up(group: Group, ms: int) -> None:
    for _ in range(ms // 20):
        group.write(1, b"x")
        group.tick()


def proposals(node: Node) -> list[frozenset[BrokerId]]:
    return [one.sync_state_set for one in node.asked(fx.Propose) if isinstance(one, fx.Propose)]


def slow_group(size: int = 3) -> Group:
    """Broker 3 has just been let go for being slow; nobody ever waited for 2 s."""
    group = Group(size)
    group.elect(1)
    stalling(group, 3, times=8)
    assert proposals(group[1]) == [ids(*range(1, size + 1)) - ids(3)]
    group.accept(group[1])
    return group


def test_a_slow_member_leaves_and_is_not_waited_for_any_more() -> None:
    group = slow_group()
    (said,) = group[1].asked(fx.Slow)
    assert isinstance(said, fx.Slow)
    assert (said.broker_id, said.probation_ms) == (BrokerId(3), PROBATION_MS)
    group.held = {3}
    group.write(1, b"x")
    assert group[1].facts.confirm == group[1].facts.end


def test_it_stays_out_while_it_stalls_and_comes_back_when_it_does_not() -> None:
    group = slow_group()
    stalling(group, 3, times=2 * PROBATION_MS // 360)
    assert len(proposals(group[1])) == 1
    keeping_up(group, PROBATION_MS - 200)
    assert len(proposals(group[1])) == 1
    keeping_up(group, 300)
    assert proposals(group[1])[1:] == [ids(1, 2, 3)]


def test_who_stands_still_leaves_long_before_its_link_is_given_up() -> None:
    group = Group(3)
    group.elect(1)
    group.held = {3}
    keeping_up(group, STILL_MS - 40)
    assert proposals(group[1]) == []
    keeping_up(group, 100)
    assert proposals(group[1]) == [ids(1, 2)]
    group.accept(group[1])
    group.held = set()
    group.release(3)
    keeping_up(group, 200)
    assert proposals(group[1])[1:] == [ids(1, 2, 3)], "and comes back at once"


def test_of_two_that_stand_still_the_minimum_is_waited_for() -> None:
    group = Group(3)
    group.elect(1)
    group.held = {2, 3}
    keeping_up(group, DEFAULT_LIMITS.lag_ms - 100)
    assert proposals(group[1]) == []


def test_who_stays_out_is_not_waited_for_to_join() -> None:
    group = slow_group()
    group.held = {3}
    group.write(1, b"abc")
    group.tick(40)
    group.write(1, b"abc")
    group.tick(40)
    assert group[1].core.serving is not None
    assert group[1].core.serving.counted == ids(1, 2)


@pytest.mark.parametrize(("size", "members"), [(2, {1, 2}), (3, {1, 2})])
def test_the_set_never_falls_below_the_minimum_for_a_slow_member(
    size: int, members: set[int]
) -> None:
    group = Group(size)
    group.unreachable = {3}
    group.elect(1, members)
    stalling(group, 2, times=20)
    assert proposals(group[1]) == []


def test_a_slow_member_stays_when_another_one_is_lost_at_the_same_moment() -> None:
    group = Group(3)
    group.elect(1)
    master = group[1].core.serving
    assert master is not None
    master.members[BrokerId(3)].pace.recent_ms = SLOW_MS
    master.members[BrokerId(2)].caught_up_ms -= DEFAULT_LIMITS.lag_ms
    wanted = wanted_set(
        master.set.members,
        master.members,
        group[1].facts,
        me=BrokerId(1),
        epoch_start=Offset(0),
        min_in_sync=2,
        now_ms=group.now_ms,
        limits=DEFAULT_LIMITS,
    )
    assert wanted == ids(1, 3)


def test_a_slow_member_is_taken_back_when_it_is_needed() -> None:
    group = slow_group()
    keeping_up(group, 200)
    group.unreachable = {2}
    group.cut_links(2)
    keeping_up(group, DEFAULT_LIMITS.link_closed_ms + 40)
    assert proposals(group[1])[1:] == [ids(1, 3)]


def test_two_slow_members_leave_one_after_the_other_down_to_the_minimum() -> None:
    group = Group(4)
    group.elect(1)
    for _ in range(12):
        stalling(group, 3)
        stalling(group, 4)
        if group[1].core.serving is not None and group[1].core.serving.set.pending is not None:
            group.accept(group[1])
    assert [len(one) for one in proposals(group[1])] == [3, 2]


def test_all_that_are_slow_together_are_nobodys_fault() -> None:
    """A disk that all share, or the network of the master."""
    group = Group(3)
    group.elect(1)
    for _ in range(20):
        group.held = {2, 3}
        for _ in range(15):
            group.write(1, b"x")
            group.tick()
        group.held = set()
        group.release(2)
        group.release(3)
        group.tick()
    assert proposals(group[1]) == []
