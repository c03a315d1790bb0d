"""TLS between two ends in memory: no socket, and every byte in the test's hands."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.remoting.tls_transport import TlsTransport
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.tls.contexts import client_context
from gantry_protocol.tls.layer import RECORDS_MAX
from gantry_protocol.tls.process import Tls
from gantry_protocol.tls.settings import TlsMode, TlsSettings
from support.certificates import Authority, Pair


class Wire:
    """The transport below; keeps what was written."""

    def __init__(self) -> None:
        self.said = b""
        self.closed = False
        self.pause_reading = self.resume_reading = lambda: None
        self.set_write_buffer_limits = lambda *args: None
        self.get_extra_info = lambda name, default=None: ("10.0.0.1", 1)
        self.get_write_buffer_size = lambda: 0

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.said += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed


class End:
    """A connection of a server, and the other side of its wire."""

    def __init__(self, tls: Tls) -> None:
        self.heard: list[RemotingCommand] = []
        turns = Turns(lambda: 0.0)  # nothing takes time, so everything is done at once
        server = RemotingServer(self._serve, tls=tls, turns=turns)
        server.connection_opened = lambda connection: None  # type: ignore[method-assign]
        server.note_ended = self._note  # type: ignore[method-assign]
        server.flush_soon = lambda connection: connection.flush()  # type: ignore[method-assign]
        self.notes: list[str] = []
        self.wire = Wire()
        self.connection = Connection(server, 1)
        self.transport = TlsTransport(tls, self.connection, server)
        self.transport.connection_made(cast(Any, self.wire))

    def _serve(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        self.heard.append(command)
        return reply(command, body=command.body)

    def _note(self, phrase: str, _: Connection, reason: Exception | None = None) -> None:
        self.notes.append(phrase)

    def say(self, data: bytes) -> bytes:
        """Bytes arrive; what is answered."""
        self.transport.data_received(data)
        said, self.wire.said = self.wire.said, b""
        return said


class Client:
    """The side that dials."""

    def __init__(self, authority: Authority, own: Pair | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(authority.file, *(own or (None, None)), None)
        self.secure = context.wrap_bio(self.incoming, self.outgoing)

    def shake(self, say: Callable[[bytes], bytes]) -> None:
        for _ in range(4):
            try:
                self.secure.do_handshake()
            except ssl.SSLWantReadError:
                self.incoming.write(say(self.outgoing.read()))
            else:
                self.incoming.write(say(self.outgoing.read()))
                return
        raise AssertionError("no handshake")

    def wrap(self, *commands: RemotingCommand) -> bytes:
        self.secure.write(b"".join(map(encode, commands)))
        return self.outgoing.read()

    def unwrap(self, data: bytes) -> list[RemotingCommand]:
        self.incoming.write(data)
        found = b""
        while True:
            try:
                piece = self.secure.read(65536)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                break
            if not piece:
                break
            found += piece
        return FrameDecoder(expect_preamble=False).feed(found)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("brokers")


def serving(pair: Pair, **more: Any) -> Tls:
    return Tls(TlsSettings(tls_cert_file=pair.cert, tls_key_file=pair.key, **more))


async def test_request_is_answered(authority: Authority, pair: Pair) -> None:
    end, client = End(serving(pair)), Client(authority)
    client.shake(end.say)
    (answer,) = client.unwrap(end.say(client.wrap(request(10, body=b"x" * 100_000))))
    assert answer.body == b"x" * 100_000


async def test_plain_words_are_not_heard_where_tls_is_enforced(pair: Pair) -> None:
    permissive, enforcing = End(serving(pair)), End(serving(pair, tls_mode=TlsMode.ENFORCING))
    for end in (permissive, enforcing):
        end.say(encode(request(10)))
    assert len(permissive.heard) == 1
    assert enforcing.heard == []
    assert enforcing.wire.closed
    assert enforcing.notes == ["connection ended, it speaks no TLS"]


async def test_nothing_is_said_to_a_peer_that_has_said_nothing(pair: Pair) -> None:
    end = End(serving(pair))
    end.transport.write(b"hello")
    assert end.wire.said == b""


async def test_client_without_a_certificate_is_not_heard(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    tls = serving(pair, tls_client_ca_file=authority.file)
    known, unknown = End(tls), End(tls)
    client = Client(authority, pair)
    client.shake(known.say)
    known.say(client.wrap(request(10)))
    assert len(known.heard) == 1
    stranger = Client(authority)
    stranger.shake(unknown.say)
    unknown.say(stranger.wrap(request(10)))
    assert unknown.heard == []
    assert unknown.wire.closed
    assert tls.handshake_failures == 1


async def test_last_words_come_before_the_goodbye(authority: Authority, pair: Pair) -> None:
    end, client = End(serving(pair)), Client(authority)
    client.shake(end.say)
    words = client.wrap(request(10, body=b"last"))
    with pytest.raises(ssl.SSLWantReadError):
        client.secure.unwrap()
    (answer,) = client.unwrap(end.say(words + client.outgoing.read()))
    assert answer.body == b"last"
    assert end.wire.closed


async def test_preamble_before_the_handshake_names_the_client(
    authority: Authority, pair: Pair
) -> None:
    end, client = End(serving(pair, tls_mode=TlsMode.ENFORCING)), Client(authority)
    end.say(b"PROXY TCP4 10.9.8.7 10.0.0.1 4321 10911\r\n")
    client.shake(end.say)
    end.say(client.wrap(request(10)))
    assert end.connection.proxied
    assert end.connection.peer == "10.9.8.7:4321"


async def test_half_a_record_waits_for_the_rest(authority: Authority, pair: Pair) -> None:
    end, client = End(serving(pair)), Client(authority)
    client.shake(end.say)
    words = client.wrap(request(10), request(11))
    for byte in words[:-1]:
        end.say(bytes([byte]))
    assert end.heard == []
    end.say(words[-1:])
    assert [command.code for command in end.heard] == [10, 11]


async def test_many_small_records_are_not_decrypted_at_once(
    authority: Authority, pair: Pair
) -> None:
    end, client = End(serving(pair)), Client(authority)
    client.shake(end.say)
    frame = encode(request(10, body=bytes(1_000)))
    for byte in frame:
        client.secure.write(bytes([byte]))
    end.say(client.outgoing.read())
    turns = 0
    while end.transport.left_bytes:
        assert end.heard == []
        end.transport.take_turn()
        turns += 1
    assert turns == len(frame) // RECORDS_MAX
    assert [command.code for command in end.heard] == [10]
    assert end.transport.left_bytes == 0
