"""State digests across the quorum: the majority is right, and only like is compared with like."""

import pytest
from gantry_controller.raft.digests import LAYOUT_SHIFT, POINTS_MAX, DigestPoint, Digests
from gantry_controller.raft.errors import StateDiffersError
from gantry_controller.raft.members import Membership
from gantry_protocol.types import Index, NodeId

THREE = Membership((NodeId(1), NodeId(2), NodeId(3)))
ONE, TWO, THREE_ = NodeId(1), NodeId(2), NodeId(3)


def point(index: int, digest: int) -> DigestPoint:
    return DigestPoint(Index(index), digest)


def test_leader_names_the_follower_that_differs() -> None:
    leader = Digests(ONE)
    leader.take(point(10, 7), THREE)
    assert leader.agreed.index == 0
    leader.heard(THREE_, point(10, 8), THREE)
    assert leader.differing == {3: 10}
    assert leader.agreed.index == 0  # one against one accuses nobody
    leader.heard(TWO, point(10, 7), THREE)
    assert leader.agreed == point(10, 7)
    assert leader.differing == {3: 10}


def test_follower_that_differs_ends() -> None:
    follower = Digests(THREE_)
    follower.take(point(10, 8), THREE)
    with pytest.raises(StateDiffersError, match="node 3 after entry 10"):
        follower.told(point(10, 7))


def test_follower_that_lags_is_compared_when_it_gets_there() -> None:
    follower = Digests(THREE_)
    follower.told(point(10, 7))
    follower.told(point(20, 9))
    with pytest.raises(StateDiffersError, match="entry 10"):
        follower.take(point(10, 8), THREE)


def test_leader_in_the_minority_ends() -> None:
    leader = Digests(ONE)
    leader.take(point(10, 8), THREE)
    leader.heard(TWO, point(10, 7), THREE)
    with pytest.raises(StateDiffersError, match="node 1"):
        leader.heard(THREE_, point(10, 7), THREE)


def test_leader_in_the_minority_ends_when_it_gets_there() -> None:
    leader = Digests(ONE)
    leader.heard(TWO, point(10, 7), THREE)
    leader.heard(THREE_, point(10, 7), THREE)
    with pytest.raises(StateDiffersError):
        leader.take(point(10, 8), THREE)


def test_a_learner_is_no_part_of_a_majority() -> None:
    members = Membership((ONE, TWO), learners=(THREE_,))
    leader = Digests(ONE)
    leader.take(point(10, 7), members)
    leader.heard(THREE_, point(10, 7), members)
    assert leader.agreed.index == 0


def test_other_layouts_are_not_compared() -> None:
    """In the middle of an upgrade two versions write one state in two ways."""
    newer = 1 << LAYOUT_SHIFT | 7
    follower = Digests(THREE_)
    follower.take(point(10, newer), THREE)
    follower.told(point(10, 8))
    leader = Digests(ONE)
    leader.take(point(10, 8), THREE)
    leader.heard(TWO, point(10, newer), THREE)
    leader.heard(THREE_, point(10, newer), THREE)
    assert leader.differing == {}


def test_memory_is_bounded() -> None:
    leader = Digests(ONE)
    for index in range(1, 3 * POINTS_MAX):
        leader.take(point(index, 7), THREE)
        leader.heard(TWO, point(index, 7), THREE)
    sizes = [len(points) for points in (leader._own, leader._said, leader._verdicts)]
    assert sizes == [POINTS_MAX] * 3


def test_a_leader_knows_whether_all_lay_the_state_out_as_it_does() -> None:
    """Before there is a digest, too; an older program names no layout then, or another."""
    leader, nodes = Digests(ONE), (ONE, TWO, THREE_)
    leader.say_layout(5)
    assert leader.share_layout(nodes) is None, "most are silent"
    assert leader.share_layout((ONE,))
    leader.heard(TWO, point(0, 4 << LAYOUT_SHIFT), THREE)
    assert leader.share_layout(nodes) is False
    leader.heard(TWO, point(0, 5 << LAYOUT_SHIFT), THREE)
    assert leader.share_layout(nodes), "one is silent, and nobody is older"
    leader.heard(THREE_, point(0, 0), THREE)
    assert leader.share_layout(nodes) is False
    leader.heard(THREE_, point(1024, 4 << LAYOUT_SHIFT | 9), THREE)
    assert leader.share_layout(nodes) is False
    leader.heard(THREE_, point(1024, 5 << LAYOUT_SHIFT | 9), THREE)
    assert leader.share_layout(nodes)
    leader.heard(TWO, point(0, 0), THREE)
    assert leader.share_layout(nodes) is False, "it was started anew as an older program"
