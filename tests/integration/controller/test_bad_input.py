"""What nobody should send, to every port of a live quorum: a clear end, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from gantry_controller.node.framing import VERSION, Hello, encode_hello, frame
from gantry_controller.remoting.dispatcher import ANSWER_WITHIN_S
from gantry_controller.server import Controller
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.frame import encode
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import NodeId
from support.controller_quorum import GROUP, Quorum, WireBroker, until
from support.patience import PATIENCE_S
from support.wire import WirePeer

GOOD = encode(request(1005))


@asynccontextmanager
async def undisturbed(quorum: Quorum) -> AsyncIterator[Controller]:
    """A client of the leader is served all the while, and nobody stands for election."""
    leader = await quorum.led()
    term = leader.node.term
    served = 0

    async def ask() -> None:
        nonlocal served
        async with quorum.client(leader) as caller:
            while True:
                answer = await caller.call(1012, GROUP)
                assert answer.code == 0, answer
                served += 1
                await asyncio.sleep(0.005)

    task = asyncio.create_task(ask())
    await until(lambda: served)
    yield leader
    before = served
    await until(lambda: served > before or task.done())
    if task.done():
        task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [one.node.term for one in quorum.running.values()] == [term] * 3


def nonsense(seed: int) -> list[bytes]:
    """Noise, and honest bytes with something wrong."""
    chance = random.Random(seed)
    hello = encode_hello(Hello(VERSION, NodeId(2), NodeId(1), "uid"))
    found = [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">iI", 2**31 - 1, 0),
        struct.pack(">iI", -1, 0),
        struct.pack(">iI", 16, 0x00FFFFFF),
        struct.pack(">II", 8, 2 << 24),
        hello + frame(b"\x00" * 64),
        hello + struct.pack(">I", 2**32 - 1),
        GOOD[:-3],
        GOOD[:8] + b"[" * (len(GOOD) - 8),
    ]
    for honest in (GOOD, hello + frame(bytes(40))):
        for _ in range(15):
            damaged = bytearray(honest)
            for _ in range(chance.randrange(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            found.append(bytes(damaged))
    found += [chance.randbytes(chance.randrange(1, 2000)) for _ in range(15)]
    return found


async def said(port: int, data: bytes) -> None:
    """Say it, say that there is no more, and see the end: an answer or none, but no silence."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
    writer.close()


@pytest.mark.parametrize("port", ["raft", "remoting", "nameserver", "http"])
async def test_arbitrary_bytes_end_a_connection_and_nothing_else(quorum: Quorum, port: str) -> None:
    async with undisturbed(quorum) as leader:
        await asyncio.gather(*(said(leader.ports[port], one) for one in nonsense(7)))
    assert all(one.node.leader_id == leader.node.node_id for one in quorum.running.values())


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(VERSION, NodeId(2), NodeId(1), "another"), b"it belongs to the cluster 'another'"),
        (Hello(VERSION + 1, NodeId(2), NodeId(1), "uid"), b"version"),
        (Hello(VERSION, NodeId(2), NodeId(3), "uid"), b"it looks for node 3"),
    ],
    ids=["another cluster", "another version", "another node"],
)
async def test_a_peer_that_does_not_belong_here_is_told_why(
    quorum: Quorum, hello: Hello, reason: bytes
) -> None:
    async with undisturbed(quorum):
        controller = quorum.running[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", controller.ports["raft"])
        writer.write(encode_hello(hello) + frame(bytes(100)))
        with suppress(ConnectionError):
            assert reason in await reader.read()
        writer.close()


async def test_every_request_is_answered_in_time_without_a_leader(quorum: Quorum) -> None:
    """To a follower whose quorum is gone, and so during every election."""
    await quorum.led()
    survivor = next(iter(quorum.running))
    await quorum.stop(*(number for number in (1, 2, 3) if number != survivor))
    controller = quorum.running[survivor]
    codes = sorted(controller.dispatcher.served)
    async with await WirePeer.connect(controller.ports["remoting"]) as peer:
        peer.send(*(RemotingCommand(code=code, opaque=code, ext=dict(GROUP)) for code in codes))
        answers = [await peer.receive() for _ in codes]
    assert sorted(one.opaque for one in answers) == codes
    told = {one.opaque: (one.code, one.remark) for one in answers}
    for code in (1001, 1002, 1003, 1004, 1012, 1013):
        # Either at once, with the plain words, or at the deadline.
        assert told[code][0] in (1, 2, 2007), told[code]
    assert ANSWER_WITHIN_S < 3, "a Java broker gives up then, and closes the connection"


async def test_a_client_that_never_reads_costs_little_and_harms_nobody(quorum: Quorum) -> None:
    async with undisturbed(quorum) as leader:
        server = leader._servers["remoting"]
        reader, writer = await asyncio.open_connection("127.0.0.1", leader.ports["remoting"])
        asking = encode(request(1010)) * 1000

        def congested() -> list[Connection]:
            return [one for one in server.connections.values() if one._congested]

        async with asyncio.timeout(PATIENCE_S):
            while not congested():
                writer.write(asking)
                await asyncio.sleep(0.005)
        for _ in range(50):  # of which it takes nothing more
            writer.write(asking)
            await asyncio.sleep(0.005)
        (greedy,) = congested()
        assert greedy._transport is not None
        assert greedy._transport.get_write_buffer_size() < 4 * 1024 * 1024
        assert server.stats.slow_closed == 0
        greedy.cut_off()  # as its timer does
        await until(lambda: greedy.id not in server.connections)
        del reader
        writer.close()


@pytest.mark.parametrize("jump_s", [86_400.0 * 400, -86_400.0 * 400], ids=["ahead", "back"])
async def test_jumps_of_the_clock_change_nothing(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """Liveness, leases and elections know only time that cannot be set."""
    true_time, true_ns = time.time, time.time_ns
    await quorum.declare(1)
    broker = WireBroker(quorum)
    await broker.start()
    async with asyncio.timeout(PATIENCE_S):
        while (await quorum.view())["masterBrokerId"] is None:
            await asyncio.sleep(0.01)
    async with undisturbed(quorum):
        monkeypatch.setattr(time, "time", lambda: true_time() + jump_s)
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() + int(jump_s * 1e9))
        for _ in range(5):
            assert (await broker.call(1004)).code == 0
            await asyncio.sleep(0.1)
        view = await quorum.view()
        assert (view["masterEpoch"], view["masterBrokerId"]) == (1, broker.broker_id)
    assert broker.epochs_told in ([], [1])
    monkeypatch.undo()
    await broker.kill()
