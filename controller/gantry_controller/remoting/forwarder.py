"""Requests passed on to the leader, over one pipelined connection.

The connection is made when the first request needs it and follows the leader. While it is being
made a bounded number of requests waits; each request is sent at most once, so nothing that may have
taken effect is ever repeated. The leader believes what comes on it, since this node shows it the
quorum's key; what the key is needed for was judged where the request came in.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import Busy, ConfigError, ConnectError, KeyRefused, RemotingError
from gantry_protocol.process import log
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.key_requests import show_key
from gantry_protocol.types import NodeId

FORWARDED = "gantryForwarded"
"""The extension field that marks a request as passed on; it must not travel further."""

WAITING_MAX = 4096
CONNECT_TIMEOUT_S = 1.0
CALL_TIMEOUT_S = 2.3  # less than the dispatcher's own deadline

_log = log.get("forwarder")

Done = Callable[[RemotingCommand | Exception], None]


class Forwarder:
    """The way to the leader.

    Args:
        address_of: the remoting address of a node.
        key: shown to the leader.
    """

    def __init__(self, address_of: Callable[[NodeId], str], key: KeyFile = NO_KEY) -> None:
        self.forwarded = 0
        self.failed = 0
        self._address_of = address_of
        self._key = key
        self._leader: NodeId | None = None
        self._client: RemotingClient | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[RemotingCommand, Done]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection."""
        return len(self._waiting)

    def forward(self, leader: NodeId, request: RemotingCommand, done: Done) -> None:
        """Sends a copy of ``request`` to ``leader``; ``done`` gets the answer, or what failed."""
        self.forwarded += 1
        if leader != self._leader:
            self._follow(leader)
        copy = RemotingCommand(
            code=request.code,
            flag=request.flag,
            language=request.language,
            version=request.version,
            ext={**(request.ext or {}), FORWARDED: "1"},
            body=request.body,
        )
        if self._client is not None and not self._client.closed:
            self._send(self._client, copy, done)
        elif len(self._waiting) >= WAITING_MAX:
            self._fail(done, Busy("Too many requests wait for a connection to the leader."))
        else:
            self._waiting.append((copy, done))
            if self._connecting is None:
                self._connecting = keep(self._connect(leader), "to-leader")

    async def close(self) -> None:
        """Ends the connection; what waits fails."""
        task = self._connecting
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._drop(Busy("This node stops."))

    def _follow(self, leader: NodeId) -> None:
        self._leader = leader
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._drop(Busy("The leader changed."))

    def _drop(self, why: RemotingError) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        while self._waiting:
            _, done = self._waiting.popleft()
            self._fail(done, why)

    async def _connect(self, leader: NodeId) -> None:
        client = RemotingClient(member_tls=self._key.tls)
        try:
            await client.connect(self._address_of(leader), CONNECT_TIMEOUT_S)
            await show_key(client, self._key, CONNECT_TIMEOUT_S)
        except (RemotingError, ConfigError) as error:
            if isinstance(error, KeyRefused | ConfigError):
                _log.warning("the leader cannot be asked", leader=leader, reason=error)
            self._connecting = None
            self._drop(error if isinstance(error, ConnectError) else Busy(str(error)))
            return
        self._connecting = None
        self._client = client
        while self._waiting:
            self._send(client, *self._waiting.popleft())

    def _send(self, client: RemotingClient, command: RemotingCommand, done: Done) -> None:
        def answered(outcome: RemotingCommand | RemotingError) -> None:
            if isinstance(outcome, RemotingError):
                self.failed += 1
            done(outcome)

        try:
            if command.is_oneway:
                client.oneway(command)
            else:
                client.call_nowait(command, answered, CALL_TIMEOUT_S)
        except RemotingError as error:
            self._fail(done, error)

    def _fail(self, done: Done, why: RemotingError) -> None:
        self.failed += 1
        done(why)
