"""The way to a collector: bounded, counted, and patient with nobody for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from gantry_protocol.tracing import export as exporting
from gantry_protocol.tracing.export import (
    FULL,
    OFF,
    REFUSED,
    UNREACHABLE,
    SpanExport,
    TracingCollector,
    headers_of,
    live_export,
)
from gantry_protocol.tracing.spans import Span
from support.broker_cluster import eventually
from support.otlp import OtlpReceiver


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "LINGER_S", 0.01)
    monkeypatch.setattr(exporting, "RETRY_S", 0.01)
    monkeypatch.setattr(exporting, "PACE_S", 0.0)


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    made = OtlpReceiver()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def export(receiver: OtlpReceiver) -> AsyncIterator[SpanExport]:
    made = SpanExport(receiver.url + "/", {"service.name": "s"}, "1", {"X-Token": "t"})
    made.start()
    yield made
    await made.stop()


def spans(count: int) -> list[Span]:
    return [
        Span(name=f"n{number}", trace_id=1, span_id=number + 1, start_ns=1, end_ns=2)
        for number in range(count)
    ]


async def test_spans_arrive_with_what_is_said_of_the_process(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    export.add(spans(2))
    await eventually(lambda: export.exported == 2, "they are taken")
    assert [span.name for span in receiver.spans] == ["n0", "n1"]
    assert receiver.spans[0].service == {"service.name": "s"}
    assert receiver.headers["X-Token"] == "t"
    assert not +export.dropped


async def test_a_request_has_a_bounded_number_of_spans(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    count = 2 * exporting.BATCH_MAX + 1
    export.add(spans(count))
    await eventually(lambda: export.exported == count, "they are taken")
    assert receiver.requests == [exporting.BATCH_MAX, exporting.BATCH_MAX, 1]
    assert [span.name for span in receiver.spans] == [span.name for span in spans(count)]


async def test_what_does_not_fit_is_dropped_as_whole_traces(export: SpanExport) -> None:
    export.add(spans(exporting.QUEUE_MAX - 1))
    export.add(spans(2))
    assert export.dropped[FULL] == 2
    export.add(spans(1))
    assert export.dropped[FULL] == 2


async def test_requests_have_a_pace(
    receiver: OtlpReceiver, export: SpanExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PACE_S", 3600.0)
    export.add(spans(exporting.BATCH_MAX + 1))
    await eventually(lambda: export.exported > 0, "the first request is answered")
    await asyncio.sleep(0.05)
    assert receiver.requests == [exporting.BATCH_MAX]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_what_may_succeed_is_sent_again(
    receiver: OtlpReceiver, export: SpanExport, status: int
) -> None:
    receiver.statuses = [status, status]
    export.add(spans(3))
    await eventually(lambda: export.exported == 3, "they are taken")
    assert receiver.requests == [3, 3, 3]
    assert not +export.dropped


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500])
async def test_what_will_not_succeed_is_not(
    receiver: OtlpReceiver, export: SpanExport, status: int
) -> None:
    receiver.statuses = [status]
    export.add(spans(3))
    await eventually(lambda: export.dropped[REFUSED] == 3, "they are given up")
    export.add(spans(1))
    await eventually(lambda: export.exported == 1, "the next ones are taken")
    assert receiver.requests == [3, 1]


async def test_a_collector_that_stays_busy_is_left(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    receiver.statuses = [503] * exporting.TRIES_MAX
    export.add(spans(3))
    await eventually(lambda: export.dropped[REFUSED] == 3, "they are given up")
    assert receiver.requests == [3] * exporting.TRIES_MAX


async def test_a_collector_that_is_away_is_left_and_found_again(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    export._url = "http://127.0.0.1:1/v1/traces"
    export.add(spans(3))
    await eventually(lambda: export.dropped[UNREACHABLE] == 3, "they are given up")
    export._url = receiver.url + "/v1/traces"
    export.add(spans(1))
    await eventually(lambda: export.exported == 1, "the next ones are taken")


async def test_spans_that_a_collector_rejects_are_counted(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    receiver.answer = b'{"partialSuccess": {"rejectedSpans": "2"}}'
    export.add(spans(5))
    await eventually(lambda: export.exported == 3, "three are taken")
    assert export.dropped[REFUSED] == 2


async def test_the_last_spans_are_sent_at_the_end(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "LINGER_S", 3600.0)
    made = SpanExport(receiver.url, {}, "1")
    made.start()
    made.add(spans(3))
    await asyncio.sleep(0)
    await made.stop()
    assert len(receiver.spans) == 3
    assert made.exported == 3


async def test_an_end_waits_for_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "END_WITHIN_S", 0.05)

    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    made = SpanExport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {}, "1")
    made.start()
    made.add(spans(exporting.BATCH_MAX + 3))
    async with asyncio.timeout(exporting.TIMEOUT_S / 2):
        await made.stop()
    await gone.wait()
    server.close()
    assert made.exported == 0
    assert made.dropped[UNREACHABLE] == exporting.BATCH_MAX + 3


async def test_another_collector_gets_what_waits(
    receiver: OtlpReceiver, export: SpanExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = OtlpReceiver()
    await other.start()
    monkeypatch.setattr(exporting, "LINGER_S", 0.05)
    export.add(spans(2))
    await eventually(lambda: export.exported == 2, "the first has taken them")
    export.add(spans(3))
    export.point_to(other.url)
    export.add(spans(1))
    await eventually(lambda: export.exported == 6, "the second has taken them")
    assert (receiver.requests, other.requests) == ([2], [4])
    assert not +export.dropped
    await other.stop()


async def test_a_wrong_collector_that_is_corrected_loses_nothing(
    receiver: OtlpReceiver, export: SpanExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try goes to the one that there is by then."""
    monkeypatch.setattr(exporting, "RETRY_S", 0.05)
    other = OtlpReceiver()
    await other.start()
    other.statuses = [503] * exporting.TRIES_MAX
    export.point_to(other.url)
    export.add(spans(3))
    await eventually(lambda: other.requests == [3], "it is asked, and refuses")
    export.point_to(receiver.url)
    await eventually(lambda: export.exported == 3, "they are taken")
    assert (other.requests, receiver.requests) == ([3], [3])
    assert not +export.dropped
    await other.stop()


async def test_what_waits_when_it_is_switched_off_is_sent(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    count = 2 * exporting.BATCH_MAX
    export.add(spans(count))
    export.point_to(None)
    assert not export.is_on
    export.add(spans(1))  # was under way
    await eventually(lambda: export.exported == count + 1, "they are taken")
    assert not +export.dropped


async def test_off_is_off_after_a_few_seconds(
    receiver: OtlpReceiver, export: SpanExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "OFF_WITHIN_S", 0.0)
    count = 2 * exporting.BATCH_MAX + 1
    export.add(spans(count))
    export.point_to(None)
    export.add(spans(4))
    assert export.dropped[OFF] == 4, "nobody takes them any more"
    await eventually(lambda: export.exported + export.dropped[OFF] == count + 4, "all are counted")
    assert export.exported == exporting.BATCH_MAX, "of what waits no second request is begun"
    export.point_to(receiver.url)
    export.add(spans(2))
    await eventually(lambda: export.exported == exporting.BATCH_MAX + 2, "it is on again")


async def test_off_waits_for_no_collector_that_is_away(
    receiver: OtlpReceiver, export: SpanExport
) -> None:
    receiver.statuses = [503] * 10
    export.add(spans(3 * exporting.BATCH_MAX))
    export.point_to(None)
    await eventually(lambda: export.dropped.total() == 3 * exporting.BATCH_MAX, "all are counted")
    assert receiver.requests == [exporting.BATCH_MAX], "one try, of one request"
    assert +export.dropped == {REFUSED: exporting.BATCH_MAX, OFF: 2 * exporting.BATCH_MAX}


async def test_an_export_may_begin_without_a_collector(receiver: OtlpReceiver) -> None:
    made = live_export(None, "s", "c", "i")
    made.start()
    assert (made.is_on, made._task) == (False, None), "nothing of it runs"
    made.add(spans(2))
    assert made.dropped[OFF] == 2
    made.point_to(receiver.url)
    made.add(spans(3))
    await eventually(lambda: made.exported == 3, "they are taken")
    await made.stop()


async def test_without_a_collector_figures_are_0() -> None:
    figures = {
        (sample.name, *sample.labels.values()): sample.value
        for family in TracingCollector(live_export(None, "s", "c", "i")).collect()
        for sample in family.samples
    }
    assert set(figures.values()) == {0.0}
    assert ("gantry_tracing_spans_dropped_total", "queue full") in figures


async def test_headers_come_from_the_variable_of_opentelemetry(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20secret")
    made = live_export(receiver.url, "gantry-broker", "c", "b-0")
    made.add(spans(1))
    made.start()
    await made.stop()
    assert receiver.headers["Authorization"] == "Bearer secret"
    (span,) = receiver.spans
    assert span.service["service.name"] == "gantry-broker"
    assert span.service["service.namespace"] == "c"
    assert span.service["service.instance.id"] == "b-0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        (" a = 1 , b=2%2C3,", {"a": "1", "b": "2,3"}),
        ("a=x=y", {"a": "x=y"}),
        ("=1,a", {"a": ""}),
        ("a=1%0D%0AB:2", {}),
    ],
)
def test_headers_are_read(text: str, found: dict[str, str]) -> None:
    assert headers_of(text) == found
