"""TLS and plain connections on one port, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.remoting.limits import ConnectionLimits
from gantry_protocol.remoting.server import Connection
from gantry_protocol.remoting.tls_transport import Opening, opening_of
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.tls import contexts
from gantry_protocol.tls.layer import RECORDS_MAX
from gantry_protocol.tls.settings import TlsMode
from support.certificates import Authority, Pair
from support.tls_peers import Serve, TlsPeer, serving
from support.wire import WirePeer, echo, until

MIB = 1024 * 1024
V1 = b"PROXY TCP4 10.9.8.7 10.0.0.1 4321 10911\r\n"


async def test_plain_and_tls_are_served_on_one_port(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    tls = serving(pair)
    server, port = await serve(echo, tls=tls)
    async with (
        await WirePeer.connect(port) as plain,
        await TlsPeer.shake(port, authority) as secure,
    ):
        for peer in (plain, secure, plain, secure):
            peer.send(request(10, {"a": "b"}, b"body"))
            answer = await peer.receive()
            assert (answer.ext, answer.body) == ({"a": "b"}, b"body")
            assert answer.remark == peer.name
        assert secure.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert server.stats.connections == 2
    await until(lambda: not server.stats.connections)
    assert (tls.handshakes, tls.handshake_failures, tls.plain_refused) == (1, 0, 0)


async def test_enforced_tls_refuses_plain_connections(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    tls = serving(pair, tls_mode=TlsMode.ENFORCING)
    heard: list[int] = []
    server, port = await serve(
        lambda connection, command: heard.append(command.code) or reply(command), tls=tls
    )
    for beginning in (encode(request(10)), V1 + encode(request(10)), b"GET / HTTP/1.1\r\n\r\n"):
        peer = await WirePeer.connect(port)
        peer.writer.write(beginning)
        assert await peer.ended()
        await peer.close()
    async with await TlsPeer.shake(port, authority) as secure:
        secure.send(request(11))
        assert (await secure.receive()).code == 0
    assert heard == [11]
    assert tls.plain_refused == 3
    await until(lambda: not server.stats.connections)
    assert server.limits.open == 0


async def test_disabled_tls_is_no_tls(serve: Serve, authority: Authority, pair: Pair) -> None:
    server, port = await serve(echo, tls=serving(pair, tls_mode=TlsMode.DISABLED))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await TlsPeer.shake(port, authority)
    assert server.stats.malformed == 1
    async with await WirePeer.connect(port) as plain:
        plain.send(request(10))
        assert (await plain.receive()).code == 0


async def test_versions_before_1_2_are_refused(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    tls = serving(pair)
    server, port = await serve(echo, tls=tls)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", port, ssl=old)
    await until(lambda: tls.handshake_failures == 1)
    async with await TlsPeer.shake(port, authority, maximum_version=ssl.TLSVersion.TLSv1_2) as peer:
        peer.send(request(10))
        assert (await peer.receive()).code == 0
    await until(lambda: not server.stats.connections)


async def test_silence_and_half_a_handshake_are_cut_in_time(
    serve: Serve, pair: Pair, authority: Authority
) -> None:
    tls = serving(pair)
    server, port = await serve(echo, tls=tls, frame_within_s=0.3)
    silent, half, preamble = [await WirePeer.connect(port) for _ in range(3)]
    half.writer.write(hello()[:40])
    preamble.writer.write(V1[:10])
    shaken = await TlsPeer.shake(port, authority)  # and then says nothing
    for peer in (silent, half, preamble, shaken):
        assert await peer.ended()
        await peer.close()
    await until(lambda: not server.stats.connections)
    assert server.stats.stalled_closed == 4
    assert tls.handshake_failures == 1
    assert server.limits.open == 0


async def test_connections_in_handshake_count(serve: Serve, pair: Pair) -> None:
    limits = ConnectionLimits(total=3)
    server, port = await serve(echo, tls=serving(pair), limits=limits)
    peers = [await WirePeer.connect(port) for _ in range(3)]
    for peer in peers:
        peer.writer.write(hello()[:40])
    await until(lambda: limits.open == 3)
    late = await WirePeer.connect(port)
    late.writer.write(hello())
    assert await late.ended()
    assert server.stats.refused == 1
    for peer in (*peers, late):
        await peer.close()
    await until(lambda: limits.open == 0)


@pytest.mark.parametrize(
    "rest", [b"\x16" * 600, b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\x16\0"]
)
async def test_garbage_after_the_first_byte_ends_the_connection(
    serve: Serve, pair: Pair, authority: Authority, rest: bytes
) -> None:
    tls = serving(pair)
    server, port = await serve(echo, tls=tls)
    peer = await WirePeer.connect(port)
    peer.writer.write(rest)
    peer.writer.write_eof()
    async with asyncio.timeout(30):
        said = await peer.reader.read()
    assert not said or said[0] == 21, "an alert at most"
    await peer.close()
    await until(lambda: not server.stats.connections)
    assert (tls.handshakes, tls.handshake_failures) == (0, 1)
    assert server.stats.requests == 0


async def test_garbage_amid_tls_ends_the_connection(
    serve: Serve, pair: Pair, authority: Authority
) -> None:
    server, port = await serve(echo, tls=serving(pair))
    raw = await WirePeer.connect(port)
    secure, _, outgoing = await shake(raw, authority)
    secure.write(encode(request(10)))
    raw.writer.write(outgoing.read())
    await until(lambda: server.stats.requests == 1)
    secure.write(encode(request(10)))
    record = bytearray(outgoing.read())
    record[-1] ^= 1
    raw.writer.write(record)
    await until(lambda: not server.stats.connections)
    assert server.stats.requests == 1, "what was altered on its way is not served"
    await raw.close()


async def test_new_certificate_is_shown_without_a_restart(
    serve: Serve, authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "LOOK_S", 0.0)
    tls = serving(pair)
    _, port = await serve(echo, tls=tls)

    async def shown() -> int:
        async with await TlsPeer.shake(port, authority) as peer:
            peer.send(request(10))
            await peer.receive()
            return hash(peer.writer.get_extra_info("ssl_object").getpeercert(binary_form=True))

    first = await shown()
    async with await TlsPeer.shake(port, authority) as old:
        authority.issue("brokers", into=pair)
        second = await shown()
        assert second != first
        pair.key.write_text("no key")
        assert await shown() == second
        assert tls.reload_failures == 1
        authority.issue("brokers", into=pair)
        assert await shown() not in (first, second)
        old.send(request(10))
        assert (await old.receive()).code == 0, "connections that are there stay"


async def test_client_certificates_are_demanded(
    serve: Serve, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    clients = Authority(tmp_path / "clients", "clients")
    tls = serving(pair, tls_client_ca_file=clients.file)
    server, port = await serve(echo, tls=tls)
    known, foreign = clients.issue("app"), authority.issue("app")
    async with await TlsPeer.shake(port, authority, cert=known.cert, key=known.key) as peer:
        peer.send(request(10))
        assert (await peer.receive()).code == 0

    async def asked(**more: Any) -> None:
        """A client of TLS 1.3 hears of it only when it reads."""
        async with await TlsPeer.shake(port, authority, **more) as peer:
            peer.send(request(10))
            await peer.receive()

    for more in ({}, {"cert": foreign.cert, "key": foreign.key}):
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            await asked(**more)
    await until(lambda: not server.stats.connections)
    assert (tls.handshakes, tls.handshake_failures) == (1, 2)
    assert server.stats.requests == 1


async def test_large_bodies_travel_both_ways(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    server, port = await serve(echo, tls=serving(pair))
    body = bytes(range(256)) * (4 * MIB // 256)
    async with await TlsPeer.shake(port, authority) as peer:
        peer.send(*[request(10, body=body)] * 3)
        for _ in range(3):
            assert (await peer.receive()).body == body
    await until(lambda: not server.stats.connections)
    assert server.stats.partial_bytes == server.stats.unread_bytes == 0


async def test_peer_that_does_not_read_is_not_served_until_it_does(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    server, port = await serve(
        lambda connection, command: reply(command, body=bytes(MIB)), tls=serving(pair)
    )
    async with await TlsPeer.shake(port, authority) as peer:
        peer.send(*[request(11)] * 64)
        await until(lambda: server.stats.unread_bytes > MIB)
        await asyncio.sleep(0.2)
        assert server.stats.requests < 64, "what nobody reads is not made"
        assert server.stats.unread_bytes < 8 * MIB
        for _ in range(64):
            assert len((await peer.receive()).body) == MIB


async def test_peer_that_never_reads_is_cut(serve: Serve, authority: Authority, pair: Pair) -> None:
    server, port = await serve(
        lambda connection, command: reply(command, body=bytes(4 * MIB)),
        tls=serving(pair),
        max_stuck_s=0.3,
    )
    peer = await TlsPeer.shake(port, authority)
    peer.writer.transport.pause_reading()
    peer.send(*[request(11)] * 8)
    await until(lambda: server.stats.slow_closed == 1)
    await until(lambda: not server.stats.connections)
    peer.writer.transport.abort()


async def test_fragments_of_one_byte_are_served(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    """A handshake and a request come byte by byte, and each byte of the request is a record."""
    _, port = await serve(echo, tls=serving(pair))
    raw = await WirePeer.connect(port)
    raw.writer.get_extra_info("socket").setsockopt(6, 1, 1)  # TCP_NODELAY

    async def drip(data: bytes) -> None:
        for byte in data:
            raw.writer.write(bytes([byte]))
            await raw.writer.drain()
            await asyncio.sleep(0)

    secure, incoming, outgoing = await shake(raw, authority, drip)
    for byte in encode(request(10, body=b"in pieces")):
        secure.write(bytes([byte]))
    await drip(outgoing.read())
    said = b""
    while b"in pieces" not in said:
        try:
            said += secure.read(65536)
        except ssl.SSLWantReadError:
            incoming.write(await raw.reader.read(65536))
    await raw.close()


@pytest.mark.parametrize("is_busy", [False, True])
async def test_many_small_records_are_decrypted_in_turns(
    serve: Serve, authority: Authority, pair: Pair, is_busy: bool
) -> None:
    """Each byte of three requests is a record, and all of them come at once."""
    turns = Crowded() if is_busy else Turns()
    server, port = await serve(echo, tls=serving(pair), turns=turns)
    raw = await WirePeer.connect(port)
    secure, incoming, outgoing = await shake(raw, authority)
    for byte in encode(request(10, body=bytes(4_000))) * 3:
        secure.write(bytes([byte]))
    raw.writer.write(outgoing.read())
    decoder, answers = FrameDecoder(expect_preamble=False), 0
    while answers < 3:
        try:
            answers += len(decoder.feed(secure.read(65536)))
        except ssl.SSLWantReadError:
            async with asyncio.timeout(30):
                incoming.write(await raw.reader.read(65536))
    assert turns.put_off >= 12_000 // RECORDS_MAX
    assert server.stats.partial_bytes == 0
    await raw.close()
    await until(lambda: not server.stats.connections)


async def test_what_waits_to_be_decrypted_is_bounded(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    """Nobody has a turn, so what the first sends waits, and the second is cut for sending more."""
    turns = Turns()
    turns.wait = lambda one, first: None  # type: ignore[method-assign]
    server, port = await serve(echo, tls=serving(pair), turns=turns, max_partial_bytes=30_000)
    frame = encode(request(10, body=bytes(10_000)))
    peers = [await WirePeer.connect(port) for _ in range(2)]
    for peer, records in zip(peers, (1_000, 5_000), strict=True):
        secure, _, outgoing = await shake(peer, authority)
        for byte in frame[:records]:
            secure.write(bytes([byte]))
        peer.writer.write(outgoing.read())
        await until(lambda: server.stats.partial_bytes > 10_000)
    await until(lambda: server.stats.connections == 1)
    assert 10_000 < server.stats.partial_bytes <= 30_000
    for peer in peers:
        await peer.close()


async def test_handshakes_wait_for_their_turns(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    turns = Crowded()
    _, port = await serve(echo, tls=serving(pair), turns=turns)
    async with await TlsPeer.shake(port, authority) as peer:
        peer.send(request(10))
        assert (await peer.receive()).code == 0
        assert turns.put_off >= 3, "a turn for each step, and one for the request"


class Crowded(Turns):
    """Others have used what there is of each turn."""

    @property
    def is_open(self) -> bool:
        return False


async def test_peer_that_says_goodbye_is_answered_first(
    serve: Serve, authority: Authority, pair: Pair
) -> None:
    server, port = await serve(echo, tls=serving(pair))
    raw = await WirePeer.connect(port)
    secure, incoming, outgoing = await shake(raw, authority)
    secure.write(encode(request(10, body=b"last words")))
    with pytest.raises(ssl.SSLWantReadError):
        secure.unwrap()
    raw.writer.write(outgoing.read())
    raw.writer.write_eof()
    async with asyncio.timeout(30):
        incoming.write(await raw.reader.read())
    assert b"last words" in secure.read(65536)
    with pytest.raises(ssl.SSLZeroReturnError):  # it says goodbye, too
        secure.read(1)
    await raw.close()
    await until(lambda: not server.stats.connections)


@pytest.mark.parametrize("inside", [False, True])
async def test_preamble_may_come_before_the_handshake_or_inside(
    serve: Serve, authority: Authority, pair: Pair, inside: bool
) -> None:
    said: list[tuple[str, bool]] = []

    def handler(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        said.append((connection.peer, connection.proxied))
        return reply(command)

    _, port = await serve(handler, tls=serving(pair, tls_mode=TlsMode.ENFORCING))
    raw = await WirePeer.connect(port)
    if not inside:
        raw.writer.write(V1)
    context = contexts.client_context(authority.file, None, None, None)
    await raw.writer.start_tls(context, server_hostname="127.0.0.1")
    if inside:
        raw.writer.write(V1)
    raw.send(request(10))
    assert (await raw.receive()).code == 0
    assert said == [("10.9.8.7:4321", True)]
    await raw.close()


@pytest.mark.parametrize(
    ("data", "opening"),
    [
        (b"", None),
        (b"\x16", Opening(is_tls=True)),
        (b"\x00\x00\x00\x10", Opening(is_tls=False)),
        (b"\x15\x03", Opening(is_tls=False)),
        (b"P", None),
        (V1[:-1], None),
        (V1, None),
        (V1 + b"\x16", Opening(is_tls=True, preamble_bytes=len(V1))),
        (V1 + b"\x00", Opening(is_tls=False)),
        (b"POST /", Opening(is_tls=False)),
        (b"P" * 200, Opening(is_tls=False)),
        (b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00\x16", Opening(is_tls=True, preamble_bytes=16)),
    ],
)
def test_first_bytes_say_what_follows(data: bytes, opening: Opening | None) -> None:
    assert opening_of(data) == opening


async def shake(
    raw: WirePeer, authority: Authority, say: Callable[[bytes], Awaitable[None]] | None = None
) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A client whose every byte the test sees."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secure = contexts.client_context(authority.file, None, None, None).wrap_bio(incoming, outgoing)
    while True:
        try:
            secure.do_handshake()
        except ssl.SSLWantReadError:
            if say is None:
                raw.writer.write(outgoing.read())
            else:
                await say(outgoing.read())
            incoming.write(await raw.reader.read(65536))
        else:
            return secure, incoming, outgoing


def hello() -> bytes:
    """The first words of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    secure = context.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        secure.do_handshake()
    return outgoing.read()
