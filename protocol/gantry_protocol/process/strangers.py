"""Bounds of an HTTP port: connections and requests of each address, and the size of a head.

A head is looked at before aiohttp reads it: aiohttp takes headers apart as they come, and answers
and logs each that is none, which costs a hundred times what it takes to send them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from aiohttp.http import HttpProcessingError

STRANGERS_PER_S = 250.0  # requests of an address without a token; each takes some 0.15 ms
STRANGERS_AT_ONCE = 50
STRANGERS_MAX = 1024  # addresses that are told apart
COMERS_AT_ONCE = 250  # connections; every broker comes at once to a controller that is back
HEAD_BYTES_MAX = 16 * 1024  # of the first request on a connection
HEAD_WITHIN_S = 5.0  # so long it may take
_HEAD_ENDS = b"\r\n\r\n"
_HANDSHAKE = 22  # the first byte of TLS, RFC 8446 section 5.1


class AddressRate:
    """At most so many of one address in a second; pure.

    Attributes:
        delayed: how many had to wait, ever.
    """

    def __init__(self, per_s: float = STRANGERS_PER_S, at_once: int = STRANGERS_AT_ONCE) -> None:
        self.delayed = 0
        self._per_s = per_s
        self._burst_s = at_once / per_s
        self._until_s: dict[str, float] = {}  # when all that came will have been paid for

    def wait_s(self, address: str, now_s: float) -> float:
        """The time for which one that comes from there now has to wait."""
        until_s = max(self._until_s.pop(address, 0.0), now_s) + 1 / self._per_s
        self._until_s[address] = until_s
        if len(self._until_s) > STRANGERS_MAX:
            del self._until_s[next(iter(self._until_s))]  # who came longest ago
        wait_s = until_s - now_s - self._burst_s
        if wait_s <= 0:
            return 0.0
        self.delayed += 1
        return wait_s


class Comers:
    """The connected addresses: how many of each, and how fast they come; pure.

    Args:
        at_most: connections of one address.
    """

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._pace = AddressRate(at_once=COMERS_AT_ONCE)
        self._here: dict[str, int] = {}

    def came(self, address: str, now_s: float) -> bool:
        """Whether another connection of an address is let in; ``left`` says when it is gone."""
        here = self._here.get(address, 0)
        if here >= self._at_most or self._pace.wait_s(address, now_s) > 0:
            return False
        self._here[address] = here + 1
        return True

    def left(self, address: str) -> None:
        """One that was let in is gone."""
        self._here[address] -= 1
        if not self._here[address]:
            del self._here[address]


class Guard(asyncio.Protocol):
    """Stands before the protocol that serves a connection.

    It ends the connection of an address that makes them too fast or has too many, one whose first
    request has no end within ``HEAD_BYTES_MAX`` and ``HEAD_WITHIN_S``, and one that begins with TLS
    where none is spoken, so that its peer need not wait to learn that.

    Args:
        serves: gets everything else.
        comers: who has come.
        turned_away: called for each connection that is ended here.
    """

    def __init__(
        self, serves: asyncio.Protocol, comers: "Comers", turned_away: Callable[[], None]
    ) -> None:
        """Nobody has connected."""
        self._serves = serves
        self._comers = comers
        self._turned_away = turned_away
        self._address = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._is_in = False  # what it says goes to ``serves``
        self._head = b""  # so far; empty once its first request is whole
        self._head_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in, or end it."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        peer = transport.get_extra_info("peername") or ("",)
        self._address = str(peer[0])
        loop = asyncio.get_running_loop()
        if not self._comers.came(self._address, loop.time()):
            self._end()
            return
        self._is_in = True
        self._deadline = loop.call_later(HEAD_WITHIN_S, self._end)
        self._serves.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        if not self._is_in:
            return
        if not self._head_ended:
            self._head += data
            if self._head[0] == _HANDSHAKE:
                self._end()
                return
            if _HEAD_ENDS not in self._head[: HEAD_BYTES_MAX + len(_HEAD_ENDS)]:
                if len(self._head) > HEAD_BYTES_MAX:
                    self._end()
                return
            assert self._deadline is not None
            self._deadline.cancel()
            data, self._head, self._head_ended = self._head, b"", True
        self._serves.data_received(data)

    def eof_received(self) -> bool | None:
        """The peer says nothing more."""
        return self._serves.eof_received() if self._is_in else None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._transport, self._head = None, b""
        if self._is_in:
            assert self._deadline is not None
            self._deadline.cancel()
            self._comers.left(self._address)
            self._serves.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        if self._is_in:
            self._serves.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        if self._is_in:
            self._serves.resume_writing()

    def _end(self) -> None:
        if self._transport is not None:
            self._turned_away()
            self._transport.abort()


class _OfOurs(logging.Filter):
    """Passes errors of our own, and none for what is no request at all."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def quiet_logger() -> logging.Logger:
    """aiohttp's, without a stack trace for each malformed request that a stranger sends."""
    logger = logging.getLogger("aiohttp.server.requests")
    if not any(isinstance(item, _OfOurs) for item in logger.filters):
        logger.addFilter(_OfOurs())
    return logger
