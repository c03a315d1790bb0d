"""The way of a process's spans to its collector: one queue, one task, one request at a time.

A process with one event loop must not wait for a collector, and must not spend itself on spans.
Whoever has spans leaves them in a queue, which is bounded; a task sends what has gathered, at most
so many a second. What does not fit, what the collector refuses, and what it does not take in a few
tries is dropped and counted. Spans of the last second are sent at a process's end if that is quick.

Another collector may be named while it runs: what waits goes to that one. With none it is off. What
was under way by then still goes to the last one for a few seconds; the rest is counted.

What it refuses: to keep anything for a collector that is away, beyond the queue.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from urllib.parse import unquote

import aiohttp
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_protocol.process import log
from gantry_protocol.process.metrics import counter
from gantry_protocol.tracing.spans import Span, Value, encode_spans, rejected

PATH = "/v1/traces"
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
QUEUE_MAX = 8_192  # spans, half a kilobyte each
BATCH_MAX = 128  # encoded in a millisecond
PACE_S = 0.05  # at least, between two requests: 2,500 spans a second, those of 500 sends
LINGER_S = 0.5  # while a batch gathers
TIMEOUT_S = 5.0
TRIES_MAX = 3
RETRY_S = 1.0  # before the second try, and twice as long before the third
END_WITHIN_S = 0.5
OFF_WITHIN_S = 5.0  # from switching it off to the last span that is sent
ANSWER_MAX_BYTES = 64 * 1024
_AGAIN = frozenset({429, 502, 503, 504})  # OTLP's list of what may be sent again
_OK = 200
_SAY_EVERY_S = 30.0

FULL, REFUSED, UNREACHABLE, UNFINISHED = "queue full", "refused", "unreachable", "unfinished"
OFF = "switched off"

_log = log.get("tracing")


class SpanExport:
    """Sends spans to one collector at a time.

    Args:
        endpoint: the collector's base URL; None for none yet.
        resource: what is said of this process.
        product: its version.
        headers: of each request, a token for example.

    Attributes:
        exported: spans that the collector has taken.
        dropped: spans that it has not and will not, by reason.
        is_on: there is a collector, so spans are wanted.
    """

    def __init__(
        self,
        endpoint: str | None,
        resource: Mapping[str, Value],
        product: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is sent before ``start``."""
        self.exported = 0
        self.dropped: Counter[str] = Counter()
        self.is_on = False
        self._url = ""
        self._is_started = False
        self._off_at_s = float("-inf")  # switched off: until then, what was under way is taken
        self._resource = dict(resource)
        self._product = product
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._queue: deque[Span] = deque()
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._said_s = float("-inf")
        self.point_to(endpoint)

    def point_to(self, endpoint: str | None) -> None:
        """Send to this collector from now on; None is none."""
        if endpoint is not None:
            self._url = endpoint.rstrip("/") + PATH
        elif self.is_on and self._is_started:
            self._off_at_s = asyncio.get_running_loop().time() + OFF_WITHIN_S
        self.is_on = endpoint is not None
        self._begin()

    @property
    def _is_over(self) -> bool:
        """Whether it was switched off, and what was under way had its time."""
        return not self.is_on and asyncio.get_running_loop().time() >= self._off_at_s

    def add(self, spans: Sequence[Span]) -> None:
        """Take the spans of one trace, all of them or none."""
        if self._is_over:
            self.dropped[OFF] += len(spans)
            return
        if len(self._queue) + len(spans) > QUEUE_MAX:
            self.dropped[FULL] += len(spans)
            return
        self._queue.extend(spans)
        self._is_due.set()

    def start(self) -> None:
        """Begin to send, once there is a collector; on the running loop."""
        self._is_started = True
        self._begin()

    def _begin(self) -> None:
        if self._is_started and self.is_on and self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send what is there, within ``END_WITHIN_S``, and drop the rest."""
        self._is_started = False
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(END_WITHIN_S), aiohttp.ClientSession() as session:
                while self._queue:
                    await self._send(session, self._take(), tries=1)
        except TimeoutError:
            pass
        self.dropped[UNREACHABLE] += len(self._queue)
        self._queue.clear()

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self._is_due.wait()
                if len(self._queue) < BATCH_MAX:
                    await asyncio.sleep(LINGER_S)
                is_taken = await self._send(session, self._take(), tries=TRIES_MAX)
                if self._is_over or not (is_taken or self.is_on):
                    self.dropped[OFF] += len(self._queue)
                    self._queue.clear()
                if not self._queue:
                    self._is_due.clear()
                await asyncio.sleep(PACE_S)

    def _take(self) -> list[Span]:
        return [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]

    async def _send(self, session: aiohttp.ClientSession, spans: list[Span], tries: int) -> bool:
        """One request, and again where that may help; its spans are counted, however it ends.

        Tried again, it goes to the collector that there is by then; to none it is not.
        """
        left = len(spans)  # not judged yet; a task that ends amid it has not sent them
        try:
            body = encode_spans(spans, self._resource, self._product)
            reason, why = UNREACHABLE, ""
            for number in range(tries):
                if number:
                    await asyncio.sleep(RETRY_S * number)
                    if not self.is_on:
                        break
                try:
                    status, answer = await self._post(session, body)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    reason, why = UNREACHABLE, f"{type(error).__name__} {error}".strip()
                    continue
                if status == _OK:
                    lost = min(rejected(answer), left)
                    self.exported += left - lost
                    self.dropped[REFUSED] += lost
                    left = 0
                    return True
                reason, why = REFUSED, f"HTTP {status}"
                if status not in _AGAIN:
                    break
            self._say(why, left)
            self.dropped[reason] += left
            left = 0
            return False
        finally:
            self.dropped[UNREACHABLE] += left

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> tuple[int, bytes]:
        async with session.post(
            self._url, data=body, headers=self._headers, allow_redirects=False
        ) as answer:
            return answer.status, await answer.content.read(ANSWER_MAX_BYTES)

    def _say(self, why: str, spans: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now_s
            _log.warning("spans were not taken", collector=self._url, why=why, spans=spans)


def headers_of(text: str) -> dict[str, str]:
    """Headers as `OTEL_EXPORTER_OTLP_HEADERS` has them: `name=value,name=value`, %-encoded.

    Parts without a name are left out, and those that no header can hold.
    """
    found = {}
    for part in text.split(","):
        name, _, value = (unquote(piece.strip()) for piece in part.partition("="))
        if name and f"{name}{value}".isprintable():
            found[name] = value
    return found


def live_export(endpoint: str | None, service: str, namespace: str, instance: str) -> SpanExport:
    """The export of this process, which may be switched on and off.

    Args:
        endpoint: the collector's base URL; None for none yet.
        service: the kind of process.
        namespace: its cluster.
        instance: its pod.
    """
    product = version("gantry")
    resource = {
        "service.name": service,
        "service.namespace": namespace,
        "service.instance.id": instance,
        "service.version": product,
    }
    headers = headers_of(os.environ.get(HEADERS_VARIABLE, ""))
    return SpanExport(endpoint, resource, product, headers)


class TracingCollector(Collector):
    """The metrics of a process's spans; of a process that traces nothing they are 0."""

    def __init__(self, export: SpanExport) -> None:
        """Nothing is counted here."""
        self._export = export

    def collect(self) -> Iterator[Metric]:
        """As of now."""
        export = self._export
        yield counter(
            "gantry_tracing_spans_exported",
            "Spans that the collector has taken.",
            export.exported,
        )
        made = CounterMetricFamily(
            "gantry_tracing_spans_dropped",
            "Spans that it has not taken: the queue was full, it refused them, it was not reachable"
            " in three tries, a traced send was not answered here, or tracing was switched off.",
            labels=["reason"],
        )
        for reason in (FULL, REFUSED, UNREACHABLE, UNFINISHED, OFF):
            made.add_metric([reason], export.dropped[reason])
        yield made
