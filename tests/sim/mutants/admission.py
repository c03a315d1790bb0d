"""Bugs in the taking in of nodes that lost their disk."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Script, Seeds, UnitTests
from sim.mutants.planting import Edit
from sim.raft import scripts

RAFT = "gantry_controller.raft"
CORE = "unit/controller/raft/test_core.py"

MUTANTS = (
    Mutant(
        "blank-node-votes",
        "admission",
        "a node that lost its disk votes and counts as if nothing had happened",
        (
            Edit(
                f"{RAFT}.state:RaftState.__init__",
                "hard.voting or (self.is_alone and config.founds and self.is_pristine)",
                "True",
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
    ),
    Mutant(
        "founds-beside-its-damaged-log",
        "admission",
        "a node that put its damaged log aside founds an empty quorum with others that lost theirs",
        (
            Edit(
                f"{RAFT}.admission:is_founder",
                "return state.config.founds and state.is_pristine",
                "return state.is_pristine",
            ),
        ),
        UnitTests(CORE),
    ),
    Mutant(
        "alone-beside-its-damaged-log",
        "admission",
        "a quorum of one that put its damaged log aside goes on with an empty one",
        (
            Edit(
                f"{RAFT}.state:RaftState.__init__",
                "hard.voting or (self.is_alone and config.founds and self.is_pristine)",
                "hard.voting or (self.is_alone and self.is_pristine)",
            ),
        ),
        UnitTests(CORE),
    ),
    Mutant(
        "alone-amid-a-refill",
        "admission",
        "a former lone founder elects itself by the old membership in the log it is filled with",
        (
            Edit(
                f"{RAFT}.state:RaftState.__init__",
                "(self.is_alone and config.founds and self.is_pristine)",
                "(self.is_alone and config.founds)",
            ),
        ),
        UnitTests("unit/controller/raft/test_snapshots.py"),
    ),
    Mutant(
        "silent-peer-is-said-to-count",
        "admission",
        "a leader calls a silent member one that counts, though it may have lost its disk since",
        (
            Edit(
                f"{RAFT}.core:RaftCore.counted",
                "(progress.counts and not changes.answers(self._state, progress))",
                "False",
            ),
        ),
        UnitTests(f"{CORE}::test_a_peers_word_counts_only_as_long_as_it_is_heard"),
    ),
    Mutant(
        "word-of-an-ended-connection-believed",
        "admission",
        "a leader takes a peer whose connection ended for one that still answers",
        (
            Edit(
                f"{RAFT}.changes:connection_changed",
                "state.peers[node].silent_ticks = state.config.election_ticks + 1",
                "pass",
            ),
        ),
        UnitTests(f"{CORE}::test_a_peer_whose_connection_ended_does_not_take_over_or_decide"),
    ),
    Mutant(
        "end-of-a-connection-kept-from-the-core",
        "admission",
        "the end of a peer's connection is not passed on",
        (
            Edit(
                "gantry_controller.node.links:PeerLinks._on_left",
                "self._changed(node)\n",
                "pass\n",
            ),
        ),
        UnitTests(
            "unit/controller/node/test_node.py::"
            "test_each_begin_and_end_of_a_connection_is_passed_on"
        ),
    ),
)
