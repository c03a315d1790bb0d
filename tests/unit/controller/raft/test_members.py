"""A membership counts its voters and nobody else."""

from __future__ import annotations

import pytest
from gantry_controller.raft.members import Membership
from gantry_protocol.types import NodeId

N1, N2, N3, N4, N5 = map(NodeId, range(1, 6))


@pytest.mark.parametrize(
    ("values", "reached"),
    [
        ({N1: 7, N2: 5, N3: 3}, 5),
        ({N1: 7, N2: 5}, 5),
        ({N1: 7}, 0),
        ({N1: 7, N4: 9, N5: 9}, 0),
        ({N1: 7, N2: 5, N4: 9, N5: 9}, 5),
    ],
    ids=["all", "one may not be counted", "one alone", "learners", "learners beside voters"],
)
def test_a_majority_of_the_voters_reaches_a_value(values: dict[NodeId, int], reached: int) -> None:
    assert Membership((N1, N2, N3), (N4, N5)).reached(values) == reached


@pytest.mark.parametrize(
    ("nodes", "decides"),
    [((N1,), False), ((N1, N4, N5), False), ((N1, N3), True)],
    ids=["one", "one with learners", "two"],
)
def test_only_voters_decide(nodes: tuple[NodeId, ...], decides: bool) -> None:
    assert Membership((N1, N2, N3), (N4, N5)).decides(nodes) is decides
