"""One client per address, connected when first asked for, and never more than a stated number.

Whoever asks for an address that is being connected waits for the same attempt. A client that lost
its connection is replaced at the next request; the pool never reconnects by itself, so how often to
try is the caller's decision.
"""

import asyncio
from collections.abc import Callable

from gantry_protocol.errors import Busy, ConnectionClosed
from gantry_protocol.remoting.client import CONNECT_TIMEOUT_S, RemotingClient, RequestHandler, Sign
from gantry_protocol.remoting.stats import ClientStats
from gantry_protocol.tls.process import NO_TLS, Tls

MAX_CLIENTS = 1024
ATTEMPTS_MAX = 4


class ClientPool:
    """Clients by address.

    Args:
        on_request: serves what any server asks of us.
        on_close: told about every connection that ends.
        max_clients: addresses at once; when all are taken, an idle client makes room.
        hedge_after_s: an attempt to connect that takes longer is joined by another one, at most
            ``ATTEMPTS_MAX`` at once, and the first connection is used (after RFC 8305 section 5).
            For addresses with several servers behind them, of which one may stand still; None for
            addresses that are one server.
        tls: of the process.
        sign: makes each request one that a user has signed.
    """

    def __init__(
        self,
        *,
        on_request: RequestHandler | None = None,
        on_close: Callable[[RemotingClient], None] | None = None,
        max_clients: int = MAX_CLIENTS,
        hedge_after_s: float | None = None,
        tls: Tls = NO_TLS,
        sign: Sign | None = None,
    ) -> None:
        self._tls = tls
        self.stats = ClientStats()
        self._on_request = on_request
        self._on_close = on_close
        self._max_clients = max_clients
        self._hedge_after_s = hedge_after_s
        self._sign = sign
        self._clients: dict[str, RemotingClient] = {}  # least recently asked for first
        self._connecting: dict[str, asyncio.Task[RemotingClient]] = {}
        self._closed = False

    def peek(self, address: str) -> RemotingClient | None:
        """The connected client of ``address``, if there is one now."""
        client = self._clients.get(address)
        return None if client is None or client.closed else client

    async def get(self, address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> RemotingClient:
        """The client of ``address``, connected.

        A cancelled caller leaves the attempt to the others that wait for it. The time-out is that
        of the caller who started the attempt.

        Raises:
            ConnectError: no connection.
            Busy: all clients are taken and none is idle.
            ConnectionClosed: the pool is closed.
        """
        client = self.peek(address)
        if client is not None:
            self._clients[address] = self._clients.pop(address)
            return client
        task = self._connecting.get(address)
        if task is None:
            if self._closed:
                raise ConnectionClosed("The pool of clients is closed.")
            self._make_room()
            task = asyncio.create_task(self._connect(address, timeout_s))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # the pool was closed, not the caller cancelled
                raise ConnectionClosed("The pool of clients is closed.") from None
            raise

    def drop(self, address: str) -> None:
        """Close the client of ``address``; the next ``get`` connects anew."""
        client = self._clients.pop(address, None)
        if client is not None:
            client.close()

    async def close(self) -> None:
        """Close all clients and give up all attempts."""
        self._closed = True
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for address in list(self._clients):
            self.drop(address)

    async def _connect(self, address: str, timeout_s: float) -> RemotingClient:
        if self._hedge_after_s is None:
            return await self._attempt(address, timeout_s)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        attempts: list[asyncio.Task[RemotingClient]] = []
        try:
            while True:
                attempts.append(asyncio.create_task(self._attempt(address, deadline - loop.time())))
                last = len(attempts) == ATTEMPTS_MAX
                done, _ = await asyncio.wait(
                    attempts,
                    timeout=None if last else self._hedge_after_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if done:
                    # A refusal ends the race too: somebody answered, and the caller may try again.
                    return attempts.pop(attempts.index(done.pop())).result()
        finally:
            await _give_up(attempts)

    async def _attempt(self, address: str, timeout_s: float) -> RemotingClient:
        client = RemotingClient(
            on_request=self._on_request,
            on_close=self._forget,
            stats=self.stats,
            tls=self._tls,
            sign=self._sign,
        )
        return await client.connect(address, timeout_s)

    def _connected(self, address: str, task: asyncio.Task[RemotingClient]) -> None:
        del self._connecting[address]
        if task.cancelled() or task.exception() is not None:
            return
        client = task.result()
        if self._closed:
            client.close()
        elif not client.closed:
            self._clients[address] = client

    def _forget(self, client: RemotingClient) -> None:
        if self._clients.get(client.address) is client:
            del self._clients[client.address]
        if self._on_close is not None:
            self._on_close(client)

    def _make_room(self) -> None:
        if len(self._clients) + len(self._connecting) < self._max_clients:
            return
        for address, client in self._clients.items():
            if not client.pending_calls:
                self.drop(address)
                return
        self.stats.busy += 1
        raise Busy(f"All {self._max_clients} clients of the pool are connecting or waiting.")


async def _give_up(attempts: list[asyncio.Task[RemotingClient]]) -> None:
    """End attempts that lost, and connections that came too late to be used."""
    for attempt in attempts:
        attempt.cancel()
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, RemotingClient):
            outcome.close()
