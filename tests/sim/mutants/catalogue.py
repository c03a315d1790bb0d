"""All mutants."""

from __future__ import annotations

from sim.mutants import (
    admission,
    broker_log,
    broker_shell,
    contact,
    disk,
    members,
    metadata,
    own_disk,
    pace,
    product_controller,
    product_operator,
    raft,
    reads,
    replication,
    retention,
    shipments,
    snapshots,
    turns,
    way_through,
)

MUTANTS = (
    *raft.MUTANTS,
    *reads.MUTANTS,
    *snapshots.MUTANTS,
    *shipments.MUTANTS,
    *members.MUTANTS,
    *admission.MUTANTS,
    *disk.MUTANTS,
    *own_disk.MUTANTS,
    *metadata.MUTANTS,
    *replication.MUTANTS,
    *broker_log.MUTANTS,
    *broker_shell.MUTANTS,
    *retention.MUTANTS,
    *contact.MUTANTS,
    *pace.MUTANTS,
    *way_through.MUTANTS,
    *turns.MUTANTS,
    *product_controller.MUTANTS,
    *product_operator.MUTANTS,
)
