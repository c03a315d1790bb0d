"""Kinds of runs with a tier: an unkind object store, and one that loses objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_broker.log.units import parse_unit
from gantry_broker.tier.core.report import SHORTENED, Readable
from sim.kernel.world import Violation
from sim.product import bucket_losses, faults
from sim.product.bucket import BucketOptions
from sim.product.bucket_losses import LosingCluster
from sim.product.cluster import CLUSTER, SEGMENT_BYTES
from sim.product.kinds import PEACE_S, ProductRun
from sim.product.rereader import Rereader
from sim.product.scraper import Scraper
from sim.product.strangers import Strangers
from sim.product.tier_watch import SHARD, TierWatch
from sim.product.workload import TOPIC, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.product.workload import Load

FILL_S = 10  # until logs have lost their beginning to the tier


class TierRun(ProductRun):
    """A group that uploads to an unkind store, and keeps little of its log itself."""

    onlookers = (Scraper, Strangers)

    def settings(self, rng: Random) -> dict[str, Any]:
        """A small tier that is used a lot."""
        return {
            "bucket": BucketOptions.swarm(rng),
            "broker_settings": {
                "tier_url": "s3://bucket",
                "tier_shard": SHARD,
                "tier_pack_bytes": rng.choice([8, 32, 128]) * 1024,
                "tier_linger_ms": rng.choice([100, 500, 2_000]),
                "tier_local_bytes": rng.choice([1, 2]) * SEGMENT_BYTES,
            },
        }

    def loads(self) -> Sequence[Load]:
        """The clients, and one that reads what only the tier has."""
        workload = Workload(self._cluster, self._watch)
        return [workload, Rereader(self._cluster, workload)]

    def settle(self, loads: Sequence[Load]) -> None:
        """Every member comes to keep little, so that the beginning is in the tier alone."""
        if not self._cluster.run(PEACE_S, until=lambda: all(begin for begin, _ in self._kept())):
            raise Violation(f"kept: logs begin at, because: {self._kept()}")

    def _kept(self) -> list[tuple[int, str]]:
        """Where each log begins, and why not later."""
        groups = map(self._cluster.group_of, self._cluster.brokers)
        return [
            (int(group._store.log.log_start), group.tier.service.retention.reason)
            if group is not None and group.tier.service is not None
            else (0, "down")
            for group in groups
        ]

    def act(self) -> None:
        """Raises Violation."""
        watch, cluster = self._watch, self._cluster
        self._tier = TierWatch(cluster.network.bucket, watch, CLUSTER)
        super().act()
        self._tier.judge(within_s=60)


class LosingRun(TierRun):
    """The same, and the bucket loses objects: some come back, and what is oldest perhaps never.

    No place is skipped but of what a rule of the bucket has removed, and nothing that is left is
    missing. What comes back is served again, and nobody complains of it any more.
    """

    cluster_class = LosingCluster

    def settings(self, rng: Random) -> dict[str, Any]:
        """Small packs, and a store that answers."""
        named = super().settings(rng)
        named["bucket"] = BucketOptions(failure=rng.choice([0.0, 0.02]))
        named["broker_settings"] |= {
            "tier_pack_bytes": rng.choice([8, 32]) * 1024,
            "tier_local_bytes": SEGMENT_BYTES,
        }
        bad = rng.choice([tuple(bucket_losses.KINDS), ("hide-object", "remove-oldest")])
        self.kinds = [*2 * bad, *rng.sample(list(faults.KINDS), 4)]
        self._restores = rng.random() < 0.5
        self._removed_below = 0
        return named

    def loads(self) -> Sequence[Load]:
        """The clients, and one that reads what only the tier has."""
        workload = Workload(self._cluster, self._watch)
        reader = Rereader(self._cluster, workload, expires=True, first_kept=self._first_kept)
        return [workload, reader]

    def _first_kept(self, queue_id: int) -> int:
        """The first place of a queue that is not in a pack that was removed."""
        log, at, first = self._watch.confirmed, 0, 0
        while at < self._removed_below:
            unit = parse_unit(bytes(log[at : at + (1 << 17)]), 0, at, check_body=False)
            record, at = unit.record, at + unit.size
            if record is not None and (record.topic, record.queue_id) == (TOPIC, queue_id):
                first = record.queue_offset + 1
        return first

    def _look(self) -> None:
        self._removed_below = max(self._removed_below, self._tier.first_left)

    def disturb(self) -> None:
        """Not before there is something to lose."""
        self._watch.more.append(self._look)
        self._cluster.run(FILL_S, until=lambda: all(begin for begin, _ in self._kept()))
        super().disturb()

    def recover(self) -> None:
        """A person puts back what was hidden or damaged, perhaps also what was removed."""
        self._cluster.network.bucket.restore(removed=self._restores)
        super().recover()

    def settle(self, loads: Sequence[Load]) -> None:
        """Everybody finds out what there is again. Raises Violation."""
        if not self._cluster.run(PEACE_S, until=self._is_known):
            raise Violation(f"{self._removed_below} bytes are gone: {self._readable()}")
        super().settle(loads)
        if self._restores:
            self._watch.more.remove(self._look)
            self._removed_below = 0

    def _is_known(self) -> bool:
        """Whether everybody complains of what is gone for good, and of nothing else."""
        is_gone = self._removed_below > 0 and not self._restores
        return all(one.is_shortened if is_gone else not one.complaint for one in self._readable())

    def _readable(self) -> list[Readable]:
        groups = map(self._cluster.group_of, self._cluster.brokers)
        return [
            group.tier.service.reader.readable
            if group is not None and group.tier.service is not None
            else Readable("it is down")
            for group in groups
        ]

    def act(self) -> None:
        """Raises Violation."""
        super().act()
        master = self._cluster.master()
        report = self._cluster.group_of(master).tier.report() if master else None
        told = report is not None and report.state == SHORTENED
        if told != (self._removed_below > 0):
            raise Violation(f"{self._removed_below} bytes were removed, and it says: {report}")
