"""Every kind of run by its name."""

from __future__ import annotations

from sim.product import kinds
from sim.product.access_kinds import AccessRun
from sim.product.asked_kinds import AskedRun
from sim.product.definition_kinds import OldDefinitionsRun
from sim.product.disk_kinds import DisksRun
from sim.product.fence_kinds import FencedRun
from sim.product.fleet_kinds import FleetRun
from sim.product.from_tier_kinds import FromTierRun
from sim.product.loss_kinds import AdoptedRun, LossRun
from sim.product.operated_kinds import GroupsRun, OperatorRun, OwnersRun, SleepersRun
from sim.product.rot_kinds import RottenRun
from sim.product.tier_kinds import FrontBucketRun, LosingRun, TierRun
from sim.product.tuned_kinds import TunedRun
from sim.product.zone_kinds import ZonesRun

RUNS: dict[str, type[kinds.ProductRun]] = {
    "product": kinds.ProductRun,
    "power": kinds.PowerRun,
    "restored": kinds.RestoredRun,
    "loss": LossRun,
    "adopted": AdoptedRun,
    "disks": DisksRun,
    "fenced": FencedRun,
    "tier": TierRun,
    "losing": LosingRun,
    "from-tier": FromTierRun,
    "quorum": kinds.QuorumRun,
    "admin": kinds.AdminRun,
    "rejoin": kinds.RejoinRun,
    "members": kinds.MembersRun,
    "retain": kinds.RetainRun,
    "rotten": RottenRun,
    "doors": kinds.DoorRun,
    "stores": kinds.StoreRun,
    "traced": kinds.TracedRun,
    "rich": kinds.RichRun,
    "access": AccessRun,
    "consumers": kinds.ConsumersRun,
    "readers": kinds.ReadersRun,
    "front-readers": kinds.FrontReadersRun,
    "front-bucket": FrontBucketRun,
    "batches": kinds.BatchesRun,
    "pops": kinds.PopsRun,
    "lites": kinds.LitesRun,
    "many": kinds.ManyRun,
    "queues": kinds.QueuesRun,
    "moved-pops": kinds.MovedPopsRun,
    "growing": kinds.GrowingRun,
    "tuned": TunedRun,
    "snapshots": kinds.SnapshotRun,
    "operator": OperatorRun,
    "old-definitions": OldDefinitionsRun,
    "groups": GroupsRun,
    "owners": OwnersRun,
    "asked": AskedRun,
    "sleepers": SleepersRun,
    "fleet": FleetRun,
    "zones": ZonesRun,
}
