"""The core's edges: what it refuses, what it persists, and claims of the thesis one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import (
    ChangeRefused,
    LogLostError,
    MessageError,
    NotLeader,
    Overloaded,
)
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    PristineQuery,
    PristineReply,
    VoteReply,
    VoteRequest,
    make_entry,
)
from gantry_controller.raft.state import Role
from gantry_protocol.errors import ConfigError
from gantry_protocol.types import Index, NodeId, Term

ME, A, B = NodeId(1), NodeId(2), NodeId(3)


def entries(*terms: int) -> list[Entry]:
    return [
        make_entry(EntryKind.COMMAND, Term(term), Index(index), b"v")
        for index, term in enumerate(terms, start=1)
    ]


def core(*terms: int, term: int = 0, vote: NodeId | None = None, commit: int = 0) -> RaftCore:
    hard = HardState(Term(term), vote, Index(commit), True)
    config = RaftConfig(node_id=ME, voters=(ME, A, B))
    return RaftCore(config, Random(1), hard_state=hard, entries=entries(*terms))


def persist_all(node: RaftCore) -> list[Any]:
    """What the node says once its disk has caught up."""
    ready = node.ready()
    if ready.must_persist:
        node.persisted(ready.batch)
    return [*ready.messages_now, *ready.messages_after_persist]


def vote_request(source: NodeId, term: int, last: tuple[int, int], *, pre: bool = False) -> Any:
    return VoteRequest(source, ME, Term(term), Index(last[0]), Term(last[1]), pre)


def append(term: int, prev: tuple[int, int], *sent: Entry, commit: int = 0) -> Append:
    return Append(
        source=A,
        target=ME,
        term=Term(term),
        prev_index=Index(prev[0]),
        prev_term=Term(prev[1]),
        commit=Index(commit),
        round=0,
        admit=0,
        entries=sent,
    )


def lead(node: RaftCore) -> RaftCore:
    while node.role is Role.FOLLOWER:
        node.tick()
    node.step(VoteReply(A, ME, Term(node.term + 1), True, True))
    persist_all(node)
    node.step(VoteReply(A, ME, node.term, True, False))
    persist_all(node)
    assert node.role is Role.LEADER
    return node


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_id": NodeId(4)}, "Node 4 is not among the peers"),
        ({"voters": (ME, A, A)}, "name a node twice"),
        ({"node_id": NodeId(0), "voters": (NodeId(0),)}, "numbered from 1"),
        ({"election_ticks": 3, "heartbeat_ticks": 3}, "must be shorter than"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RaftConfig(**{"node_id": ME, "voters": (ME, A, B), **settings})


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(A, B, Term(1), Index(0), 0),
        Heartbeat(ME, ME, Term(1), Index(0), 0),
    ],
    ids=["somebody else's", "its own"],
)
def test_misdirected_messages_change_nothing(message: Heartbeat) -> None:
    node = core()
    with pytest.raises(MessageError, match="reached node 1"):
        node.step(message)
    assert node.term == 0


def test_an_answer_for_more_than_was_sent_is_refused() -> None:
    node = lead(core())
    reply = AppendReply(B, ME, node.term, Index(99), False, Index(0), Term(0), 0, 0)
    with pytest.raises(MessageError, match="sent no more than 1"):
        node.step(reply)


def test_a_disk_that_lost_confirmed_entries_is_noticed() -> None:
    node = core(1, term=1)
    with pytest.raises(LogLostError, match=r"committed entry 5 .* its log ends at 1"):
        node.step(Heartbeat(A, ME, Term(1), Index(5), 0))


def test_followers_refuse_proposals_and_reads_with_a_hint() -> None:
    node = core()
    node.step(Heartbeat(A, ME, Term(1), Index(0), 0))
    for request in (lambda: node.propose([b"x"]), lambda: node.read_index([1])):
        with pytest.raises(NotLeader, match="the leader is node 2") as caught:
            request()
        assert caught.value.leader == A


def test_one_large_proposal_passes_when_nothing_waits() -> None:
    config = RaftConfig(node_id=ME, voters=(ME,), uncommitted_bytes_max=10)
    node = RaftCore(config, Random(1))
    node.tick()
    for _ in range(4):
        persist_all(node)
    assert node.role is Role.LEADER
    node.propose([b"x" * 100])
    with pytest.raises(Overloaded, match="already wait"):
        node.propose([b"x"])
    persist_all(node)
    node.propose([b"x"])


@pytest.mark.parametrize(
    ("request_", "granted"),
    [
        pytest.param(vote_request(A, 2, (2, 1)), True, id="equal log"),
        pytest.param(vote_request(A, 2, (1, 1)), False, id="shorter log of the same term"),
        pytest.param(vote_request(A, 2, (1, 2)), True, id="shorter log of a later term"),
        pytest.param(
            vote_request(A, 1, (9, 9)), False, id="the term in which it voted for another"
        ),
    ],
)
def test_votes_only_for_logs_as_good_as_its_own(request_: VoteRequest, granted: bool) -> None:
    """Thesis §3.4, §3.6.1."""
    node = core(1, 1, term=1, vote=B)
    node.step(request_)
    ready = node.ready()
    (reply,) = ready.messages_after_persist
    assert (reply.granted, ready.messages_now) == (granted, [])


def test_a_vote_leaves_only_when_it_is_durable() -> None:
    """Thesis §3.8."""
    node = core()
    node.step(vote_request(A, 1, (0, 0)))
    ready = node.ready()
    assert ready.hard_state == HardState(Term(1), A, Index(0), True)
    assert ready.messages_now == []
    assert len(ready.messages_after_persist) == 1


def test_a_second_candidate_of_the_term_is_refused_and_the_first_may_ask_again() -> None:
    """Thesis §3.4: one vote per term, first come, first served."""
    node = core()
    node.step(vote_request(A, 1, (0, 0)))
    node.step(vote_request(B, 1, (9, 1)))
    node.step(vote_request(A, 1, (0, 0)))
    granted = [reply.granted for reply in node.ready().messages_after_persist]
    assert granted == [True, False, True]


@pytest.mark.parametrize("pre", [True, False])
def test_who_hears_a_leader_ignores_candidates(pre: bool) -> None:
    """Thesis §4.2.3: a removed or deaf server must not disturb the others."""
    node = core()
    node.step(Heartbeat(A, ME, Term(1), Index(0), 0))
    node.ready()
    node.step(vote_request(B, 5, (9, 1), pre=pre))
    ready = node.ready()
    assert (node.term, ready.messages_now, ready.messages_after_persist) == (1, [], [])
    for _ in range(20):
        node.tick()
    node.step(vote_request(B, 5, (9, 1), pre=pre))
    ready = node.ready()
    assert ready.messages_now or ready.messages_after_persist


def test_a_pre_vote_changes_nothing() -> None:
    """Thesis §9.6."""
    node = core(1, term=3, vote=B)
    node.step(vote_request(A, 4, (1, 1), pre=True))
    ready = node.ready()
    assert ready.messages_now == [VoteReply(ME, A, Term(4), True, True)]
    assert (node.term, ready.must_persist) == (3, False)


def test_a_candidate_asks_again_those_who_kept_silent() -> None:
    node = core()
    while node.role is not Role.PRE_CANDIDATE:
        node.tick()
    node.ready()
    node.step(VoteReply(A, ME, Term(0), False, True))
    for _ in range(6):
        node.tick()
    assert [message.target for message in node.ready().messages_now] == [B]


def test_who_grants_a_pre_vote_lets_the_other_finish() -> None:
    """Its own time-out would otherwise split the vote."""
    node = core()
    for _ in range(19):
        node.tick()
    node._state.election_timeout = 20
    node.step(vote_request(A, 1, (0, 0), pre=True))
    node.tick()
    assert node.role is Role.FOLLOWER
    for _ in range(5):
        node.tick()
    assert node.role is Role.PRE_CANDIDATE


def test_an_answer_about_another_term_is_not_counted() -> None:
    node = core(1, term=5)
    while node.role is not Role.PRE_CANDIDATE:
        node.tick()
    node.step(VoteReply(A, ME, Term(3), True, True))
    assert node.role is Role.PRE_CANDIDATE
    node.step(VoteReply(A, ME, Term(6), True, True))
    assert node.role is Role.CANDIDATE


def test_a_founder_believes_only_answers_to_its_present_life() -> None:
    node = RaftCore(RaftConfig(node_id=ME, voters=(ME, A, B)), Random(1))
    for _ in range(3):
        node.tick()
    asked = node.ready().messages_now
    assert [message.target for message in asked] == [A, B]
    for source in (A, B):
        node.step(PristineReply(source, ME, asked[0].nonce + 1, True))
    assert not node.ready().must_persist
    for source in (A, B):
        node.step(PristineReply(source, ME, asked[0].nonce, True))
    assert not node.is_voter, "its mark is not durable"
    persist_all(node)
    assert node.is_voter


def test_a_node_that_put_a_log_aside_neither_founds_nor_helps_to_found() -> None:
    """Its old log may be the last copy of what an empty quorum would have lost (ADR 0026)."""
    node = RaftCore(RaftConfig(node_id=ME, voters=(ME, A, B), founds=False), Random(1))
    for _ in range(100):
        node.tick()
    node.step(PristineQuery(A, ME, 7))
    said = persist_all(node)
    assert said == [PristineReply(ME, A, 7, False)]
    for source in (A, B):
        node.step(PristineReply(source, ME, node._state.blank, True))
    persist_all(node)
    assert not node.is_voter


def test_a_node_that_put_a_log_aside_is_no_quorum_of_its_own() -> None:
    node = RaftCore(RaftConfig(node_id=ME, voters=(ME,), founds=False), Random(1))
    for _ in range(100):
        node.tick()
        persist_all(node)
    assert (node.is_voter, node.role, node.term) == (False, Role.FOLLOWER, 0)


def test_a_node_that_put_a_log_aside_votes_once_it_is_admitted_and_that_is_durable() -> None:
    node = RaftCore(RaftConfig(node_id=ME, voters=(ME, A, B), founds=False), Random(1))
    node.step(append(5, (0, 0), *entries(5, 5), commit=1))
    (answer,) = persist_all(node)
    node.step(vote_request(B, 6, (9, 5)))
    assert persist_all(node) == []
    admitting = msgspec.structs.replace(append(5, (2, 5), commit=2), admit=answer.blank)
    node.step(admitting)
    assert not node.is_voter, "its mark is not durable"
    persist_all(node)
    assert node.is_voter


def test_a_peers_word_counts_only_as_long_as_it_is_heard() -> None:
    node = lead(core(1))
    assert node.counted(A) is None, "it has not said anything to this leader"
    node.step(AppendReply(A, ME, node.term, Index(2), False, Index(0), node.term, 0, 0))
    assert (node.counted(A), node.counted(B)) == (True, None)
    node.connection_changed(A)
    assert (node.counted(A), node.counted(B)) == (None, None), "it may have another disk"
    node.step(HeartbeatReply(A, ME, node.term, 0, 0))
    assert node.counted(A)
    for _ in range(node._state.config.election_ticks + 1):
        assert node.counted(A)
        node.step(HeartbeatReply(B, ME, node.term, 0, 0))
        node.tick()
    assert node.counted(A) is None
    node.step(HeartbeatReply(A, ME, node.term, 0, blank=7))
    assert node.counted(A) is False
    node.connection_changed(A)
    assert node.counted(A) is False, "it cannot count by itself"
    assert core(1).counted(A) is None, "who does not lead knows nothing"


def test_a_peer_whose_connection_ended_does_not_take_over_or_decide() -> None:
    node = lead(core(1))
    node.step(AppendReply(A, ME, node.term, Index(2), False, Index(0), node.term, 0, 0))
    node.connection_changed(A)
    with pytest.raises(ChangeRefused, match="it has not answered"):
        node.transfer(A)
    with pytest.raises(ChangeRefused, match="too few of them answer"):
        node.remove(B)


def test_rejections_of_a_lost_window_begin_it_again_once() -> None:
    node = lead(core())
    node.step(AppendReply(A, ME, node.term, Index(1), False, Index(0), Term(0), 0, 0))
    node.ready()
    for command in (b"x", b"y", b"z"):
        node.propose([command])
        node.ready()

    def rejects(index: int) -> None:
        node.step(AppendReply(A, ME, node.term, Index(index), True, Index(1), node.term, 0, 0))

    rejects(2)
    (probe,) = [m for m in node.ready().messages_now if isinstance(m, Append) and m.target == A]
    assert (probe.prev_index, len(probe.entries), probe.round) == (1, 3, 1)
    node.step(AppendReply(A, ME, node.term, Index(4), False, Index(0), Term(0), 1, 0))
    node.propose([b"more"])
    node.ready()
    rejects(5)
    assert [m for m in node.ready().messages_now if isinstance(m, Append)] == []


def test_a_candidate_gives_way_to_a_leader_of_its_term() -> None:
    """Thesis §3.4."""
    node = core()
    while node.role is not Role.PRE_CANDIDATE:
        node.tick()
    node.step(VoteReply(A, ME, Term(1), True, True))
    assert node.role is Role.CANDIDATE
    node.step(append(1, (0, 0)))
    assert (node.role, node.leader, node.term) == (Role.FOLLOWER, A, 1)


def test_refusals_of_a_quorum_end_a_campaign() -> None:
    node = core()
    while node.role is not Role.PRE_CANDIDATE:
        node.tick()
    for source in (A, B):
        node.step(VoteReply(source, ME, Term(0), False, True))
    assert node.role is Role.FOLLOWER


def test_a_leader_that_hears_a_higher_term_steps_down() -> None:
    """Thesis §3.3."""
    node = lead(core())
    node.read_index(["read"])
    node.step(HeartbeatReply(A, ME, Term(9), 0, 0))
    ready = node.ready()
    assert (node.role, node.term, ready.reads_dropped) == (Role.FOLLOWER, 9, ["read"])
    assert ready.soft_state is not None
    assert (ready.soft_state.role, ready.soft_state.leader) == (Role.FOLLOWER, None)


def test_appends_wait_for_the_disk_and_rejections_do_not() -> None:
    node = core(1, term=1)
    node.step(append(1, (1, 1), *entries(1, 1)[1:]))
    ready = node.ready()
    assert ready.messages_now == []
    assert [reply.index for reply in ready.messages_after_persist] == [2]
    node.step(append(1, (7, 1)))
    (reply,) = node.ready().messages_now
    assert (reply.rejected, reply.index, reply.hint_index, reply.hint_term) == (True, 7, 2, 1)


def test_an_answer_to_what_is_still_being_written_waits_for_that_batch() -> None:
    node = core(1, term=1)
    node.step(append(1, (1, 1), *entries(1, 1)[1:]))
    first = node.ready()
    node.step(append(1, (1, 1), *entries(1, 1)[1:]))
    again = node.ready()
    assert not again.must_persist
    assert (again.batch, len(again.messages_after_persist)) == (first.batch, 1)


def test_commit_follows_the_leader_up_to_what_the_message_covers() -> None:
    """Thesis §3.5."""
    node = core(1, 1, 1, term=1)
    node.step(append(1, (1, 1), *entries(1, 1)[1:], commit=3))
    assert node.commit_index == 2


def test_committed_entries_are_applied_only_when_durable_here() -> None:
    node = core(1, term=1, commit=1)
    node.step(append(1, (1, 1), *entries(1, 1)[1:], commit=2))
    ready = node.ready()
    assert [entry.index for entry in ready.committed] == [1]
    assert not node.more_to_apply
    node.persisted(ready.batch)
    assert node.more_to_apply
    assert [entry.index for entry in node.ready().committed] == [2]


def test_election_time_outs_are_drawn_from_one_to_two_times() -> None:
    """Thesis §3.4: randomised, so that split votes are rare."""
    waits = set()
    for seed in range(300):
        config = RaftConfig(node_id=ME, voters=(ME, A, B))
        node = RaftCore(config, Random(seed), hard_state=HardState(voting=True))
        ticks = 0
        while node.role is Role.FOLLOWER:
            node.tick()
            ticks += 1
        waits.add(ticks)
    assert waits == set(range(20, 40))


def test_a_leaders_first_entry_is_a_no_op_of_its_term() -> None:
    """Thesis §6.4, §3.6.2: nothing of older terms is known to be committed before it is."""
    node = lead(core(1, 1, term=1))
    assert node.last_index == 3
    assert not node.term_is_committed
    node.step(AppendReply(A, ME, node.term, Index(3), False, Index(0), Term(0), 0, 0))
    assert (node.commit_index, node.term_is_committed) == (3, True)


def test_commit_alone_is_not_worth_a_write() -> None:
    node = lead(core())
    node.step(AppendReply(A, ME, node.term, Index(1), False, Index(0), Term(0), 0, 0))
    ready = node.ready()
    assert (node.commit_index, ready.must_persist) == (1, False)


def test_batches_must_be_confirmed_in_order() -> None:
    node = core()
    node.step(vote_request(A, 1, (0, 0)))
    first = node.ready()
    node.step(vote_request(B, 2, (0, 0)))
    second = node.ready()
    with pytest.raises(AssertionError, match="in order"):
        node.persisted(second.batch)
    assert first.batch == second.batch - 1
