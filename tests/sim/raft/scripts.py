"""Interleavings that chance rarely finds, played on real cores step by step.

Random seeds met "an old term committed by counting" once in 1,500 runs, so these are written down.
Each function plays one story and asserts its end; planted with the bug it is about, it must fail.
"""

from __future__ import annotations

from random import Random

from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore, Ready
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Entry,
    EntryKind,
    HardState,
    Message,
    VoteReply,
    VoteRequest,
    make_entry,
)
from gantry_controller.raft.state import Role
from gantry_protocol.types import Index, NodeId, Term

NO_INDEX = Index(0)


def entries(*terms: int) -> list[Entry]:
    """A log whose entry at index i has the i-th of ``terms``."""
    return [
        make_entry(EntryKind.COMMAND, Term(term), Index(index), b"v%d" % term)
        for index, term in enumerate(terms, start=1)
    ]


def core(node: int, members: int, *terms: int, term: int) -> RaftCore:
    """A node with this log on its disk."""
    voters = tuple(NodeId(number) for number in range(1, members + 1))
    config = RaftConfig(node_id=NodeId(node), voters=voters)
    hard = HardState(Term(term), None, NO_INDEX, True)
    return RaftCore(config, Random(node), hard_state=hard, entries=entries(*terms))


def settle(node: RaftCore) -> list[Message]:
    """Let the disk finish; everything the node then has to say."""
    said: list[Message] = []
    while True:
        ready: Ready = node.ready()
        said += ready.messages_now + ready.messages_after_persist
        if ready.committed:
            node.applied(ready.committed[-1].index)
        if not ready.must_persist:
            return said
        node.persisted(ready.batch)
        said = [m for m in said if m not in ready.messages_after_persist]
        said += ready.messages_after_persist


def elect(candidate: RaftCore, *voters: RaftCore) -> None:
    """Make ``candidate`` the leader of the next term by the votes of ``voters``."""
    while candidate.role is Role.FOLLOWER:
        candidate.tick()
    for _ in range(3):
        _exchange(candidate, *voters)
    assert candidate.role is Role.LEADER


def _exchange(one: RaftCore, *others: RaftCore) -> None:
    """One round of everything ``one`` says to ``others``, and their answers; the rest is lost."""
    for message in settle(one):
        for other in others:
            if message.target == other.node_id:
                other.step(message)
    for other in others:
        for message in settle(other):
            if message.target == one.node_id:
                one.step(message)


def figure_8() -> None:
    """Thesis figure 3.7: an entry of an old term on a majority is not committed by that.

    S1 of term 4 has brought entry 2 of term 2 to a majority; S5, whose entry 2 is of term 3, can
    still win an election and overwrite it, so S1 must not have committed it.
    """
    s1 = core(1, 5, 1, 2, term=3)
    s2 = core(2, 5, 1, 2, term=3)
    s3 = core(3, 5, 1, term=3)
    elect(s1, s2, s3)
    assert s1.term == 4
    leader = s1.peers[NodeId(3)]
    assert leader.match_index < 2
    reply = _acks(s1, s3, Index(2))
    s1.step(reply)
    assert s1.commit_index < 2, "entry 2 of term 2 was committed by counting in term 4"


def _acks(leader: RaftCore, follower: RaftCore, index: Index) -> AppendReply:
    """The follower's word for everything up to ``index``, and no more."""
    return AppendReply(
        follower.node_id, leader.node_id, leader.term, index, False, NO_INDEX, Term(0), 0, 0
    )


def commit_beyond_the_message() -> None:
    """A follower with a stale tail hears, with a message that covers less, of a higher commit."""
    follower = core(2, 3, 1, 1, 2, 2, term=2)
    follower.step(
        Append(
            source=NodeId(1),
            target=NodeId(2),
            term=Term(3),
            prev_index=Index(1),
            prev_term=Term(1),
            commit=Index(4),
            round=0,
            admit=0,
            entries=tuple(entries(1, 1)[1:]),
        )
    )
    settle(follower)
    assert follower.commit_index <= 2, "entries of a replaced leader were committed"


def tail_confirmed_unseen() -> None:
    """A follower with a stale tail gets an old append again, about entries it has committed.

    It may say that it holds what is committed, and not that its tail is the leader's.
    """
    follower = core(2, 3, 1, 1, 2, 2, term=2)
    for prev_index in (2, 1):
        follower.step(
            Append(
                source=NodeId(1),
                target=NodeId(2),
                term=Term(3),
                prev_index=Index(prev_index),
                prev_term=Term(1),
                commit=Index(2),
                round=0,
                admit=0,
                entries=(),
            )
        )
        (reply,) = settle(follower)
        assert isinstance(reply, AppendReply)
        assert reply.index <= 2, "entries that no message named were confirmed"


def old_term_ack() -> None:
    """An acknowledgement sent to this node's earlier leadership arrives in a later one.

    In term 2 the follower had acknowledged entry 3; since then entry 3 is another one.
    """
    leader = core(1, 3, 1, 1, term=2)
    peer = core(2, 3, 1, 1, term=2)
    elect(leader, peer)
    settle(leader)
    assert leader.last_index == 3
    before = leader.commit_index
    old = AppendReply(NodeId(3), NodeId(1), Term(2), Index(3), False, NO_INDEX, Term(0), 0, 0)
    leader.step(old)
    assert leader.peers[NodeId(3)].match_index == 0, "an old term's acknowledgement was counted"
    assert leader.commit_index == before


def vote_after_restart() -> None:
    """A node votes, crashes, starts again, and is asked by another candidate of the same term."""
    before = core(1, 3, 1, term=1)
    before.step(_vote_request(2))
    ready = before.ready()
    assert ready.hard_state is not None
    config = before._state.config
    after = RaftCore(config, Random(9), hard_state=ready.hard_state, entries=entries(1))
    after.step(_vote_request(3))
    (reply,) = settle(after)
    assert isinstance(reply, VoteReply)
    assert not reply.granted, "two votes in term 2"


def vote_told_too_early() -> None:
    """A node votes, loses power before the vote is durable, and is asked by another candidate.

    Whatever had left it by then was heard.
    """
    before = core(1, 3, 1, term=1)
    before.step(_vote_request(2))
    told = before.ready().messages_now
    after = core(1, 3, 1, term=1)
    after.step(_vote_request(3))
    told += settle(after)
    granted = [m for m in told if isinstance(m, VoteReply) and m.granted]
    assert [m.target for m in granted] == [3], "two votes in term 2 were told"


def forgotten_candidacy() -> None:
    """A candidate shows a log that is not on its disk yet, loses power, and gets the old answers.

    Entry 2 is committed by nodes 2 and 3. Node 1 has it in memory when it asks for votes, and has
    lost it, with the term it asked for, when the answers arrive.
    """
    s2 = core(2, 3, 1, 1, term=1)
    first = core(1, 3, 1, term=1)
    first.step(_append_from_3(entries(1, 1)[1]))
    for message in _candidacy(first).messages_now:
        if isinstance(message, VoteRequest) and message.target == s2.node_id:
            s2.step(message)
    answers = [m for m in settle(s2) if isinstance(m, VoteReply)]
    second = core(1, 3, 1, term=1)
    second.persisted(_candidacy(second).batch)
    for answer in answers:
        second.step(answer)
    assert second.role is not Role.LEADER, "node 1 leads without entry 2, which is committed"


def _append_from_3(entry: Entry) -> Append:
    """Node 3, the leader of term 1, brings node 1 the entry behind its first."""
    return Append(
        source=NodeId(3),
        target=NodeId(1),
        term=Term(1),
        prev_index=Index(1),
        prev_term=Term(1),
        commit=Index(1),
        round=0,
        admit=0,
        entries=(entry,),
    )


def _candidacy(node: RaftCore) -> Ready:
    """Node 1 becomes candidate of term 2, which nothing has stored yet."""
    while node.role is Role.FOLLOWER:
        node.tick()
    node.ready()
    node.step(VoteReply(NodeId(2), NodeId(1), Term(2), True, True))
    assert node.role is Role.CANDIDATE
    return node.ready()


def _vote_request(source: int) -> VoteRequest:
    return VoteRequest(NodeId(source), NodeId(1), Term(2), Index(1), Term(1), False)


def forgotten_vote() -> None:
    """A node votes for a candidate, loses its disk, and comes back to the old leader.

    S3 leads term 3 by the votes of S2 and itself; S1 still believes that it leads term 2. If S1
    counted S2, which has forgotten its vote, both could commit an entry at the same index.
    """
    s1 = core(1, 3, 1, 1, term=1)
    s2 = core(2, 3, 1, 1, term=1)
    s3 = core(3, 3, 1, 1, term=1)
    elect(s1, s2)
    _exchange(s1, s2)
    for _ in range(20):
        s2.tick()
    s2.leader_lost(s1.node_id)
    s3.step(_copy_of_log(s1, s3))
    settle(s3)
    s3.leader_lost(s1.node_id)
    elect(s3, s2)
    assert (s1.role, s1.term, s3.role, s3.term) == (Role.LEADER, 2, Role.LEADER, 3)
    committed = s1.commit_index
    blank = RaftCore(s2._state.config, Random(22))
    s1.propose([b"must not be committed"])
    for _ in range(40):
        s1.tick()
        _exchange(s1, blank)
        if s1.role is not Role.LEADER:
            break
    assert s1.commit_index == committed, "two leaders commit: a lost disk was counted"


def _copy_of_log(leader: RaftCore, follower: RaftCore) -> Append:
    """Everything the leader has, as one message."""
    log = leader._state.log
    return Append(
        source=leader.node_id,
        target=follower.node_id,
        term=leader.term,
        prev_index=NO_INDEX,
        prev_term=Term(0),
        commit=NO_INDEX,
        round=0,
        admit=0,
        entries=log.entries_from(Index(1), 1 << 20),
    )


def aba_persist_race() -> None:
    """Entry 2 is written as A, replaced by B, replaced by A again, while the disk is slow.

    The confirmation of the first write names the right index and term, but behind it the disk will
    write B. Only the third confirmation may count (etcd's async_storage_writes_append_aba_race).
    """
    node = core(1, 3, 1, term=1)
    first, second = entries(1, 2), entries(1, 3)

    def from_leader(leader: int, term: int, log: list[Entry]) -> Ready:
        node.step(
            Append(
                source=NodeId(leader),
                target=NodeId(1),
                term=Term(term),
                prev_index=Index(1),
                prev_term=Term(1),
                commit=NO_INDEX,
                round=0,
                admit=0,
                entries=(log[1],),
            )
        )
        return node.ready()

    batches = [from_leader(2, 2, first), from_leader(3, 3, second), from_leader(2, 4, first)]
    log = node._state.log
    for ready, durable in zip(batches, (1, 1, 2), strict=True):
        node.persisted(ready.batch)
        assert log.persisted_index == durable, "a confirmation counts for an entry not yet written"


SCRIPTS = (
    figure_8,
    commit_beyond_the_message,
    tail_confirmed_unseen,
    old_term_ack,
    vote_after_restart,
    vote_told_too_early,
    forgotten_candidacy,
    forgotten_vote,
    aba_persist_race,
)
