"""Compaction and installed snapshots, seen from the core (thesis §5)."""

from __future__ import annotations

import random
from random import Random

import pytest
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.log import RaftLog
from gantry_controller.raft.members import Membership, encode_members
from gantry_controller.raft.messages import (
    Append,
    AppendReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    VoteReply,
    make_entry,
)
from gantry_controller.raft.snapshot import Base, Marker, SnapshotMeta
from gantry_controller.raft.state import Role
from gantry_protocol.types import Index, NodeId, Term

ME, A, B = NodeId(1), NodeId(2), NodeId(3)
ALL = (ME, A, B)


def entries(first: int, *terms: int) -> list[Entry]:
    return [
        make_entry(EntryKind.COMMAND, Term(term), Index(index), b"v")
        for index, term in enumerate(terms, start=first)
    ]


def core(*terms: int, commit: int = 0, term: int | None = None) -> RaftCore:
    """A voter that has applied what it knows to be committed."""
    newest = max(terms, default=0) if term is None else term
    hard = HardState(Term(newest), None, Index(commit), True)
    config = RaftConfig(node_id=ME, voters=ALL)
    node = RaftCore(config, Random(1), hard_state=hard, entries=entries(1, *terms))
    node.ready()
    node.applied(Index(commit))
    return node


def meta(index: int, term: int) -> SnapshotMeta:
    return SnapshotMeta(Index(index), Term(term), Membership(ALL))


def lead(node: RaftCore) -> RaftCore:
    while node.role is Role.FOLLOWER:
        node.tick()
    node.step(VoteReply(A, ME, Term(node.term + 1), True, True))
    node.persisted(node.ready().batch)
    node.step(VoteReply(A, ME, node.term, True, False))
    node.persisted(node.ready().batch)
    assert node.role is Role.LEADER
    return node


def store(node: RaftCore) -> None:
    ready = node.ready()
    if ready.must_persist:
        node.persisted(ready.batch)


@pytest.mark.parametrize("seed", range(40))
def test_compacted_log_answers_as_the_whole_one_does_behind_its_base(seed: int) -> None:
    rng = random.Random(seed)
    terms = sorted(rng.choices(range(1, 6), k=rng.randint(1, 12)))
    cut = Index(rng.randint(0, len(terms)))
    whole = RaftLog(entries(1, *terms), Index(len(terms)))
    short = RaftLog(entries(1, *terms), Index(len(terms)))
    for log in (whole, short):
        assert len(log.hand_out(100)) == len(terms)
        log.applied_index = log.handed_index
    dropped = short.compact(cut)
    assert [entry.index for entry in dropped] == list(range(1, cut + 1))
    assert (short.last_index, short.last_term) == (whole.last_index, whole.last_term)
    more = entries(len(terms) + 1, 6, 6, 7)
    for log in (whole, short):
        log.append(more)
    for index in range(cut, len(terms) + 5):
        assert short.term_at(Index(index)) == whole.term_at(Index(index))
    for index in range(cut + 1, len(terms) + 4):
        assert short.entries_from(Index(index), 40) == whole.entries_from(Index(index), 40)
        after = Index(index - 1)
        assert short.bytes_between(after, short.last_index) == whole.bytes_between(
            after, whole.last_index
        )
        for term in range(8):
            hint = whole.conflict_hint(Index(index), Term(term))
            assert short.conflict_hint(Index(index), Term(term)) == max(hint, cut)
    replaced = entries(len(terms) + 2, 8)
    for log in (whole, short):
        assert log.submit() == more
        log.batch_submitted()
        assert log.merge(Index(len(terms) + 1), replaced) == len(terms) + 2
        assert log.submit() == replaced
        log.batch_submitted()
        log.batch_persisted()
        assert log.persisted_index == len(terms) + 1
    assert short.term_at(Index(cut - 1)) is None or cut == 0


def test_compaction_keeps_a_margin_and_is_noted_with_the_hard_state() -> None:
    node = core(1, 1, 2, 2, 2, commit=4)
    assert node.snapshot_meta() == meta(4, 2)
    dropped = node.compact(node.snapshot_meta(), margin_entries=3)
    assert [entry.index for entry in dropped] == [1]
    ready = node.ready()
    assert ready.markers == [Marker(Index(4), Term(2), Base(Index(1), Term(1)), restart=False)]
    assert ready.must_persist
    assert ready.hard_state is not None
    assert ready.hard_state.commit == 4
    assert node.ready().markers == []


def test_an_older_snapshot_changes_nothing() -> None:
    node = core(1, 1, 1, commit=3)
    assert node.compact(meta(3, 1), 0)
    assert node.compact(meta(2, 1), 0) == []
    assert node.snapshot == meta(3, 1)
    assert len(node.ready().markers) == 1


@pytest.mark.parametrize(
    ("terms", "commit", "snapshot"),
    [
        pytest.param((1, 1, 1), 3, (2, 1), id="behind-commit"),
        pytest.param((1, 1, 1), 3, (3, 1), id="at-commit"),
        pytest.param((1, 1, 1, 2, 2), 4, (4, 2), id="an-entry-it-holds"),
    ],
)
def test_a_snapshot_never_takes_the_log_back(
    terms: tuple[int, ...], commit: int, snapshot: tuple[int, int]
) -> None:
    node = core(*terms, commit=commit)
    assert not node.snapshot_offered(Index(snapshot[0]), Term(snapshot[1]))
    assert node.install(meta(*snapshot)) is None
    assert (node.last_index, node.commit_index) == (len(terms), commit)
    assert node.ready().markers == []


@pytest.mark.parametrize("role", [Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_a_candidate_that_learns_of_its_removal_does_not_win(role: Role) -> None:
    """It would lead for ever, and nobody could change the members any more."""
    removal = make_entry(
        EntryKind.MEMBERS, Term(1), Index(2), encode_members(Membership((A, B, NodeId(4))))
    )
    hard = HardState(Term(1), None, Index(1), True)
    config = RaftConfig(node_id=ME, voters=(*ALL, NodeId(4)))
    node = RaftCore(config, Random(1), hard_state=hard, entries=[*entries(1, 1), removal])
    while node.role is Role.FOLLOWER:
        node.tick()
    if role is Role.CANDIDATE:
        for voter in (A, B):
            node.step(VoteReply(voter, ME, Term(2), True, True))
    assert node.role is role
    store(node)
    assert not node.snapshot_offered(Index(2), Term(1))
    for pre in (True, False):
        for voter in (A, B):
            node.step(VoteReply(voter, ME, Term(2), True, pre))
        store(node)
    assert (node.role, node.commit_index) == (Role.FOLLOWER, 2)


def test_a_snapshot_that_ends_at_an_entry_of_this_log_says_that_it_is_committed() -> None:
    """What stands behind that entry stays, and is no more committed than it was (etcd: restore)."""
    node = core(1, 1, 1, 2, 2, commit=2)
    assert not node.snapshot_offered(Index(4), Term(2))
    assert (node.last_index, node.commit_index) == (5, 4)
    ready = node.ready()
    assert [entry.index for entry in ready.committed] == [3, 4]
    assert (ready.markers, ready.must_persist) == ([], False)


def test_entries_that_came_while_a_snapshot_was_on_its_way_are_committed_by_it() -> None:
    node = core(1, 1, commit=1)
    assert node.snapshot_offered(Index(4), Term(2))
    node.step(Append(A, ME, Term(2), Index(2), Term(1), Index(0), 0, 0, tuple(entries(3, 2, 2))))
    assert node.commit_index == 1
    assert node.install(meta(4, 2)) is None
    assert (node.last_index, node.commit_index) == (4, 4)


def test_a_leader_commits_by_counting_alone() -> None:
    node = lead(core(1, 1, commit=1))
    assert not node.snapshot_offered(Index(2), Term(1))
    assert node.commit_index == 1


def test_an_entry_of_another_term_at_a_snapshots_end_is_not_committed_by_it() -> None:
    node = core(1, 1, 2, commit=2)
    assert node.snapshot_offered(Index(3), Term(3))
    assert node.commit_index == 2


def test_a_snapshot_from_before_the_log_begins_brings_nothing() -> None:
    """Of what was compacted the log knows no term any more, but it was committed."""
    node = core(1, 1, 1, commit=3)
    node.compact(meta(3, 1), 0)
    assert not node.snapshot_offered(Index(2), Term(1))
    assert node.install(meta(2, 1)) is None
    assert (node.last_index, node.commit_index) == (3, 3)


@pytest.mark.parametrize(
    ("terms", "commit"),
    [
        pytest.param((), 0, id="empty"),
        pytest.param((1, 1), 1, id="behind"),
        pytest.param((1, 1, 1, 1, 1, 1), 2, id="another-tail"),
    ],
)
def test_an_installed_snapshot_is_the_whole_log(terms: tuple[int, ...], commit: int) -> None:
    node = core(*terms, commit=commit, term=3)
    void = node.install(meta(4, 3))
    assert void is not None
    assert [entry.index for entry in void] == list(range(1, len(terms) + 1))
    assert (node.last_index, node.commit_index, node.applied_index) == (4, 4, 4)
    ready = node.ready()
    assert ready.markers == [Marker(Index(4), Term(3), Base(Index(4), Term(3)), restart=True)]
    assert ready.committed == []
    node.persisted(ready.batch)
    node.step(Append(A, ME, Term(3), Index(4), Term(3), Index(5), 0, 0, tuple(entries(5, 3))))
    ready = node.ready()
    assert ready.entries == entries(5, 3)
    node.persisted(ready.batch)
    assert node.ready().committed == entries(5, 3)


def test_what_the_disk_confirms_of_a_void_log_does_not_count() -> None:
    node = core(1, term=1)
    node.step(Append(A, ME, Term(1), Index(1), Term(1), Index(0), 0, 0, tuple(entries(2, 1, 1, 1))))
    before = node.ready()
    assert node.install(meta(3, 2)) is not None
    marked = node.ready()
    node.step(Append(A, ME, Term(2), Index(3), Term(2), Index(4), 0, 0, tuple(entries(4, 2))))
    after = node.ready()
    node.persisted(before.batch)
    assert node.ready().committed == []
    node.persisted(marked.batch)
    assert node.ready().committed == []
    node.persisted(after.batch)
    assert node.ready().committed == entries(4, 2)


def test_a_snapshot_of_a_newer_term_is_entered_first() -> None:
    """Else the log would hold an entry of a term in which this node could still vote wrongly."""
    node = lead(core(1, 1, commit=1))
    assert node.term == 2
    assert node.install(meta(9, 5)) is not None
    assert (node.role, node.term) == (Role.FOLLOWER, 5)
    hard = node.ready().hard_state
    assert hard is not None
    assert (hard.term, hard.vote, hard.commit) == (5, None, 9)


def compacted_leader() -> RaftCore:
    """Leads term 3 with a log that begins behind entry 3."""
    node = core(1, 1, 2, 2, commit=4)
    node.compact(node.snapshot_meta(), margin_entries=1)
    ready = node.ready()
    node.persisted(ready.batch)
    return lead(node)


def rejection(prev: int, hint: tuple[int, int]) -> AppendReply:
    return AppendReply(A, ME, Term(3), Index(prev), True, Index(hint[0]), Term(hint[1]), 0, 0)


def test_a_follower_behind_the_base_waits_for_a_snapshot_and_is_kept_company() -> None:
    node = compacted_leader()
    assert node.awaiting_snapshot == []
    node.step(rejection(4, (1, 1)))
    assert node.awaiting_snapshot == [A]
    for _ in range(3):
        node.tick()
    node.step(HeartbeatReply(A, ME, Term(3), 0, 0))
    node.propose([b"x"])
    told = [message for message in node.ready().messages_now if message.target == A]
    assert [type(message) for message in told] == [Heartbeat]


@pytest.mark.parametrize(("prev", "hint"), [(4, (3, 2)), (4, (4, 2))])
def test_a_follower_that_matches_at_the_base_gets_entries(prev: int, hint: tuple[int, int]) -> None:
    node = compacted_leader()
    node.step(rejection(prev, hint))
    assert node.awaiting_snapshot == []


def test_what_a_peer_says_it_holds_is_only_where_to_look() -> None:
    node = compacted_leader()
    node.step(rejection(4, (1, 1)))
    node.snapshot_delivered(A, Index(4))
    assert node.awaiting_snapshot == []
    assert node.peers[A].match_index == 0
    (probe,) = [m for m in node.ready().messages_now if isinstance(m, Append) and m.target == A]
    assert (probe.prev_index, probe.prev_term) == (4, 2)
    node.snapshot_delivered(A, Index(1))
    assert node.awaiting_snapshot == [], "old news"


def test_a_follower_that_got_further_without_it_needs_it_no_more() -> None:
    node = compacted_leader()
    node.step(rejection(4, (1, 1)))
    node.step(AppendReply(A, ME, Term(3), Index(4), False, Index(0), Term(0), 0, 0))
    assert node.awaiting_snapshot == []


def test_a_log_that_is_being_filled_makes_nobody_a_lone_founder() -> None:
    """An old membership of this node alone comes by on the way; it may not vote by that."""
    config = RaftConfig(node_id=ME, voters=(ME,))
    again = RaftCore(config, Random(1), hard_state=HardState(Term(2)), entries=entries(1, 1))
    assert not again.is_voter
    assert RaftCore(config, Random(1)).is_voter, "the first start of a quorum of one"
