"""Bugs in linearizable reads."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"
LEASE = "unit/controller/raft/test_lease.py"
OWN_TERM = "test_a_new_leader_reads_once_an_entry_of_its_own_term_is_committed"
STORY = "unit/controller/raft/test_scenarios.py::test_story"

MUTANTS = (
    Mutant(
        "read-without-quorum-round",
        "reads",
        "a leader answers reads without asking whether it still leads",
        (
            Edit(
                f"{RAFT}.replication:confirm_reads",
                "state.reads.confirmed(acked)",
                "state.reads.confirmed(state.reads.round)",
            ),
        ),
        Seeds("raft-late-leaders", 40),
    ),
    Mutant(
        "read-before-own-commit",
        "reads",
        "a new leader trusts its commit index before an entry of its term is committed",
        (
            Edit(
                f"{RAFT}.state:RaftState.term_is_committed",
                "return self.log.term_at(self.log.commit_index) == self.term",
                "return True",
            ),
        ),
        Seeds("raft", 40),
    ),
    Mutant(
        "read-by-an-earlier-round",
        "reads",
        "answers to messages that were sent before the read arrived confirm it",
        (Edit(f"{RAFT}.reads:ReadQueue.begin", "self.round += 1", "pass"),),
        Seeds("raft-late-leaders", 60),
    ),
    Mutant(
        "follower-read-without-confirmation",
        "reads",
        "a leader tells a follower its commit index without asking whether it still leads",
        (
            Edit(
                f"{RAFT}.follower_reads:on_request",
                "state.reads.remote.append(RemoteRead(request.source, request.nonce))",
                "state.now.append(ReadIndexReply(state.node_id, request.source, state.term, "
                "request.nonce, state.log.commit_index))",
            ),
        ),
        Seeds("raft-splits", 60),
    ),
    Mutant(
        "answer-without-nonce",
        "reads",
        "any answer of the leader confirms the reads that wait, whenever it was asked for",
        (
            Edit(
                f"{RAFT}.follower_reads:FollowerReads.answered",
                "if all(question.nonce != nonce for question in self._asked):",
                "nonce = self._asked[-1].nonce if self._asked else 0\n    if not self._asked:",
            ),
        ),
        Seeds("raft-late-answers", 40),
    ),
    Mutant(
        "lag-is-not-looked-at",
        "reads",
        "a follower that is far behind keeps the reader waiting",
        (Edit(f"{RAFT}.follower_reads:lags", "> state.config.read_lag_max", "< 0"),),
        UnitTests(STORY),
    ),
    Mutant(
        "lease-from-the-answer",
        "lease",
        "a lease counts from when a quorum's echo is seen, not from when it was asked for",
        (
            Edit(
                f"{RAFT}.lease:is_valid",
                "began_ns = state.lease.began_at(acked)",
                "seen = is_valid.__dict__.setdefault(str(id(state)), {})\n"
                "    began_ns = state.lease.began_at(acked) and seen.setdefault(acked, now_ns)",
            ),
        ),
        UnitTests(LEASE),
    ),
    Mutant(
        "lease-outlives-a-transfer",
        "lease",
        "a leader that told another to take over goes on reading by lease",
        (
            Edit(
                f"{RAFT}.lease:may_begin",
                "if not state.leads or not state.may_hold_lease:",
                "if not state.leads:",
            ),
        ),
        UnitTests(LEASE),
    ),
    Mutant(
        "no-silence-after-restart",
        "lease",
        "a restarted node votes at once, though it may have promised not to",
        (
            Edit(
                f"{RAFT}.state:RaftState.__init__",
                "self.promise_elapsed = 0",
                "self.promise_elapsed = config.election_ticks",
            ),
        ),
        UnitTests(LEASE),
    ),
    Mutant(
        "promise-ends-with-the-term",
        "lease",
        "a node that has adopted a higher term votes, whatever it promised in the one before",
        (Edit(f"{RAFT}.lease:promised", "return ", "return state.hears_leader and "),),
        UnitTests(LEASE),
    ),
    Mutant(
        "lease-too-long",
        "lease",
        "a lease lasts as long as it takes others to elect",
        (
            Edit(
                f"{RAFT}.lease:is_valid", "< state.config.lease_ns", "< 2 * state.config.lease_ns"
            ),
            Edit(f"{RAFT}.lease:Lease.round_began", "- lease_ns", "- 2 * lease_ns"),
        ),
        Seeds("raft-leases", 40),
    ),
    Mutant(
        "hint-ends-a-promise",
        "lease",
        "a node that is bound campaigns early when the leader's process seems to be gone",
        (Edit(f"{RAFT}.election:leader_lost", "if lease.binds(state):", "if False:"),),
        UnitTests(LEASE),
    ),
    Mutant(
        "own-vote-breaks-a-promise",
        "lease",
        "the only voter that is left elects itself while the leader that left may read by lease",
        (Edit(f"{RAFT}.election:tick", "if due and not lease.promised(state):", "if due:"),),
        UnitTests(f"{STORY}[lease_and_removal]"),
    ),
    Mutant(
        "lease-counts-everybody",
        "lease",
        "echoes of voters that do not hold the setting count for the lease",
        (Edit(f"{RAFT}.lease:is_valid", "if peer.match_index >= setting else 0", ""),),
        UnitTests(LEASE),
    ),
    Mutant(
        "lease-until-off-is-committed",
        "lease",
        "a leader reads by lease after it has appended that leases are off",
        (
            Edit(
                f"{RAFT}.lease:may_begin",
                "return index if on and index <= state.log.commit_index else None",
                "return 0 if is_on(state) else None",
            ),
        ),
        UnitTests(LEASE),
    ),
    Mutant(
        "served-before-own-commit",
        "reads",
        "a read begins before an entry of the leader's term is committed",
        (
            Edit(
                f"{RAFT}.replication:begin_reads",
                " or not state.term_is_committed",
                "",
            ),
        ),
        UnitTests(f"{LEASE}::{OWN_TERM}"),
    ),
    Mutant(
        "lease-before-own-commit",
        "lease",
        "a leader shows a lease before an entry of its term is committed",
        (Edit(f"{RAFT}.lease:is_valid", " or not state.term_is_committed", ""),),
        UnitTests(f"{LEASE}::{OWN_TERM}"),
    ),
)
