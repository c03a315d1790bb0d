"""The order in which controllers are asked."""

import math

from gantry_broker.control.core.order import KnownController, for_reads, for_writes

NEAR = 0.0005
LEADER = KnownController(leads=True, round_trip_s=NEAR, is_aside=False)
FOLLOWER = KnownController(leads=False, round_trip_s=NEAR, is_aside=False)
FAR = KnownController(leads=False, round_trip_s=0.05, is_aside=False)
ASIDE = KnownController(leads=False, round_trip_s=NEAR, is_aside=True)
UNKNOWN = KnownController(leads=False, round_trip_s=math.inf, is_aside=False)


def test_a_change_goes_to_the_leader_first_and_to_the_others_in_turn() -> None:
    controllers = [FOLLOWER, LEADER, FOLLOWER]
    assert [for_writes(controllers, turn) for turn in range(3)] == [[1, 0, 2], [1, 2, 0], [1, 2, 0]]


def test_reads_are_spread_over_the_followers_that_are_near() -> None:
    controllers = [LEADER, FOLLOWER, FOLLOWER]
    assert {for_reads(controllers, turn)[0] for turn in range(6)} == {1, 2}
    assert all(for_reads(controllers, turn)[-1] == 0 for turn in range(6))


def test_a_follower_far_away_is_asked_after_the_near_ones_and_before_the_leader() -> None:
    assert all(for_reads([FAR, LEADER, FOLLOWER], turn) == [2, 0, 1] for turn in range(6))


def test_a_follower_that_could_not_answer_comes_last() -> None:
    assert all(for_reads([ASIDE, LEADER, FOLLOWER], turn) == [2, 1, 0] for turn in range(6))
    assert all(for_reads([ASIDE, LEADER], turn) == [1, 0] for turn in range(6))


def test_whose_distance_is_not_known_yet_are_asked_in_turn() -> None:
    assert {for_reads([UNKNOWN, UNKNOWN], turn)[0] for turn in range(4)} == {0, 1}
    assert for_reads([UNKNOWN, FOLLOWER], 0) == [1, 0]


def test_a_single_controller_is_asked_everything() -> None:
    assert for_reads([LEADER], 7) == for_writes([LEADER], 7) == [0]
    assert for_reads([], 7) == for_writes([], 7) == []
