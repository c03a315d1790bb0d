"""The last steps of a process's cores: served to its own loopback address, and their metrics.

That address is reached by the API server's port forwarding, which a person needs a right for; no
token is asked for, as whoever takes a support bundle has none (ADR 0109).
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_protocol.process.probes import DECISIONS_PATH, HttpServer
from gantry_protocol.steps.files import written_file
from gantry_protocol.steps.replay import CoreKind
from gantry_protocol.steps.ring import HeldSteps, StepRing

Rings = Callable[[], Mapping[str, StepRing]]
"""The rings of a process by group; of one that has one core, by an empty name."""


def utc_now() -> str:
    """The time of day, as stretches have it."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


class StepsApi:
    """Gives away what a process has recorded.

    Args:
        machine: the kind of its cores.
        rings: theirs.
        process: its name.
        note: why there are none, if so.
    """

    def __init__(self, machine: CoreKind, rings: Rings, process: str, note: str = "") -> None:
        """Nothing is served before ``add_to``."""
        self._machine = machine
        self._rings = rings
        self._process = process
        self._note = note
        self._turn = asyncio.Lock()

    def add_to(self, server: HttpServer) -> None:
        """Serve the route on ``server``."""
        server.add_local_route(DECISIONS_PATH, self._get)

    async def _get(self, _: web.Request) -> web.Response:
        async with self._turn:  # to write them costs a processor for a while
            held = {of: ring.held() for of, ring in self._rings().items()}
            body = await asyncio.to_thread(self._written, held)
        return web.Response(body=body, content_type="application/jsonl")

    def _written(self, held: Mapping[str, HeldSteps]) -> bytes:
        return written_file(
            held,
            self._machine.plain,
            core=self._machine.core,
            process=self._process,
            version=metadata.version("gantry"),
            code=self._machine.fingerprint(),
            note=self._note,
        )


class StepsMetrics(Collector):
    """The bounds of the recording.

    Args:
        prefix: of the names.
        cores: whose steps they are, in words.
        rings: of them.
    """

    def __init__(self, prefix: str, cores: str, rings: Rings) -> None:
        """Nothing is counted here."""
        self._prefix = prefix
        self._cores = cores
        self._rings = rings

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        rings = self._rings().values()
        yield GaugeMetricFamily(
            self._prefix + "recorded_steps",
            f"Steps of {self._cores} that are kept for a support bundle.",
            value=sum(ring.entries for ring in rings),
        )
        yield GaugeMetricFamily(
            self._prefix + "recorded_steps_bytes",
            "Memory that they take, about.",
            value=sum(ring.size for ring in rings),
        )
        yield CounterMetricFamily(
            self._prefix + "recorded_steps_dropped_total",
            "Steps that made room for later ones.",
            value=sum(ring.dropped for ring in rings),
        )
        yield GaugeMetricFamily(
            self._prefix + "recording_ended",
            "1 if steps are not recorded any more, as recording itself has failed.",
            value=int(any(ring.ended for ring in rings)),
        )
