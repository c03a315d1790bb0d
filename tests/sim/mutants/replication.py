"""Bugs in replication, one or more for each of H1 to H12; several are what RocketMQ does.

``docs/rules.md`` defines the rules, and names the code that enforces each.
"""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

REPLICA = "gantry_broker.replica"
METADATA = "gantry_controller.metadata"
ROLES = "unit/broker/replica/test_roles.py"
LINEAGE = "unit/broker/replica/test_lineage.py"
HANDSHAKE = "unit/broker/replica/test_handshake.py"
CONFIRM = "unit/broker/replica/test_confirm.py"
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
                f"{REPLICA}.lineage:LogFacts.begin_epoch",
                "self.lineage =",
                "if self.lineage.last_epoch < entry.epoch:\n        self.lineage =",
            ),
        ),
        UnitTests(f"{ROLES}::test_an_epoch_of_an_earlier_start_is_never_served"),
    ),
    Mutant(
        "older-view-believed",
        "H1",
        "a view of an older epoch that arrives late takes a replica back",
        (
            Edit(
                f"{REPLICA}.core:ReplicaCore._learn",
                "if view.master_epoch < self.epoch:",
                "if False:",
            ),
        ),
        UnitTests(f"{ROLES}::test_views_of_older_epochs_are_ignored"),
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
        UnitTests(f"{LINEAGE}::test_empty_epoch_is_dropped_and_the_new_one_never_refused"),
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
        UnitTests(f"{HANDSHAKE}::test_the_master_names_the_last_common_point"),
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
        UnitTests(f"{ROLES}::test_nothing_is_served_before_epoch_and_start_are_durable"),
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
        UnitTests(f"{CONFIRM}::test_a_batch_never_crosses_an_epoch_boundary"),
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
        UnitTests(f"{CONFIRM}::test_a_record_is_confirmed_once_every_member_has_it_on_disk"),
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
        UnitTests(f"{CONFIRM}::test_a_member_that_has_not_connected_in_this_epoch_counts_as_zero"),
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
        UnitTests(f"{CONFIRM}::test_a_pending_member_counts_already"),
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
        UnitTests(f"{SET}::test_an_attempt_of_unknown_outcome_counts_until_the_set_epoch_moves"),
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
        UnitTests(f"{CONFIRM}::test_a_replica_acknowledges_only_what_it_has_flushed"),
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
        UnitTests(f"{CONFIRM}::test_the_masters_own_disk_counts"),
    ),
    Mutant(
        "confirm-falls",
        "H5",
        "confirm follows the least acknowledgement down as well as up",
        (
            Edit(
                f"{REPLICA}.lineage:LogFacts.confirm_up_to",
                "if reached <= self.confirm:",
                "if reached == self.confirm:",
            ),
        ),
        UnitTests(f"{CONFIRM}::test_a_new_master_keeps_what_its_predecessor_confirmed"),
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
        UnitTests(f"{CONFIRM}::test_a_removed_member_counts_until_the_controller_agrees"),
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
        UnitTests("unit/controller/metadata/test_sync_state_set.py"),
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
        UnitTests(f"{SET}::test_a_replica_joins_at_confirm_and_not_before"),
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
        UnitTests(HANDSHAKE),
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
        UnitTests(
            "unit/broker/member/test_member.py"
            "::test_what_only_the_master_has_is_not_acknowledged_where_two_must"
        ),
    ),
)
