"""The remoting server on loopback."""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from typing import Any

import pytest
from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.frame import RemotingCommand, SerializeType, encode, reply, request
from gantry_protocol.remoting import server as server_module
from gantry_protocol.remoting.server import Connection, RemotingServer, not_supported
from gantry_protocol.remoting.turns import Turns
from support.wire import WirePeer, echo, until


async def test_pipelined_requests_are_answered_under_their_opaques(serve: Any) -> None:
    server, port = await serve(echo)
    async with await WirePeer.connect(port) as peer:
        asked = [RemotingCommand(code=10, opaque=n - 50, body=str(n).encode()) for n in range(100)]
        asked[7].serialize_type = SerializeType.ROCKETMQ
        peer.send(*asked)
        answers = [await peer.receive() for _ in asked]
        assert [(a.opaque, a.body) for a in answers] == [(a.opaque, a.body) for a in asked]
        assert all(a.is_response and a.remark == peer.name for a in answers)
        assert all(a.serialize_type is SerializeType.JSON for a in answers)
    await until(lambda: not server.stats.connections)
    assert server.stats.requests == server.stats.replies == 100
    assert server.stats.in_flight == 0


class _WriteSpy:
    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


async def test_all_replies_of_one_wake_up_leave_in_one_write(serve: Any) -> None:
    spies: list[_WriteSpy] = []
    parked: list[tuple[Connection, RemotingCommand]] = []

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if not spies:
            spies.append(_WriteSpy(connection._transport))
            connection._transport = spies[0]  # type: ignore[assignment]  # a spy
        if command.code == 11:
            parked.append((connection, command))
            return None
        return echo(connection, command)

    _, port = await serve(handler, turns=Turns(lambda: 0.0))
    async with await WirePeer.connect(port) as peer:
        peer.send(*[RemotingCommand(code=10, opaque=n) for n in range(50)])
        for _ in range(50):
            await peer.receive()
        assert spies[0].writes == 1
        peer.send(*[RemotingCommand(code=11, opaque=n) for n in range(50)])
        await until(lambda: len(parked) == 50)
        for connection, command in reversed(parked):
            connection.reply(command, reply(command))
        assert [(await peer.receive()).opaque for _ in range(50)] == list(range(49, -1, -1))
        assert spies[0].writes == 2


async def test_oneway_requests_and_responses_are_never_answered(serve: Any) -> None:
    seen = []

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        seen.append(command.code)
        if command.is_oneway:
            connection.reply(command, reply(command))
        return echo(connection, command)

    server, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        oneway = request(904, oneway=True)
        peer.send(oneway, reply(request(5)), RemotingCommand(code=105, opaque=7))
        assert (await peer.receive()).opaque == 7
        assert seen == [904, 105]
        assert (server.stats.oneways, server.stats.stray_responses) == (1, 1)


async def test_a_whole_frame_answers_once_and_no_oneway_request(serve: Any) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []
    server, port = await serve(lambda connection, command: parked.append((connection, command)))
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10, oneway=True), RemotingCommand(code=10, opaque=7, body=b"x"))
        await until(lambda: len(parked) == 2)
        assert (server.stats.in_flight, server.stats.in_flight_bytes) == (1, 1)
        for connection, command in [parked[0], parked[1], parked[1]]:
            connection.reply_frame(command, encode(reply(command, remark="made before")))
            connection.reply(command, reply(command, remark="too late"))
        answer = await peer.receive()
        assert (answer.opaque, answer.remark) == (7, "made before")
    assert server.stats.replies == 1
    assert server.stats.in_flight == server.stats.in_flight_bytes == 0


async def test_what_a_handler_raises_is_answered_with_code_1(serve: Any) -> None:
    errors = [GantryError("No such topic."), ZeroDivisionError(), ValueError("odd")]

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        raise errors[command.opaque]

    server, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        peer.send(*[RemotingCommand(opaque=n) for n in range(3)])
        answers = [await peer.receive() for _ in range(3)]
    assert [(a.code, a.remark) for a in answers] == [
        (1, "No such topic."),
        (1, "ZeroDivisionError"),
        (1, "odd"),
    ]
    assert server.stats.handler_errors == 3


async def test_unknown_codes_are_answered_as_upstream_does(serve: Any) -> None:
    _, port = await serve(lambda connection, command: not_supported(command))
    async with await WirePeer.connect(port) as peer:
        peer.send(request(31999))
        answer = await peer.receive()
    assert (answer.code, answer.remark) == (3, " request type 31999 not supported")


async def test_answers_may_come_later_and_only_once(serve: Any) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []
    server, port = await serve(lambda connection, command: parked.append((connection, command)))
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(opaque=1), RemotingCommand(opaque=1), RemotingCommand(opaque=2))
        await until(lambda: len(parked) == 3)
        assert server.stats.in_flight == 3
        for connection, command in [parked[2], parked[0], parked[0], parked[1]]:
            connection.reply(command, reply(command, 0, str(id(command) == id(parked[1][1]))))
        answers = [await peer.receive() for _ in range(3)]
        assert [(a.opaque, a.remark) for a in answers] == [(2, "False"), (1, "False"), (1, "True")]
        assert server.stats.in_flight == 0
    connection, command = parked[0]
    await until(lambda: connection.closed)
    connection.reply(command, reply(command))  # to nobody


async def test_answering_inside_the_handler_counts_once(serve: Any) -> None:
    def handler(connection: Connection, command: RemotingCommand) -> None:
        connection.reply(command, reply(command, 7))
        connection.reply(command, reply(command, 8))

    server, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(opaque=1), RemotingCommand(opaque=2))
        assert [(await peer.receive()).code for _ in range(2)] == [7, 7]
        assert server.stats.in_flight == 0


async def test_server_requests_reach_the_client(serve: Any) -> None:
    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        connection.send(request(40, {"consumerGroup": "g"}, oneway=True))
        return reply(command)

    _, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(34))
        first = await peer.receive()
        assert (first.code, first.is_oneway, first.ext) == (40, True, {"consumerGroup": "g"})
        assert (await peer.receive()).is_response


async def test_a_malformed_frame_ends_the_connection_without_an_answer(serve: Any) -> None:
    server, port = await serve(echo)
    async with await WirePeer.connect(port) as peer:
        peer.writer.write(encode(RemotingCommand(opaque=5)) + struct.pack(">iI", -1, 0))
        assert (await peer.receive()).opaque == 5
        assert await peer.ended()
    assert server.stats.malformed == 1
    await until(lambda: not server.stats.connections)


async def test_garbage_harms_nobody_else(serve: Any) -> None:
    server, port = await serve(echo)
    chance = random.Random(7)
    async with await WirePeer.connect(port) as good:
        for _ in range(30):
            async with await WirePeer.connect(port) as bad:
                bad.writer.write(chance.randbytes(chance.randrange(1, 400)))
                bad.writer.write_eof()
                assert await bad.ended()
        good.send(request(10))
        assert (await good.receive()).code == 0
    await until(lambda: not server.stats.connections)
    assert server.stats.partial_bytes == 0


@pytest.mark.parametrize("turns", range(5))
async def test_whoever_arrives_while_the_server_stops_is_turned_away(
    serve: Any, turns: int
) -> None:
    """Wherever the event loop is with it, the connection is not left behind open."""
    server, port = await serve(echo)
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop(0)
        assert server.stats.connections == 0
        client.settimeout(5)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


async def test_a_preamble_names_the_client(serve: Any) -> None:
    seen: list[Connection] = []

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        seen.append(connection)
        return echo(connection, command)

    _, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        peer.writer.write(b"PROXY TCP4 10.1.2.3 10.0.0.2 40000 10911\r\n")
        await asyncio.sleep(0)
        peer.send(request(10))
        assert (await peer.receive()).remark == "10.1.2.3:40000"
        assert seen[0]._decoder._chunk == b""  # a request leaves memory once it is served
    async with await WirePeer.connect(port) as plain:
        plain.send(request(10))
        assert (await plain.receive()).remark == plain.name
    assert [connection.proxied for connection in seen] == [True, False]
    assert seen[0].local == f"127.0.0.1:{port}"


async def test_who_is_here_is_served_on_after_the_listening_has_ended(serve: Any) -> None:
    """Whoever comes now is refused, and tries elsewhere at once."""
    server, port = await serve(lambda connection, command: reply(command))
    async with await WirePeer.connect(port) as peer:
        peer.send(request(1))
        await peer.receive()
        await server.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await WirePeer.connect(port)
        peer.send(request(1))
        assert (await peer.receive()).code == 0


async def test_stopping_waits_for_answers_and_delivers_them(serve: Any) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []
    gone: list[Connection] = []
    server, port = await serve(
        lambda connection, command: parked.append((connection, command)), on_close=gone.append
    )
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10))
        await until(lambda: bool(parked))
        stopping = asyncio.create_task(server.stop(grace_s=10))
        for _ in range(10):  # whoever was accepted before arrives first
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await WirePeer.connect(port)
        assert not stopping.done()
        connection, command = parked[0]
        connection.reply(command, reply(command, 5))
        await stopping
        assert (await peer.receive()).code == 5
        assert await peer.ended()
    assert gone == [connection]
    await server.stop()


async def test_stopping_gives_up_on_answers_that_do_not_come(serve: Any) -> None:
    server, port = await serve(lambda connection, command: None)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10))
        await until(lambda: server.stats.in_flight == 1)
        await server.stop(grace_s=0.01)
        assert await peer.ended()
    assert server.stats.connections == server.stats.in_flight == 0


async def test_a_peer_that_does_not_read_cannot_hold_up_the_stop(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_CLOSE_WAIT_S", 0.05)
    server, port = await serve(lambda c, r: reply(r, body=bytes(8_000_000)))
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10), request(10))
        await until(lambda: server.stats.requests > 0)
        await server.stop()
    assert server.stats.connections == 0


async def test_closing_gives_up_on_a_peer_that_does_not_read(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_protocol.remoting.connection._CLOSE_GRACE_S", 0.05)
    seen: list[Connection] = []

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        seen.append(connection)
        return reply(command, body=bytes(8_000_000))

    server, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10), request(10))
        await until(lambda: bool(seen))
        seen[0].close()
        await until(lambda: not server.stats.connections)


async def test_a_reply_too_large_for_a_frame_becomes_an_error(serve: Any) -> None:
    _, port = await serve(lambda c, r: reply(r, body=bytes(16 * 1024 * 1024)))
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10))
        answer = await peer.receive()
    assert answer.code == 1
    assert "a frame holds 16777216" in (answer.remark or "")


async def test_a_port_in_use_is_an_operating_error(serve: Any) -> None:
    _, port = await serve(echo)
    with pytest.raises(PortInUseError, match=f"Port {port} on 127.0.0.1 is in use"):
        await RemotingServer(echo).start("127.0.0.1", port)


class Holder:
    """Holds every connection at code 99 and serves everything else."""

    def __init__(self) -> None:
        self.active = True
        self.held: list[tuple[Connection, RemotingCommand]] = []

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == 99 and self.active:
            connection.hold(command)
            self.held.append((connection, command))
            return None
        return echo(connection, command)


async def test_a_held_connection_is_served_in_order_once_released(serve: Any) -> None:
    holder = Holder()
    server, port = await serve(holder)
    async with await WirePeer.connect(port) as peer:
        frames = [encode(RemotingCommand(code=code, opaque=code)) for code in (10, 99, 11, 12)]
        peer.writer.write(b"".join(frames)[:-5])
        assert (await peer.receive()).opaque == 10
        await until(lambda: bool(holder.held))
        connection, _ = holder.held[0]
        assert connection.held
        assert server.stats.in_flight == 0
        peer.writer.write(frames[3][-5:] + frames[0])
        await asyncio.sleep(0.01)
        holder.active = False
        connection.release()
        assert [(await peer.receive()).opaque for _ in range(4)] == [99, 11, 12, 10]
        assert not connection.held


async def test_a_connection_may_be_held_again_when_released(serve: Any) -> None:
    holder = Holder()
    _, port = await serve(holder)
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(code=99, opaque=1), RemotingCommand(code=10, opaque=2))
        await until(lambda: len(holder.held) == 1)
        holder.held[0][0].release()
        assert len(holder.held) == 2
        holder.active = False
        holder.held[0][0].release()
        assert [(await peer.receive()).opaque for _ in range(2)] == [1, 2]


async def test_a_held_connection_that_is_closed_is_forgotten(serve: Any) -> None:
    holder = Holder()
    server, port = await serve(holder)
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(code=99))
        await until(lambda: bool(holder.held))
        holder.held[0][0].close()
        assert await peer.ended()
    await until(lambda: not server.stats.connections)
    assert not holder.held[0][0].held
