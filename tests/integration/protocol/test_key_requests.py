"""The quorum's key on a remoting connection: shown by both sides, once, before anything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import ConfigError, KeyRefused
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
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.key_requests import KeyRequests, show_key
from gantry_protocol.remoting.server import RemotingServer, not_supported
from support.patience import PATIENCE_S

ONE, OTHER = "the-first-quorum-key", "another-quorum-key"


def key(directory: Path, *lines: str) -> KeyFile:
    file = directory / "-".join(lines)
    file.write_text("\n".join(lines))
    return KeyFile(file)


class Harness:
    """A server that believes, and says on request whether it does."""

    def __init__(self, held: KeyFile) -> None:
        self.keys = KeyRequests(held)
        self.server = RemotingServer(self._handle)
        self.connections: list[Connection] = []

    def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.connections.append(connection)
        return self.keys.handle(connection, command)

    @property
    def believes(self) -> bool:
        return any(connection.believed for connection in self.connections)


@asynccontextmanager
async def harness(held: KeyFile) -> AsyncIterator[tuple[Harness, RemotingClient]]:
    made = Harness(held)
    port = await made.server.start("127.0.0.1", 0)
    client = await RemotingClient().connect(f"127.0.0.1:{port}")
    try:
        yield made, client
    finally:
        client.close()
        await made.server.stop()


async def test_who_cannot_read_its_key_leaves_no_connection_behind(tmp_path: Path) -> None:
    """Whoever tries again would open another one each time."""
    async with harness(key(tmp_path, ONE)) as (made, client):
        with pytest.raises(ConfigError):
            await show_key(client, KeyFile(tmp_path / "gone"))
        assert client.closed
        async with asyncio.timeout(PATIENCE_S):
            while made.server.connections:
                await asyncio.sleep(0.001)


async def test_both_have_the_key(tmp_path: Path) -> None:
    async with harness(key(tmp_path, OTHER, ONE)) as (made, client):
        await show_key(client, key(tmp_path, ONE))
        assert made.believes
        assert made.keys.refused == 0


async def test_nothing_is_said_without_one(tmp_path: Path) -> None:
    async with harness(key(tmp_path, ONE)) as (made, client):
        await show_key(client, NO_KEY)
        assert made.connections == []


async def test_another_key_ends_the_connection(tmp_path: Path) -> None:
    async with harness(key(tmp_path, ONE)) as (made, client):
        with pytest.raises(KeyRefused, match="does not believe this process"):
            await show_key(client, key(tmp_path, OTHER))
        assert client.closed
        assert not made.believes
        assert made.keys.refused == 1


async def test_a_server_that_asks_for_none_is_not_spoken_to(tmp_path: Path) -> None:
    async with harness(NO_KEY) as (made, client):
        with pytest.raises(KeyRefused, match="does not ask for the quorum's key"):
            await show_key(client, key(tmp_path, ONE))
        assert client.closed
        assert not made.believes


@pytest.mark.parametrize("shown", [b"", bytes(PROOF_BYTES), b"challenge"], ids=repr)
async def test_what_is_no_proof_is_refused_and_costs_the_nonces(
    tmp_path: Path, shown: bytes
) -> None:
    code = RequestCode.GANTRY_SHOW_KEY
    async with harness(key(tmp_path, ONE)) as (made, client):
        challenge = await client.call(request(code, body=b"n" * NONCE_BYTES))
        assert len(challenge.body) == NONCE_BYTES
        wrong = challenge.body if shown == b"challenge" else shown
        answer = await client.call(request(code, body=wrong))
        assert answer.code == ResponseCode.NO_PERMISSION
        nonces = Nonces(b"n" * NONCE_BYTES, challenge.body)
        late = prove(ONE.encode(), Purpose.CONTROL, Side.DIALLER, nonces)
        await client.call(request(code, body=late))
        assert not made.believes


async def test_a_proof_of_another_connection_is_none(tmp_path: Path) -> None:
    code = RequestCode.GANTRY_SHOW_KEY
    async with harness(key(tmp_path, ONE)) as (made, client):
        first = await client.call(request(code, body=b"n" * NONCE_BYTES))
        seen = Nonces(b"n" * NONCE_BYTES, first.body)
        proof = prove(ONE.encode(), Purpose.CONTROL, Side.DIALLER, seen)
        again = await RemotingClient().connect(client.address)
        await again.call(request(code, body=b"n" * NONCE_BYTES))
        answer = await again.call(request(code, body=proof))
        again.close()
        assert answer.code == ResponseCode.NO_PERMISSION
        assert not made.believes


@pytest.mark.parametrize("forged", ["nothing", "the proof sent back", "not supported"])
async def test_an_impostor_is_noticed(tmp_path: Path, forged: str) -> None:
    def impostor(_: Connection, command: RemotingCommand) -> RemotingCommand:
        if forged == "not supported":
            return not_supported(command)
        if len(command.body) == NONCE_BYTES and not asked:
            asked.append(command.body)
            return reply(command, body=command.body)
        return reply(command, body=command.body if forged == "the proof sent back" else b"")

    asked: list[bytes] = []
    server = RemotingServer(impostor)
    port = await server.start("127.0.0.1", 0)
    client = await RemotingClient().connect(f"127.0.0.1:{port}")
    with pytest.raises(KeyRefused):
        async with asyncio.timeout(PATIENCE_S):
            await show_key(client, key(tmp_path, ONE))
    assert client.closed
    await server.stop()
