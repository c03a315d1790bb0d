"""The gate of a port: who shows the key comes through, nobody else reaches what is behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from gantry_protocol import key_gate
from gantry_protocol.errors import KeyRefused
from gantry_protocol.key_gate import MAGIC, VERSION, KeyGate, dial
from gantry_protocol.quorum_key import (
    NO_KEY,
    NONCE_BYTES,
    PROOF_BYTES,
    KeyFile,
    Nonces,
    Purpose,
    Side,
    prove,
)
from support.patience import PATIENCE_S

ONE, OTHER = "the-first-quorum-key", "another-quorum-key"
HEAD = MAGIC + bytes([VERSION])


class Inner(asyncio.Protocol):
    """What is behind a gate: says "hello" and sends everything back."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.closed = asyncio.Event()
        self.has_heard = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.has_heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class Door:
    """A listening gate, and the protocols that were made behind it."""

    def __init__(self, key: KeyFile) -> None:
        self.behind: list[Inner] = []
        self.gate = KeyGate(key, Purpose.RAFT, self._made)
        self.port = 0

    def _made(self) -> Inner:
        self.behind.append(Inner())
        return self.behind[-1]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Door]:
        server = await asyncio.get_running_loop().create_server(self.gate, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield self
        finally:
            server.close()
            self.gate.close()
            for inner in self.behind:
                inner.transport.abort()


def key(directory: Path, *lines: str) -> KeyFile:
    file = directory / "-".join(lines)
    file.write_text("\n".join(lines))
    return KeyFile(file)


async def come(door: Door, shown: KeyFile, purpose: Purpose = Purpose.RAFT) -> Inner:
    inner = Inner()
    await dial(lambda: inner, "127.0.0.1", door.port, shown, purpose)
    return inner


async def converse(door: Door, inner: Inner) -> None:
    inner.transport.write(b"here I am")
    while not door.behind:
        await asyncio.sleep(0)
    await door.behind[-1].has_heard.wait()
    assert bytes(door.behind[-1].heard) == b"here I am"
    door.behind[-1].transport.write(b"and I")
    await inner.has_heard.wait()
    assert bytes(inner.heard) == b"and I"
    inner.transport.abort()


async def test_both_have_the_key(tmp_path: Path) -> None:
    async with Door(key(tmp_path, ONE)).open() as door:
        await converse(door, await come(door, key(tmp_path, ONE)))
        assert door.gate.refused == 0
        assert len(door.gate) == 0


async def test_neither_has_one() -> None:
    async with Door(NO_KEY).open() as door:
        await converse(door, await come(door, NO_KEY))


@pytest.mark.parametrize(
    ("listener", "dialler"),
    [((ONE, OTHER), (OTHER,)), ((OTHER, ONE), (OTHER, ONE)), ((ONE,), (ONE, OTHER))],
    ids=["the old one is believed", "both have both", "the new one is shown by nobody else"],
)
async def test_a_key_is_replaced(
    tmp_path: Path, listener: tuple[str, ...], dialler: tuple[str, ...]
) -> None:
    async with Door(key(tmp_path, *listener)).open() as door:
        await converse(door, await come(door, key(tmp_path, *dialler)))


async def test_the_file_is_read_for_each_connection(tmp_path: Path) -> None:
    held = key(tmp_path, ONE)
    async with Door(held).open() as door:
        await converse(door, await come(door, key(tmp_path, ONE, OTHER)))
        assert held.file is not None
        held.file.write_text(OTHER)
        with pytest.raises(KeyRefused):
            await come(door, key(tmp_path, ONE, OTHER))
        held.file.unlink()
        with pytest.raises(KeyRefused):
            await come(door, key(tmp_path, OTHER, ONE))
        assert door.gate.refused == 2


async def test_another_key_is_refused_and_both_sides_say_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with Door(key(tmp_path, ONE)).open() as door:
        with pytest.raises(KeyRefused, match="does not believe the quorum key of this process"):
            await come(door, key(tmp_path, OTHER))
        assert door.gate.refused == 1
        assert door.behind == []


async def test_a_proof_for_another_port_is_refused(tmp_path: Path) -> None:
    async with Door(key(tmp_path, ONE)).open() as door:
        with pytest.raises(KeyRefused, match="does not believe"):
            await come(door, key(tmp_path, ONE), Purpose.STORE)
        assert door.behind == []


async def test_a_dialler_without_a_key_reaches_nothing(tmp_path: Path) -> None:
    async with Door(key(tmp_path, ONE)).open() as door:
        inner = await come(door, NO_KEY)
        inner.transport.write(b"GNHA\x01 a hello of replication")
        await inner.closed.wait()
        assert not inner.heard
        assert door.behind == []
        assert door.gate.refused == 1


async def test_a_dialler_with_a_key_says_nothing_to_a_listener_without_one(tmp_path: Path) -> None:
    async with Door(NO_KEY).open() as door:
        coming = asyncio.create_task(come(door, key(tmp_path, ONE)))
        while not (door.behind and hasattr(door.behind[0], "transport")):
            await asyncio.sleep(0)
        door.behind[0].transport.write(b"welcome, whoever you are")
        with pytest.raises(KeyRefused, match="asks for no quorum key"):
            await coming


# ---- impostors, byte by byte

Forge = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _nothing_shown(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"n" * NONCE_BYTES)
    await reader.readexactly(len(HEAD) + NONCE_BYTES)
    writer.write(bytes(PROOF_BYTES))


async def _challenge_sent_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"n" * NONCE_BYTES)
    greeting = await reader.readexactly(len(HEAD) + NONCE_BYTES)
    writer.write(greeting[-NONCE_BYTES:])


async def _own_nonces_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"n" * NONCE_BYTES)
    await reader.readexactly(len(HEAD) + NONCE_BYTES)
    mine = Nonces(b"n" * NONCE_BYTES, b"n" * NONCE_BYTES)
    writer.write(prove(ONE.encode(), Purpose.RAFT, Side.DIALLER, mine))


async def _made_with_the_key_for_the_other_side(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(HEAD + b"n" * NONCE_BYTES)
    greeting = await reader.readexactly(len(HEAD) + NONCE_BYTES)
    nonces = Nonces(b"n" * NONCE_BYTES, greeting[-NONCE_BYTES:])
    writer.write(prove(ONE.encode(), Purpose.RAFT, Side.LISTENER, nonces))


@pytest.mark.parametrize(
    "forge",
    [
        _nothing_shown,
        _challenge_sent_back,
        _own_nonces_twice,
        _made_with_the_key_for_the_other_side,
    ],
)
async def test_a_forged_dialler_reaches_nothing(tmp_path: Path, forge: Forge) -> None:
    async with Door(key(tmp_path, ONE)).open() as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        await forge(reader, writer)
        assert (await reader.read())[-1:] == b"\x00"
        assert door.behind == []
        assert door.gate.refused == 1
        writer.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda nonce, proof: b"\x01" + bytes(PROOF_BYTES), id="nothing shown"),
        pytest.param(lambda nonce, proof: b"\x01" + proof, id="the dialler's own proof sent back"),
        pytest.param(lambda nonce, proof: b"\x01" + nonce, id="the dialler's nonce sent back"),
        pytest.param(lambda nonce, proof: b"\x01", id="believed without a proof"),
    ],
)
async def test_a_forged_listener_hears_nothing(
    tmp_path: Path, answer: Callable[[bytes, bytes], bytes]
) -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = await reader.readexactly(len(HEAD) + NONCE_BYTES)
        nonce = greeting[-NONCE_BYTES:]
        writer.write(HEAD + nonce)  # the same nonce for both sides
        proof = await reader.readexactly(PROOF_BYTES)
        writer.write(answer(nonce, proof))
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    inner = Inner()
    with pytest.raises(KeyRefused):
        async with asyncio.timeout(PATIENCE_S):
            await dial(lambda: inner, "127.0.0.1", port, key(tmp_path, ONE), Purpose.RAFT)
    assert not hasattr(inner, "transport"), "what is behind the gate was told of a connection"
    server.close()


async def test_who_shows_nothing_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_gate, "SHOW_WITHIN_S", 0.01)
    async with Door(key(tmp_path, ONE)).open() as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(MAGIC[:2])
        assert await reader.read() == b""
        assert door.gate.refused == 1
        writer.close()


async def test_strangers_do_not_keep_out_who_has_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_gate, "STRANGERS_MAX", 2)
    async with Door(key(tmp_path, ONE)).open() as door:
        strangers = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(5)]
        await converse(door, await come(door, key(tmp_path, ONE)))
        assert len(door.gate) <= 2
        for _, writer in strangers:
            writer.transport.abort()


async def test_another_version_is_told_so(tmp_path: Path) -> None:
    async with Door(key(tmp_path, ONE)).open() as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(MAGIC + b"\x09" + bytes(NONCE_BYTES))
        assert await reader.read() == HEAD
        assert door.behind == []
        writer.close()
