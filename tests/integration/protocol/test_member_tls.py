"""Ports between members over real sockets, on both event loops: bytes in bulk, and who hears them.

Hostile members are in ``tests/unit/protocol/member_tls``; here is what needs sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import ConnectError, MemberRefused
from gantry_protocol.key_gate import KeyGate, dial
from gantry_protocol.member_tls.mixed import MixedPort, names_of
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.member_tls.process import MemberTls
from gantry_protocol.quorum_key import KeyFile, Purpose, write_key
from gantry_protocol.remoting.client import RemotingClient
from support.certificates import MemberAuthority
from support.member_pipe import Impostor
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from gantry_protocol.remoting.server import Connection
    from support.tls_peers import Serve

MIB = 1024 * 1024
CONTROLLER = "gantry://mq/controller"
BROKER = "gantry://mq/broker/prod/orders"
Keys = Callable[..., KeyFile]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> MemberAuthority:
    return MemberAuthority(tmp_path_factory.mktemp("members"))


@pytest.fixture
def keys(members: MemberAuthority, tmp_path: Path) -> Keys:
    """The key of a quorum, with the certificate of one of its members."""
    file = write_key(tmp_path / "key")

    def make(uri: str | None, mode: str = "enforcing", *, is_keyed: bool = True) -> KeyFile:
        own = file if is_keyed else None
        if uri is None:
            return KeyFile(own)
        name = uri.replace("/", "-").replace(":", "")
        return KeyFile(own, MemberTls(members.settings(name, uri, mode=mode)))

    return make


@asynccontextmanager
async def port_of(
    key: KeyFile,
) -> AsyncIterator[tuple[int, asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    """A port of Raft, and the connections behind it."""
    came: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    def behind() -> asyncio.Protocol:
        reader = asyncio.StreamReader()
        return asyncio.StreamReaderProtocol(reader, lambda *pair: came.put_nowait(pair))

    gate = KeyGate(key, Purpose.RAFT, behind)
    server = await asyncio.get_running_loop().create_server(gate, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield server.sockets[0].getsockname()[1], came
    finally:
        server.close()
        gate.close()


async def call(port: int, key: KeyFile) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = await dial(lambda: protocol, "127.0.0.1", port, key, Purpose.RAFT)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_bytes_in_bulk_go_both_ways_and_are_held_back(keys: Keys, *, is_keyed: bool) -> None:
    """8 MiB each way, of which neither side reads any before both have written."""
    async with port_of(keys(CONTROLLER, is_keyed=is_keyed)) as (port, came):
        sides = [await call(port, keys(CONTROLLER, is_keyed=is_keyed)), await came.get()]
        bodies = [bytes([number]) * (8 * MIB) for number in range(2)]

        async def talk(number: int) -> bytes:
            reader, writer = sides[number]
            writer.write(bodies[number][:MIB])
            for at in range(MIB, 8 * MIB, MIB):
                writer.writelines([bodies[number][at : at + MIB]])
            assert writer.transport.get_write_buffer_size() > 0
            drained = asyncio.create_task(writer.drain())
            found = await reader.readexactly(8 * MIB)
            await drained
            return found

        assert await asyncio.gather(talk(0), talk(1)) == bodies[::-1]
        sides[0][1].close()
        assert await sides[1][0].read() == b""
        sides[1][1].close()


@pytest.mark.parametrize(
    ("listener", "dialler", "by_tls", "is_keyed"),
    [
        (None, "permissive", False, True),  # what is behind tells what is no TLS; here it is a gate
        *(
            (*modes, is_keyed)
            for modes in (
                ("permissive", None, False),
                ("permissive", "permissive", True),
                ("permissive", "enforcing", True),
                ("enforcing", "permissive", True),
            )
            for is_keyed in (True, False)
        ),
    ],
)
async def test_permissive_members_reach_all(
    keys: Keys, listener: str | None, dialler: str | None, *, by_tls: bool, is_keyed: bool
) -> None:
    made = [
        keys(None if mode is None else CONTROLLER, mode or "", is_keyed=is_keyed)
        for mode in (listener, dialler)
    ]
    async with port_of(made[0]) as (port, came):
        _, writer = await call(port, made[1])
        writer.write(b"here I am")
        reader, other = await came.get()
        assert await reader.readexactly(9) == b"here I am"
        assert made[0].tls.handshakes == by_tls
        writer.close()
        other.close()


async def test_permissive_member_goes_on_while_a_certificate_has_ended(
    keys: Keys, members: MemberAuthority, tmp_path: Path
) -> None:
    """Its own, which nobody believes; and that of the port that it dials."""
    ended = members.settings("ended", CONTROLLER, mode="permissive", ends=timedelta(hours=-1))
    good, old = keys(CONTROLLER, "permissive"), KeyFile(tmp_path / "key", MemberTls(ended))
    for listener, dialler in ((good, old), (old, good)):
        async with port_of(listener) as (port, came):
            _, writer = await call(port, dialler)
            _, other = await came.get()
            writer.close()
            other.close()
            assert dialler.tls.plain_dials == 1
    async with port_of(keys(CONTROLLER)) as (port, _):
        with pytest.raises(ConnectError):
            await call(port, old)


async def test_nobody_who_listens_is_told_from_who_speaks_no_tls(keys: Keys) -> None:
    """A port that is closed is evidence that a process is gone, also for a permissive member."""
    for mode in ("permissive", "enforcing"):
        with pytest.raises(ConnectionRefusedError):
            await call(1, keys(CONTROLLER, mode))


# ---- the controllers' port


def who(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Answers with the names of the member that asks."""
    return reply(command, body=str(names_of(connection.attrs)).encode())


async def test_controllers_port_knows_members_and_serves_all(
    serve: Serve, keys: Keys, members: MemberAuthority
) -> None:
    own = keys(CONTROLLER).tls
    expected = (MemberName(MemberKind.CONTROLLER), MemberName(MemberKind.BROKER))
    _, port = await serve(who, tls=MixedPort(own, expected))
    for tls, told in ((keys(None).tls, b"None"), (keys(BROKER).tls, BROKER.encode())):
        client = await RemotingClient(member_tls=tls).connect(f"127.0.0.1:{port}")
        assert (await client.call(request(10))).body == told
        client.close()
    front = Impostor(members.issue("front", "gantry://mq/front/prod"), members.file)
    with pytest.raises(MemberRefused, match=r"it says: its certificate is for gantry://mq/front"):
        await RemotingClient(member_tls=front).connect(f"127.0.0.1:{port}")
    assert own.refused["name"] == 1


async def test_member_tells_nothing_to_a_controllers_port_that_is_none(
    serve: Serve, keys: Keys
) -> None:
    _, port = await serve(who)
    with pytest.raises(MemberRefused, match="it ended the connection amid the handshake"):
        await RemotingClient(member_tls=keys(BROKER).tls).connect(f"127.0.0.1:{port}")
    permissive = keys(BROKER, "permissive").tls
    client = await RemotingClient(member_tls=permissive).connect(f"127.0.0.1:{port}")
    assert (await client.call(request(10))).body == b"None"
    client.close()
    broker = keys("gantry://mq/broker/prod/bills").tls
    everybody = (MemberName(MemberKind.BROKER),)
    _, port = await serve(who, tls=MixedPort(broker, everybody))
    with pytest.raises(MemberRefused, match="and not for gantry://mq/controller"):
        await RemotingClient(member_tls=keys(BROKER).tls).connect(f"127.0.0.1:{port}")
