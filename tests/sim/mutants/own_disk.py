"""Bugs in what a node does about its own disk when that is silent, and before it has spoken."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"
NODE = "gantry_controller.node"
RULE = "unit/controller/raft/test_own_disk.py"
HELD = "unit/controller/node/test_held.py"

MUTANTS = (
    Mutant(
        "silent-disk-leads-on",
        "own disk",
        "a leader whose disk hangs leads for ever, although the others have stored more",
        (Edit(f"{RAFT}.own_disk:tick", "if state.disk_hangs:", "if False:"),),
        UnitTests(RULE),
        quick=True,
    ),
    Mutant(
        "gives-way-to-nobody-better",
        "own disk",
        "a leader gives way although nobody has stored more, so leadership goes round",
        (
            Edit(
                f"{RAFT}.own_disk:_give_way",
                "if state.overtaken_ticks < state.config.election_ticks:",
                "if False:",
            ),
        ),
        UnitTests(RULE),
        quick=True,
    ),
    Mutant(
        "gives-way-while-all-disks-wake",
        "own disk",
        "of disks that hung together the leader's answers last, and a needless election follows",
        (
            Edit(
                f"{RAFT}.own_disk:_give_way",
                "state.overtaken_ticks < state.config.election_ticks",
                "state.overtaken_ticks < 1",
            ),
        ),
        UnitTests(RULE),
        quick=True,
    ),
    Mutant(
        "patience-is-not-renewed",
        "own disk",
        "a disk that answers slowly, but does, is taken for one that hangs",
        (Edit(f"{RAFT}.own_disk:answered", "state.disk_silent_ticks = 0", "pass"),),
        UnitTests(RULE),
        quick=True,
    ),
    Mutant(
        "silent-disk-promises-votes",
        "own disk",
        "a node that cannot store a vote lets a candidate enter a term and wait for it",
        (Edit(f"{RAFT}.election:on_pre_vote_request", "state.disk_hangs or ", ""),),
        UnitTests(RULE),
        quick=True,
    ),
    Mutant(
        "silent-disk-stands",
        "own disk",
        "a node that cannot store its own vote stands for election",
        (Edit(f"{RAFT}.state:RaftState.may_campaign", " or self.disk_hangs", ""),),
        UnitTests(RULE),
        quick=True,
    ),
    Mutant(
        "held-for-the-batch-before",
        "node",
        "a vote or an acknowledgement leaves when the batch before its own is durable",
        (Edit(f"{NODE}.held:Held.release", "<= durable", "<= durable + 1"),),
        UnitTests(HELD),
        quick=True,
    ),
    Mutant(
        "held-without-bound",
        "node",
        "a silent disk makes the queue of held messages grow for ever",
        (Edit(f"{NODE}.held:Held.hold", "while len(self._waiting) > HELD_MAX:", "while False:"),),
        UnitTests(HELD),
        quick=True,
    ),
)
