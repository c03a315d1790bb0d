"""All mutants."""

from __future__ import annotations

from sim.mutants import (
    admission,
    broker_log,
    disk,
    members,
    metadata,
    raft,
    reads,
    replication,
    shipments,
    snapshots,
)

MUTANTS = (
    *raft.MUTANTS,
    *reads.MUTANTS,
    *snapshots.MUTANTS,
    *shipments.MUTANTS,
    *members.MUTANTS,
    *admission.MUTANTS,
    *disk.MUTANTS,
    *metadata.MUTANTS,
    *replication.MUTANTS,
    *broker_log.MUTANTS,
)
