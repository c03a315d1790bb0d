"""Each check of a member's log and of its tier says so when the product breaks its rule.

A bug is planted, and something happens that lets it be felt. Without the bug nobody complains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sim.kernel.world import SECOND, Violation, World
from sim.mutants.catalogue import MUTANTS
from sim.mutants.planting import Edit, planted
from sim.product.bucket import BucketOptions
from sim.product.cluster import CLUSTER, Cluster, Node, Simulation
from sim.product.tier_watch import SHARD, TierWatch
from sim.product.watch import Watch
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

BROKER = "gantry_broker"
UPLOADS = {
    "tier_url": "s3://bucket",
    "tier_shard": SHARD,
    "tier_pack_bytes": 8_192,
    "tier_linger_ms": 100,
    "tier_local_bytes": 128 * 1024,
}
IN_CATALOGUE = {mutant.name: mutant.edits for mutant in MUTANTS}
MISSPELT = '.replace(b"\\x06orders", b"\\x06ordres")'

# Worlds in which what is broken comes to light; not every one brings the moment about.
LOG_SEED, TIER_SEED = 1, 1


class Run:
    """A cluster under load, whose brokers upload where there is a bucket."""

    def __init__(self, cluster: Cluster, *, uploads: bool) -> None:
        self.cluster = cluster
        self.watch = Watch(cluster)
        self.tier = TierWatch(cluster.network.bucket, self.watch, CLUSTER) if uploads else None
        cluster.boot()
        Workload(cluster, self.watch, body_bytes=200, rests=False).start()
        assert cluster.run(60, until=lambda: cluster.is_whole and self.watch.acks > 3)

    @property
    def master(self) -> Node:
        assert self.cluster.run(10, until=lambda: self.cluster.master() is not None)
        found = self.cluster.master()
        assert found is not None
        return found

    @property
    def replicas(self) -> list[Node]:
        master = self.master
        return [node for node in self.cluster.brokers if node is not master]

    def slow_down(self) -> None:
        """Disks take so long that others see what is between two steps."""
        for node in self.cluster.brokers:
            node.machine.volume.slowness = 100


def nothing(run: Run) -> None:
    run.cluster.run(4)


def a_hanging_disk(run: Run) -> None:
    """Nothing new is confirmed for a while, though the others have it."""
    run.replicas[0].machine.volume.hang(2 * SECOND)
    run.cluster.run(4)


def an_outage(run: Run) -> None:
    run.cluster.run(1)
    run.cluster.network.bucket.options.failure = 1.0
    run.cluster.run(2)


def a_long_outage(run: Run) -> None:
    an_outage(run)
    run.cluster.run(12)


def a_slow_failover(run: Run) -> None:
    run.slow_down()
    master = run.master
    master.kill()
    run.cluster.run(3)
    master.boot()
    run.cluster.run(3)


def a_power_cut(run: Run) -> None:
    run.cluster.run(1)
    for node in run.cluster.brokers:
        node.machine.cut_power()
    run.cluster.run(0.2)
    for node in run.cluster.brokers:
        node.machine.restore_power()
        node.boot()
    run.cluster.run(5)


def edit(where: str, old: str, new: str) -> tuple[Edit, ...]:
    return (Edit(f"{BROKER}.{where}", old, new),)


LOG = [
    pytest.param(
        "H2",
        a_slow_failover,
        edit(
            "replica.handshake:continued",
            "lineage.with_epoch(entry)",
            "lineage.with_epoch(EpochEntry(entry.epoch, Offset(entry.start_offset + 1)))",
        ),
        id="H2: a replica notes another start of an epoch",
    ),
    pytest.param(
        "H3",
        a_hanging_disk,
        edit(
            "member.shell:ReplicaShell._append",
            "append_raw(offset, data)",
            f"append_raw(offset, data{MISSPELT})",
        ),
        id="H3: a replica writes other bytes",
    ),
    pytest.param(
        "H4",
        a_slow_failover,
        IN_CATALOGUE["saved-when-handed-over"],
        id="H4: a master serves before its epoch is on the disk",
    ),
    pytest.param(
        "H8",
        a_power_cut,
        edit(
            "log.recovery:_judge",
            "in _tail(segment, Offset(covered), floors.durable, keeps=keeps):",
            "in ():",
        ),
        id="H8: a start keeps only what has a sum on the disk",
    ),
    pytest.param(
        "H12",
        a_slow_failover,
        IN_CATALOGUE["numbers-from-confirm"],
        id="H12: a new master gives numbers out twice",
    ),
    pytest.param(
        "H13",
        a_slow_failover,
        edit(
            "replica.lineage:Lineage.with_epoch",
            "kept = ",
            "entry = EpochEntry(entry.epoch, Offset(max(0, entry.start_offset - 1)))\n    kept = ",
        ),
        id="H13: a new epoch begins inside what is confirmed",
    ),
]

TIER = [
    pytest.param("T2", a_slow_failover, 0.0, IN_CATALOGUE["appends-without-a-claim"], id="T2"),
    pytest.param(
        "T4",
        nothing,
        0.3,
        edit("tier.core.session:UploadSession._found", "if stored:", "if True:"),
        id="T4: a pack of unknown outcome counts as stored",
    ),
    pytest.param(
        "T5",
        nothing,
        0.0,
        edit(
            "tier.packing:_read",
            "[(stretch.position, stretch.size)])[0]",
            f"[(stretch.position, stretch.size)])[0]{MISSPELT}",
        ),
        id="T5: a pack holds other bytes",
    ),
    pytest.param("T6", a_hanging_disk, 0.0, IN_CATALOGUE["uploads-to-the-end-of-the-log"], id="T6"),
    pytest.param(
        "T7",
        an_outage,
        0.0,
        edit(
            "tier.calls:Calls.run",
            "return ev.CallFailed(call.ticket, str(error) or type(error).__name__)",
            "return ev.CallRefused(call.ticket, str(error))",
        ),
        id="T7: an outage ends uploads for good",
    ),
    pytest.param("T8", nothing, 0.3, IN_CATALOGUE["maybe-taken-for-yes"], id="T8"),
    pytest.param("T10", a_long_outage, 0.0, IN_CATALOGUE["trims-beyond-the-tier"], id="T10"),
    pytest.param("T16", an_outage, 0.0, IN_CATALOGUE["upload-gives-up"], id="T16"),
    pytest.param(
        "foreign",
        nothing,
        0.0,
        edit(
            "tier.calls:Calls._run",
            "await store.create(place.key(key), data",
            'await store.create(place.key(key) + "x", data',
        ),
        id="foreign: an object under a key that is none",
    ),
]


def play(
    scenario: Callable[[Run], None], edits: tuple[Edit, ...], doubts: float | None = None
) -> None:
    """Plant a bug once all stand well.

    Raises:
        Violation: somebody noticed.
    """
    named: dict[str, Any] = {}
    if doubts is not None:
        # The bucket says so often that it does not know.
        named = {"broker_settings": UPLOADS, "bucket": BucketOptions(conflict=doubts)}
    with Simulation(World(LOG_SEED if doubts is None else TIER_SEED), **named) as cluster:
        run = Run(cluster, uploads=doubts is not None)
        with planted(edits):
            scenario(run)
            if run.tier is not None:
                cluster.network.bucket.options.calm()
                run.tier.judge(within_s=10)


@pytest.mark.parametrize(("rule", "scenario", "edits"), LOG)
def test_a_broken_log_is_noticed(
    rule: str, scenario: Callable[[Run], None], edits: tuple[Edit, ...]
) -> None:
    with pytest.raises(Violation, match=f"us: {rule}: "):
        play(scenario, edits)
    play(scenario, ())


@pytest.mark.parametrize(("rule", "scenario", "doubts", "edits"), TIER)
def test_a_broken_tier_is_noticed(
    rule: str, scenario: Callable[[Run], None], doubts: float, edits: tuple[Edit, ...]
) -> None:
    with pytest.raises(Violation, match=f"(us: |^){rule}: "):
        play(scenario, edits, doubts)
    play(scenario, (), doubts)
