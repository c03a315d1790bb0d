"""A kind of run whose clients need users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_cli.client import session
from sim.product import permits
from sim.product.kinds import ProductRun
from sim.product.permits import GuardedCluster, Permits
from sim.product.scraper import Scraper
from sim.product.strangers import Strangers
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.product.workload import Load


class AccessRun(ProductRun):
    """Clients who sign as users with rules, and others who only say so, under all faults."""

    onlookers = (Scraper, Strangers)
    cluster_class = GuardedCluster

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door, or through fronts."""
        place = rng.choice([{}, {}, {"doors": True}, {"fronts": 1}])
        return {**place, "keyed": True, "broker_settings": dict(permits.SETTINGS)}

    def play(self) -> None:
        """Raises Violation. The product's own client signs meanwhile."""
        ours = ("clients", permits.secret_of("clients"))
        with mock.patch.object(session, "credentials", return_value=ours):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few messages beside."""
        cluster = self._cluster
        return [Workload(cluster, self._watch, producers=1), Permits(cluster)]
