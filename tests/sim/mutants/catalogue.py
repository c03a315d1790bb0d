"""All mutants."""

from __future__ import annotations

from sim.mutants import admission, disk, metadata, raft, reads

MUTANTS = (
    *raft.MUTANTS,
    *reads.MUTANTS,
    *admission.MUTANTS,
    *disk.MUTANTS,
    *metadata.MUTANTS,
)
