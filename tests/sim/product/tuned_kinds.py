"""Runs in which settings of brokers change while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from gantry_protocol.process import log
from sim.product.kinds import ProductRun
from sim.product.tuner import TunedCluster, Tuner
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.product.workload import Load


class TunedRun(ProductRun):
    """Brokers whose configuration file changes, also to one that cannot be meant."""

    cluster_class = TunedCluster
    _cluster: TunedCluster
    settle_s = 120  # one setting after the other, each by the word of all brokers

    def play(self) -> None:
        """Raises Violation. All processes of a world log at one level, which stays as it is."""
        with mock.patch.object(log, "set_level"):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few plain messages."""
        cluster, watch = self._cluster, self._watch
        return [Workload(cluster, watch, producers=1), Tuner(cluster, watch)]
