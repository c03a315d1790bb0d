"""The remoting client and the pool of clients on loopback."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gantry_protocol.errors import (
    Busy,
    ConnectError,
    ConnectionClosed,
    FrameError,
    RemotingError,
    RequestTimeout,
)
from gantry_protocol.frame import RemotingCommand, reply, request
from gantry_protocol.remoting import client as client_module
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.pool import ClientPool
from gantry_protocol.remoting.server import Connection
from support.wire import until


class Parking:
    """A handler that answers code 10 at once and keeps everything else for the test."""

    def __init__(self) -> None:
        self.parked: list[tuple[Connection, RemotingCommand]] = []

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == 10:
            return reply(command, 0, None, command.ext, command.body)
        self.parked.append((connection, command))
        return None

    def answer(self, index: int, code: int = 0) -> None:
        connection, command = self.parked[index]
        connection.reply(command, reply(command, code))


@pytest.fixture
def parking() -> Parking:
    return Parking()


@pytest.fixture
async def address(serve: Any, parking: Parking) -> str:
    _, port = await serve(parking)
    return f"127.0.0.1:{port}"


@pytest.fixture
async def client(address: str) -> AsyncIterator[RemotingClient]:
    client = await RemotingClient().connect(address)
    yield client
    client.close()
    await until(lambda: client._transport is None)


async def test_calls_are_matched_whatever_the_order_of_answers(
    client: RemotingClient, parking: Parking
) -> None:
    calls = [asyncio.create_task(client.call(request(11))) for _ in range(3)]
    await until(lambda: len(parking.parked) == 3)
    assert client.pending_calls == client.stats.in_flight == 3
    for index in (2, 0, 1):
        parking.answer(index, code=100 + index)
    assert [(await call).code for call in calls] == [100, 101, 102]
    assert client.pending_calls == client.stats.in_flight == 0
    assert client.stats.calls == 3


async def test_calls_of_one_turn_leave_in_one_write(client: RemotingClient) -> None:
    writes = []
    transport = client._transport
    assert transport is not None
    write = transport.write

    class Spy:
        def write(self, data: bytes) -> None:
            writes.append(data)
            write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(transport, name)

    client._transport = Spy()  # type: ignore[assignment]  # a spy
    answers = await asyncio.gather(*[client.call(request(10, body=b"x")) for _ in range(20)])
    client._transport = transport
    assert len(answers) == 20
    assert len(writes) == 1


async def test_a_late_answer_is_dropped(client: RemotingClient, parking: Parking) -> None:
    with pytest.raises(RequestTimeout, match="did not answer in time"):
        await client.call(request(11), timeout_s=0.02)
    parking.answer(0)
    assert (await client.call(request(10))).code == 0
    assert (client.stats.timeouts, client.stats.late_replies) == (1, 1)
    assert not client.closed


async def test_open_calls_learn_that_the_connection_ended(
    client: RemotingClient, parking: Parking
) -> None:
    calls = [asyncio.create_task(client.call(request(11))) for _ in range(3)]
    await until(lambda: len(parking.parked) == 3)
    parking.parked[0][0].close()
    for call in calls:
        with pytest.raises(ConnectionClosed, match="ended before the answer"):
            await call
    with pytest.raises(ConnectionClosed, match="There is no connection"):
        await client.call(request(10))
    with pytest.raises(ConnectionClosed):
        client.oneway(request(10))
    assert client.closed
    assert client.stats.in_flight == 0


async def test_refused_and_unreachable_are_told_apart(serve: Any) -> None:
    server, port = await serve(lambda c, r: None)
    await server.stop()
    with pytest.raises(ConnectError, match="Nobody listens") as refusal:
        await RemotingClient().connect(f"127.0.0.1:{port}")
    assert refusal.value.refused
    for address in ("no-such-host.invalid:1", "host-without-port", "255.255.255.255:1"):
        with pytest.raises(ConnectError) as failure:
            await RemotingClient().connect(address)
        assert not failure.value.refused


async def test_connecting_takes_no_longer_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(client_module, "resolve", never)
    with pytest.raises(ConnectError, match=r"did not accept in 0\.01 s") as failure:
        await RemotingClient().connect("host:1", timeout_s=0.01)
    assert not failure.value.refused


async def test_too_many_open_calls_are_refused_before_they_are_sent(
    address: str, parking: Parking
) -> None:
    client = await RemotingClient(max_in_flight=2).connect(address)
    outcomes: list[object] = []
    for _ in range(2):
        client.call_nowait(request(11), outcomes.append)
    with pytest.raises(Busy, match="2 calls to"):
        client.call_nowait(request(11), outcomes.append)
    await until(lambda: len(parking.parked) == 2)
    parking.answer(0)
    await until(lambda: len(outcomes) == 1)
    client.call_nowait(request(10), outcomes.append)
    await until(lambda: len(outcomes) == 2)
    client.close()
    await until(lambda: len(outcomes) == 3)
    assert isinstance(outcomes[2], ConnectionClosed)


async def test_a_peer_that_does_not_read_makes_calls_busy(address: str, parking: Parking) -> None:
    client = await RemotingClient(max_write_buffer_bytes=1_000_000).connect(address)
    outcomes: list[object] = []
    command = request(10, body=bytes(100_000))
    for _ in range(10):
        client.call_nowait(command, outcomes.append)
    with pytest.raises(Busy, match="does not take"):
        client.call_nowait(command, outcomes.append)
    assert client.pending_calls == 10
    await until(lambda: not client.pending_calls)
    client.close()


async def test_a_oneway_request_arrives_and_waits_for_nothing(
    client: RemotingClient, parking: Parking
) -> None:
    client.oneway(request(904, {"brokerName": "b"}))
    await until(lambda: bool(parking.parked))
    assert parking.parked[0][1].is_oneway
    assert parking.parked[0][1].ext == {"brokerName": "b"}
    assert client.pending_calls == 0


async def test_a_cancelled_call_leaves_nothing_behind(
    client: RemotingClient, parking: Parking
) -> None:
    call = asyncio.create_task(client.call(request(11)))
    await until(lambda: bool(parking.parked))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert client.pending_calls == len(client._deadlines) == 0
    parking.answer(0)
    await client.call(request(10))
    assert client.stats.late_replies == 1


async def test_the_server_may_ask_too(address: str, parking: Parking) -> None:
    def serve_request(client: RemotingClient, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == 500:
            raise ValueError("not today")
        return None if command.is_oneway else reply(command, 7)

    client = await RemotingClient(on_request=serve_request).connect(address)
    client.call_nowait(request(11), lambda outcome: None)
    await until(lambda: bool(parking.parked))
    connection = parking.parked[0][0]
    for command in (RemotingCommand(code=40, flag=2), RemotingCommand(code=307, opaque=9)):
        connection.send(command)
    connection.send(RemotingCommand(code=500, opaque=10))
    server = connection._server
    await until(lambda: server.stats.stray_responses == 2)  # both answers came, to a deaf server
    client.close()


async def test_a_malformed_answer_ends_the_connection(
    client: RemotingClient, parking: Parking
) -> None:
    call = asyncio.create_task(client.call(request(11)))
    await until(lambda: bool(parking.parked))
    connection = parking.parked[0][0]
    connection._enqueue(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(ConnectionClosed):
        await call


async def test_a_silent_peer_is_given_up(
    client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = asyncio.create_task(client.call(request(11), timeout_s=30))
    await asyncio.sleep(0)
    with pytest.raises(RequestTimeout):
        await client.call(request(11), timeout_s=0.02)
    assert not client.closed
    monkeypatch.setattr(client_module, "SILENCE_S", 0.05)
    with pytest.raises(RequestTimeout):
        await client.call(request(11), timeout_s=0.05)
    assert client.closed
    with pytest.raises(ConnectionClosed):
        await other


async def test_a_peer_that_spoke_since_is_not_silent(
    client: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE_S", 0.5)
    await client.call(request(10))
    await asyncio.sleep(0.6)
    with pytest.raises(RequestTimeout):
        await client.call(request(11), timeout_s=0.01)
    assert not client.closed


async def test_closing_gives_up_on_a_peer_that_does_not_read(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_CLOSE_GRACE_S", 0.05)
    server, port = await serve(lambda connection, command: connection.hold(command))
    client = await RemotingClient().connect(f"127.0.0.1:{port}")
    client.oneway(request(11))
    await until(lambda: server.stats.oneways == 1)
    client.oneway(request(11, body=bytes(12_000_000)))
    await asyncio.sleep(0)
    client.close()
    await until(lambda: client.stats.closed == 1)


async def test_an_idle_connection_is_closed(address: str) -> None:
    gone: list[RemotingClient] = []
    client = await RemotingClient(idle_timeout_s=0.1, on_close=gone.append).connect(address)
    for _ in range(5):
        await client.call(request(10))
        await asyncio.sleep(0.03)
    assert not client.closed
    await until(lambda: bool(gone))
    assert gone == [client]


async def test_a_failing_callback_harms_no_other_call(client: RemotingClient) -> None:
    loop = asyncio.get_running_loop()
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    outcomes: list[object] = []
    client.call_nowait(request(10), lambda outcome: 1 // 0)
    client.call_nowait(request(10), outcomes.append)
    await until(lambda: bool(outcomes))
    loop.set_exception_handler(None)
    assert isinstance(reported[0]["exception"], ZeroDivisionError)
    assert not client.closed


async def test_opaques_in_use_are_skipped(client: RemotingClient, parking: Parking) -> None:
    first = client.call_nowait(request(11), lambda outcome: None)
    client._opaque = first - 1
    assert client.call_nowait(request(10), lambda outcome: None) == first + 1
    client._opaque = 2**31 - 1
    assert client.call_nowait(request(10), lambda outcome: None) == 0


async def test_what_fits_no_frame_is_not_sent(client: RemotingClient) -> None:
    with pytest.raises(FrameError):
        await client.call(request(10, body=bytes(16 * 1024 * 1024)))
    assert client.pending_calls == 0


# The pool.


@pytest.fixture
async def pool() -> AsyncIterator[ClientPool]:
    pool = ClientPool()
    yield pool
    await pool.close()


async def test_one_client_per_address(pool: ClientPool, address: str) -> None:
    first, second = await asyncio.gather(pool.get(address), pool.get(address))
    assert first is second is await pool.get(address)
    assert pool.peek(address) is first
    assert pool.stats.connects == 1


async def test_a_lost_client_is_replaced(pool: ClientPool, address: str) -> None:
    first = await pool.get(address)
    first.close()
    assert pool.peek(address) is None
    second = await pool.get(address)
    assert second is not first
    await until(lambda: pool.stats.closed == 1)
    assert pool.peek(address) is second
    pool.drop(address)
    assert second.closed
    assert (await pool.get(address)) is not second


async def test_a_client_that_ends_late_does_not_take_its_successor_along(
    pool: ClientPool, serve: Any
) -> None:
    _, port = await serve(lambda connection, command: connection.hold(command))
    address = f"127.0.0.1:{port}"
    first = await pool.get(address)
    first.oneway(request(11))
    first.oneway(request(11, body=bytes(12_000_000)))
    await asyncio.sleep(0)
    first.close()  # lingers, since nobody reads
    second = await pool.get(address)
    assert pool.stats.closed == 0
    first.abort()
    await until(lambda: pool.stats.closed == 1)
    assert pool.peek(address) is second


async def test_a_failed_attempt_is_told_to_all_and_forgotten(pool: ClientPool, serve: Any) -> None:
    server, port = await serve(lambda c, r: reply(r))
    await server.stop()
    address = f"127.0.0.1:{port}"
    outcomes = await asyncio.gather(pool.get(address), pool.get(address), return_exceptions=True)
    assert all(isinstance(outcome, ConnectError) for outcome in outcomes)
    _, other = await serve(lambda c, r: reply(r))
    assert (await (await pool.get(f"127.0.0.1:{other}")).call(request(10))).code == 0


async def test_a_cancelled_caller_spoils_it_for_nobody(pool: ClientPool, address: str) -> None:
    impatient = asyncio.create_task(pool.get(address))
    patient = asyncio.create_task(pool.get(address))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert (await (await patient).call(request(10))).code == 0


async def test_a_full_pool_gives_up_an_idle_client_or_refuses(serve: Any, parking: Parking) -> None:
    pool = ClientPool(max_clients=2)
    addresses = [f"127.0.0.1:{(await serve(parking))[1]}" for _ in range(4)]
    busy, idle = await pool.get(addresses[0]), await pool.get(addresses[1])
    busy.call_nowait(request(11), lambda outcome: None)
    third = await pool.get(addresses[2])
    assert idle.closed
    assert not busy.closed
    third.call_nowait(request(11), lambda outcome: None)
    with pytest.raises(Busy, match="All 2 clients"):
        await pool.get(addresses[3])
    await pool.close()


async def test_a_closed_pool_ends_everything(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ClientPool()
    client = await pool.get(address)

    async def never(host: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(client_module, "resolve", never)
    waiting = asyncio.create_task(pool.get("elsewhere:1", timeout_s=30))
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(ConnectionClosed, match="pool of clients is closed"):
        await waiting
    assert client.closed
    with pytest.raises(RemotingError, match="pool of clients is closed"):
        await pool.get(address)


# Several servers behind one address, of which some stand still.


class Standing:
    """The first attempts to connect hang; counts all of them and those that were given up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hang: int) -> None:
        self.begun = self.given_up = 0
        self._hang = hang
        self._real = client_module.open_connection
        monkeypatch.setattr(client_module, "open_connection", self)

    async def __call__(self, *args: Any, **kwargs: Any) -> asyncio.Transport:
        self.begun += 1
        if self.begun > self._hang:
            return await self._real(*args, **kwargs)
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up += 1
        raise AssertionError


@pytest.fixture
async def hedged() -> AsyncIterator[ClientPool]:
    pool = ClientPool(hedge_after_s=0.01)
    yield pool
    await pool.close()


async def test_a_slow_attempt_is_joined_by_others(
    hedged: ClientPool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = Standing(monkeypatch, hang=2)
    client = await hedged.get(address, timeout_s=60)
    assert (await client.call(request(10))).code == 0
    assert (standing.begun, standing.given_up) == (3, 2)
    assert hedged.stats.connects == 1
    assert await hedged.get(address) is client


async def test_attempts_are_bounded_and_given_up_with_the_pool(
    hedged: ClientPool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = Standing(monkeypatch, hang=100)
    waiting = asyncio.create_task(hedged.get(address, timeout_s=60))
    await until(lambda: standing.begun == 4)
    await asyncio.sleep(0.05)
    assert standing.begun == 4
    await hedged.close()
    with pytest.raises(ConnectionClosed):
        await waiting
    assert standing.given_up == 4


async def test_a_refusal_ends_the_race(hedged: ClientPool, serve: Any) -> None:
    server, port = await serve(lambda c, r: reply(r))
    await server.stop()
    with pytest.raises(ConnectError) as caught:
        await hedged.get(f"127.0.0.1:{port}")
    assert caught.value.refused


async def test_a_connection_that_comes_second_is_closed(
    hedged: ClientPool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncio.Transport] = []
    both = asyncio.Barrier(2)
    real = client_module.open_connection

    async def at_once(*args: Any, **kwargs: Any) -> asyncio.Transport:
        transport = await real(*args, **kwargs)
        made.append(transport)
        await both.wait()
        return transport

    monkeypatch.setattr(client_module, "open_connection", at_once)
    client = await hedged.get(address)
    assert (await client.call(request(10))).code == 0
    assert [transport.is_closing() for transport in made].count(True) == 1
