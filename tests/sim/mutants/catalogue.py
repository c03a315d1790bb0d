"""All mutants."""

from __future__ import annotations

from sim.mutants import admission, disk, members, metadata, raft, reads

MUTANTS = (
    *raft.MUTANTS,
    *reads.MUTANTS,
    *members.MUTANTS,
    *admission.MUTANTS,
    *disk.MUTANTS,
    *metadata.MUTANTS,
)
