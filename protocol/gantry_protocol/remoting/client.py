"""A remoting client: one connection to one address, any number of calls on it.

Calls are pipelined and matched by ``opaque``. A call costs no task and no timer of its own:
requests of one loop turn leave in one write, deadlines share one timer. When a call fails it is
known whether it can have taken effect: :class:`Busy` and :class:`ConnectError` mean that nothing
was sent, a time-out or a closed connection mean that nobody knows.

A connection that stays silent for ``SILENCE_S`` while calls wait is taken for dead and closed,
since a peer that moved to another address never resets the old one.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeAlias, cast

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, reply
from gantry_protocol.errors import (
    Busy,
    ConnectError,
    ConnectionClosed,
    FrameError,
    KeyRefused,
    RemotingError,
    RequestTimeout,
    ResolveError,
)
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.hosts import resolve, split_address
from gantry_protocol.key_gate import CONTROLLER, dial
from gantry_protocol.member_tls.dialling import dial_member
from gantry_protocol.member_tls.names import MemberName
from gantry_protocol.member_tls.process import NO_MEMBER_TLS, MemberTls
from gantry_protocol.process import log
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.remoting.deadlines import Deadlines
from gantry_protocol.remoting.stats import ClientStats
from gantry_protocol.tls.dialling import dial_tls
from gantry_protocol.tls.process import NO_TLS, Tls

CONNECT_TIMEOUT_S = 3.0  # upstream's connectTimeoutMillis
CALL_TIMEOUT_S = 3.0
SILENCE_S = 5.0
IDLE_TIMEOUT_S = 120.0  # upstream's clientChannelMaxIdleTimeSeconds
MAX_IN_FLIGHT = 65536
MAX_WRITE_BUFFER_BYTES = 32 * 1024 * 1024

Outcome: TypeAlias = RemotingCommand | RemotingError
Callback = Callable[[Outcome], None]
Sign = Callable[[RemotingCommand], RemotingCommand]
RequestHandler = Callable[["RemotingClient", RemotingCommand], RemotingCommand | None]

_log = log.get("remoting")
_CLOSE_GRACE_S = 1.0  # how long a closing connection may take to deliver what was written
_OPAQUE_MASK = 0x7FFFFFFF


class RemotingClient(asyncio.Protocol):
    """One connection; use :meth:`connect` once, then call.

    Args:
        on_request: serves what the server asks of us; None ignores it. Returns the answer or None.
        on_close: told once when the connection ends, whoever ended it.
        max_in_flight: open calls; further ones are :class:`Busy`.
        max_write_buffer_bytes: bytes the peer has not taken; beyond it calls are :class:`Busy`.
        idle_timeout_s: without traffic for so long the connection is closed.
        stats: counters to add to, shared by the clients of a pool.
        tls: of the process.
        member_tls: the same for a port of controllers, which is then dialled by that.
        sign: makes each request one that a user has signed.

    Attributes:
        address: as given to :meth:`connect`.
        closed: there is no connection (any more).
    """

    def __init__(
        self,
        *,
        on_request: RequestHandler | None = None,
        on_close: Callable[["RemotingClient"], None] | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_write_buffer_bytes: int = MAX_WRITE_BUFFER_BYTES,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        stats: ClientStats | None = None,
        tls: Tls = NO_TLS,
        member_tls: MemberTls = NO_MEMBER_TLS,
        sign: Sign | None = None,
    ) -> None:
        self._tls = tls
        self._member_tls = member_tls
        self.address = ""
        self.closed = True
        self.stats = ClientStats() if stats is None else stats
        self._on_request = on_request
        self._on_close = on_close
        self._sign = sign
        self._max_in_flight = max_in_flight
        self._max_write_buffer_bytes = max_write_buffer_bytes
        self._idle_timeout_s = idle_timeout_s
        self._loop: asyncio.AbstractEventLoop  # set once connected; to ask for it is a system call
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(expect_preamble=False)
        self._pending: dict[int, Callback] = {}
        self._deadlines = Deadlines(self._expire)
        self._opaque = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._last_active_s = 0.0
        self._waiting_since_s: float | None = None  # first call since the peer last said anything
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def pending_calls(self) -> int:
        """Calls that wait for their answers."""
        return len(self._pending)

    async def connect(self, address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Self:
        """Connect to ``host:port``; returns itself. A cancellation leaves no connection behind.

        Raises:
            ConnectError: no connection; ``refused`` says whether nobody listens there.
        """
        assert self._transport is None
        self.address = address
        await open_connection(
            lambda: self, address, timeout_s, tls=self._tls, member_tls=self._member_tls
        )
        self.stats.connects += 1
        return self

    async def call(
        self, command: RemotingCommand, timeout_s: float = CALL_TIMEOUT_S
    ) -> RemotingCommand:
        """Send a request and wait for its answer, whatever its code.

        Raises:
            RequestTimeout: no answer in time; the request may have taken effect.
            ConnectionClosed: the connection ended; the request may have taken effect.
            Busy: nothing was sent.
        """
        done: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        opaque = self.call_nowait(command, lambda outcome: _settle(done, outcome), timeout_s)
        try:
            return await done
        finally:
            self._forget(opaque)  # matters only when the caller was cancelled

    def call_nowait(
        self, command: RemotingCommand, callback: Callback, timeout_s: float = CALL_TIMEOUT_S
    ) -> int:
        """Send a request; ``callback`` gets the answer or the error, once, later, on the loop.

        Returns:
            The opaque the call travels under.

        Raises:
            ConnectionClosed: there is no connection; nothing was sent, nobody is called back.
            Busy: a bound is full; nothing was sent, nobody is called back.
        """
        if len(self._pending) >= self._max_in_flight:
            self.stats.busy += 1
            raise Busy(f"{len(self._pending)} calls to {self.address} wait for answers already.")
        opaque = command.opaque = self._next_opaque()
        self._send(command)
        self._pending[opaque] = callback
        self._deadlines.add(opaque, timeout_s)
        self.stats.calls += 1
        self.stats.in_flight += 1
        if self._waiting_since_s is None:
            self._waiting_since_s = self._loop.time()
        return opaque

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that is never answered.

        Raises:
            ConnectionClosed: there is no connection.
            Busy: the peer does not take what was sent before.
        """
        command.flag |= FLAG_ONEWAY
        command.opaque = self._next_opaque()
        self._send(command)

    def close(self) -> None:
        """End the connection; open calls get :class:`ConnectionClosed`."""
        self._flush()
        self.closed = True
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        loop = self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.closed = False
        self._last_active_s = loop.time()
        self._idle_timer = loop.call_later(self._idle_timeout_s, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        self.closed = True
        self._transport = None
        self.stats.closed += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._deadlines.clear()
        self._out.clear()
        pending, self._pending = self._pending, {}
        self.stats.in_flight -= len(pending)
        why = ConnectionClosed(f"The connection to {self.address} ended before the answer came.")
        for callback in pending.values():
            _invoke(callback, why)
        if self._on_close is not None:
            self._on_close(self)

    def data_received(self, data: bytes) -> None:
        """Answers, or requests of the server."""
        self._last_active_s = self._loop.time()
        self._waiting_since_s = None
        try:
            commands = self._decoder.feed(data)
        except FrameError as error:
            _log.warning("server sent a malformed frame", address=self.address, reason=error)
            commands = error.before
            self.close()
        for command in commands:
            if command.is_response:
                self._complete(command)
            else:
                self._serve(command)

    # Inside.

    def _next_opaque(self) -> int:
        while True:
            self._opaque = (self._opaque + 1) & _OPAQUE_MASK
            if self._opaque not in self._pending:
                return self._opaque

    def _send(self, command: RemotingCommand) -> None:
        transport = self._transport
        if transport is None or self.closed:
            raise ConnectionClosed(f"There is no connection to {self.address or 'anywhere'}.")
        if transport.get_write_buffer_size() + self._out_bytes > self._max_write_buffer_bytes:
            self.stats.busy += 1
            raise Busy(f"{self.address} does not take what was sent to it.")
        if self._sign is not None:
            command = self._sign(command)
        data = encode(command)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)

    def _flush(self) -> None:
        if not self._out or self._transport is None or self.closed:
            return
        data = b"".join(self._out) if len(self._out) > 1 else self._out[0]
        self._out.clear()
        self._out_bytes = 0
        self._last_active_s = self._loop.time()
        self._transport.write(data)

    def _complete(self, response: RemotingCommand) -> None:
        callback = self._forget(response.opaque)
        if callback is None:
            self.stats.late_replies += 1
        else:
            _invoke(callback, response)

    def _forget(self, opaque: int) -> Callback | None:
        callback = self._pending.pop(opaque, None)
        if callback is not None:
            self.stats.in_flight -= 1
            self._deadlines.remove(opaque)
        return callback

    def _expire(self, opaque: int) -> None:
        callback = self._forget(opaque)
        if callback is None:
            return
        self.stats.timeouts += 1
        now_s = self._loop.time()
        if self._waiting_since_s is not None and now_s - self._waiting_since_s >= SILENCE_S:
            _log.warning("connection ended, its peer is silent", address=self.address)
            self.abort()
        _invoke(callback, RequestTimeout(f"{self.address} did not answer in time."))

    def _serve(self, request: RemotingCommand) -> None:
        if self._on_request is None:
            return
        try:
            response = self._on_request(self, request)
        except Exception as error:  # noqa: BLE001 - the server's mistake must not end our process
            _log.exception("request of the server failed", error, code=request.code)
            response = reply(request, ResponseCode.SYSTEM_ERROR, str(error) or type(error).__name__)
        if response is None or request.is_oneway:
            return
        response.opaque = request.opaque
        response.flag |= FLAG_RESPONSE
        with suppress(RemotingError):  # the server left, or does not read: it gets no answer
            self._send(response)

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._last_active_s + self._idle_timeout_s - loop.time()
        if left_s <= 0:
            self.close()
        else:
            self._idle_timer = loop.call_later(left_s, self._check_idle)


async def open_connection(
    protocol: Callable[[], asyncio.Protocol],
    address: str,
    timeout_s: float,
    *,
    key: KeyFile = NO_KEY,
    purpose: Purpose = Purpose.CONTROL,
    expected: MemberName = CONTROLLER,
    tls: Tls = NO_TLS,
    member_tls: MemberTls = NO_MEMBER_TLS,
) -> asyncio.Transport:
    """A TCP connection to ``host:port`` for ``protocol``, names resolved as everywhere.

    With a ``key``, the port is one behind a gate (``key_gate``), and both sides have shown it, and
    their certificates. With ``tls`` it is one for clients, with ``member_tls`` the controllers'.
    Where members have certificates, the other side's must name the one ``expected``.

    Raises:
        ConnectError: no connection within ``timeout_s``; ``KeyRefused`` if there was one.
        ConfigError: the key cannot be read.
    """
    try:
        host, port = split_address(address)
        async with asyncio.timeout(timeout_s):
            ip = await resolve(host)
            if key.is_set or key.tls.is_on:
                transport = await dial(protocol, ip, port, key, purpose, expected)
            elif member_tls.is_on:
                transport = await dial_member(protocol, ip, port, member_tls, expected)
            else:
                transport = await dial_tls(protocol, ip, port, tls)
    except KeyRefused as error:
        raise type(error)(f"{address} is no member for this process: {error}.") from error
    except ConnectError as error:
        raise ConnectError(f"Cannot speak TLS with {address}: {error}.", refused=False) from error
    except ConnectionRefusedError as error:
        raise ConnectError(f"Nobody listens at {address}.", refused=True) from error
    except TimeoutError as error:
        raise ConnectError(
            f"{address} did not accept in {timeout_s:g} s.", refused=False
        ) from error
    except ResolveError as error:
        raise ConnectError(str(error), refused=False) from error
    except OSError as error:
        reason = error.strerror or error
        raise ConnectError(f"Cannot connect to {address}: {reason}.", refused=False) from error
    return transport


def _settle(done: asyncio.Future[RemotingCommand], outcome: Outcome) -> None:
    if done.done():
        return
    if isinstance(outcome, RemotingError):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


def _invoke(callback: Callback, outcome: Outcome) -> None:
    """Call back; a callback that raises is a fault of ours and must not harm the other calls."""
    try:
        callback(outcome)
    except Exception as error:  # noqa: BLE001 - handed to the loop's handler, which ends the process
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a remoting callback failed", "exception": error}
        )
