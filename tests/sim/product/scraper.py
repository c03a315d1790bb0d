"""Who looks at a cluster all the time: probes, metrics, status pages, the watch stream.

What is asked is answered, or refused in words: an answer of 500 is a bug wherever it comes from.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_broker.door.settings import HTTP_PORT as DOOR_HTTP
from gantry_broker.front.settings import HTTP_PORT as FRONT_HTTP
from gantry_operator.names import OPERATOR_HTTP_PORT
from sim.kernel.world import Violation
from sim.product.cluster import BROKER_HTTP, CLUSTER, CONTROLLER_HTTP, GROUP, http

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node

BROKER_PAGES = ("/livez", "/readyz", "/metrics", "/status", f"/status/{GROUP}")
FRONT_PAGES = ("/livez", "/readyz", "/metrics", "/status")
OPERATOR_PAGES = ("/livez", "/readyz", "/metrics")
CONTROLLER_PAGES = (
    "/livez",
    "/readyz",
    "/metrics",
    "/v1/quorum",
    "/v1/groups",
    f"/v1/groups/{CLUSTER}/{GROUP}",
    "/v1/snapshots",
    "/v1/watch?since=0",
)
EVERY_S = 0.4
PATIENCE_S = 1.0


class Scraper:
    """See the module.

    Attributes:
        pages: answers by status.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.pages: dict[int, int] = {}
        self._cluster = cluster

    def start(self) -> None:
        """Begin."""
        self._cluster.client("scraper", self._scrape).boot()

    async def _scrape(self, node: Node) -> None:
        rng = self._cluster.world.stream("scraper")
        while True:
            await asyncio.sleep(rng.random() * EVERY_S)
            nodes = [*self._cluster.nodes, *self._cluster.operators]
            if not nodes:
                continue
            asked = rng.choice(nodes)
            port, pages = BROKER_HTTP, BROKER_PAGES
            if asked in self._cluster.controllers:
                port, pages = CONTROLLER_HTTP, CONTROLLER_PAGES
            elif asked in self._cluster.doors:
                port = DOOR_HTTP
            elif asked in self._cluster.fronts:
                port, pages = FRONT_HTTP, FRONT_PAGES
            elif asked in self._cluster.operators:
                port, pages = OPERATOR_HTTP_PORT, OPERATOR_PAGES
            path = rng.choice(pages)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    status, text = await http(asked.machine.address, "GET", path, port=port)
            except (OSError, EOFError):  # TimeoutError is one
                continue
            self.pages[status] = self.pages.get(status, 0) + 1
            if status == 500:
                raise Violation(f"{asked.name} answers {path} with 500: {text[:200]!r}")
