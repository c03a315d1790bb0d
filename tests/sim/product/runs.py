"""Every kind of run by its name."""

from __future__ import annotations

from sim.product import kinds
from sim.product.loss_kinds import LossRun
from sim.product.operated_kinds import GroupsRun, OperatorRun

RUNS: dict[str, type[kinds.ProductRun]] = {
    "product": kinds.ProductRun,
    "power": kinds.PowerRun,
    "restored": kinds.RestoredRun,
    "loss": LossRun,
    "tier": kinds.TierRun,
    "quorum": kinds.QuorumRun,
    "admin": kinds.AdminRun,
    "rejoin": kinds.RejoinRun,
    "members": kinds.MembersRun,
    "retain": kinds.RetainRun,
    "doors": kinds.DoorRun,
    "stores": kinds.StoreRun,
    "rich": kinds.RichRun,
    "consumers": kinds.ConsumersRun,
    "batches": kinds.BatchesRun,
    "many": kinds.ManyRun,
    "snapshots": kinds.SnapshotRun,
    "operator": OperatorRun,
    "groups": GroupsRun,
}
