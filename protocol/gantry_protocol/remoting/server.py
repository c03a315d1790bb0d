"""A remoting server: listens, bounds what comes in, and hands requests to one handler.

The handler is a plain function called on the loop's thread. Listening, limits, idle time-outs and
the orderly end are here; what happens on one connection is in
:mod:`gantry_protocol.remoting.connection`.
"""

import asyncio
import itertools
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log
from gantry_protocol.process.listening import BACKLOG, bind, bind_inside, stop_listening
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.error_answers import ErrorAnswers
from gantry_protocol.remoting.limits import ConnectionLimits
from gantry_protocol.remoting.rules import ANY, RequestRules
from gantry_protocol.remoting.stats import ServerStats
from gantry_protocol.remoting.tls_transport import ServedTls, TlsTransport
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.tls.process import NO_TLS

__all__ = ["Connection", "Handler", "RemotingServer", "not_supported"]

Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]

IDLE_TIMEOUT_S = 120.0  # upstream's serverChannelMaxIdleTimeSeconds
MAX_IN_FLIGHT = 4096  # per connection: a consumer parks one pull per queue, thousands are normal
MAX_IN_FLIGHT_TOTAL = 200_000
MAX_IN_FLIGHT_BYTES = 256 * 1024 * 1024
MAX_WRITE_BUFFER_BYTES = 32 * 1024 * 1024  # two of the largest frames
MAX_UNREAD_BYTES = 256 * 1024 * 1024
MAX_PARTIAL_BYTES = 256 * 1024 * 1024
MAX_STUCK_S = 30.0  # a client that lives reads within its own time-outs, which are shorter
FRAME_WITHIN_S = 15.0  # from its first byte; 4 MiB at 2 Mbit/s, and five times a client's patience
_LOG_ERRORS_EVERY_S = 1.0
_CLOSE_WAIT_S = 1.0

_log = log.get("remoting")
_connection_numbers = itertools.count(1)


def not_supported(request: RemotingCommand) -> RemotingCommand:
    """The answer to a code nobody handles; the leading blank is upstream's."""
    remark = f" request type {request.code} not supported"
    return reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


class RemotingServer:
    """Serves remoting requests on one address.

    Args:
        handler: returns the answer, or None to answer later by ``connection.reply``; what it raises
            is answered with code 1 and its text.
        on_close: told once about every connection that ends.
        idle_timeout_s: a connection on which nothing moves for so long is closed.
        limits: of connections; servers may share one. Further ones are closed as they come.
        max_stuck_s: how long a peer may take nothing of what it asked for; then it is cut.
        max_in_flight: unanswered requests per connection; further ones hear ``SYSTEM_BUSY``.
        max_in_flight_total: the same over all connections.
        max_in_flight_bytes: bodies of unanswered requests over all connections; one connection may
            have a quarter of it. Further ones hear ``SYSTEM_BUSY``; what has no body is served.
        max_write_buffer_bytes: unread answers per connection; beyond it the connection is cut.
        max_unread_bytes: the same over all connections; beyond it the one with the most is cut.
        max_partial_bytes: bytes of incomplete frames over all connections; beyond it the one with
            the most is cut.
        rules: what is taken of each kind of request.
        turns: when whose requests are served; servers of one process share them.
        frame_within_s: a connection that takes longer for a frame, or for its first one, is cut;
            that includes a TLS handshake.
        tls: at the port of ``start``; others have their own (``listen_also``).
    """

    def __init__(
        self,
        handler: Handler,
        *,
        on_close: Callable[[Connection], None] | None = None,
        on_response: Callable[[Connection, RemotingCommand], bool] = lambda conn, response: False,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        limits: ConnectionLimits | None = None,
        max_stuck_s: float = MAX_STUCK_S,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_total: int = MAX_IN_FLIGHT_TOTAL,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
        max_write_buffer_bytes: int = MAX_WRITE_BUFFER_BYTES,
        max_unread_bytes: int = MAX_UNREAD_BYTES,
        max_partial_bytes: int = MAX_PARTIAL_BYTES,
        rules: RequestRules = ANY,
        turns: Turns | None = None,
        frame_within_s: float = FRAME_WITHIN_S,
        tls: ServedTls = NO_TLS,
    ) -> None:
        self._tls = tls
        self.rules = rules
        self.turns = Turns() if turns is None else turns
        self.handler = handler
        self.max_in_flight = max_in_flight
        self.max_in_flight_total = max_in_flight_total
        self.max_in_flight_bytes = max_in_flight_bytes
        self.max_write_buffer_bytes = max_write_buffer_bytes
        self.max_unread_bytes = max_unread_bytes
        self.max_partial_bytes = max_partial_bytes
        self.stats = ServerStats()
        self.error_answers = ErrorAnswers()
        self.connections: dict[int, Connection] = {}
        self.on_response = on_response
        self._on_close = on_close
        self._idle_timeout_s = idle_timeout_s
        self._frame_within_s = frame_within_s
        self.limits = ConnectionLimits() if limits is None else limits
        self.max_stuck_s = max_stuck_s
        self._loop: asyncio.AbstractEventLoop  # set by ``start``
        self._listeners: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._dirty: list[Connection] = []  # have output to flush at the end of this loop turn
        self._answered = asyncio.Event()  # set when the last unanswered request is answered
        self._gone = asyncio.Event()  # set when the last connection ended
        self._quiet_until_s = 0.0  # handler errors are not logged before
        self._ended_quiet_until_s = 0.0  # nor connections that ended
        self._ended_unsaid = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which is the given one unless that was 0.

        Raises:
            PortInUseError: somebody listens there.
        """
        assert not self._listeners
        self._loop = asyncio.get_running_loop()
        bound_port = await self.listen_also(host, port, self._tls)
        self._sweeper = self._loop.call_later(self._sweep_interval_s(), self._sweep)
        return bound_port

    async def listen_also(self, host: str, port: int, tls: ServedTls) -> int:
        """Serve the same at one more port with its own TLS, once started; returns the port.

        Raises:
            PortInUseError: somebody listens there.
        """
        listening = bind(host, port, purpose="remoting")
        bound_port: int = listening.getsockname()[1]
        await self._take_from(listening, tls)
        inside = bind_inside(host, bound_port, purpose="remoting")
        if inside is not None:
            await self._take_from(inside, tls)
        return bound_port

    async def _take_from(self, listening: socket.socket, tls: ServedTls) -> None:
        arrived = partial(self._arrived, tls)
        server = await self._loop.create_server(arrived, sock=listening, backlog=BACKLOG)
        self._listeners.append(server)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Stop listening, give unanswered requests ``grace_s`` to be answered, close everything.

        Stopping twice, or before ``start``, is harmless.
        """
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        await self.stop_listening()
        if self.stats.in_flight and grace_s > 0:
            self._answered.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), grace_s)
        for connection in list(self.connections.values()):
            connection.close()
        await self._wait_closed()

    async def stop_listening(self) -> None:
        """Turn away whoever comes; the connections that are there stay."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await stop_listening(listener)

    async def _wait_closed(self) -> None:
        """Until the event loop has let go of every connection; stubborn ones are aborted."""
        if await self._all_gone():
            return
        for connection in list(self.connections.values()):
            connection.abort()
        if not await self._all_gone():
            _log.warning("connections outlived the stop", connections=len(self.connections))

    async def _all_gone(self) -> bool:
        """Whether the last connection ends within ``_CLOSE_WAIT_S``."""
        if not self.connections:
            return True
        self._gone.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), _CLOSE_WAIT_S)
        return not self.connections

    def _arrived(self, tls: ServedTls) -> asyncio.Protocol:
        """The protocol of a new connection at a port with this TLS."""
        connection = Connection(self, next(_connection_numbers))
        if not tls.is_served:
            return connection
        return TlsTransport(tls, connection, self)

    # What connections call.

    def connection_opened(self, connection: Connection) -> None:
        """Count a new connection, or turn it away."""
        if not self._listeners or not self.limits.admit(connection.source):
            self.stats.refused += 1
            connection.abort()
            return
        self.stats.accepted += 1
        self.connections[connection.id] = connection
        self.stats.connections = len(self.connections)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection and tell the owner; one that was turned away is nobody's business."""
        if self.connections.pop(connection.id, None) is None:
            return
        self.limits.release(connection.source)
        self.stats.connections = len(self.connections)
        if not self.connections:
            self._gone.set()
        self.note_answered()
        if self._on_close is not None:
            self._on_close(connection)

    def is_too_much(self, unanswered_bytes: int, size_bytes: int) -> bool:
        """Whether a body does not fit beside those of its connection, or of all, any more."""
        return (
            self.stats.in_flight_bytes + size_bytes > self.max_in_flight_bytes
            or unanswered_bytes + size_bytes > self.max_in_flight_bytes // 4
        )

    def unread_grew(self) -> None:
        """Peers leave too much unread, as far as is known: look, and cut off who leaves most."""
        for connection in self.connections.values():
            connection.count_unread()
        while self.stats.unread_bytes > self.max_unread_bytes:
            max(self.connections.values(), key=lambda item: item.unread_bytes).cut_off()

    def partial_grew(self) -> None:
        """Frames that are not whole take too much: cut who has most of them."""
        while self.stats.partial_bytes > self.max_partial_bytes:
            max(self.connections.values(), key=lambda item: item.partial_bytes).drop_partial()

    def note_ended(
        self, phrase: str, connection: Connection, reason: Exception | None = None
    ) -> None:
        """Log that a peer's fault ended its connection; one line a second stands for all."""
        now_s = self._loop.time()
        if now_s < self._ended_quiet_until_s:
            self._ended_unsaid += 1
            return
        self._ended_quiet_until_s = now_s + _LOG_ERRORS_EVERY_S
        unsaid, self._ended_unsaid = self._ended_unsaid, 0
        said = {} if reason is None else {"reason": reason}
        _log.warning(phrase, peer=connection.peer, others_since=unsaid, **said)

    def note_answered(self) -> None:
        """A request is no longer in flight."""
        if not self.stats.in_flight:
            self._answered.set()

    def note_error(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """``request`` is answered ``SYSTEM_ERROR``."""
        self.error_answers.note(request, response.remark, self._loop.time())

    def flush_soon(self, connection: Connection) -> None:
        """Write the connection's output once everything of this loop turn is ready."""
        if not self._dirty:
            self._loop.call_soon(self._flush_dirty)
        self._dirty.append(connection)

    def _flush_dirty(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def failed(
        self, connection: Connection, request: RemotingCommand, error: Exception
    ) -> RemotingCommand:
        """The answer when the handler raised."""
        self.stats.handler_errors += 1
        now_s = self._loop.time()
        if not isinstance(error, GantryError) and now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _LOG_ERRORS_EVERY_S
            _log.exception("handler failed", error, code=request.code, peer=connection.peer)
        code = error.answer_code if isinstance(error, GantryError) else ResponseCode.SYSTEM_ERROR
        return reply(request, code, str(error) or type(error).__name__)

    def _sweep_interval_s(self) -> float:
        return min(self._idle_timeout_s / 4, self._frame_within_s / 3)

    def _sweep(self) -> None:
        """Close connections on which nothing moves, or no frame gets whole."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        oldest_s = now_s - self._idle_timeout_s
        for connection in list(self.connections.values()):
            if connection.last_active_s <= oldest_s:
                self.stats.idle_closed += 1
                connection.close()
            elif connection.is_stalled(now_s, self._frame_within_s):
                self.stats.stalled_closed += 1
                self.note_ended("connection ended, its peer sends no whole frame", connection)
                connection.abort()
        self._sweeper = loop.call_later(self._sweep_interval_s(), self._sweep)
