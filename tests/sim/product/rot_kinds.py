"""Runs in which records rot that brokers have written, and read again when they take over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_broker.clients.pop import book
from sim.kernel.world import Violation
from sim.product import faults, parked, poppers
from sim.product.cluster import Cluster
from sim.product.kinds import FAULTS_S, PEACE_S, ProductRun
from sim.product.retain_watch import is_mended
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.product.faults import Fault
    from sim.product.workload import Load

ROUNDS = 3
CALM_S = 15  # within which the group may stand again for the next round
ROTS = (*3 * ("rotten-record",), *2 * ("rotten-tail",), "flipped-bit", "bad-sector")
OTHERS = ("kill-master", "kill-master", "terminate", "kill", "power-cut", "isolate")


class RottingCluster(Cluster):
    """Its disks have sectors that cannot be read any more, where any record stands."""

    more_faults = faults.BAD_SECTORS


class RottenRun(ProductRun):
    """Clients of all that is read from the log, of which one member's copy rots again and again.

    In each round something rots and somebody fails soon after, so that the damage is met by who
    takes over, by who serves, by who feeds another one, or by the scrub alone.
    """

    cluster_class = RottingCluster

    def __init__(self, seed: int, schedule: Sequence[Fault] | None = None, **named: Any) -> None:
        super().__init__(seed, schedule or (), **named)

    def settings(self, rng: Random) -> dict[str, Any]:
        """Logs that are scrubbed soon, or not before the end."""
        scrub_s = rng.choice([1, 4, FAULTS_S])
        return {
            "broker_settings": {
                **parked.SETTINGS,
                "transaction_check_interval_s": 2.0,
                "log_scrub_hours": scrub_s / 3600,
            }
        }

    def play(self) -> None:
        """Raises Violation. Tables of what is in flight come all the time, whatever is popped."""
        with mock.patch.object(book, "TABLE_INTERVAL_S", 4.0):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few of each."""
        cluster, watch = self._cluster, self._watch
        few = Workload(cluster, watch, producers=1)
        return [few, parked.Parked(cluster, watch), poppers.Poppers(cluster, watch)]

    def disturb(self) -> None:
        """Rounds."""
        cluster, rng = self._cluster, self.world.stream("rot")
        for _ in range(ROUNDS):
            for kind in rng.sample(ROTS, rng.choice([1, 2, 3])):
                cluster.run(CALM_S, until=lambda: any(map(cluster.may_rot, cluster.brokers)))
                self._strike(kind, rng)
            cluster.run(rng.choice([0.0, 0.3, 1.5]))
            if rng.random() < 0.8:
                self._strike(rng.choice(OTHERS), rng)
            cluster.run(rng.random())

    def _strike(self, kind: str, rng: Random) -> None:
        now_ms = self.world.now_us // 1_000
        fault = faults.Fault(now_ms, kind, rng.randrange(1_000), rng.randint(50, 1_500))
        faults.strike(self._cluster, fault)

    def settle(self, loads: Sequence[Load]) -> None:
        """Raises Violation: something that rotted is not mended, or somebody complains still."""
        cluster = self._cluster
        if not cluster.run(PEACE_S, until=lambda: is_mended(self._watch) and not self._told()):
            raise Violation(f"mended: {is_mended(self._watch)}, but: {self._told()}")

    def _told(self) -> list[str]:
        """What members say of damage."""
        groups = [self._cluster.group_of(node) for node in self._cluster.brokers]
        return [told for group in groups if group is not None and (told := group.repairs.told())]
