"""A server with further ports, each with its own TLS, over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_protocol.command import request
from gantry_protocol.errors import PortInUseError
from gantry_protocol.tls.listeners import ListenerChoice, ListenerTls
from gantry_protocol.tls.process import NO_TLS
from gantry_protocol.tls.settings import TlsMode, TlsSettings
from support.certificates import Authority, Pair
from support.tls_peers import Serve, TlsPeer
from support.wire import WirePeer, echo, until


def at(directory: Path, mode: TlsMode = TlsMode.ENFORCING) -> ListenerTls:
    return ListenerTls("outside", ListenerChoice(mode, directory), TlsSettings())


async def test_ports_have_their_own_tls_and_all_else_in_common(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    server, port = await serve(echo)
    own = at(pair.cert.parent)
    further = await server.listen_also("127.0.0.1", 0, own)
    plain = await server.listen_also("127.0.0.1", 0, NO_TLS)
    async with (
        await WirePeer.connect(port) as first,
        await WirePeer.connect(plain) as second,
        await TlsPeer.shake(further, authority) as third,
    ):
        for peer in (first, second, third):
            peer.send(request(10))
            assert (await peer.receive()).remark == peer.name
        assert server.stats.connections == 3
    async with await WirePeer.connect(further) as refused:
        refused.send(request(10))
        assert await refused.ended()
    assert (own.handshakes, own.plain_refused) == (1, 1)
    with pytest.raises(PortInUseError):
        await server.listen_also("127.0.0.1", further, own)
    await until(lambda: not server.stats.connections)
    await server.stop_listening()
    for gone in (port, further, plain):
        with pytest.raises(OSError, match=r"."):
            await WirePeer.connect(gone)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_without_a_certificate_only_handshakes_end(
    serve: Serve, authority: Authority, pair: Pair, tmp_path: Path, mode: TlsMode
) -> None:
    server, port = await serve(echo)
    own = at(tmp_path / "late", mode)
    own.load()
    further = await server.listen_also("127.0.0.1", 0, own)
    with pytest.raises(ConnectionError):
        await TlsPeer.shake(further, authority)
    assert own.handshake_failures == 1
    async with await WirePeer.connect(further) as plain:
        plain.send(request(10))
        if mode is TlsMode.ENFORCING:
            assert await plain.ended()
        else:
            assert (await plain.receive()).code == 0
    async with await WirePeer.connect(port) as inside:
        inside.send(request(10))
        assert (await inside.receive()).code == 0
    (tmp_path / "late").mkdir()
    pair.cert.rename(tmp_path / "late" / "tls.crt")
    pair.key.rename(tmp_path / "late" / "tls.key")
    async with await TlsPeer.shake(further, authority) as secure:
        secure.send(request(10))
        assert (await secure.receive()).code == 0
    await until(lambda: not server.stats.connections)
    assert server.limits.open == 0
