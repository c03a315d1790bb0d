"""The HTTP side of a soak: state, gaps, pause and resume, and its metrics.

No token: it serves nothing but a load that somebody started for a test. Whoever reaches it can stop
that load, and nothing else.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from gantry_protocol.admin import ErrorView
from gantry_protocol.process.probes import HttpServer
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_lab.soak.views import GapAnswer, gap_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from gantry_lab.soak.soak import Soak

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PATIENCE_MAX_S = 3600.0
NUMBER_DIGITS_MAX = 18


class BadParameterError(Exception):
    """A request that cannot be answered; its text is a sentence for whoever sent it."""


def server(soak: Soak) -> HttpServer:
    """Probes, metrics and the API of `soak`; not started yet.

    Ready means that the load runs; a broken soak stays alive, so that it can be asked why.
    """

    def ready() -> tuple[bool, str]:
        error = soak.error
        if error is not None:
            return False, error
        return soak.load.started, "ok" if soak.load.started else "there is no topic yet"

    found = HttpServer(ready=ready)
    found.registry.register(SoakMetrics(soak))
    api = SoakApi(soak)
    for method, path, handler in (
        ("GET", "/v1/state", api.state),
        ("GET", "/v1/gap", api.gap),
        ("POST", "/v1/pause", api.pause),
        ("POST", "/v1/resume", api.resume),
        ("GET", "/v1/history", api.history),
    ):
        found.add_route(method, path, _guarded(handler))
    return found


class SoakApi:
    """The routes of one soak."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak

    async def state(self, request: web.Request) -> web.Response:
        """GET /v1/state."""
        return _json(self._soak.state())

    async def gap(self, request: web.Request) -> web.Response:
        """GET /v1/gap?sinceS=F[&untilS=F][&stream=writes|commits]."""
        since_s = _seconds(request, "sinceS")
        if since_s is None:
            raise BadParameterError("Say since when: GET /v1/gap?sinceS=SECONDS.")
        until_s = _seconds(request, "untilS")
        stream = request.query.get("stream", "writes")
        times = self._soak.times(stream)
        if times is None:
            if stream == "commits":
                raise BadParameterError("This soak commits nothing; start it with --metadata.")
            raise BadParameterError(f"There is no stream {stream!r}: ask for writes or commits.")
        return _json(GapAnswer(gap_of(times.longest(since_s, until_s))))

    async def pause(self, request: web.Request) -> web.Response:
        """POST /v1/pause?patienceS=F."""
        patience_s = _seconds(request, "patienceS")
        if patience_s is None or not 0 <= patience_s <= PATIENCE_MAX_S:
            raise BadParameterError(
                f"Say how long to wait, at most {PATIENCE_MAX_S:.0f} s: "
                "POST /v1/pause?patienceS=SECONDS."
            )
        return _json(await self._soak.pause(patience_s))

    async def resume(self, request: web.Request) -> web.Response:
        """POST /v1/resume."""
        self._soak.resume()
        return _json(self._soak.state())

    async def history(self, request: web.Request) -> web.Response:
        """GET /v1/history?after=N."""
        recording = self._soak.recording
        if recording is None:
            raise BadParameterError("This soak keeps no history; start it with --record.")
        after = request.query.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) <= NUMBER_DIGITS_MAX):
            raise BadParameterError(f"after={after!r} is no number of a record.")
        try:
            return _json(recording.records.batch(int(after)))
        except ValueError as error:
            raise BadParameterError(f"There is no history from there on: {error}.") from error


class SoakMetrics(Collector):
    """Metrics of a soak, read when somebody asks."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        ledger = self._soak.load.ledger
        for name, text, count in (
            ("acknowledged", "Messages that were acknowledged.", ledger.acknowledged),
            ("consumed", "Distinct messages that were consumed.", ledger.consumed),
            ("lost_answers", "Attempts that ended without an answer.", ledger.lost_answers),
        ):
            yield CounterMetricFamily(f"gantry_soak_{name}_total", text, value=float(count))
        recording = self._soak.recording
        if recording is not None:
            text = "Records of the history that were dropped, since nobody fetched them in time."
            dropped = float(recording.records.dropped)
            yield CounterMetricFamily("gantry_soak_records_dropped_total", text, value=dropped)
            text = "Records of the history that wait to be fetched."
            waiting = float(len(recording.records))
            yield GaugeMetricFamily("gantry_soak_records", text, value=waiting)
        gap_ms = self._soak.longest_gap_ms
        for name, text, value in (
            ("outstanding", "Messages acknowledged and not consumed yet.", ledger.outstanding()),
            (
                "longest_gap_seconds",
                "Longest time between two successive acknowledgements.",
                0.0 if gap_ms is None else gap_ms / 1000.0,
            ),
        ):
            yield GaugeMetricFamily(f"gantry_soak_{name}", text, value=float(value))


def _guarded(handler: Handler) -> Handler:
    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadParameterError as error:
            view = ErrorView(error="INVALID_REQUEST", message=str(error))
            return web.json_response(text=view.to_json(), status=400)

    return guarded


def _seconds(request: web.Request, name: str) -> float | None:
    """A parameter in seconds; None: it is not given."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadParameterError(f"{name}={text!r} is no number of seconds.")
    return value


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
