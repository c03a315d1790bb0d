"""Connections by TLS that are dialled, and those that are passed on, over real sockets."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import ConfigError, ConnectError
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.server import Connection
from gantry_protocol.remoting.splice import Budget, Splice
from gantry_protocol.tls import contexts
from gantry_protocol.tls.settings import TlsMode
from support.certificates import Authority, Pair
from support.tls_peers import Serve, TlsPeer, dialling, serving
from support.wire import echo, until

MIB = 1024 * 1024


async def test_dialler_believes_certificates_of_its_authority(
    serve: Serve, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    _, port = await serve(echo, tls=serving(pair, tls_mode=TlsMode.ENFORCING))
    address = f"127.0.0.1:{port}"
    client = await RemotingClient(tls=dialling(authority)).connect(address)
    assert (await client.call(request(10, body=b"x"))).body == b"x"
    client.close()
    stranger = dialling(Authority(tmp_path / "other"))
    with pytest.raises(ConnectError, match="tls_ca_file does not vouch for its certificate"):
        await RemotingClient(tls=stranger).connect(address)


async def test_dialler_may_expect_a_name(serve: Serve, authority: Authority, pair: Pair) -> None:
    _, port = await serve(echo, tls=serving(pair))
    address = f"127.0.0.1:{port}"
    named = dialling(authority, tls_server_name="brokers")
    client = await RemotingClient(tls=named).connect(address)
    client.close()
    other = dialling(authority, tls_server_name="bank")
    with pytest.raises(ConnectError, match="does not vouch"):
        await RemotingClient(tls=other).connect(address)


async def test_dialler_shows_its_certificate_where_one_is_demanded(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    _, port = await serve(echo, tls=serving(pair, tls_client_ca_file=authority.file))
    both = serving(pair, tls_ca_file=authority.file)
    client = await RemotingClient(tls=both).connect(f"127.0.0.1:{port}")
    assert (await client.call(request(10))).code == 0
    client.close()


async def test_only_a_permissive_dialler_goes_on_without_tls(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    _, port = await serve(echo)
    address = f"127.0.0.1:{port}"
    with pytest.raises(ConnectError, match=r"Cannot speak TLS with .* does not agree to TLS"):
        await RemotingClient(tls=dialling(authority)).connect(address)
    permissive = serving(pair, tls_ca_file=authority.file)
    client = await RemotingClient(tls=permissive).connect(address)
    assert (await client.call(request(10))).code == 0
    assert permissive.plain_dials == 1
    client.close()
    with pytest.raises(ConnectError) as error:  # port 1 serves nobody
        await RemotingClient(tls=permissive).connect("127.0.0.1:1")
    assert error.value.refused, "nobody listens there, whatever would be spoken"


async def test_permissive_dialler_goes_on_without_an_authority_it_could_use(
    serve: Serve,
    authority: Authority,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Secret without ca.crt, then one with another authority's; then the right one comes."""
    own = serving(pair)
    _, port = await serve(echo, tls=own)
    ca = tmp_path / "ca.crt"
    permissive = serving(pair, tls_ca_file=ca)
    permissive.load()

    async def asks() -> int:
        client = await RemotingClient(tls=permissive).connect(f"127.0.0.1:{port}")
        assert (await client.call(request(10))).code == 0
        client.close()
        return permissive.plain_dials

    assert await asks() == 0, "there is nothing to dial with"
    ca.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    assert await asks() == 1, "it is not believed"
    ca.write_text("nothing")
    monkeypatch.setattr(contexts, "LOOK_S", 0.0)
    assert await asks() == 2, "the last good one stays"
    ca.write_bytes(authority.file.read_bytes())
    assert await asks() == 2
    assert own.handshakes == 1


async def test_enforcing_process_does_not_start_without_its_authority(
    pair: Pair, tmp_path: Path
) -> None:
    enforcing = serving(pair, tls_mode=TlsMode.ENFORCING, tls_ca_file=tmp_path / "none")
    with pytest.raises(ConfigError, match="none cannot be read"):
        enforcing.load()


async def test_dialler_gives_up_in_time(authority: Authority) -> None:
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectError, match=r"did not accept in 0\.2 s"):
        await RemotingClient(tls=dialling(authority)).connect(f"127.0.0.1:{port}", 0.2)
    await gone.wait()  # a dialler that gives up leaves no connection behind
    server.close()
    await server.wait_closed()


class Owner:
    """A splice that leads to one master."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def freed(self, splice: Splice) -> None:
        self.lost.set()

    def ended(self, splice: Splice) -> None:
        self.lost.set()

    def refusal(self, asked: RemotingCommand, *, was_given: bool) -> RemotingCommand:
        return reply(asked, 1)


async def test_door_passes_on_through_tls(serve: Serve, authority: Authority, pair: Pair) -> None:
    """Client, door and master: both ways are TLS, and 4 MiB go through both ways."""
    owner = Owner()
    master, master_port = await serve(echo, tls=serving(pair, tls_mode=TlsMode.ENFORCING))
    both = serving(pair, tls_mode=TlsMode.ENFORCING, tls_ca_file=authority.file)

    def door(connection: Connection, command: RemotingCommand) -> None:
        connection.hold(command)
        splice = Splice(connection, owner, Budget(), tls=both)
        splice.lead_to(f"127.0.0.1:{master_port}")

    _, port = await serve(door, tls=both)
    body = struct.pack(">I", 7) * MIB
    async with await TlsPeer.shake(port, authority) as peer:
        peer.send(request(10, body=b"first"), request(10, body=body))
        first = await peer.receive()
        assert first.body == b"first"
        assert first.remark == peer.name, "the preamble names the client to the master"
        assert (await peer.receive()).body == body
    await until(lambda: not master.stats.connections)
