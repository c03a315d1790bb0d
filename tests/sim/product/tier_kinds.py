"""Kinds of runs with a tier: an unkind object store, and one that loses objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_broker.log.units import parse_unit
from gantry_broker.tier.core.report import SHORTENED, Readable
from sim.kernel.world import MS, SECOND, Violation
from sim.product import bucket_losses, faults, parked
from sim.product.bucket import BucketOptions
from sim.product.bucket_losses import LosingCluster
from sim.product.cluster import CLUSTER, GROUP, SEGMENT_BYTES
from sim.product.kinds import FAULTS_S, PEACE_S, ProductRun
from sim.product.lives import Lives
from sim.product.readers import Readers, number
from sim.product.rereader import Rereader
from sim.product.scraper import Scraper
from sim.product.strangers import Strangers
from sim.product.tier_watch import SHARD, TierWatch
from sim.product.visitor import Visitor
from sim.product.workers import Workers
from sim.product.workload import TOPIC, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from sim.product.cluster import Node
    from sim.product.workload import Load

OUTAGES = 2
FAR_MORE = 1_000  # segments than a run fills
OFF_S = (0, 8, 20)  # beyond the faults: a group is off after some seconds only
ENDS_S = 15  # within which a broker that is told to end has ended
SERVED_S = 30  # within which fronts serve what is in the tier
FILL_S = 10  # until logs have lost their beginning to the tier


def small_tier(rng: Random) -> dict[str, Any]:
    """Settings of a cluster whose group uploads a lot, to a store of drawn unkindness."""
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


class TierRun(ProductRun):
    """A group that uploads to an unkind store, and keeps little of its log itself."""

    onlookers = (Scraper, Strangers)

    def settings(self, rng: Random) -> dict[str, Any]:
        """A small tier that is used a lot."""
        return small_tier(rng)

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


class FrontBucketRun(TierRun):
    """Fronts that know the tier, and a group all of whose brokers go away and come back.

    Twice under faults; then once more while nothing else goes wrong, and a visitor compares what
    fronts say with what the log says up to the head of the tier.
    """

    def settings(self, rng: Random) -> dict[str, Any]:
        """One or two fronts, which soon end connections."""
        more = rng.choice([{}, {}, {"tier_shards": [f"{GROUP}={SHARD}"]}])
        age_s = rng.choice([2.0, 10.0, 120.0])
        named = super().settings(rng)
        brokers = named["broker_settings"] | parked.SETTINGS
        self._loads = rng.sample([Readers, Rereader, Workers, Lives], 2)
        if Workers in self._loads:  # what only the tier has cannot be sent back
            brokers["tier_local_bytes"] = FAR_MORE * SEGMENT_BYTES
        return {
            **named,
            "broker_settings": brokers,
            "fronts": rng.choice([1, 2]),
            "front_settings": {"tier_url": "s3://bucket", "connection_age_s": age_s, **more},
        }

    def loads(self) -> Sequence[Load]:
        """Few messages, and some of those who use them."""
        cluster, watch = self._cluster, self._watch
        some = Workload(cluster, watch, producers=1, keys=number)
        make: dict[type, Callable[[], Load]] = {
            Readers: lambda: Readers(cluster, watch, some),
            Rereader: lambda: Rereader(cluster, some),
            Workers: lambda: Workers(cluster, watch, parked.LEVELS_MS[0]),
            Lives: lambda: Lives(cluster),
        }
        return [some, *(make[kind]() for kind in self._loads)]

    def disturb(self) -> None:
        """Faults, and amid them nobody is there. Raises Violation."""
        rng = self.world.stream("off")
        for _ in range(OUTAGES):
            faults.plan(self._cluster, self.schedule)
            with_all_s = rng.choice([0.0, rng.uniform(0.0, FAULTS_S)])
            self._cluster.run(with_all_s)
            self._switch_off(rng)
            self._cluster.run(FAULTS_S - with_all_s + rng.choice(OFF_S))
            self._switch_on(rng)
            self.recover()

    def settle(self, loads: Sequence[Load]) -> None:
        """The same in peace. Raises Violation."""
        cluster, rng = self._cluster, self.world.stream("peace")
        if not cluster.run(SERVED_S, until=lambda: self._tier.chain.end > 0):
            raise Violation("nothing is uploaded, though all is well")
        self._switch_off(rng)
        if not cluster.run(SERVED_S, until=self._is_served):
            raise Violation(f"not served from the tier: {self._told()}")
        visitor = Visitor(cluster, self._watch, self._tier)
        visitor.start()
        if not cluster.run(SERVED_S, until=lambda: not visitor.left):
            raise Violation(f"not looked through: {visitor.left}, {self._told()}")
        self._switch_on(rng)
        self.recover()

    def _switch_off(self, rng: Random) -> None:
        """All brokers end, each in some way."""
        self.world.note("off")
        ways = rng.choice([["kill"], ["power"], ["terminate"], ["kill", "power", "terminate"]])
        late_ms = rng.choice([10, 2_000])
        for node in self._cluster.brokers:
            node.wanted = False
            self.world.after(rng.randrange(late_ms) * MS, self._end, node, rng.choice(ways))

    def _end(self, node: Node, way: str) -> None:
        if node.wanted:
            return  # it is to be there again
        if way == "kill":
            node.kill()
        elif way == "power":
            node.machine.cut_power()
        else:
            node.terminate()
            self.world.after(ENDS_S * SECOND, self._end, node, "kill")

    def _switch_on(self, rng: Random) -> None:
        self.world.note("on")
        for node in self._cluster.brokers:
            node.wanted = True
            node.machine.restore_power()
            self.world.after(rng.randrange(2_000) * MS, node.boot)

    def _is_served(self) -> bool:
        """Whether every front serves the head of the tier."""
        head = self._tier.chain.v
        return not any(node.is_running for node in self._cluster.brokers) and all(
            bucket is not None and bucket.takes_requests and bucket._version == head
            for bucket in self._buckets()
        )

    def _told(self) -> list[object]:
        """What fronts say about it."""
        return [None if bucket is None else bucket.status() for bucket in self._buckets()]

    def _buckets(self) -> list[Any]:
        servers = [self._cluster.front_of(node) for node in self._cluster.fronts]
        groups = [None if server is None else server.groups.get(GROUP) for server in servers]
        return [None if group is None else group.bucket for group in groups]
