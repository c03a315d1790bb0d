"""Two sides of a connection between members in memory: no socket, no time that passes by itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gantry_protocol.member_tls.arriving import MemberPort
from gantry_protocol.member_tls.dialling import _Dialled
from gantry_protocol.member_tls.names import MemberKind, MemberName, Names
from gantry_protocol.member_tls.process import ALPN, MemberTls, why_not
from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.tls.contexts import client_context, server_context
from gantry_protocol.tls.settings import TlsMode
from support.certificates import Pair

BROKER = MemberName(MemberKind.BROKER, "prod", "orders")
BROKER_URI = "gantry://mq/broker/prod/orders"


class Speaker(asyncio.Protocol):
    """Keeps what it hears.

    Attributes:
        heard: so far.
        has_ended: whether its connection has.
    """

    def __init__(self) -> None:
        self.heard = b""
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.has_ended = True


class End:
    """The transport of one side.

    Attributes:
        protocol: whose transport it is.
        said: bytes that have not arrived at the other side.
        is_closed: whether this side has ended the connection.
        is_paused: whether its protocol does not read.
    """

    def __init__(self, protocol: asyncio.Protocol, address: str = "10.0.0.1") -> None:
        self.protocol = protocol
        self.said = b""
        self.is_closed = self.is_paused = False
        self._address = address

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of a socket."""
        return (self._address, 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        """All has left."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is kept."""

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """Somebody else speaks."""
        self.protocol = protocol

    def pause_reading(self) -> None:
        """Bring nothing."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """Bring more."""
        self.is_paused = False

    def write(self, data: bytes) -> None:
        """Say it."""
        if not self.is_closed:
            self.said += data

    def close(self) -> None:
        """What was said arrives all the same."""
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        """Whether this side has ended it."""
        return self.is_closed


class Arrival:
    """A connection at a port of replication, as the listener has it.

    Attributes:
        behind: what was made behind the port.
    """

    def __init__(self, tls: MemberTls, address: str = "10.0.0.1", port: Any = None) -> None:
        self.behind: list[Speaker] = []
        self._tls = tls
        self.port = port or MemberPort(
            tls, "replication", (MemberName(MemberKind.BROKER),), self._made
        )
        self.end = End(self.port(), address)
        self.end.protocol.connection_made(cast(Any, self.end))

    def _made(self) -> Speaker:
        self.behind.append(Speaker())
        return self.behind[-1]

    async def hear(self, data: bytes) -> bytes:
        """Bytes arrive; what is answered."""
        if not self.end.is_closed:
            self.end.protocol.data_received(data)
        await asyncio.sleep(0)
        while len(self._tls.turns):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # the end of a connection
        said, self.end.said = self.end.said, b""
        return said


class Caller:
    """The side that dials.

    Attributes:
        inner: the protocol that it dials for.
    """

    def __init__(self, tls: MemberTls, expected: MemberName = BROKER) -> None:
        self.inner = Speaker()
        self.layer = _Dialled(lambda: self.inner, tls, expected)
        self.end = End(self.layer)
        self.layer.connection_made(cast(Any, self.end))

    async def meet(self, arrival: Arrival) -> str:
        """Shake hands; why that failed, or nothing."""
        for _ in range(20):
            said, self.end.said = self.end.said, b""
            answer = await arrival.hear(said) if said else arrival.end.said
            if answer and not self.end.is_closed:
                self.layer.data_received(answer)
            elif arrival.end.is_closed and not self.end.is_closed:
                self.end.is_closed = True
                self.layer.connection_lost(None)
            await asyncio.sleep(0)
        if not self.layer.done.done():
            return "no end"
        error = self.layer.done.exception()
        assert error is None or isinstance(error, Exception)
        return "" if error is None else why_not(error)


class Impostor(MemberTls):
    """A process of somebody who believes everybody and shows whatever certificate he has."""

    def __init__(self, pair: Pair, ca: Path) -> None:
        super().__init__(
            MemberTlsSettings(
                member_tls_cert_file=pair.cert,
                member_tls_key_file=pair.key,
                member_tls_ca_file=ca,
                member_tls_mode=TlsMode.ENFORCING,
            )
        )
        listening = server_context(pair.cert, pair.key, None)
        dialling = client_context(ca, pair.cert, pair.key, None)
        dialling.verify_mode = ssl.CERT_NONE
        for context in (listening, dialling):
            context.set_alpn_protocols([ALPN])
        self._shown = SimpleNamespace(listening=listening, dialling=dialling)

    def certificate(self) -> Any:
        """What is shown."""
        return self._shown

    def judge(self, secure: ssl.SSLObject, expected: Sequence[MemberName]) -> Names:
        """Nobody is refused."""
        return Names("mq", tuple(expected))
