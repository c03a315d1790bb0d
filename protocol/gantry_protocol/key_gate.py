"""Ports that believe only who shows the quorum's key: Raft's, replication's and those of stores.

Before anything else is said on a connection both sides show the key (``quorum_key``)::

    dialler    "GKEY" | u8 version | 32 bytes nonce
    listener   "GKEY" | u8 version | 32 bytes nonce
    dialler    32 bytes proof
    listener   u8 1 | 32 bytes proof          or u8 0, and the end: the dialler's key is another one

From then on the connection belongs to the protocol behind the gate, which notices none of this.
Strangers reach nothing there: they are bounded in number, bytes and time, and where no place is
left, the one that has waited longest goes, so that they cannot keep those with the key out.

Without a key file there is no gate. Two sides of which only one has a key do not speak, and the one
that has it says so.

Where members have certificates (``member_tls``), hands are shaken before: the gate is inside TLS.
"""

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from gantry_protocol.errors import ConfigError, KeyRefused
from gantry_protocol.member_tls.arriving import MemberPort
from gantry_protocol.member_tls.dialling import dial_member
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.process import log
from gantry_protocol.quorum_key import (
    NONCE_BYTES,
    PROOF_BYTES,
    KeyFile,
    Nonces,
    Purpose,
    Side,
    believed,
    new_nonce,
    prove,
)

MAGIC = b"GKEY"
VERSION = 1
SHOW_WITHIN_S = 2.0
STRANGERS_MAX = 1024  # all replicas of 512 groups that connect in the same moment
LOG_EVERY_S = 1.0

_HEAD = MAGIC + bytes([VERSION])
_GREETING_BYTES = len(_HEAD) + NONCE_BYTES
_BELIEVED = b"\x01"
_REFUSED = b"\x00"

CONTROLLER = MemberName(MemberKind.CONTROLLER)
COMERS = {
    Purpose.RAFT: (CONTROLLER,),
    Purpose.REPLICATION: (MemberName(MemberKind.BROKER),),
    Purpose.STORE: (MemberName(MemberKind.FRONT),),
}
"""Whose certificates are believed at a port; of which group they are is judged by their first
words."""

_log = log.get("key")

Factory = Callable[[], asyncio.Protocol]


class KeyGate:
    """The gate of one port; a factory of protocols for ``loop.create_server``.

    Args:
        key: what has to be shown; without a file everybody passes.
        purpose: what the port is for.
        inner: makes the protocol behind the gate, once per connection that passed.

    Attributes:
        refused: connections that did not pass.
    """

    def __init__(self, key: KeyFile, purpose: Purpose, inner: Factory) -> None:
        """Nobody waits at it."""
        self.refused = 0
        self.key = key
        self.purpose = purpose
        self.inner = inner
        self._strangers: dict[_Stranger, None] = {}  # the oldest first
        self._quiet_until_s = 0.0
        self._port = MemberPort(key.tls, purpose.value.decode(), COMERS[purpose], self._behind)

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return self._port() if self.key.tls.is_on else self._behind()

    def __len__(self) -> int:
        return len(self._strangers) + len(self._port)

    def _behind(self) -> asyncio.Protocol:
        return _Stranger(self) if self.key.is_set else self.inner()

    def close(self) -> None:
        """Show out who waits."""
        self._port.close()
        for stranger in list(self._strangers):
            stranger.abort()

    def arrived(self, stranger: "_Stranger") -> None:
        """Somebody waits; where there is no place, whoever has waited longest goes."""
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            oldest.refuse("others wait")
        self._strangers[stranger] = None

    def left(self, stranger: "_Stranger") -> None:
        """It waits no longer."""
        self._strangers.pop(stranger, None)

    def note_refused(self, peer: str, reason: str) -> None:
        """Count, and say so at most once a second."""
        self.refused += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + LOG_EVERY_S
            _log.warning(
                "connection refused, it does not show the quorum's key",
                purpose=self.purpose.value.decode(),
                peer=peer,
                reason=reason,
            )


class _Step(Enum):
    """What the other side has to say next."""

    GREETING = auto()
    PROOF = auto()
    DONE = auto()


class _Stranger(asyncio.Protocol):
    """The listener's side of one connection, until it is believed."""

    def __init__(self, gate: KeyGate) -> None:
        self._gate = gate
        self._step = _Step.GREETING
        self._buffer = bytearray()
        self._nonces = Nonces(b"", new_nonce())
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._timer = asyncio.get_running_loop().call_later(SHOW_WITHIN_S, self._late)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._peer = str((self._transport.get_extra_info("peername") or "?")[0])
        self._gate.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._step is _Step.GREETING:
            self._greeted()
        if self._step is _Step.PROOF and len(self._buffer) >= PROOF_BYTES:
            self._shown()

    def refuse(self, reason: str, answer: bytes = b"") -> None:
        """Show it out."""
        if self._step is _Step.DONE or self._transport is None:
            return
        self._end()
        self._gate.note_refused(self._peer, reason)
        self._transport.write(answer)
        self._transport.close()

    def abort(self) -> None:
        """End the connection, whatever it waits for."""
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _late(self) -> None:
        self.refuse(f"nothing was shown within {SHOW_WITHIN_S:g} s")

    def _end(self) -> None:
        self._step = _Step.DONE
        self._timer.cancel()
        self._gate.left(self)

    def _greeted(self) -> None:
        if not MAGIC.startswith(self._buffer[: len(MAGIC)]):
            self.refuse("it shows none: it is older than the key, or was given no quorum_key_file")
            return
        if len(self._buffer) < _GREETING_BYTES:
            return
        version = self._buffer[len(MAGIC)]
        if version != VERSION:
            self.refuse(f"it shows keys by version {version}, here it is {VERSION}", _HEAD)
            return
        dialler = bytes(self._buffer[len(_HEAD) : _GREETING_BYTES])
        del self._buffer[:_GREETING_BYTES]
        self._nonces = Nonces(dialler, self._nonces.listener)
        self._step = _Step.PROOF
        assert self._transport is not None
        self._transport.write(_HEAD + self._nonces.listener)

    def _shown(self) -> None:
        gate, transport = self._gate, self._transport
        assert transport is not None
        try:
            keys = gate.key.keys()
        except ConfigError as error:
            self.refuse(str(error), _REFUSED)
            return
        shown = bytes(self._buffer[:PROOF_BYTES])
        key = believed(keys, gate.purpose, Side.DIALLER, self._nonces, shown)
        if key is None:
            self.refuse("its key is another one", _REFUSED)
            return
        self._end()
        transport.write(_BELIEVED + prove(key, gate.purpose, Side.LISTENER, self._nonces))
        _pass_on(transport, gate.inner(), bytes(self._buffer[PROOF_BYTES:]))


class _Shower(asyncio.Protocol):
    """The dialler's side of one connection, until both sides believe each other."""

    def __init__(self, key: bytes, purpose: Purpose, inner: Factory) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self._key = key
        self._purpose = purpose
        self._inner = inner
        self._nonces = Nonces(new_nonce(), b"")
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.write(_HEAD + self._nonces.dialler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("it ended the connection without showing a quorum key: it may have none")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._nonces.listener:
            self._challenged()
        if self._nonces.listener and not self.done.done() and self._buffer:
            self._answered()

    def _challenged(self) -> None:
        if not _HEAD.startswith(self._buffer[: len(_HEAD)]):
            why = "it asks for no quorum key: it is of another version, or was given no file"
            self._fail(why)
            return
        if len(self._buffer) < _GREETING_BYTES:
            return
        listener = bytes(self._buffer[len(_HEAD) : _GREETING_BYTES])
        del self._buffer[:_GREETING_BYTES]
        self._nonces = Nonces(self._nonces.dialler, listener)
        assert self._transport is not None
        self._transport.write(prove(self._key, self._purpose, Side.DIALLER, self._nonces))

    def _answered(self) -> None:
        if self._buffer[:1] != _BELIEVED:
            self._fail("it does not believe the quorum key of this process")
            return
        end = 1 + PROOF_BYTES
        if len(self._buffer) < end:
            return
        shown = bytes(self._buffer[1:end])
        if believed((self._key,), self._purpose, Side.LISTENER, self._nonces, shown) is None:
            self._fail("its own quorum key is another one")
            return
        self.done.set_result(None)
        assert self._transport is not None
        _pass_on(self._transport, self._inner(), bytes(self._buffer[end:]))

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(KeyRefused(why))
            self.done.exception()  # nobody may be waiting any more
        if self._transport is not None:
            self._transport.abort()


def _pass_on(transport: asyncio.Transport, inner: asyncio.Protocol, rest: bytes) -> None:
    """From now on the connection is ``inner``'s."""
    transport.set_protocol(inner)
    inner.connection_made(transport)
    if rest and not transport.is_closing():
        inner.data_received(rest)


async def dial(
    inner: Factory,
    ip: str,
    port: int,
    key: KeyFile,
    purpose: Purpose,
    expected: MemberName = CONTROLLER,
) -> asyncio.Transport:
    """A connection to ``ip:port`` that both sides have shown the key on, for ``inner``.

    Where members have certificates, that of the other side must name the one ``expected``. The
    caller bounds the time; a cancellation leaves no connection behind.

    Raises:
        KeyRefused: one side does not believe the other; says which.
        ConfigError: this process's own key cannot be read.
        OSError: no connection.
    """
    if not key.is_set:
        return await dial_member(inner, ip, port, key.tls, expected)
    shown, *_ = key.keys()
    showers: list[_Shower] = []

    def shower() -> _Shower:
        showers.append(_Shower(shown, purpose, inner))
        return showers[-1]

    transport = await dial_member(shower, ip, port, key.tls, expected)
    try:
        await showers[-1].done
    except BaseException:
        transport.abort()
        raise
    return transport
