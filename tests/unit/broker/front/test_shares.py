"""The member that a front reads from next."""

from __future__ import annotations

from gantry_broker.front.core.shares import HALF_S, Shares


def test_reads_are_spread_evenly_and_the_master_is_the_last_of_equals() -> None:
    shares = Shares()
    taken = []
    for _ in range(6):
        member = shares.pick((0, 2, 3))
        taken.append(member)
        shares.asked(member)
        shares.answered(member, 1_000, 0.0)
    assert taken == [2, 3, 0, 2, 3, 0]
    assert shares.read_bytes == {2: 2_000, 3: 2_000, 0: 2_000}


def test_readers_that_come_together_go_to_different_members() -> None:
    shares = Shares()
    taken = []
    for _ in range(9):
        taken.append(shares.pick((0, 2, 3)))
        shares.asked(taken[-1])
    assert sorted(taken) == [0, 0, 0, 2, 2, 2, 3, 3, 3]


def test_a_read_that_brought_nothing_is_no_load() -> None:
    shares = Shares()
    shares.asked(2)
    shares.answered(2, 0, 0.0)
    assert shares.pick((0, 2)) == 2
    assert shares.read_bytes == {}


def test_what_was_long_ago_counts_little() -> None:
    shares = Shares()
    for member, at_s in ((2, 0.0), (3, 20 * HALF_S)):
        shares.asked(member)
        shares.answered(member, 1_000, at_s)
    assert shares.pick((2, 3)) == 2
    assert shares.pick((0, 3)) == 0


def test_one_member_is_enough() -> None:
    assert Shares().pick((0,)) == 0
