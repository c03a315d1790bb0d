"""Bugs in what a node does about its own disk when that is silent, and before it has spoken."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"
RULE = "unit/controller/raft/test_own_disk.py"
HELD = "unit/controller/raft/test_after_persist.py"
AFTER = f"{RAFT}.after_persist:AfterPersist"

MUTANTS = (
    Mutant(
        "silent-disk-leads-on",
        "own disk",
        "a leader whose disk hangs leads for ever, although the others have stored more",
        (Edit(f"{RAFT}.own_disk:tick", "if state.disk_hangs:", "if False:"),),
        UnitTests(RULE),
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
    ),
    Mutant(
        "patience-is-not-renewed",
        "own disk",
        "a disk that answers slowly, but does, is taken for one that hangs",
        (Edit(f"{RAFT}.own_disk:answered", "state.disk_silent_ticks = 0", "pass"),),
        UnitTests(RULE),
    ),
    Mutant(
        "silent-disk-promises-votes",
        "own disk",
        "a node that cannot store a vote lets a candidate enter a term and wait for it",
        (Edit(f"{RAFT}.election:on_pre_vote_request", "state.disk_hangs or ", ""),),
        UnitTests(RULE),
    ),
    Mutant(
        "silent-disk-stands",
        "own disk",
        "a node that cannot store its own vote stands for election",
        (Edit(f"{RAFT}.state:RaftState.may_campaign", " or self.disk_hangs", ""),),
        UnitTests(RULE),
    ),
    Mutant(
        "held-for-the-batch-before",
        "durability",
        "a vote or an acknowledgement leaves when the batch before its own is durable",
        (Edit(f"{AFTER}.release", "<= self._reported", "<= self._reported + 1"),),
        Seeds("raft", 20),
    ),
    Mutant(
        "sent-before-persist",
        "durability",
        "votes and acknowledgements leave before they are on the disk",
        (Edit(f"{AFTER}.release", " and self._messages[0][0] <= self._reported", ""),),
        Seeds("raft", 20),
    ),
    Mutant(
        "sent-before-the-core-has-heard",
        "durability",
        "an answer leaves in a pass whose core does not know yet that its batch is durable",
        (Edit(f"{AFTER}.release", "<= self._reported", "<= self._confirmed"),),
        UnitTests(HELD),
    ),
    Mutant(
        "core-hears-of-the-last-batch-only",
        "durability",
        "of batches that become durable together the core is told the newest only",
        (
            Edit(
                f"{AFTER}.report",
                "self._reported + 1, self._confirmed",
                "self._confirmed, self._confirmed",
            ),
        ),
        UnitTests(HELD),
    ),
    Mutant(
        "held-without-bound",
        "durability",
        "a silent disk makes the queue of held messages grow for ever",
        (Edit(f"{AFTER}.hand_out", "while len(waiting) > HELD_MAX:", "while False:"),),
        UnitTests(HELD),
    ),
)
