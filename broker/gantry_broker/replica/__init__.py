"""The rules of replication without I/O: lineage, confirm offset, sync-state set, hand-over.

Nothing here knows a socket, a file, a clock or an event loop (import-linter checks it). The same
machine runs in ``gantry_broker.member.group`` over real links and in ``tests/sim`` over imagined
ones.
"""

from gantry_broker.replica.core import ReplicaCore
from gantry_broker.replica.lineage import (
    Lineage,
    LineageError,
    LogFacts,
    StoredState,
    consistent_point,
)
from gantry_broker.replica.values import DEFAULT_LIMITS, ControllerView, Limits, Role

__all__ = [
    "DEFAULT_LIMITS",
    "ControllerView",
    "Limits",
    "Lineage",
    "LineageError",
    "LogFacts",
    "ReplicaCore",
    "Role",
    "StoredState",
    "consistent_point",
]
