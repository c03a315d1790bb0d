"""Bugs in replication, one or more for each of H1 to H12; several are what RocketMQ does.

``docs/rules.md`` defines the rules, and names the code that enforces each.
"""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

REPLICA = "gantry_broker.replica"
METADATA = "gantry_controller.metadata"
SET = "unit/broker/replica/test_sync_state_set.py"

MUTANTS = (
    Mutant(
        "epoch-of-an-earlier-start",
        "H1",
        "a broker that restarts serves under the epoch its earlier process was given",
        (
            Edit(
                f"{REPLICA}.core:ReplicaCore._learn",
                "if view.master_incarnation == self.incarnation:",
                "if True:",
            ),
            Edit(
                f"{REPLICA}.facts:LogFacts.begin_epoch",
                "self.lineage =",
                "if self.lineage.last_epoch < entry.epoch:\n        self.lineage =",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
    Mutant(
        "older-view-believed",
        "H1",
        "a view of an older epoch that arrives late takes a replica back",
        (
            Edit(
                f"{REPLICA}.core:ReplicaCore._learn",
                "if view.master_epoch < self.epoch:\n"
                "        return self._behind(view) if self.view is None else []",
                "if False:\n        pass",
            ),
        ),
        Seeds("whole", 40),
    ),
    Mutant(
        "new-epoch-refused",
        "H2",
        "an epoch that begins where the last one did is dropped (EpochFileCache.appendEntry)",
        (
            Edit(
                f"{REPLICA}.lineage:Lineage.with_epoch",
                "kept = ",
                "if self.last and self.last.start_offset >= entry.start_offset:\n"
                "        return self\n"
                "    kept = ",
            ),
        ),
        Seeds("whole", 40),
    ),
    Mutant(
        "no-truncation",
        "H3",
        "a replica keeps what the master does not have, where it is long enough",
        (
            Edit(
                f"{REPLICA}.handshake:_common_end",
                "point = min(common, hello.end, mine.end)",
                "point = min(hello.end, mine.end)",
            ),
        ),
        Seeds("whole", 40),
    ),
    Mutant(
        "written-before-the-epoch-is-durable",
        "H4",
        "a master writes before (epoch, start) is on its disk",
        (
            Edit(
                f"{REPLICA}.core:ReplicaCore._promote",
                "return [save]",
                "return [save, *self._saved(save.token)]",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
    Mutant(
        "batch-across-epochs",
        "H2",
        "one batch carries bytes of two epochs under the line of the first",
        (
            Edit(
                f"{REPLICA}.master:Mastership.next_batch",
                "limit = self._log.end if boundary is None else min(boundary, self._log.end)",
                "limit = self._log.end",
            ),
        ),
        Seeds("whole", 40),
        quick=True,
    ),
    Mutant(
        "acknowledged-at-the-log-end",
        "H5",
        "confirm is the master's own end (allAckInSyncStateSet=false, RocketMQ's default)",
        (
            Edit(
                f"{REPLICA}.master:Mastership.advance",
                "for broker_id in self.counted - {self.me}:",
                "for broker_id in ():",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
    Mutant(
        "unknown-acknowledgements-skipped",
        "H5",
        "a member that has not acknowledged in this epoch is not waited for (ack > 0)",
        (
            Edit(
                f"{REPLICA}.master:Mastership.advance",
                "lowest = min(lowest, Offset(0) if member is None else member.acked)",
                "lowest = min(lowest, member.acked or lowest)",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
    Mutant(
        "proposed-set-forgotten",
        "H5",
        "confirm waits for the known set only, while the controllers may hold a larger one already",
        (
            Edit(
                f"{REPLICA}.syncset:SyncStateSet.counted",
                "return self.members | self.doubtful | self.pending.sync_state_set",
                "return self.members",
            ),
        ),
        Seeds("whole", 40),
    ),
    Mutant(
        "unknown-outcome-forgotten",
        "H5",
        "a proposal without an answer is taken for one that was refused",
        (
            Edit(
                f"{REPLICA}.syncset:SyncStateSet._open_outcome",
                "self.doubtful |= attempt.sync_state_set - self.members",
                "pass",
            ),
        ),
        Seeds("whole", 200),
    ),
    Mutant(
        "acknowledged-before-the-flush",
        "H5",
        "a replica acknowledges what it has received and not flushed",
        (
            Edit(
                f"{REPLICA}.following:Following._acknowledge",
                "flushed_end=self._log.flushed",
                "flushed_end=self._log.end",
            ),
        ),
        Seeds("power", 5),
    ),
    Mutant(
        "own-flush-uncounted",
        "H5",
        "confirm passes what the master itself has flushed",
        (
            Edit(
                f"{REPLICA}.master:Mastership.advance",
                "lowest = self._log.flushed",
                "lowest = self._log.flushed = self._log.end",
            ),
        ),
        Seeds("power", 5),
    ),
    Mutant(
        "confirm-falls",
        "H5",
        "confirm follows the least acknowledgement down as well as up",
        (
            Edit(
                f"{REPLICA}.facts:LogFacts.confirm_up_to",
                "if reached <= self.confirm:",
                "if reached == self.confirm:",
            ),
        ),
        Seeds("whole", 20),
    ),
    Mutant(
        "set-changed-by-the-master",
        "H6",
        "a master goes by the set it has proposed before the controllers agreed",
        (
            Edit(
                f"{REPLICA}.syncset:SyncStateSet.plan",
                "return self.pending",
                "self.members = target\n    return self.pending",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
    Mutant(
        "set-epoch-uncompared",
        "H6",
        "the controllers take a set whatever set it was made from",
        (
            Edit(
                f"{METADATA}.mastership:_refuse_alteration",
                "if event.expected_set_epoch != group.sync_state_set_epoch:",
                "if False:",
            ),
        ),
        Seeds("whole", 60),
    ),
    Mutant(
        "joins-below-the-epochs-start",
        "H7",
        "a replica joins at confirm, without all the log with which the epoch began",
        (
            Edit(
                f"{REPLICA}.membership:wanted_set",
                "joins_at = max(log.confirm, epoch_start)",
                "joins_at = log.confirm",
            ),
        ),
        UnitTests(f"{SET}::test_a_replica_joins_only_with_the_whole_log_of_the_epochs_beginning"),
    ),
    Mutant(
        "joins-below-confirm",
        "H7",
        "a replica joins as soon as it is connected",
        (
            Edit(
                f"{REPLICA}.membership:may_join",
                "and member.acked >= joins_at",
                "",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
    Mutant(
        "restored-volume-overlooked",
        "H7",
        "a member that came back without confirmed records stays electable until it has caught up",
        (
            Edit(
                f"{REPLICA}.membership:wanted_set",
                " and not member.has_lost",
                "",
            ),
        ),
        UnitTests("unit/broker/replica/test_lost_bytes.py"),
        quick=True,
    ),
    Mutant(
        "cut-below-confirm",
        "H8",
        "a replica cuts off what it knows to be confirmed, when a master without it asks",
        (
            Edit(
                f"{REPLICA}.handshake:refuse_truncate",
                "if message.point < mine.confirm:",
                "if False:",
            ),
        ),
        UnitTests("unit/broker/replica/test_handshake.py"),
        quick=True,
    ),
    Mutant(
        "minimum-ignored",
        "H11",
        "writes are acknowledged while the set is smaller than it must be",
        (
            Edit(
                f"{REPLICA}.master:Mastership.min_in_sync",
                "return max(self._view.min_in_sync, 1)",
                "return 1",
            ),
        ),
        Seeds("whole", 20),
        quick=True,
    ),
)
