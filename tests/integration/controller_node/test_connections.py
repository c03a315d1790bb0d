"""Peer connections against peers that do not behave, on loopback."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import uvloop
from gantry_controller.node import dialler, listener
from gantry_controller.node.dialler import Dialler
from gantry_controller.node.framing import PING, VERSION, Hello, encode_hello, frame
from gantry_controller.node.listener import PeerListener
from gantry_controller.raft.errors import MessageError
from gantry_lab.bench.ports import free_ports
from gantry_protocol.types import NodeId
from support.patience import PATIENCE_S
from support.raft_quorum import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ME, PEER = NodeId(1), NodeId(2)
HELLO = Hello(VERSION, PEER, ME, "q")


def no_snapshot(*_: object) -> None:
    raise MessageError("no snapshot is sent here")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[PeerListener, int, list[bytes]]]:
    received: list[bytes] = []

    def receive(peer: NodeId, bodies: list[bytes]) -> None:
        if b"nonsense" in bodies:
            raise MessageError("no honest peer says that")
        received.extend(bodies)

    server = PeerListener(
        ME, "q", receive, no_snapshot, greeted=lambda *_: None, left=lambda _: None
    )
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port, received
    finally:
        await server.stop()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ends(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_frames_of_a_welcome_peer_arrive_and_pings_come_back() -> None:
    async with listening() as (_, port, received):
        reader, writer = await connect(port)
        writer.write(encode_hello(HELLO) + frame(b"one") + PING + frame(b"two"))
        assert await reader.readexactly(8) == frame(b"") + PING
        await until(lambda: received == [b"one", b"two"])
        writer.close()


@pytest.mark.parametrize(
    "bytes_",
    [b"GET / HTTP/1.1\r\n\r\n", frame(b"no hello"), b"\xff\xff\xff\xff"],
    ids=["another protocol", "no hello", "too long a hello"],
)
async def test_strangers_are_hung_up_on(bytes_: bytes) -> None:
    async with listening() as (_, port, received):
        reader, writer = await connect(port)
        writer.write(bytes_)
        assert await ends(reader)
        assert received == []
        writer.close()


async def test_nonsense_of_a_peer_closes_its_connection() -> None:
    async with listening() as (_, port, _):
        reader, writer = await connect(port)
        writer.write(encode_hello(HELLO))
        await reader.readexactly(4)
        writer.write(frame(b"nonsense"))
        assert await ends(reader)
        writer.close()


async def test_a_newer_connection_of_a_peer_replaces_the_older() -> None:
    async with listening() as (_, port, received):
        older, older_writer = await connect(port)
        older_writer.write(encode_hello(HELLO))
        await older.readexactly(4)
        newer, newer_writer = await connect(port)
        newer_writer.write(encode_hello(HELLO) + frame(b"here"))
        await newer.readexactly(4)
        assert await ends(older)
        await until(lambda: received == [b"here"])
        older_writer.close()
        newer_writer.close()


async def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", 0.05)
    monkeypatch.setattr(listener, "IDLE_MAX_S", 0.05)
    async with listening() as (_, port, _):
        silent, silent_writer = await connect(port)
        idle, idle_writer = await connect(port)
        idle_writer.write(encode_hello(HELLO))
        await idle.readexactly(4)
        assert await ends(silent)
        assert await ends(idle)
        silent_writer.close()
        idle_writer.close()


async def test_strangers_are_bounded_and_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 3)
    async with listening() as (server, port, received):
        strangers = [await connect(port) for _ in range(3)]
        await until(lambda: len(server._connections) == 3)
        peer, peer_writer = await connect(port)
        peer_writer.write(encode_hello(HELLO) + frame(b"here"))
        await until(lambda: received == [b"here"])
        assert await ends(strangers[0][0])
        assert (server.refused, len(server._connections)) == (1, 3)
        flood = [await connect(port) for _ in range(20)]
        await until(lambda: server.refused == 21)
        assert len(server._connections) == 3
        peer_writer.write(frame(b"still here"))
        await until(lambda: received == [b"here", b"still here"])
        for _, writer in [*strangers, *flood, (peer, peer_writer)]:
            writer.close()


async def test_known_peers_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 1)
    async with listening() as (server, port, _):
        peer, peer_writer = await connect(port)
        peer_writer.write(encode_hello(HELLO))
        await peer.readexactly(4)
        another, another_writer = await connect(port)
        assert await ends(another)
        assert server.refused == 1
        peer_writer.close()
        another_writer.close()


@asynccontextmanager
async def dialling(port: int) -> AsyncIterator[tuple[Dialler, list[NodeId]]]:
    gone: list[NodeId] = []
    link = Dialler(PEER, f"127.0.0.1:{port}", HELLO, process_gone=gone.append)
    task = asyncio.create_task(link.run())
    try:
        yield link, gone
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_refused_dial_after_a_broken_connection_means_the_process_is_gone() -> None:
    (port,) = free_ports(1)
    async with dialling(port) as (link, gone):
        await asyncio.sleep(0.1)  # some refused dials
        link.send([b"lost"])
        assert link.dropped == 1
        server = PeerListener(
            ME, "q", lambda *_: None, no_snapshot, greeted=lambda *_: None, left=lambda _: None
        )
        await server.start("127.0.0.1", port)
        await until(lambda: link.connected)
        assert gone == [], "a refusal before there was a connection says nothing"
        await server.stop()
        await until(lambda: gone)
        await asyncio.sleep(0.1)  # some more
        assert gone == [PEER]
        server = PeerListener(
            ME, "q", lambda *_: None, no_snapshot, greeted=lambda *_: None, left=lambda _: None
        )
        await server.start("127.0.0.1", port)
        await until(lambda: link.connected)
        assert (gone, link.connects) == ([PEER], 2)
        await server.stop()


async def test_a_silent_peer_is_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine vanished: nothing is refused and nothing comes back."""
    monkeypatch.setattr(dialler, "PING_EVERY_S", 0.02)
    monkeypatch.setattr(dialler, "SILENCE_MAX_S", 0.1)
    accepted = 0

    async def black_hole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.write(frame(b""))
        try:
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(black_hole, "127.0.0.1", 0)
    async with server, dialling(server.sockets[0].getsockname()[1]) as (link, gone):
        await until(lambda: accepted >= 3)
        assert link.connects >= 2
        assert gone == []


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_sending_on_a_connection_that_has_just_closed_drops(run: Callable[..., None]) -> None:
    """uvloop raises there, where asyncio says nothing; it ended the whole node."""

    async def scenario() -> None:
        async with listening() as (_, port, _), dialling(port) as (link, _):
            for number in range(1, 10):
                await until(lambda number=number: link.connects == number and link.connected)
                assert link._transport is not None
                link._transport.abort()
                dropped = link.dropped
                link.send([frame(b"x")])
                assert link.dropped == dropped + 1

    run(scenario())


async def test_a_refused_hello_is_counted_and_tried_again() -> None:
    async with listening() as (server, port, _):
        wrong = Hello(VERSION, PEER, ME, "another")
        link = Dialler(PEER, f"127.0.0.1:{port}", wrong, process_gone=lambda _: None)
        task = asyncio.create_task(link.run())
        await until(lambda: link.refused >= 2)
        assert not link.connected
        assert server.refused >= 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
