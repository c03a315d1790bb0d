"""Somebody who has controllers take snapshots at any moment: before a backup, say.

Each takes its own, of what it has applied, and refuses while it takes one or has applied nothing
more. Whoever was down needs a snapshot afterwards, since the log before it is gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.kernel.world import Violation
from sim.product.cluster import http
from sim.product.workload import Clients

if TYPE_CHECKING:
    from sim.product.cluster import Node

PATH = "/v1/quorum/snapshot"
EVERY_S = 0.4
PATIENCE_S = 2.0
ANSWERS = (200, 409, 503, 507)


class Snapshotter(Clients):
    """See the module."""

    unsettled = "a snapshot is never answered"

    def start(self) -> None:
        """Begin."""
        self._cluster.client("snapshotter", self._ask).boot()

    async def _ask(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        while not self._stops:
            await asyncio.sleep(rng.random() * EVERY_S)
            asked = rng.choice(self._cluster.controllers)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    status, text = await http(asked.machine.address, "POST", PATH)
            except (OSError, EOFError):  # TimeoutError is one
                continue
            if status not in ANSWERS:
                raise Violation(f"{asked.name} answers {status}: {text[:300]!r}")
            self._cluster.world.count(f"snapshot.{status}")
        self._busy -= 1
