"""Bugs in the taking in of nodes that lost their disk."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Script, Seeds
from sim.mutants.planting import Edit
from sim.raft import scripts

RAFT = "gantry_controller.raft"

MUTANTS = (
    Mutant(
        "blank-node-votes",
        "admission",
        "a node that lost its disk votes and counts as if nothing had happened",
        (
            Edit(
                f"{RAFT}.state:RaftState.__init__",
                "self.voter_marked = hard.voting or self.is_alone",
                "self.voter_marked = True",
            ),
        ),
        Seeds("raft-volumes", 40),
    ),
    Mutant(
        "blank-peer-counts",
        "admission",
        "a leader counts the word of a peer that has lost its disk",
        (Edit(f"{RAFT}.progress:Progress.counts", "return self.blank == 0", "return True"),),
        Script(scripts.forgotten_vote),
        quick=True,
    ),
    Mutant(
        "admitted-at-once",
        "admission",
        "a peer that lost its disk may vote as soon as the leader hears of it",
        (
            Edit(
                f"{RAFT}.admission:nonce_to_admit",
                "return progress.blank if ready else 0",
                "return progress.blank",
            ),
        ),
        Script(scripts.forgotten_vote),
        quick=True,
    ),
)
