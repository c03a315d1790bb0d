"""A collector of traces on loopback: takes OTLP over HTTP in JSON, and keeps the spans."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from aiohttp import web


class Received(NamedTuple):
    """One span, its values as Python has them."""

    name: str
    trace: str
    id: str
    parent: str
    start_ns: int
    end_ns: int
    kind: int
    attributes: dict[str, Any]
    service: dict[str, Any]
    error: str | None


class OtlpReceiver:
    """See the module.

    Attributes:
        spans: all that it has taken.
        requests: their sizes in spans, those refused among them.
        headers: of the newest request.
        statuses: of the next answers; 200 when there is none left.
        answer: what it says with 200.
    """

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.requests: list[int] = []
        self.headers: dict[str, str] = {}
        self.statuses: list[int] = []
        self.answer = b"{}"
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app)
        self.url = ""

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def of(self, trace: str) -> dict[str, Received]:
        """The spans of a trace by name, each of which comes once."""
        found = [span for span in self.spans if span.trace == trace]
        assert len({span.name for span in found}) == len(found), found
        return {span.name: span for span in found}

    async def _take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        self.headers = dict(request.headers)
        found = spans_of(await request.read())
        self.requests.append(len(found))
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            return web.Response(status=status)
        self.spans += found
        return web.Response(body=self.answer, content_type="application/json")


def spans_of(body: bytes) -> list[Received]:
    """What a request says."""
    return [
        Received(
            span["name"],
            span["traceId"],
            span["spanId"],
            span.get("parentSpanId", ""),
            int(span["startTimeUnixNano"]),
            int(span["endTimeUnixNano"]),
            span["kind"],
            _values(span["attributes"]),
            _values(group["resource"]["attributes"]),
            span["status"].get("message"),
        )
        for group in json.loads(body)["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]


def _values(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        ((kind, value),) = pair["value"].items()
        found[pair["key"]] = int(value) if kind == "intValue" else value
    return found
