"""Probes, metrics and the token."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from gantry_protocol.admin import ErrorView
from gantry_protocol.errors import PortInUseError
from gantry_protocol.process import probes, strangers
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.strangers import COMERS_AT_ONCE, STRANGERS_MAX, AddressRate, Comers
from prometheus_client import CollectorRegistry, Counter
from support.patience import PATIENCE_S


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
    pace = AddressRate(per_s=10.0, at_once=5)
    assert [pace.wait_s("a", 100.0) > 0 for _ in range(7)] == [False] * 5 + [True] * 2
    assert pace.wait_s("a", 100.0) == pytest.approx(0.3)
    assert pace.delayed == 3
    assert pace.wait_s("b", 100.0) == 0.0, "another address waits for nobody, such as a probe"
    assert pace.wait_s("a", 200.0) == 0.0, "what it owed is forgotten, and nothing is saved up"
    assert [pace.wait_s("a", 200.0) > 0 for _ in range(5)] == [False] * 4 + [True]


def test_addresses_that_are_told_apart_are_bounded() -> None:
    pace = AddressRate(per_s=1.0, at_once=1)
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

    def wait_s(_: AddressRate, address: str, now_s: float) -> float:
        assert address == "127.0.0.1"
        asked.append(now_s)
        return 0.0

    monkeypatch.setattr(AddressRate, "wait_s", wait_s)
    await _get(f"{base}/readyz", **headers)
    assert len(asked) == 1 + waits, "for the connection, and for the request"


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
    """All of them, and those of one address to half of that: probes come from another one."""
    server = HttpServer(ready=lambda: (True, ""), max_connections=4)
    port = await server.start("127.0.0.1", 0)

    async def connect(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))

    writers = []
    for host, here, refused in (
        ("127.0.0.2", 1, 0),
        ("127.0.0.2", 2, 0),
        ("127.0.0.2", 2, 1),
        ("127.0.0.3", 3, 1),
        ("127.0.0.3", 4, 1),
        ("127.0.0.4", 4, 2),
    ):
        reader, writer = await connect(host)
        writers.append(writer)
        async with asyncio.timeout(PATIENCE_S):
            while (server.connections, server.refused) != (here, refused):
                await asyncio.sleep(0)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    for one in writers:
        one.close()
    async with asyncio.timeout(PATIENCE_S):
        while server.connections:
            await asyncio.sleep(0)
    assert (await _get(f"http://127.0.0.1:{port}/livez"))[0] == 200
    await server.stop()


async def _says(base: str, *pieces: bytes) -> bytes:
    """What comes back until the connection ends."""
    host, _, port = base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = b""
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    "size", [pytest.param(1, id="many headers"), pytest.param(20_000, id="a long one")]
)
async def test_a_head_without_end_is_read_by_nobody(
    base: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(web.RequestHandler, "data_received", lambda _, data: read.append(data))
    head = b"GET /livez HTTP/1.1\r\n" + (b"X: " + b"a" * size + b"\r\n") * (40_000 // size)
    assert await _says(base, head) == b""
    assert read == []


async def test_a_head_that_comes_slowly_is_not_waited_for(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "HEAD_WITHIN_S", 0.05)
    assert await _says(base, b"GET /livez HTTP/1.1\r\n") == b""
    assert (await _get(f"{base}/livez"))[0] == 200


async def test_what_is_no_request_leaves_no_stack_trace(
    base: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert b"400 Bad Request" in await _says(base, b"GET /livez HTTP/1.1\r\nno header\r\n\r\n")
    assert caplog.records == []


def test_an_address_has_a_share_of_the_connections() -> None:
    comers = Comers(2)
    assert [comers.came("a", 0.0) for _ in range(3)] == [True, True, False]
    assert comers.came("b", 0.0)
    comers.left("a")
    assert comers.came("a", 0.0)


def test_an_address_comes_at_a_bounded_pace() -> None:
    comers = Comers(10**6)
    count = 0
    while comers.came("a", 0.0):
        count += 1
    assert abs(count - COMERS_AT_ONCE) <= 1
    assert comers.came("a", 1.0)
