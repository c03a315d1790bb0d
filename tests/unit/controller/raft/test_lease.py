"""Leases: who may read by one, and who must keep silent for it (ADR 0020)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import NotLeader
from gantry_controller.raft.lease import Lease
from gantry_controller.raft.members import Membership
from gantry_controller.raft.messages import (
    LEASE_OFF,
    LEASE_ON,
    Append,
    AppendReply,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    VoteReply,
    VoteRequest,
    make_entry,
)
from gantry_controller.raft.reads import ReadMode
from gantry_controller.raft.snapshot import Base, SnapshotMeta
from gantry_controller.raft.state import Role
from gantry_protocol.types import Index, NodeId, Term

ME, A, B = NodeId(1), NodeId(2), NodeId(3)
LEASE_NS = 100
ET = 10


def entry(index: int, kind: EntryKind, command: bytes = b"", term: int = 1) -> Entry:
    return make_entry(kind, Term(term), Index(index), command)


ON = entry(1, EntryKind.LEASE, LEASE_ON)


def node(*entries: Entry, commit: int = 0, term: int = 1, **more: Any) -> RaftCore:
    config = RaftConfig(
        node_id=ME, voters=(ME, A, B), election_ticks=ET, heartbeat_ticks=2, lease_ns=LEASE_NS
    )
    hard = HardState(Term(term), None, Index(commit), True)
    return RaftCore(config, Random(1), hard_state=hard, entries=list(entries), **more)


class Leader:
    """Node 1 leads; the test speaks for the others and moves the clock."""

    def __init__(self, core: RaftCore) -> None:
        self.core = core
        self.now_ns = 1_000
        while core.role is Role.FOLLOWER:
            core.tick()
        core.step(VoteReply(A, ME, Term(core.term + 1), True, True))
        self.turn()
        core.step(VoteReply(A, ME, core.term, True, False))
        assert core.role is Role.LEADER
        self.turn()

    def turn(self, at_ns: int | None = None) -> Any:
        """One pass, the disk at once."""
        self.now_ns = self.now_ns if at_ns is None else at_ns
        ready = self.core.ready(self.now_ns)
        if ready.must_persist:
            self.core.persisted(ready.batch)
        if ready.committed:
            self.core.applied(ready.committed[-1].index)
        return ready

    @property
    def round(self) -> int:
        return self.core._state.reads.round

    def holds(self, source: NodeId, index: int, *, echo: int | None = None) -> None:
        echoed = self.round if echo is None else echo
        fields = (False, Index(0), self.core.term, echoed, 0)
        self.core.step(AppendReply(source, ME, self.core.term, Index(index), *fields))

    def heartbeat(self, at_ns: int) -> None:
        """A heartbeat's time has come: a round begins."""
        self.core.tick()
        self.core.tick()
        self.turn(at_ns)

    def reads_by(self, at_ns: int) -> ReadMode | None:
        """How a read is answered in the pass at ``at_ns``; None: it has to wait for a round."""
        self.core.read_index([at_ns])
        reads = self.turn(at_ns).reads
        return next((read.mode for read in reads if at_ns in read.contexts), None)


def leased(at_ns: int = 2_000) -> Leader:
    """A leader with a lease by a round that began at ``at_ns``; the entry 3 is its no-op."""
    leader = Leader(node(ON, entry(2, EntryKind.COMMAND, b"x"), commit=2))
    leader.holds(A, 3)
    leader.turn()
    leader.heartbeat(at_ns)
    leader.holds(A, 3)
    return leader


@pytest.mark.parametrize(
    ("at_ns", "mode"),
    [
        pytest.param(2_000, ReadMode.LEASE, id="at once"),
        pytest.param(2_099, ReadMode.LEASE, id="at its end"),
        pytest.param(2_100, None, id="over"),
        pytest.param(1_999, None, id="a clock that went back"),
    ],
)
def test_lease_lasts_from_the_send_time_of_the_round(at_ns: int, mode: ReadMode | None) -> None:
    assert leased(2_000).reads_by(at_ns) is mode


def test_lease_counts_from_sending_not_from_the_answer() -> None:
    leader = Leader(node(ON, commit=1))
    leader.holds(A, 2)
    leader.turn()
    leader.heartbeat(2_000)
    leader.turn(2_090)
    leader.holds(A, 2)  # the answer arrives late
    assert leader.reads_by(2_099) is ReadMode.LEASE
    assert leader.reads_by(2_100) is None


def test_echo_of_an_older_round_does_not_prolong() -> None:
    leader = leased(2_000)
    old = leader.round
    leader.heartbeat(2_050)
    leader.holds(A, 3, echo=old)
    assert leader.reads_by(2_099) is ReadMode.LEASE
    assert leader.reads_by(2_100) is None


def test_own_rounds_of_reads_prolong() -> None:
    leader = leased(2_000)
    assert leader.reads_by(2_200) is None
    leader.holds(A, 3)
    assert leader.reads_by(2_299) is ReadMode.LEASE


def test_a_new_leader_reads_once_an_entry_of_its_own_term_is_committed() -> None:
    """Whatever is echoed: it does not know yet what its predecessor had committed."""
    leader = Leader(node(ON, entry(2, EntryKind.COMMAND, b"x"), commit=1))
    leader.holds(A, 2)
    leader.heartbeat(2_000)
    leader.holds(A, 2)
    assert not leader.core.lease_is_valid(2_050)
    assert leader.reads_by(2_050) is None
    leader.holds(A, 2)
    assert leader.turn(2_060).reads == []
    leader.holds(A, 3)
    assert leader.core.lease_is_valid(2_070)
    (read,) = leader.turn(2_070).reads
    assert (read.index, read.contexts) == (3, [2_050])


def test_no_clock_no_lease() -> None:
    leader = leased()
    leader.core.read_index(["r"])
    assert leader.core.ready().reads == []


def test_only_voters_that_hold_the_setting_have_promised() -> None:
    leader = Leader(node(entry(1, EntryKind.COMMAND, b"x"), commit=1))
    leader.holds(A, 2)
    leader.holds(B, 2)
    leader.turn()
    assert leader.core.set_lease(on=True) == 3
    leader.heartbeat(2_000)
    assert leader.reads_by(2_001) is None, "not committed"
    leader.holds(B, 3, echo=0)
    leader.heartbeat(2_010)
    leader.holds(A, 2)
    assert leader.reads_by(2_011) is None, "A does not hold it, B has not echoed the round"
    leader.heartbeat(2_020)
    leader.holds(B, 3)
    assert leader.reads_by(2_021) is ReadMode.LEASE


def test_switching_off_ends_the_lease_before_it_is_committed_and_on_begins_it_after() -> None:
    leader = leased()
    assert leader.core.set_lease(on=False) == 4
    assert leader.reads_by(2_001) is None
    assert leader.core.lease_is_on
    leader.core.set_lease(on=True)
    leader.turn(2_002)
    leader.holds(A, 4)
    assert not leader.core.lease_is_on
    assert leader.reads_by(2_003) is None
    leader.holds(A, 5)
    leader.turn(2_004)
    assert leader.core.lease_is_on
    assert leader.reads_by(2_005) is ReadMode.LEASE


def test_transfer_ends_the_lease_for_the_rest_of_the_term() -> None:
    """The word to take over may be acted on at any later time, and voters then obey it."""
    leader = leased()
    leader.core.transfer(A)
    assert leader.reads_by(2_001) is None
    for _ in range(ET):
        leader.core.tick()
        leader.holds(A, 3)
    assert leader.core._state.transfer is None
    leader.heartbeat(2_050)
    leader.holds(A, 3)
    assert leader.reads_by(2_051) is None


def test_only_a_leader_switches() -> None:
    with pytest.raises(NotLeader):
        node().set_lease(on=True)


# ---- the promise ---------------------------------------------------------------------------------


def asked(core: RaftCore, *, pre: bool, term: int = 9) -> bool:
    """Whether the node answers a candidate whose log is good enough."""
    core.step(VoteRequest(B, ME, Term(term), Index(9), Term(term - 1), pre))
    ready = core.ready()
    return any(
        isinstance(message, VoteReply) and message.granted
        for message in [*ready.messages_now, *ready.messages_after_persist]
    )


@pytest.mark.parametrize("pre", [True, False])
def test_restarted_node_keeps_silent_for_one_election_timeout(pre: bool) -> None:
    core = node(ON, commit=1)
    for _ in range(ET - 1):
        core.tick()
    assert not asked(core, pre=pre)
    core.tick()
    assert asked(core, pre=pre)


@pytest.mark.parametrize(
    ("log", "commit", "silent"),
    [
        pytest.param([], 0, False, id="never switched on"),
        pytest.param([ON], 0, True, id="on, perhaps not committed"),
        pytest.param([ON, entry(2, EntryKind.LEASE, LEASE_OFF)], 1, True, id="off, not committed"),
        pytest.param([ON, entry(2, EntryKind.LEASE, LEASE_OFF)], 2, False, id="off"),
    ],
)
def test_silence_is_for_those_who_may_have_promised(
    log: list[Entry], commit: int, silent: bool
) -> None:
    assert asked(node(*log, commit=commit), pre=False) is not silent


def test_promise_survives_a_higher_term() -> None:
    """Whoever adopts a term loses sight of the leader, but not of the time it promised."""
    core = node(ON, commit=1)
    for _ in range(ET):
        core.tick()
    core.step(Heartbeat(A, ME, Term(1), Index(1), 1))
    core.step(VoteReply(B, ME, Term(5), False, False))
    assert (core.term, core.leader) == (5, None)
    assert not asked(core, pre=False, term=6)
    for _ in range(ET):
        core.tick()
    assert asked(core, pre=False, term=core.term + 1)


def test_hint_that_the_leader_is_gone_ends_no_promise() -> None:
    core = node(ON, commit=1)
    core.step(Heartbeat(A, ME, Term(1), Index(1), 1))
    core.leader_lost(A)
    for _ in range(ET - 1):
        core.tick()
    assert core.role is Role.FOLLOWER
    assert core.leader == A


def test_setting_follows_the_log_when_it_is_cut() -> None:
    core = node(entry(1, EntryKind.COMMAND, b"x"), entry(2, EntryKind.LEASE, LEASE_ON), commit=1)
    assert not asked(core, pre=True)
    other = entry(2, EntryKind.COMMAND, b"y", term=2)
    core.step(Append(A, ME, Term(2), Index(1), Term(1), Index(1), 0, 0, (other,)))
    core.step(VoteReply(B, ME, Term(5), False, False))
    assert asked(core, pre=True)


# ---- snapshots and restarts ----------------------------------------------------------------------


def test_snapshot_carries_the_setting_as_of_its_end() -> None:
    core = node(ON, entry(2, EntryKind.LEASE, LEASE_OFF), commit=2)
    metas = []
    for index in (1, 2):
        core._state.log.applied_index = Index(index)
        metas.append(core.snapshot_meta())
    assert [meta.lease for meta in metas] == [True, False]


def test_node_that_starts_from_a_snapshot_is_bound_by_it() -> None:
    meta = SnapshotMeta(Index(7), Term(1), Membership((ME, A, B)), lease=True)
    core = node(commit=7, snapshot=meta, base=Base(Index(7), Term(1)))
    assert core.lease_is_on
    assert not asked(core, pre=True)


def test_installed_snapshot_replaces_the_setting() -> None:
    core = node(ON)
    core.install(SnapshotMeta(Index(7), Term(2), Membership((ME, A, B))))
    assert not core.lease_is_on
    assert asked(core, pre=True)


def test_settings_that_a_snapshot_covers_are_let_go() -> None:
    lease = Lease(Index(0), on=False)
    lease.note(entry(index, EntryKind.LEASE, LEASE_ON) for index in range(1, 6))
    lease.release(Index(4))
    assert lease.settings == [(4, True), (5, True)]
    assert lease.at(Index(4))
