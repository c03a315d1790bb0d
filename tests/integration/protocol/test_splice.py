"""A client's connection that is passed on to another process, and to the next one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from gantry_protocol.codes import RequestCode
from gantry_protocol.errors import ConnectError
from gantry_protocol.frame import RemotingCommand, encode, reply, request
from gantry_protocol.remoting.server import Connection, RemotingServer
from gantry_protocol.remoting.splice import Budget, Splice
from support.wire import WirePeer, until


class Master:
    """Answers everything with its name and who asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[Connection] = []
        self.seen: list[RemotingCommand] = []

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        if connection not in self.connections:
            self.connections.append(connection)
        self.seen.append(command)
        return reply(command, 0, f"{self.name} {connection.peer}", command.ext, command.body)


class Replica:
    """Answers code 1 itself and passes everything else on; notes when somebody must decide."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.budget = Budget()
        self.splices: list[Splice] = []
        self.over: list[Splice] = []
        self.free: list[Splice] = []
        self.connections: list[Connection] = []

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        if command.code == 1:
            return reply(command, 0, "replica")
        self.connections.append(connection)
        connection.hold(command)
        self.splices.append(Splice(connection, self, self.budget))
        self.splices[-1].lead_to(self.address)
        return None

    def freed(self, splice: Splice) -> None:
        self.free.append(splice)

    def ended(self, splice: Splice) -> None:
        self.over.append(splice)

    def refusal(self, asked: RemotingCommand, *, was_given: bool) -> RemotingCommand:
        return reply(asked, 14, "refused")


Pair = tuple[Master, Replica, RemotingServer, int]


@pytest.fixture
async def pair(serve: Any) -> Pair:
    master = Master("master")
    _, master_port = await serve(master)
    replica = Replica(f"127.0.0.1:{master_port}")
    server, port = await serve(replica)
    return master, replica, server, port


async def test_the_master_sees_every_byte_from_the_first_unanswered_request_on(pair: Pair) -> None:
    master, replica, server, port = pair
    async with await WirePeer.connect(port) as peer:
        asked = [RemotingCommand(code=code, opaque=code, body=b"b") for code in (1, 310, 1, 11)]
        frames = [encode(command) for command in asked]
        peer.writer.write(b"".join(frames)[:-3])
        answers = [await peer.receive() for _ in range(3)]
        peer.writer.write(frames[3][-3:] + frames[2])
        answers += [await peer.receive() for _ in range(2)]
        assert [(a.opaque, a.remark) for a in answers] == [
            (1, "replica"),
            (310, f"master {peer.name}"),
            (1, f"master {peer.name}"),
            (11, f"master {peer.name}"),
            (1, f"master {peer.name}"),
        ]
        assert master.seen[0] == asked[1]
        assert master.connections[0].proxied
        assert replica.splices[0].established
        assert not replica.over
        assert server.stats.spliced == 1
    await until(lambda: replica.over == replica.splices)
    await until(lambda: master.connections[0].closed)
    await until(lambda: not server.stats.connections)


async def test_header_bytes_that_we_would_write_differently_pass_unchanged(pair: Pair) -> None:
    master, _, _, port = pair
    header = b'{ "code" : 310, "zone" : {"a":[1]}, "extFields" : {"n":7, "x":null} }'
    frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    async with await WirePeer.connect(port) as peer:
        peer.writer.write(frame)
        assert (await peer.receive()).ext == {"n": "7"}
    assert master.seen[0].code == 310


async def test_a_forwarded_client_stays_known_by_its_own_address(pair: Pair) -> None:
    _, replica, _, port = pair
    async with await WirePeer.connect(port) as peer:
        peer.writer.write(b"PROXY TCP4 10.1.2.3 10.0.0.2 40000 10911\r\n")
        peer.send(request(310))
        assert (await peer.receive()).remark == "master 10.1.2.3:40000"
    assert replica.connections[0].proxied


async def test_closing_cuts_both_sides_and_ends_once(pair: Pair) -> None:
    master, replica, server, port = pair
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        await peer.receive()
        replica.splices[0].close()
        replica.splices[0].close()
        assert await peer.ended()
        await until(lambda: master.connections[0].closed)
        assert replica.over == replica.splices
        assert replica.splices[0].ended
    await until(lambda: not server.stats.connections)


async def test_what_the_master_said_last_still_arrives(pair: Pair) -> None:
    master, replica, _, port = pair
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        await peer.receive()
        master.connections[0].send(request(40, oneway=True))
        master.connections[0].close()
        assert (await peer.receive()).code == 40
        await until(lambda: bool(replica.free))
        assert not replica.connections[0].closed


async def test_a_dead_masters_client_stays_and_is_answered_by_the_next_one(
    pair: Pair, serve: Any
) -> None:
    """It has begun an answer, and it has left another out; neither is heard of by the client."""
    replica, port = pair[1], pair[3]
    begun = encode(RemotingCommand(opaque=1, flag=1, remark="never whole"))[:-5]

    async def dying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n")
        await reader.read(10_000)
        writer.write(begun)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(dying, "127.0.0.1", 0)
    replica.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    following = Master("next")
    _, next_port = await serve(following)
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(code=310, opaque=1), RemotingCommand(code=309, opaque=2))
        await until(lambda: bool(replica.free))
        peer.send(RemotingCommand(code=11, opaque=3))
        replica.free[0].lead_to(f"127.0.0.1:{next_port}")
        answers = {answer.opaque: answer for answer in [await peer.receive() for _ in range(3)]}
    assert {opaque: one.code for opaque, one in answers.items()} == {1: 0, 2: 14, 3: 0}
    assert [one.code for one in following.seen] == [RequestCode.GANTRY_PASSED_ON, 310, 11]
    assert (replica.budget.given_again, replica.budget.refused_again) == (1, 1)
    listener.close()
    await until(lambda: replica.over == replica.splices)
    assert replica.budget.kept_bytes == 0


async def test_what_no_master_answers_is_refused_and_the_client_may_go_on(
    pair: Pair, serve: Any
) -> None:
    replica, port = pair[1], pair[3]
    master, replica.address = replica.address, f"127.0.0.1:{await _unused_port(serve)}"
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(code=310, opaque=1))
        await until(lambda: len(replica.free) == 1)
        replica.free[0].refuse()
        assert (await peer.receive()).code == 14
        peer.send(RemotingCommand(code=310, opaque=2))
        await until(lambda: len(replica.free) == 2)
        replica.free[0].lead_to(master)
        assert (await peer.receive()).remark == f"master {peer.name}"


async def test_a_splice_ends_with_an_answer(pair: Pair) -> None:
    _, replica, _, port = pair
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        await peer.receive()
        replica.splices[0].end_with_answer()
        peer.send(RemotingCommand(code=310, opaque=5))
        assert (await peer.receive()).opaque == 5
        assert await peer.ended()


async def _unused_port(serve: Any) -> int:
    server, port = await serve(lambda c, r: None)
    await server.stop()
    return int(port)


async def test_a_master_that_refuses_leaves_the_client_to_its_owner(serve: Any) -> None:
    """Who takes it to another master, or serves it."""
    replica = Replica(f"127.0.0.1:{await _unused_port(serve)}")
    server, port = await serve(replica)
    async with await WirePeer.connect(port) as peer:
        peer.send(RemotingCommand(code=310, opaque=1), RemotingCommand(code=11, opaque=2))
        await until(lambda: bool(replica.free))
        splice, connection = replica.free[0], replica.connections[0]
        assert isinstance(splice.error, ConnectError)
        assert splice.error.refused
        assert not any((splice.established, splice.ended, connection.closed))
        server.handler = Master("promoted")
        marked, data = splice.serve_here()
        assert marked == []
        assert replica.over == [splice]
        connection.detach(data)
        answers = [await peer.receive() for _ in range(2)]
        assert [a.remark for a in answers] == [f"promoted {peer.name}"] * 2


async def test_a_client_that_leaves_while_we_connect(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    master = Master("master")
    master_server, master_port = await serve(master)

    async def slow_resolve(host: str) -> str:
        await gate.wait()
        return host

    monkeypatch.setattr("gantry_protocol.remoting.client.resolve", slow_resolve)
    replica = Replica(f"127.0.0.1:{master_port}")
    server, port = await serve(replica)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        await until(lambda: bool(replica.splices))
        replica.connections[0].abort()
    await until(lambda: not server.stats.connections)
    gate.set()
    await until(lambda: replica.over == replica.splices)
    await until(lambda: not master_server.stats.connections)
    assert not master.seen


async def test_closing_while_connecting(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("gantry_protocol.remoting.client.resolve", never)
    replica = Replica("127.0.0.1:9")
    server, port = await serve(replica)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        await until(lambda: bool(replica.splices))
        connecting = replica.splices[0]._task
        assert connecting is not None
        replica.splices[0].close()
        assert await peer.ended()
    assert replica.over == replica.splices
    await until(connecting.done)
    await until(lambda: not server.stats.connections)


async def _settled(measure: Callable[[], int]) -> int:
    """``measure()`` once it stopped growing."""
    before = -1
    while before != (now := measure()):
        before = now
        await asyncio.sleep(0.05)
    return now


BULK_BYTES = 40 * 1024 * 1024
HELD_BYTES = 20 * 1024 * 1024  # socket buffers of four ends, and our own bounds


async def test_a_client_that_does_not_read_stops_the_master(serve: Any) -> None:
    sent = 0
    chunk = encode(RemotingCommand(body=bytes(256 * 1024)))

    async def master(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n")
        while sent < BULK_BYTES:
            writer.write(chunk)
            await writer.drain()
            sent += len(chunk)
        writer.close()

    listener = await asyncio.start_server(master, "127.0.0.1", 0)
    replica = Replica(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    _, port = await serve(replica)
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        assert await _settled(lambda: sent) < HELD_BYTES
        got = 0
        while got < sent or sent < BULK_BYTES:
            got += len(await peer.reader.read(1024 * 1024))
        assert got == sent >= BULK_BYTES
    listener.close()
    await until(lambda: bool(replica.free))
    replica.free[0].refuse()  # nobody reads from a client that waits for a master
    await until(lambda: bool(replica.over))


async def test_a_master_that_does_not_read_stops_the_client(serve: Any) -> None:
    gate = asyncio.Event()
    received = 0

    async def master(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await reader.readuntil(b"\r\n")
        await gate.wait()
        while data := await reader.read(1024 * 1024):
            received += len(data)
        writer.close()

    listener = await asyncio.start_server(master, "127.0.0.1", 0)
    replica = Replica(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    server, port = await serve(replica)
    frame = encode(RemotingCommand(code=310, body=bytes(256 * 1024)))
    async with await WirePeer.connect(port) as peer:
        sent = 0

        async def push() -> None:
            nonlocal sent
            while sent < BULK_BYTES:
                peer.writer.write(frame)
                await peer.writer.drain()
                sent += len(frame)

        pushing = asyncio.create_task(push())
        assert await _settled(lambda: server.stats.bytes_in) < HELD_BYTES
        assert not pushing.done()
        gate.set()
        await pushing
        await until(lambda: received == sent)
    await until(lambda: bool(replica.over))
    listener.close()


async def test_stopping_the_server_ends_its_splices(pair: Pair) -> None:
    master, replica, server, port = pair
    async with await WirePeer.connect(port) as peer:
        peer.send(request(310))
        await peer.receive()
        await server.stop()
        assert await peer.ended()
    await until(lambda: replica.over == replica.splices)
    await until(lambda: master.connections[0].closed)
