"""Leadership goes to a preferred voter that is fit, and does not run back and forth."""

from __future__ import annotations

from random import Random

import pytest
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.messages import (
    AppendReply,
    HardState,
    HeartbeatReply,
    TimeoutNow,
    VoteReply,
)
from gantry_controller.raft.state import Patience, Role
from gantry_protocol.types import Index, NodeId, Term

ME, A, B = NodeId(1), NodeId(2), NodeId(3)
ELECTION_TICKS = 6
PATIENCE_TICKS = 10 * ELECTION_TICKS


def leader(priority: int = 0) -> RaftCore:
    config = RaftConfig(
        node_id=ME,
        voters=(ME, A, B),
        election_ticks=ELECTION_TICKS,
        heartbeat_ticks=2,
        priority=priority,
    )
    node = RaftCore(config, Random(1), hard_state=HardState(voting=True))
    while node.role is Role.FOLLOWER:
        node.tick()
    node.step(VoteReply(A, ME, Term(1), True, True))
    pump(node)
    node.step(VoteReply(A, ME, Term(1), True, False))
    pump(node)
    return node


def pump(node: RaftCore) -> list[NodeId]:
    """One pass with a fast disk; whom the node tells to take over."""
    ready = node.ready()
    if ready.must_persist:
        node.persisted(ready.batch)
    return [m.target for m in ready.messages_now if isinstance(m, TimeoutNow)]


def tick(node: RaftCore, ticks: int, priorities: dict[NodeId, int], held: int = 1) -> list[NodeId]:
    """Time passes; every peer answers with its priority, and holds ``held`` entries."""
    told: list[NodeId] = []
    for _ in range(ticks):
        node.tick()
        for peer, priority in priorities.items():
            node.step(AppendReply(peer, ME, node.term, Index(held), False, Index(0), Term(0), 0, 0))
            node.step(HeartbeatReply(peer, ME, node.term, 0, 0, priority))
        told += pump(node)
        if told or node.role is not Role.LEADER:
            break
    return told


def test_a_steady_voter_of_higher_priority_takes_over() -> None:
    node = leader()
    assert tick(node, PATIENCE_TICKS - 1, {A: 0, B: 7}) == []
    assert tick(node, 5, {A: 0, B: 7}) == [B]


@pytest.mark.parametrize(
    ("own", "priorities"),
    [(0, {A: 0, B: 0}), (7, {A: 7, B: 3})],
    ids=["all equal", "none higher"],
)
def test_equal_priorities_never_move_leadership(own: int, priorities: dict[NodeId, int]) -> None:
    node = leader(own)
    assert tick(node, 10 * PATIENCE_TICKS, priorities) == []
    assert node.role is Role.LEADER


def test_a_preferred_voter_that_lags_or_falls_silent_must_be_steady_anew() -> None:
    node = leader()
    tick(node, PATIENCE_TICKS - 2, {A: 0, B: 7})
    tick(node, ELECTION_TICKS, {A: 0})
    assert tick(node, PATIENCE_TICKS - 2, {A: 0, B: 7}) == []
    assert tick(node, 5, {A: 0, B: 7}) == [B]


def test_a_preferred_voter_far_behind_does_not_take_over() -> None:
    node = leader()
    node.propose([b"x"] * 200)
    pump(node)
    for _ in range(3 * PATIENCE_TICKS):
        assert tick(node, 1, {A: 0}, held=201) == []
        node.step(AppendReply(B, ME, node.term, Index(1), False, Index(0), Term(0), 0, 0))
        node.step(HeartbeatReply(B, ME, node.term, 0, 0, 7))
        assert pump(node) == []


def test_patience_doubles_with_each_handover_within_a_bound_and_decays() -> None:
    patience = Patience(100)
    seen = []
    for _ in range(8):
        patience.handed_over()
        seen.append(patience.ticks)
    assert seen == [200, 400, 800, 1600, 3200, 6400, 6400, 6400]
    for _ in range(4 * 6400):
        patience.tick()
    assert patience.ticks == 3200
    for _ in range(4 * 6400):
        patience.tick()
    assert patience.ticks == 100
