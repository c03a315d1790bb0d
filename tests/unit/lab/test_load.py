"""The load generator on servers that answer as they are told: many slots, pieces, paces."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import closing, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from gantry_lab.bench.load import FrameLoad, SlotWork
from gantry_lab.bench.tls import trust
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import FrameError, GantryError
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.remoting.server import RemotingServer
from support.certificates import Authority
from support.tls_peers import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gantry_lab.bench.load import Reply


class Asked(SlotWork):
    """Each slot asks `each` times."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.asked: Counter[int] = Counter()

    def first(self, slot: int) -> bytes | None:
        if self.asked[slot] == self.each:
            return None
        self.asked[slot] += 1
        command = request(1)
        command.opaque = slot
        return encode(command)


@contextmanager
def answering(data: Callable[[list[RemotingCommand]], list[bytes]]) -> Iterator[str]:
    """A server in a thread: takes four requests on one connection, answers with these pieces."""
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        conn, _ = listener.accept()
        decoder, asked = FrameDecoder(), list[RemotingCommand]()
        while len(asked) < 4:
            asked += decoder.feed(conn.recv(65536))
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in data(asked):
            conn.sendall(piece)
        conn.recv(1)  # until the load has ended
        conn.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    thread.join(10)
    listener.close()


def answers(asked: list[RemotingCommand]) -> bytes:
    return b"".join(encode(reply(one, ext={"a": "b"}, body=b"{}")) for one in asked)


@pytest.mark.parametrize("size", [1, 3, 7, 1000], ids=lambda size: f"pieces of {size}")
async def test_answers_are_found_in_any_chunking(size: int) -> None:
    def pieces(asked: list[RemotingCommand]) -> list[bytes]:
        whole = answers(asked)
        return [whole[at : at + size] for at in range(0, len(whole), size)]

    with answering(pieces) as address, closing(FrameLoad(Asked(1), [address], 1, 4)) as load:
        seen = await load.finish(10)
    assert (seen.operations, seen.received_bytes) == (4, 8)


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"\0\0\0\x08\0\0\0\x04nope", b"\0\0\0\x04\x01\0\0\0"],
    ids=["no frame", "no header", "another encoding"],
)
async def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with (
        answering(lambda _: [data]) as address,
        closing(FrameLoad(Asked(1), [address], 1, 4)) as load,
        pytest.raises(FrameError),
    ):
        await load.finish(10)


async def test_a_second_answer_to_a_request_ends_the_measurement() -> None:
    def twice(asked: list[RemotingCommand]) -> list[bytes]:
        return [answers([asked[0], asked[0]])]

    with (
        answering(twice) as address,
        closing(FrameLoad(Asked(1), [address], 1, 4)) as load,
        pytest.raises(FrameError, match="request 0, which is not under way"),
    ):
        await load.finish(10)


async def test_slots_share_connections_and_each_does_all_it_has_to() -> None:
    server = RemotingServer(lambda _conn, command: reply(command))
    port = await server.start("127.0.0.1", 0)
    work = Asked(50)
    try:
        load = await asyncio.to_thread(FrameLoad, work, [f"127.0.0.1:{port}"], 3, 4)
        with closing(load):
            seen = await load.finish(10)
    finally:
        await server.stop(0)
    assert work.asked == dict.fromkeys(range(12), 50)
    assert seen.operations == len(seen.latencies_s) == 600


async def test_a_refusal_ends_work_that_lets_none_go_by() -> None:
    def refuse(command: RemotingCommand) -> RemotingCommand:
        return reply(command, ResponseCode.CONTROLLER_NOT_LEADER, "another leads")

    server = RemotingServer(lambda _conn, command: refuse(command))
    port = await server.start("127.0.0.1", 0)
    try:
        with (
            closing(await asyncio.to_thread(FrameLoad, Asked(1), [f"127.0.0.1:{port}"], 1)) as load,
            pytest.raises(GantryError, match=r"refused 1 of 1.*NOT_LEADER: another leads"),
        ):
            await load.finish(10)
    finally:
        await server.stop(0)


async def test_a_paced_load_begins_what_is_due_and_no_more() -> None:
    server = RemotingServer(lambda _conn, command: reply(command))
    port = await server.start("127.0.0.1", 0)
    try:
        with closing(
            await asyncio.to_thread(FrameLoad, Asked(1_000_000), [f"127.0.0.1:{port}"], 4)
        ) as load:
            load.per_second = 200.0
            begun = perf_counter()
            seen = await load.window(0.0, 0.5)
            took_s = perf_counter() - begun
            assert load.open == 0
    finally:
        await server.stop(0)
    assert 0 < seen.operations <= 200 * took_s + 1


class Echoed(Asked):
    """The same with bodies of many sizes, which come back."""

    sizes = (0, 1, 1000, 16_384, 100_000, 300_000)

    def __init__(self, each: int) -> None:
        super().__init__(each)
        self.got: Counter[int] = Counter()

    def first(self, slot: int) -> bytes | None:
        if self.asked[slot] == self.each:
            return None
        size = self.sizes[self.asked[slot] % len(self.sizes)]
        self.asked[slot] += 1
        command = request(1, body=bytes([slot]) * size)
        command.opaque = slot
        return encode(command)

    def following(self, slot: int, _reply: Reply, body: memoryview) -> bytes | None:
        assert bytes(body) == bytes([slot]) * len(body)
        self.got[len(body)] += 1
        return self.first(slot)


async def test_tls_brings_what_plain_connections_do(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = RemotingServer(
        lambda _conn, command: reply(command, body=command.body), tls=serving(authority.issue("me"))
    )
    port = await server.start("127.0.0.1", 0)
    work = Echoed(12)
    try:
        load = await asyncio.to_thread(
            FrameLoad, work, [f"127.0.0.1:{port}"], 3, 4, trust(authority.file, "me")
        )
        with closing(load):
            seen = await load.finish(30)
    finally:
        await server.stop(0)
    assert work.got == dict.fromkeys(Echoed.sizes, 2 * 12)
    assert seen.received_bytes == 2 * 12 * sum(Echoed.sizes)


@pytest.mark.parametrize("name", ["another", None], ids=["name", "authority"])
async def test_a_certificate_that_is_not_believed_is_no_connection(
    tmp_path: Path, name: str | None
) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    server = RemotingServer(lambda _conn, command: reply(command), tls=serving(other.issue("me")))
    port = await server.start("127.0.0.1", 0)
    believed = trust(other.file, name) if name else trust(authority.file, "me")
    try:
        with pytest.raises(GantryError, match=r"No TLS connection to 127.*certificate verify"):
            await asyncio.to_thread(FrameLoad, Asked(1), [f"127.0.0.1:{port}"], 1, 1, believed)
    finally:
        await server.stop(0)


async def test_a_connection_that_speaks_no_tls_is_none(tmp_path: Path) -> None:
    server = RemotingServer(lambda _conn, command: reply(command))
    port = await server.start("127.0.0.1", 0)
    believed = trust(Authority(tmp_path).file, "me")
    try:
        with pytest.raises(GantryError, match=r"No TLS connection to 127"):
            await asyncio.to_thread(FrameLoad, Asked(1), [f"127.0.0.1:{port}"], 1, 1, believed)
    finally:
        await server.stop(0)


class Waking(Asked):
    """Slot 0 asks once; its answer wakes two slots of its own, of which one asks once more."""

    def first(self, slot: int) -> bytes | None:
        return super().first(slot) if slot == 0 or (self.asked[0] and slot == 2) else None

    def following(self, slot: int, _reply: Reply, _body: memoryview) -> bytes | None:
        if slot == 0:
            self.woken = [1, 2]
        return None


async def test_slots_that_an_answer_wakes_ask_on_the_same_connection() -> None:
    server = RemotingServer(lambda _conn, command: reply(command))
    port = await server.start("127.0.0.1", 0)
    work = Waking(1)
    try:
        load = await asyncio.to_thread(FrameLoad, work, [f"127.0.0.1:{port}"], 1, 3)
        with closing(load):
            seen = await load.finish(10)
    finally:
        await server.stop(0)
    assert work.asked == {0: 1, 2: 1}
    assert seen.operations == 2


class Ending(Asked):
    """The first answer is all that is waited for."""

    def following(self, _slot: int, _reply: Reply, _body: memoryview) -> None:
        self.ended = True


async def test_work_that_has_ended_waits_for_no_other_answer() -> None:
    server = RemotingServer(lambda _conn, command: None if command.opaque else reply(command))
    port = await server.start("127.0.0.1", 0)
    try:
        load = await asyncio.to_thread(FrameLoad, Ending(1), [f"127.0.0.1:{port}"], 2)
        with closing(load):
            seen = await load.finish(60)
            assert (seen.operations, load.open) == (1, 1)
    finally:
        await server.stop(0)
