"""The last steps of the Raft core: served to the pod's own loopback address, and their metrics.

That address is reached by the API server's port forwarding, which a person needs a right for; no
token is asked for, as whoever takes a support bundle has none (ADR 0109).
"""

import asyncio
from collections.abc import Iterator
from importlib import metadata

from aiohttp import web
from gantry_protocol.process.probes import DECISIONS_PATH, HttpServer
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_controller.decisions.files import written_file
from gantry_controller.decisions.replay import fingerprint
from gantry_controller.decisions.ring import HeldSteps
from gantry_controller.node import RaftNode

PREFIX = "gantry_controller_"


class StepsApi:
    """Gives away what a node has recorded."""

    def __init__(self, node: RaftNode, process: str) -> None:
        self._node = node
        self._process = process
        self._turn = asyncio.Lock()

    def add_to(self, server: HttpServer) -> None:
        """Serves the route on ``server``."""
        server.add_local_route(DECISIONS_PATH, self._get)

    async def _get(self, _: web.Request) -> web.Response:
        async with self._turn:  # to write them costs a processor for a while
            body = await asyncio.to_thread(self._written, self._node.steps.held())
        return web.Response(body=body, content_type="application/jsonl")

    def _written(self, held: HeldSteps) -> bytes:
        version = metadata.version("gantry")
        return written_file(held, process=self._process, version=version, code=fingerprint())


class StepsMetrics(Collector):
    """The bounds of the recording."""

    def __init__(self, node: RaftNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        ring = self._node.steps
        yield GaugeMetricFamily(
            PREFIX + "recorded_steps",
            "Steps of the Raft core that are kept for a support bundle.",
            value=ring.entries,
        )
        yield GaugeMetricFamily(
            PREFIX + "recorded_steps_bytes", "Memory that they take, about.", value=ring.size
        )
        yield CounterMetricFamily(
            PREFIX + "recorded_steps_dropped_total",
            "Steps that made room for later ones.",
            value=ring.dropped,
        )
        yield GaugeMetricFamily(
            PREFIX + "recording_ended",
            "1 if steps are not recorded any more, as recording itself has failed.",
            value=int(bool(ring.ended)),
        )
