"""A broker without a disk: it serves clients, and another process keeps what they say (RIP-19).

It holds nothing that cannot be made again: sessions and parked pulls come back with the clients,
tables with the link to the storage process, and every record is there. So any number of them may
stand ready; the storage process serves from its store to one at a time.

Out, on SIGTERM: committed offsets are written, connections are cut between two requests where that
is possible, and the place at the store is free for the next broker.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web
from gantry_protocol.command import RemotingCommand
from gantry_protocol.hosts import join_address
from gantry_protocol.process import log
from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.limits import fair_limits
from gantry_protocol.remoting.server import RemotingServer
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.consumers import Claim, Consumers
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.request_rules import CLIENT_RULES
from gantry_broker.clients.routing import ClientRouter
from gantry_broker.clients.transaction_metrics import TransactionCollector
from gantry_broker.clients.waiting_metrics import WaitingCollector
from gantry_broker.host.client_options import ClientOptions
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.member.administration import error_answers
from gantry_broker.remote import messages as wire
from gantry_broker.remote.connecting import StoreConnection
from gantry_broker.remote.store import RemoteStore
from gantry_broker.remote.view import RemoteView

if TYPE_CHECKING:
    from gantry_broker.clients import ClientProcessor

ANSWER_WITHIN_S = 0.2  # for answers that are being written when the process ends
FLUSH_WITHIN_S = 1.0

_log = log.get("server")


class FrontServer:
    """One such broker's ports and what stands behind them."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Nothing is opened before ``run``."""
        self.settings = settings
        self.remoting_port = settings.remoting_port
        self.http_port = settings.http_port
        self.processor: ClientProcessor | None = None
        self.router = ClientRouter(
            master_address=lambda: "",
            epoch=self._epoch,
            ask=lambda: None,
        )
        self.router.member = self
        self.leaving = False  # it has no mastership to hand over
        self.remoting = RemotingServer(
            self.router.handle,
            on_close=self._closed,
            on_response=self._answered,
            rules=CLIENT_RULES,
            limits=fair_limits(),
        )
        self.group = settings.port_map[0].name
        self.key = KeyFile(settings.quorum_key_file)
        self.connection = StoreConnection(
            settings.store, settings.cluster, self.group, self, self.key
        )
        self._consumers: Consumers | None = None
        self._was_accepting = False

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set.

        Raises:
            GantryError: an operating error, as one sentence.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            await stop.wait()
            await self._leave()

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        self.remoting_port = await self.remoting.start(settings.bind, settings.remoting_port)
        stack.push_async_callback(self.remoting.stop, ANSWER_WITHIN_S)
        stack.callback(self.router.close)
        stack.push_async_callback(self.connection.stop)
        made = CollectorRegistry()
        made.register(FrontCollector(self))
        http = HttpServer(ready=self.ready, registry=made)
        http.add_route("GET", "/status", self._status)
        self.http_port = await http.start(settings.bind, settings.http_port)
        stack.push_async_callback(http.stop)
        self.connection.start(self.address)
        _log.info(
            "listening", remoting=self.remoting_port, http=self.http_port, store=settings.store
        )

    async def _leave(self) -> None:
        """Write what consumers have committed, and let every client finish what it is saying."""
        if self.processor is not None:
            written = asyncio.Event()
            self.processor.flush_offsets(written.set)
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_WITHIN_S):
                    await written.wait()
        await self.router.cut_all()

    @property
    def address(self) -> str:
        """The address of this broker for clients."""
        return join_address(self.settings.advertised, self.remoting_port)

    @property
    def takes_requests(self) -> bool:
        """Whether clients are served here."""
        return self.processor is not None

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here, and why not."""
        connection = self.connection
        if connection.store is None or connection.claim is None:
            return False, f"no store: {connection.reason}"
        return True, f"served by {connection.address} in epoch {connection.claim.epoch}"

    def _epoch(self) -> int:
        claim = self.connection.claim
        return 0 if claim is None else claim.epoch

    # ---- Served

    def store_opened(self, store: RemoteStore, claim: Claim) -> None:
        """Serve clients from now on, with nothing of what was before."""
        settings = self.settings
        consumers = self._consumers = Consumers(
            settings.cluster, self.group, store, Elsewhere(settings.cluster, store)
        )
        consumers.began(claim)
        view = RemoteView(
            store,
            cluster=settings.cluster,
            broker_name=self.group,
            store_host=(settings.advertised, self.remoting_port),
            consumers=consumers,
        )
        self.processor = ClientOptions.of(settings).processor(view, store)
        self.router.processor = self.processor
        self.router.role_changed()

    def state_told(self, state: wire.State) -> None:
        """Write what consumers have committed before a master leaves."""
        is_accepting = state.refusal is None
        if self._was_accepting and not is_accepting and self.processor is not None:
            self.processor.flush_offsets(lambda: None)
        self._was_accepting = is_accepting
        if self._consumers is not None:
            self._consumers.catch_up(state.subscriptions_version)

    def store_lost(self) -> None:
        """Serve nobody; clients with sessions here connect anew."""
        processor, self.processor = self.processor, None
        consumers, self._consumers = self._consumers, None
        self.router.processor = None
        if processor is not None and consumers is not None:
            processor.close()
            consumers.end()
            self.router.end_sessions(list(self.remoting.connections.values()))
        self.router.role_changed()

    def _closed(self, conn: Connection) -> None:
        self.router.connection_closed(conn)
        if self.processor is not None:
            self.processor.connection_closed(conn)

    def _answered(self, conn: Connection, response: RemotingCommand) -> bool:
        return self.processor is not None and self.processor.answered(conn, response)

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self.status())

    def status(self) -> dict[str, Any]:
        """The status document of ``GET /status``."""
        connection, store = self.connection, self.connection.store
        ready, reason = self.ready()
        return {
            "cluster": self.settings.cluster,
            "group": self.group,
            "address": self.address,
            "role": "front",
            "ready": ready,
            "reason": reason,
            "storeAddress": None if store is None else connection.address,
            "epoch": 0 if connection.claim is None else connection.claim.epoch,
            "topicsVersion": 0 if store is None else store.topics.version,
            "held": self.router.held,
        }


class FrontCollector(Collector):
    """The metrics of a broker without a disk."""

    def __init__(self, front: FrontServer) -> None:
        """Nothing is counted here."""
        self._front = front

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        front, connection = self._front, self._front.connection
        store = connection.store
        yield gauge("gantry_front_ready", "1 while a store is served from.", front.ready()[0])
        yield gauge(
            "gantry_front_appending_bytes",
            "Bytes that were sent to the store and not answered.",
            0 if store is None else store.appending_bytes,
        )
        yield gauge(
            "gantry_front_store_requests",
            "Other requests to the store that were not answered.",
            0 if store is None else store.waiting,
        )
        yield counter(
            "gantry_front_busy_answers",
            "Requests refused as too many under way to the present store.",
            0 if store is None else store.refused,
        )
        yield counter("gantry_front_stores_opened", "Stores that were found.", connection.opened)
        yield counter(
            "gantry_front_stores_refused", "Refusals of storage processes.", connection.refused
        )
        yield counter(
            "gantry_front_unknown_appends",
            "Appends whose outcome nobody knows, since the link was lost.",
            connection.unknown,
        )
        yield gauge("gantry_front_held_connections", "Waiting for a store.", front.router.held)
        yield error_answers("gantry_front", front.remoting.error_answers)
        stats = front.remoting.stats
        yield gauge("gantry_front_connections", "Open client connections.", stats.connections)
        yield counter("gantry_front_requests", "Requests served.", stats.requests)
        processor = front.processor
        yield from TransactionCollector(
            lambda: None if processor is None else processor.transactions
        ).collect()
        yield from WaitingCollector(
            lambda: None if processor is None else processor.waiting_room
        ).collect()
