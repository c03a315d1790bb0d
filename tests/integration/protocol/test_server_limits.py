"""What the remoting server on loopback bounds: requests, bytes, time, connections."""

import asyncio
import struct
import time
from contextlib import suppress
from typing import Any

import pytest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.frame import RemotingCommand, encode, reply, request
from gantry_protocol.remoting import connection as connection_module
from gantry_protocol.remoting.limits import ConnectionLimits
from gantry_protocol.remoting.rules import RequestRule, RequestRules
from gantry_protocol.remoting.server import Connection
from support.wire import WirePeer, echo, until


async def test_too_many_unanswered_requests_hear_system_busy(serve: Any) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []
    server, port = await serve(
        lambda connection, command: parked.append((connection, command)), max_in_flight=3
    )
    async with await WirePeer.connect(port) as peer:
        peer.send(*[RemotingCommand(opaque=n) for n in range(5)])
        assert [((a := await peer.receive()).opaque, a.code) for _ in range(2)] == [(3, 2), (4, 2)]
        assert server.stats.busy == 2
        connection, command = parked[0]
        connection.reply(command, reply(command))
        assert (await peer.receive()).opaque == 0
        peer.send(RemotingCommand(opaque=9))
        await until(lambda: len(parked) == 4)
    await until(lambda: not server.stats.connections)
    assert server.stats.in_flight == 0


async def test_unanswered_requests_are_bounded_over_all_connections(serve: Any) -> None:
    _, port = await serve(lambda connection, command: None, max_in_flight_total=2)
    async with await WirePeer.connect(port) as one, await WirePeer.connect(port) as two:
        one.send(request(11), request(11), request(11))
        assert (await one.receive()).code == 2
        two.send(request(11))
        assert (await two.receive()).code == 2


async def test_bodies_of_unanswered_requests_are_bounded(serve: Any) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []
    server, port = await serve(
        lambda connection, command: parked.append((connection, command)), max_in_flight_bytes=400
    )
    peers = [await WirePeer.connect(port) for _ in range(5)]
    for peer in peers[:4]:
        peer.send(request(10, body=b"." * 100), request(10, body=b"."), request(11))
        assert (await peer.receive()).code == 2, "a connection has a quarter of what all have"
    await until(lambda: len(parked) == 8)
    peers[4].send(request(10, body=b"."))
    assert (await peers[4].receive()).code == 2, "all have no more than that"
    connection, command = parked[0]
    connection.reply(command, reply(command))
    peers[4].send(request(10, body=b"." * 100))
    await until(lambda: len(parked) == 9)
    assert server.stats.in_flight_bytes == 400
    for peer in peers:
        await peer.close()
    await until(lambda: not server.stats.connections)
    assert server.stats.in_flight_bytes == server.stats.in_flight == 0


async def test_a_client_that_does_not_read_is_not_served_until_it_does(serve: Any) -> None:
    served = 0
    body = bytes(256 * 1024)

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        nonlocal served
        served += 1
        return reply(command, body=body)

    server, port = await serve(handler)
    async with await WirePeer.connect(port) as peer:
        total = 400
        peer.send(*[RemotingCommand(opaque=n) for n in range(total)])
        await peer.writer.drain()
        before = -1
        while before != served:  # until the server no longer gets ahead
            before = served
            await asyncio.sleep(0.05)
        assert 0 < served < total // 2
        for n in range(total):
            assert (await peer.receive()).opaque == n
        assert served == total
    assert server.stats.slow_closed == 0


async def test_a_client_whose_answers_pile_up_is_cut_off(serve: Any) -> None:
    parked: list[tuple[Connection, RemotingCommand]] = []
    server, port = await serve(
        lambda connection, command: parked.append((connection, command)),
        max_write_buffer_bytes=4 * 1024 * 1024,
    )
    async with await WirePeer.connect(port) as peer:
        peer.send(*[RemotingCommand(opaque=n) for n in range(100)])
        await until(lambda: len(parked) == 100)
        for connection, command in parked:
            connection.reply(command, reply(command, body=bytes(512 * 1024)))
        await until(lambda: server.stats.slow_closed == 1)
        await until(lambda: not server.stats.connections)
        assert server.stats.in_flight == 0


async def test_unread_answers_are_bounded_over_all_connections(serve: Any) -> None:
    """Who leaves most unread goes; who reads is served on."""
    parked: list[tuple[Connection, RemotingCommand]] = []
    server, port = await serve(
        lambda connection, command: parked.append((connection, command)),
        max_unread_bytes=24 * 1024 * 1024,
    )
    async with await WirePeer.connect(port) as greedy, await WirePeer.connect(port) as slow:
        slow.send(*[RemotingCommand(opaque=n) for n in range(30)])
        await until(lambda: len(parked) == 30)
        greedy.send(*[RemotingCommand(opaque=n) for n in range(60)])
        await until(lambda: len(parked) == 90)
        for connection, command in parked:
            connection.reply(command, reply(command, body=bytes(512 * 1024)))
        await until(lambda: server.stats.slow_closed == 1)
        await until(lambda: server.stats.connections == 1)
        assert 0 < server.stats.unread_bytes <= server.max_unread_bytes
        for n in range(30):
            assert (await slow.receive()).opaque == n
    await until(lambda: not server.stats.connections)
    assert server.stats.unread_bytes == 0


async def test_a_header_that_is_too_large_ends_the_connection(serve: Any) -> None:
    server, port = await serve(echo)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(10))
        assert (await peer.receive()).code == 0
        peer.writer.write(struct.pack(">iI", 14_000_000, 13_900_000))
        assert await peer.ended()
    assert server.stats.malformed == 1


RULES = RequestRules({34: RequestRule(100_000, 0.0)}, RequestRule(1_000_000, 0.0))


async def test_a_body_that_is_too_large_is_refused_and_not_kept(serve: Any) -> None:
    asked = []

    def handle(_: Connection, command: RemotingCommand) -> RemotingCommand:
        asked.append(command.code)
        return reply(command)

    server, port = await serve(handle, rules=RULES)
    async with await WirePeer.connect(port) as peer:
        small = [request(36) for _ in range(200)]
        large = request(34, {"a": "b"}, bytes(1_500_000))
        peer.send(*small, large, request(35, None, bytes(150_000)))
        answers = [await peer.receive() for _ in range(202)][200:]
    assert [answer.code for answer in answers] == [ResponseCode.MESSAGE_ILLEGAL, 0]
    assert "100000" in (answers[0].remark or "")
    assert asked == [36] * 200 + [35]
    assert (server.stats.too_large, server.stats.partial_bytes) == (1, 0)


def busy(seconds: float) -> None:
    """Hold up the loop for so long."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass


async def test_who_asks_for_little_does_not_wait_for_who_asks_for_much(serve: Any) -> None:
    """2,000 requests that take a millisecond each are here before the other one."""
    served = []

    def handle(_: Connection, command: RemotingCommand) -> RemotingCommand:
        served.append(command.code)
        if command.code == 1:
            busy(0.001)
        return reply(command)

    server, port = await serve(handle)
    async with await WirePeer.connect(port) as many, await WirePeer.connect(port) as one:
        many.send(*[request(1) for _ in range(2000)])
        await until(lambda: len(served) > 10)
        for number in range(2, 7):
            one.send(request(number))
            assert (await one.receive()).code == 0
        assert len(served) < 1000
        assert [code for code in served if code > 1] == [2, 3, 4, 5, 6]
        assert server.turns.put_off
        many.writer.transport.abort()
    await until(lambda: not server.stats.connections)


async def test_all_that_was_put_off_is_served_in_order(serve: Any) -> None:
    served = []

    def handle(_: Connection, command: RemotingCommand) -> RemotingCommand:
        served.append(command.opaque)
        return reply(command)

    _, port = await serve(handle)
    async with await WirePeer.connect(port) as peer:
        peer.send(*[RemotingCommand(code=1, opaque=number) for number in range(5_000)])
        answers = [(await peer.receive()).opaque for _ in range(5_000)]
    assert served == answers == list(range(5_000))


async def test_a_request_that_has_waited_too_long_is_refused(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit the first share has waited; here that is long enough."""
    monkeypatch.setattr(connection_module, "LATE_S", -1.0)
    served = []

    def handle(_: Connection, command: RemotingCommand) -> RemotingCommand:
        served.append(command.opaque)
        busy(0.002)
        return reply(command)

    server, port = await serve(handle, rules=RULES)
    async with await WirePeer.connect(port) as peer:
        peer.send(*[RemotingCommand(code=10, opaque=number) for number in range(5)])
        answers = [await peer.receive() for _ in range(5)]
    assert served == [0]
    assert [answer.code for answer in answers] == [0] + 4 * [ResponseCode.SYSTEM_BUSY]
    assert "TIMEOUT_CLEAN_QUEUE" in (answers[1].remark or "")
    assert server.stats.too_old == 4


async def test_a_frame_that_does_not_end_ends_the_connection(serve: Any) -> None:
    """A byte now and then is no progress; a connection that says nothing at all goes, too."""
    server, port = await serve(echo, frame_within_s=0.2)
    frame = encode(request(10, {"some": "header"}))
    async with (
        await WirePeer.connect(port) as silent,
        await WirePeer.connect(port) as slow,
        await WirePeer.connect(port) as fine,
    ):
        fine.send(request(10))
        assert (await fine.receive()).code == 0
        with suppress(ConnectionError, RuntimeError):  # uvloop's word for a closed transport
            for at in range(len(frame) - 1):
                slow.writer.write(frame[at : at + 1])
                await asyncio.sleep(0.01)
        assert await slow.ended()
        assert await silent.ended()
        fine.send(request(10))
        assert (await fine.receive()).code == 0
    assert server.stats.stalled_closed == 2


async def test_incomplete_frames_are_bounded_over_all_connections(serve: Any) -> None:
    server, port = await serve(echo, max_partial_bytes=100_000)
    start = struct.pack(">iI", 104 + 90_000, 100) + b'{"code":10}'.ljust(100)
    async with await WirePeer.connect(port) as one, await WirePeer.connect(port) as two:
        one.writer.write(start + bytes(80_000))
        await until(lambda: server.stats.partial_bytes > 80_000)
        two.writer.write(start + bytes(70_000))
        assert await one.ended()  # who has most of them
        assert server.stats.connections == 1
        two.writer.write(bytes(20_000))
        assert (await two.receive()).code == 0
    await until(lambda: not server.stats.connections)
    assert server.stats.partial_bytes == 0


async def test_further_connections_are_turned_away(serve: Any) -> None:
    gone = []
    server, port = await serve(echo, limits=ConnectionLimits(2), on_close=gone.append)
    async with await WirePeer.connect(port) as one, await WirePeer.connect(port) as two:
        for peer in (one, two):
            peer.send(request(10))
            await peer.receive()
        async with await WirePeer.connect(port) as three:
            assert await three.ended()
        assert (server.stats.connections, server.stats.refused) == (2, 1)
        assert gone == []
    await until(lambda: len(gone) == 2)
    async with await WirePeer.connect(port) as four:
        four.send(request(10))
        assert (await four.receive()).code == 0


async def test_one_source_cannot_take_every_place(serve: Any) -> None:
    limits = ConnectionLimits(3, per_source=2)
    server, port = await serve(echo, limits=limits)
    async with await WirePeer.connect(port), await WirePeer.connect(port):
        async with await WirePeer.connect(port) as greedy:
            assert await greedy.ended()
        async with await WirePeer.connect(port, source="127.0.0.2") as other:
            other.send(request(10))
            assert (await other.receive()).code == 0
            async with await WirePeer.connect(port, source="127.0.0.3") as late:
                assert await late.ended()
    await until(lambda: limits.open == 0)
    assert (limits.refused_source, limits.refused_total, server.stats.refused) == (1, 1, 2)
    async with await WirePeer.connect(port) as again:
        again.send(request(10))
        assert (await again.receive()).code == 0


async def test_servers_may_share_their_limits(serve: Any) -> None:
    limits = ConnectionLimits(1)
    _, one = await serve(echo, limits=limits)
    _, two = await serve(echo, limits=limits)
    async with await WirePeer.connect(one) as first:
        first.send(request(10))
        await first.receive()
        async with await WirePeer.connect(two) as second:
            assert await second.ended()


async def test_a_client_that_never_reads_is_cut_off(serve: Any) -> None:
    server, port = await serve(lambda c, r: reply(r, body=bytes(256 * 1024)), max_stuck_s=0.05)
    async with await WirePeer.connect(port) as peer, await WirePeer.connect(port) as other:
        peer.send(*[RemotingCommand(opaque=n) for n in range(100)])
        await until(lambda: server.stats.slow_closed == 1)
        await until(lambda: server.stats.connections == 1)
        other.send(request(10))
        assert (await other.receive()).code == 0


async def test_idle_connections_are_closed_and_busy_ones_are_not(serve: Any) -> None:
    server, port = await serve(echo, idle_timeout_s=0.2)
    async with await WirePeer.connect(port) as idle, await WirePeer.connect(port) as busy:
        ended = asyncio.create_task(idle.ended())
        while not ended.done():
            busy.send(request(10))
            assert (await busy.receive()).code == 0
            await asyncio.sleep(0.01)
        assert await ended
        assert server.stats.idle_closed == 1
        assert server.stats.connections == 1
