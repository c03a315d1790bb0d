"""Probes, metrics and the token."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from gantry_protocol.admin import ErrorView
from gantry_protocol.errors import PortInUseError
from gantry_protocol.process import probes
from gantry_protocol.process.probes import STRANGERS_MAX, HttpServer, Pace
from prometheus_client import CollectorRegistry, Counter


class Health:
    def __init__(self) -> None:
        self.live = (True, "turning")
        self.ready = (False, "recovering the log")
        self.token = "secret"


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
async def base(health: Health) -> AsyncIterator[str]:
    server = HttpServer(
        live=lambda: health.live, ready=lambda: health.ready, token=lambda: health.token
    )
    Counter("gantry_samples", "How many.", registry=server.registry).inc(3)

    async def hello(request: web.Request) -> web.Response:
        return web.json_response({"hello": await request.text()})

    server.add_route("POST", "/v1/hello", hello)
    port = await server.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await server.stop()
    await server.stop()


async def _get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_probes_tell_their_reason_without_a_token(base: str, health: Health) -> None:
    assert await _get(f"{base}/livez") == (200, "turning\n")
    assert await _get(f"{base}/readyz") == (503, "recovering the log\n")
    health.ready = (True, "serving")
    assert await _get(f"{base}/readyz") == (200, "serving\n")


async def test_who_asks_for_metrics_while_others_wait_gets_the_same(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making them takes milliseconds of the event loop, and anybody may ask."""
    made: list[int] = []
    make = probes.generate_latest

    def counted(registry: CollectorRegistry) -> bytes:
        made.append(1)
        return make(registry)

    monkeypatch.setattr(probes, "generate_latest", counted)
    monkeypatch.setattr(probes, "METRICS_REST_MIN_S", 0.5)
    answers = await asyncio.gather(*(_get(f"{base}/metrics") for _ in range(30)))
    assert {status for status, _ in answers} == {200}
    assert len(made) < 30


def test_strangers_come_at_a_bounded_pace() -> None:
    pace = Pace(per_s=10.0, at_once=5)
    assert [pace.wait_s("a", 100.0) > 0 for _ in range(7)] == [False] * 5 + [True] * 2
    assert pace.wait_s("a", 100.0) == pytest.approx(0.3)
    assert pace.delayed == 3
    assert pace.wait_s("b", 100.0) == 0.0, "another address waits for nobody, such as a probe"
    assert pace.wait_s("a", 200.0) == 0.0, "what it owed is forgotten, and nothing is saved up"
    assert [pace.wait_s("a", 200.0) > 0 for _ in range(5)] == [False] * 4 + [True]


def test_addresses_that_are_told_apart_are_bounded() -> None:
    pace = Pace(per_s=1.0, at_once=1)
    for number in range(2 * STRANGERS_MAX):
        pace.wait_s(str(number), 0.0)
        pace.wait_s("often", 0.0)
    assert len(pace._until_s) == STRANGERS_MAX
    assert pace.wait_s("often", 0.0) > STRANGERS_MAX, "who comes all the time is not forgotten"


@pytest.mark.parametrize(
    ("headers", "waits"), [({}, True), ({"Authorization": "Bearer secret"}, False)]
)
async def test_who_has_the_token_does_not_wait(
    base: str, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], *, waits: bool
) -> None:
    asked: list[float] = []

    def wait_s(_: Pace, address: str, now_s: float) -> float:
        assert address == "127.0.0.1"
        asked.append(now_s)
        return 0.0

    monkeypatch.setattr(Pace, "wait_s", wait_s)
    await _get(f"{base}/readyz", **headers)
    assert bool(asked) == waits


async def test_metrics_are_this_servers_alone(base: str) -> None:
    status, text = await _get(f"{base}/metrics")
    assert status == 200
    assert "gantry_samples_total 3.0" in text
    assert "python_info" not in text


async def _post(url: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, headers=headers, data="you") as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic secret", "secret", "Bearer sécret"],
)
async def test_other_paths_need_the_token(base: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    status, text = await _post(f"{base}/v1/hello", **headers)
    assert status == 401
    assert ErrorView.model_validate_json(text).error == "UNAUTHORIZED"


async def test_the_token_admits_and_may_be_rotated(base: str, health: Health) -> None:
    assert await _post(f"{base}/v1/hello", Authorization="Bearer secret") == (
        200,
        '{"hello": "you"}',
    )
    health.token = "next"
    assert (await _post(f"{base}/v1/hello", Authorization="Bearer secret"))[0] == 401
    assert (await _post(f"{base}/v1/hello", Authorization="bearer next"))[0] == 200


async def test_an_empty_token_admits_nobody(base: str, health: Health) -> None:
    health.token = ""
    assert (await _post(f"{base}/v1/hello", Authorization="Bearer "))[0] == 401


async def test_a_port_in_use_is_an_operating_error(base: str) -> None:
    port = int(base.rpartition(":")[2])
    with pytest.raises(PortInUseError, match="HTTP cannot be served"):
        await HttpServer(ready=lambda: (True, "ok")).start("127.0.0.1", port)


async def test_stopping_does_not_wait_for_a_stream(base: str) -> None:
    server = HttpServer(ready=lambda: (True, "ok"))
    started = asyncio.Event()

    async def forever(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        started.set()
        await asyncio.Event().wait()
        return response

    server.add_route("GET", "/stream", forever)
    port = await server.start("127.0.0.1", 0)
    reader = asyncio.create_task(_get(f"http://127.0.0.1:{port}/stream"))
    await started.wait()
    async with asyncio.timeout(30):  # aiohttp itself would wait for 60
        await server.stop()
    with pytest.raises(aiohttp.ClientError):
        await reader


async def test_connections_are_bounded(health: Health) -> None:
    server = HttpServer(ready=lambda: (True, ""), max_connections=2)
    port = await server.start("127.0.0.1", 0)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    while server.connections < 2:
        await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert (server.connections, server.refused) == (2, 1)
    for _, one in [*held, (reader, writer)]:
        one.close()
    while server.connections:
        await asyncio.sleep(0)
    assert (await _get(f"http://127.0.0.1:{port}/livez"))[0] == 200
    await server.stop()
