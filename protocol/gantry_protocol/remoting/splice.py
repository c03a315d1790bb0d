"""A client's connection handed over to another process, as a pipe of raw bytes.

A replica that a client reached through the group's one address does this with the master. The
master is sent a PROXY preamble with the client's address, then every byte from the first unanswered
request on, then whatever comes; its bytes go back unchanged. Neither side is read faster than the
other can take it, so the pipe holds a bounded number of bytes. When one side ends the other is
ended too, and :meth:`Splice.close` cuts both: a client must never go on talking to a master that is
none any more.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import ConnectError, RemotingError, ResolveError
from gantry_protocol.hosts import split_address
from gantry_protocol.proxy_preamble import UNKNOWN_V1, build_v1
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.remoting.connection import Connection

CONNECT_TIMEOUT_S = 1.0  # the master is near or gone; clients give a send 3 s in all
HIGH_WATER_BYTES = 256 * 1024  # per direction
_CUT_GRACE_S = 1.0

EndCallback = Callable[["Splice"], None]


def splice(
    conn: Connection,
    first: RemotingCommand,
    address: str,
    *,
    on_end: EndCallback,
    keep_on_connect_failure: bool = False,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> "Splice":
    """Hand ``conn`` over to ``address``, from the request ``first`` on.

    Called from within the handler that was given ``first`` (which then returns None), or later for
    a connection that was held there.

    Args:
        conn: the client's connection; answers to earlier requests are lost from now on.
        first: the request to start at; ignored when ``conn`` is held already.
        address: ``host:port`` of the other process.
        on_end: called once, when the splice is over for any reason.
        keep_on_connect_failure: leave ``conn`` held if ``address`` cannot be connected to, for
            another splice or a ``release``; otherwise it is closed.
        connect_timeout_s: how long connecting may take.
    """
    if not conn.held:
        conn.hold(first)
    return Splice(conn, address, on_end, keep_on_connect_failure, connect_timeout_s)


class Splice:
    """A running (or connecting, or ended) pipe.

    Attributes:
        address: where it leads.
        established: the other process was reached.
        ended: it is over.
        error: why connecting failed, if it did.
    """

    def __init__(
        self,
        connection: Connection,
        address: str,
        on_end: EndCallback,
        keep_on_connect_failure: bool,
        connect_timeout_s: float,
    ) -> None:
        self.address = address
        self.established = False
        self.ended = False
        self.error: RemotingError | None = None
        self._connection = connection
        self._on_end = on_end
        self._keep = keep_on_connect_failure
        self._upstream = _Upstream(self)
        self._task = asyncio.create_task(self._connect(connect_timeout_s))

    def close(self) -> None:
        """Cut both sides; what was written to them is still delivered, for at most a second."""
        self._end(keep_client=False)

    async def _connect(self, timeout_s: float) -> None:
        try:
            await open_connection(lambda: self._upstream, self.address, timeout_s)
        except ConnectError as error:
            self.error = error
            self._end(keep_client=self._keep)

    def connected(self, transport: asyncio.Transport) -> None:
        """The other process accepted: introduce the client and send what it said so far."""
        connection = self._connection
        if self.ended or connection.closed:
            transport.abort()
            self._end(keep_client=False)
            return
        self.established = True
        transport.write(_preamble(connection) + connection.attach(self))
        if not self._upstream.congested:
            connection.pause_client(False)

    # What the client's connection calls.

    def from_client(self, data: bytes) -> None:
        """Bytes of the client."""
        self._upstream.write(data)

    def client_congested(self, congested: bool) -> None:
        """The client does not read fast enough, or does again."""
        self._upstream.pause(congested)

    def client_lost(self) -> None:
        """The client left."""
        self._end(keep_client=False)

    # What the other side calls.

    def from_upstream(self, data: bytes) -> None:
        """Bytes of the other process."""
        self._connection.write_raw(data)

    def upstream_congested(self, congested: bool) -> None:
        """The other process does not read fast enough, or does again."""
        if not self.ended:
            self._connection.pause_client(congested)

    def upstream_lost(self) -> None:
        """The other process ended the connection."""
        self._end(keep_client=False)

    def _end(self, *, keep_client: bool) -> None:
        if self.ended:
            return
        self.ended = True
        if self._task is not asyncio.current_task():
            self._task.cancel()
        self._upstream.close()
        if not keep_client:
            self._connection.close()
        self._on_end(self)


def _preamble(connection: Connection) -> bytes:
    try:
        return build_v1(split_address(connection.peer), split_address(connection.local))
    except (ResolveError, ValueError):  # the client left before anybody asked for its address
        return UNKNOWN_V1


class _Upstream(asyncio.Protocol):
    """The connection to the other process."""

    def __init__(self, owner: Splice) -> None:
        self.congested = False
        self._owner = owner
        self._transport: asyncio.Transport | None = None

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def pause(self, paused: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def close(self) -> None:
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_CUT_GRACE_S, transport.abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = tcp = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        tcp.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._owner.connected(tcp)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.upstream_lost()

    def data_received(self, data: bytes) -> None:
        self._owner.from_upstream(data)

    def pause_writing(self) -> None:
        self.congested = True
        self._owner.upstream_congested(True)

    def resume_writing(self) -> None:
        self.congested = False
        self._owner.upstream_congested(False)
