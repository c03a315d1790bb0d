"""Listening sockets and their errors."""

import asyncio

import pytest
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.frame import encode
from gantry_protocol.process import listening
from gantry_protocol.process.listening import bind
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer


def test_a_port_in_use_is_named() -> None:
    with bind("127.0.0.1", 0, purpose="HTTP") as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUseError) as refusal:
            bind("127.0.0.1", port, purpose="HTTP")
    assert refusal.value.exit_code == 75
    assert str(refusal.value) == (
        f"Port {port} on 127.0.0.1 is in use, so HTTP cannot be served at 127.0.0.1:{port}; "
        f"stop the other process or choose another port."
    )


def test_a_foreign_address_is_an_operating_error() -> None:
    with pytest.raises(GantryError, match=r"Cannot listen for HTTP at 192\.0\.2\.1:0"):
        bind("192.0.2.1", 0, purpose="HTTP")


@pytest.mark.parametrize(
    ("address", "is_own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("", False)],
)
def test_a_loopback_address_is_known(address: str, is_own: bool) -> None:
    assert listening.is_loopback(address) is is_own


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "127.0.0.2"])
def test_what_covers_the_loopback_address_has_none_beside_it(host: str) -> None:
    assert listening.bind_inside(host, 0, purpose="HTTP") is None


def test_a_pods_address_has_the_same_port_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "is_loopback", lambda _: False)
    with bind("127.0.0.2", 0, purpose="HTTP") as first:
        port = first.getsockname()[1]
        inside = listening.bind_inside("127.0.0.2", port, purpose="HTTP")
        assert inside is not None
        with inside:
            assert inside.getsockname() == ("127.0.0.1", port)
            assert listening.bind_inside("127.0.0.2", port, purpose="HTTP") is None, "it is taken"


async def test_clients_are_served_through_a_forwarded_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server forwards to the pod's loopback address, and 127.0.0.2 stands for the pod's."""
    monkeypatch.setattr(listening, "is_loopback", lambda address: address == "127.0.0.1")
    heard = asyncio.Queue[int]()

    def handler(_: Connection, command: RemotingCommand) -> None:
        heard.put_nowait(command.opaque)

    server = RemotingServer(handler)
    port = await server.start("127.0.0.2", 0)
    for opaque, host in enumerate(("127.0.0.1", "127.0.0.2")):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(encode(RemotingCommand(code=105, opaque=opaque)))
        assert await heard.get() == opaque
        writer.close()
    await server.stop()
    for host in ("127.0.0.1", "127.0.0.2"):
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection(host, port)
