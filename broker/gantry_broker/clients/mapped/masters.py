"""Masters of the cluster's other broker groups, asked on behalf of clients."""

import asyncio
from collections.abc import Callable

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import Busy, RemotingError
from gantry_protocol.process.tasks import keep
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.pool import ClientPool
from gantry_protocol.tls.process import NO_TLS, Tls
from msgspec.structs import replace

from gantry_broker.clients.mapped.maps import ClusterMaps

CONNECT_TIMEOUT_S = 1.0
CONNECTING_MAX = 1_024  # questions that wait for a connection

Sign = Callable[[RemotingCommand], RemotingCommand]


class OtherMasters:
    """See the module.

    Args:
        maps: say where masters are.
        tls: of the process.
        sign: makes a question one that they believe.

    Attributes:
        unreachable: questions that met no master.
    """

    def __init__(
        self,
        maps: ClusterMaps,
        sign: Sign = lambda command: command,
        tls: Tls = NO_TLS,
    ) -> None:
        """Nothing is connected before somebody asks."""
        self.unreachable = 0
        self._maps = maps
        self._sign = sign
        self._pool = ClientPool(tls=tls)
        self._connecting: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Close everything; questions that wait get an error."""
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await self._pool.close()

    def ask(
        self,
        group: str,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
    ) -> None:
        """Send a question to the master of ``group``; ``done`` comes once, maybe at once."""
        address = self._maps.masters.get(group, "")
        if not address:
            self._fail(done, Busy(f"Broker group {group} has no master that is known here."))
            return
        client = self._pool.peek(address)
        if client is not None:
            self._send(address, command, done, timeout_s)
        elif len(self._connecting) >= CONNECTING_MAX:
            self._fail(done, Busy("Too many questions wait for a connection already."))
        else:
            task = keep(self._connect(address, command, done, timeout_s), "other-master")
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(
        self,
        address: str,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
    ) -> None:
        try:
            await self._pool.get(address, CONNECT_TIMEOUT_S)
        except RemotingError as error:
            self._fail(done, error)
        else:
            self._send(address, command, done, timeout_s)

    def _send(
        self,
        address: str,
        command: RemotingCommand,
        done: Callable[[Outcome], None],
        timeout_s: float,
    ) -> None:
        client = self._pool.peek(address)
        if client is None:
            self._fail(done, Busy(f"The connection to {address} has just ended."))
            return
        try:
            if command.is_oneway:
                client.oneway(self._sign(replace(command)))
            else:
                client.call_nowait(self._sign(replace(command)), done, timeout_s)
        except RemotingError as error:
            self._fail(done, error)

    def _fail(self, done: Callable[[Outcome], None], error: RemotingError) -> None:
        self.unreachable += 1
        self._maps.refresh()
        done(error)
