"""The plain form of the Raft core's values; pure.

Not written are what belongs to the process, and what ``state`` writes in its own way.
"""

from __future__ import annotations

from gantry_protocol.steps.plain import Plain

from gantry_controller.decisions import told
from gantry_controller.raft import (
    config,
    digests,
    follower_reads,
    lease,
    log,
    members,
    messages,
    progress,
    reads,
    ready,
    snapshot,
    state,
)

PLAIN = Plain(
    (
        config, digests, follower_reads, lease, log, members, messages, progress, reads, ready,
        snapshot, state, told,
    ),
    skipped=("rng", "tracer", "config", "_entries", "_state"),
    held=("contexts", "_waiting", "reads_dropped", "reads_redirected"),
    sparse=told.ReadyTold,
)  # fmt: skip
