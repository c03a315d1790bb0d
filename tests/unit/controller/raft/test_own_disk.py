"""A disk that says nothing: who leads, who stands and who promises votes then."""

from __future__ import annotations

from random import Random

import pytest
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.messages import (
    AppendReply,
    HardState,
    HeartbeatReply,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from gantry_controller.raft.state import Role
from gantry_protocol.types import Index, NodeId, Term

ME, A, B = ALL = NodeId(1), NodeId(2), NodeId(3)
PATIENCE = 60
ELECTION = 20


def core() -> RaftCore:
    config = RaftConfig(
        node_id=ME, voters=ALL, disk_patience_ticks=PATIENCE, election_ticks=ELECTION
    )
    return RaftCore(config, Random(1), hard_state=HardState(Term(1), None, Index(0), True))


def leader() -> RaftCore:
    """Its no-op is on every disk."""
    node = core()
    while node.role is Role.FOLLOWER:
        node.tick()
    node.step(VoteReply(A, ME, Term(node.term + 1), True, True))
    node.persisted(node.ready().batch)
    node.step(VoteReply(A, ME, node.term, True, False))
    node.persisted(node.ready().batch)
    for peer in (A, B):
        stored(node, peer)
    assert (node.role, node.commit_index) == (Role.LEADER, node.last_index)
    return node


def stored(node: RaftCore, peer: NodeId) -> None:
    """``peer`` has everything on its disk."""
    zero = Index(0)
    node.step(AppendReply(peer, ME, node.term, node.last_index, False, zero, Term(0), 0, 0))


def ticks(node: RaftCore, count: int) -> list[Message]:
    """Time in which both peers answer and the own disk does not."""
    sent: list[Message] = []
    for _ in range(count):
        node.tick()
        if node.role is Role.LEADER:
            for peer in (A, B):
                node.step(HeartbeatReply(peer, ME, node.term, 0, 0))
        sent += node.ready().messages_now
    return sent


def test_a_leader_that_alone_is_behind_gives_way_to_who_holds_most() -> None:
    node = leader()
    node.propose([b"x"])
    node.ready()
    stored(node, B)
    ticks(node, PATIENCE // 2)
    stored(node, A)  # both hold it now; the lower number is told
    term = node.term
    assert not any(isinstance(one, TimeoutNow) for one in ticks(node, PATIENCE // 2 - 1))
    assert node.role is Role.LEADER
    sent = ticks(node, 1)
    assert [one for one in sent if isinstance(one, TimeoutNow)] == [TimeoutNow(ME, A, term)]
    assert (node.role, node.leader, node.term) == (Role.FOLLOWER, None, term)


def test_a_leader_stays_while_nobody_has_stored_more() -> None:
    node = leader()
    node.propose([b"x"])
    ticks(node, 3 * PATIENCE)
    assert node.disk_hangs
    assert node.role is Role.LEADER


def test_a_leader_stays_when_disks_that_hung_together_answer_one_after_the_other() -> None:
    node = leader()
    node.propose([b"x"])
    batch = node.ready().batch
    ticks(node, 3 * PATIENCE)
    stored(node, A)
    stored(node, B)
    ticks(node, ELECTION - 1)
    assert node.disk_hangs
    node.persisted(batch)
    ticks(node, ELECTION)
    assert (node.role, node.disk_hangs) == (Role.LEADER, False)


def test_a_leader_whose_disk_alone_stays_silent_gives_way_then() -> None:
    node = leader()
    node.propose([b"x"])
    ticks(node, 3 * PATIENCE)
    stored(node, A)
    stored(node, B)
    ticks(node, ELECTION - 1)
    assert node.role is Role.LEADER
    assert any(isinstance(one, TimeoutNow) for one in ticks(node, 1))
    assert node.role is Role.FOLLOWER


def test_each_confirmation_gives_the_disk_its_whole_time_again() -> None:
    node = leader()
    for _ in range(5):
        node.propose([b"x"])
        batch = node.ready().batch
        stored(node, A)
        stored(node, B)
        ticks(node, PATIENCE - 1)
        node.persisted(batch)
    assert (node.role, node.disk_silent_ticks) == (Role.LEADER, 0)


def test_a_disk_that_owes_nothing_may_be_silent() -> None:
    node = leader()
    ticks(node, 3 * PATIENCE)
    assert (node.role, node.disk_hangs) == (Role.LEADER, False)


def hanging_follower() -> RaftCore:
    """It has promised a vote to A in term 2, and the disk keeps it."""
    node = core()
    node.step(VoteRequest(A, ME, Term(2), Index(0), Term(0), False, False))
    assert node.ready().must_persist
    ticks(node, PATIENCE)
    assert node.disk_hangs
    return node


def test_who_cannot_store_a_vote_stands_for_no_election() -> None:
    node = hanging_follower()
    sent = ticks(node, 10 * PATIENCE)
    assert (node.role, node.term) == (Role.FOLLOWER, 2)
    assert not any(isinstance(one, VoteRequest) for one in sent)
    node.step(TimeoutNow(B, ME, Term(2)))
    assert node.role is Role.FOLLOWER


def test_who_cannot_store_a_vote_promises_none() -> None:
    """Else a candidate would enter a term by promises, and wait in it for votes that never come."""
    node = hanging_follower()
    asked = VoteRequest(B, ME, Term(3), Index(9), Term(2), True, False)
    node.step(asked)
    assert node.ready().messages_now == []
    node.persisted(1)
    node.step(asked)
    assert node.ready().messages_now == [VoteReply(ME, B, Term(3), True, True)]


@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_who_stands_when_the_disk_falls_silent_gives_up(role: Role) -> None:
    node = core()
    while node.role is Role.FOLLOWER:
        node.tick()
    if role is Role.CANDIDATE:
        node.step(VoteReply(A, ME, Term(node.term + 1), True, True))
    else:
        node.step(VoteRequest(A, ME, Term(2), Index(0), Term(0), False, False))
        while node.role is Role.FOLLOWER:
            node.tick()
    assert node.role is role
    assert node.ready().must_persist
    ticks(node, PATIENCE)
    assert node.role is Role.FOLLOWER
