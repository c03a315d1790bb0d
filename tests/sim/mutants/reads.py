"""Bugs in linearizable reads."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"

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
        (Edit(f"{RAFT}.reads:ReadQueue.add", "self.round += 1", "pass"),),
        Seeds("raft-late-leaders", 60),
    ),
)
