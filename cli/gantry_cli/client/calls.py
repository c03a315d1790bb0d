"""Calls to addresses over one connection each, as the producer and the consumer need them.

The rule protected here: a connection on which an answer did not come in time is never used again.
It may lead to a stopped process, or through one, and TCP alone would not say so for minutes. For
the same reason a second attempt joins one that does not connect at once: behind a group's address
are several replicas, and one on a lost node is still chosen while Kubernetes has not noticed. What
it refuses: more than one connection per address, as every RocketMQ client does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gantry_protocol.errors import RequestTimeout
from gantry_protocol.remoting.admission import signed
from gantry_protocol.remoting.pool import ClientPool
from gantry_protocol.tls.process import NO_TLS, Tls
from msgspec.structs import replace

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand

HEDGE_AFTER_S = 0.25  # the delay that RFC 8305 recommends


class Caller(Protocol):
    """The network, as the rest of the client sees it."""

    async def call(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Send `command` to `address` and return the answer, whatever its code.

        Raises:
            ConnectError: nothing was sent.
            RequestTimeout, ConnectionClosed: the outcome is unknown.
            Busy: a local bound is full; nothing was sent.
            ResolveError: `address` has no IP address now.
        """
        ...


class Connections:
    """A `Caller` over the protocol's pool of clients.

    Args:
        connect_timeout_s: for each address.
        credentials: a user and its secret, which sign each request; None signs none.
        tls: of the process.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 1.0,
        credentials: tuple[str, bytes] | None = None,
        tls: Tls = NO_TLS,
    ) -> None:
        self._credentials = credentials
        self._connect_timeout_s = connect_timeout_s
        self._pool = ClientPool(hedge_after_s=HEDGE_AFTER_S, tls=tls)

    async def call(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """See `Caller.call`; a time-out ends the connection for everybody who uses it."""
        client = await self._pool.get(address, self._connect_timeout_s)
        if self._credentials is not None:
            command = signed(replace(command), *self._credentials)
        try:
            return await client.call(command, timeout_s)
        except RequestTimeout:
            client.abort()
            raise

    async def close(self) -> None:
        """Close every connection; calls in flight end with `ConnectionClosed`."""
        await self._pool.close()
