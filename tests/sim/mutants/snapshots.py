"""Bugs in compaction, and in snapshots from a peer."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

RAFT = "gantry_controller.raft"
TESTS = "unit/controller/raft/test_snapshots.py"

MUTANTS = (
    Mutant(
        "snapshot-takes-the-log-back",
        "snapshots",
        "a snapshot is installed over a log that holds its last entry, and more behind it",
        (
            Edit(
                f"{RAFT}.snapshots:offered",
                "if log.term_at(index) != term:",
                "if True:",
            ),
        ),
        UnitTests(TESTS),
    ),
    Mutant(
        "snapshot-tells-no-commit",
        "snapshots",
        "a node that holds a snapshot's last entry does not learn that it is committed",
        (Edit(f"{RAFT}.snapshots:offered", "log.commit_to(index)", "pass"),),
        UnitTests(TESTS),
    ),
    Mutant(
        "candidate-goes-on-after-its-removal",
        "snapshots",
        "a candidate learns from a snapshot that its removal is committed, and leads for ever",
        (
            Edit(
                f"{RAFT}.snapshots:offered",
                "if state.role is not Role.FOLLOWER and not state.may_campaign:",
                "if False:",
            ),
        ),
        UnitTests(TESTS),
    ),
    Mutant(
        "snapshot-commits-what-it-contradicts",
        "snapshots",
        "a snapshot's end is taken for committed although another entry stands there",
        (
            Edit(
                f"{RAFT}.snapshots:offered",
                "if log.term_at(index) != term:",
                "if log.term_at(index) is None:",
            ),
        ),
        UnitTests(TESTS),
    ),
    Mutant(
        "snapshot-of-what-is-not-applied",
        "snapshots",
        "a snapshot says that it covers what is committed, but holds what is applied",
        (
            Edit(
                f"{RAFT}.snapshots:meta_now",
                "index = state.log.applied_index",
                "index = state.log.commit_index",
            ),
        ),
        Seeds("raft-snapshots", 40),
    ),
    Mutant(
        "snapshot-without-its-members",
        "snapshots",
        "a snapshot carries the members of the log's beginning, not those of its end",
        (
            Edit(
                f"{RAFT}.snapshots:meta_now",
                "state.history.at(index)",
                "state.history._changes[0][1]",
            ),
        ),
        Seeds("raft-snapshots", 60),
    ),
    Mutant(
        "installed-without-its-members",
        "snapshots",
        "who installs a snapshot goes on with the members it knew",
        (
            Edit(
                f"{RAFT}.snapshots:install",
                "state.history = MemberHistory(snapshot.index, snapshot.members)",
                "state.history = MemberHistory(snapshot.index, state.members)",
            ),
        ),
        Seeds("raft-snapshots", 60),
    ),
    Mutant(
        "void-log-comes-back",
        "snapshots",
        "a restart finds the log again that an installed snapshot made void",
        (Edit(f"{RAFT}.snapshots:install", "base, restart=True)", "base, restart=False)"),),
        Seeds("raft-snapshots", 40),
    ),
    Mutant(
        "void-log-is-confirmed",
        "snapshots",
        "what the disk confirms of a log that a snapshot made void counts for the new one",
        (
            Edit(
                f"{RAFT}.log:RaftLog.restart",
                "self._under_way = deque(base.index for _ in self._under_way)",
                "pass",
            ),
        ),
        UnitTests(TESTS),
    ),
    Mutant(
        "delivery-is-believed",
        "snapshots",
        "what a peer says it holds after a snapshot is counted as its acknowledgement",
        (
            Edit(
                f"{RAFT}.snapshots:delivered",
                "progress.probe(",
                "progress.match_index = state.log.last_index\n        progress.probe(",
            ),
        ),
        UnitTests(TESTS),
    ),
)
