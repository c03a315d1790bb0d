"""One group at a front: its port for clients, its master, the store of that master.

A client is passed on to the master (``clients.routing``); sends and pulls are answered here while
the master's store is open (``asides``). The store is looked for where the master is, at the port
that all brokers have for it. While the group has no living master, ``bucket`` serves
what its tier holds.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gantry_protocol.bodies.fronts import FrontGroupRow
from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import join_address, split_address
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.limits import ConnectionLimits
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.tls.process import NO_TLS, Tls
from gantry_protocol.tracing.export import SpanExport
from gantry_protocol.types import Epoch

from gantry_broker.clients.access import ClusterUsers, stand_before
from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.request_rules import CLIENT_RULES
from gantry_broker.clients.routing import ClientRouter, Pipe
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.clients.traffic import Traffic
from gantry_broker.control.core.course import Course
from gantry_broker.control.peers import ControllerPeers
from gantry_broker.front.asides import Asides
from gantry_broker.front.bucket.group import Buckets, GroupBucket
from gantry_broker.front.core.shares import Shares
from gantry_broker.front.settings import FrontSettings
from gantry_broker.front.spread import SpreadStore
from gantry_broker.front.traced_passing import PassedSends, TracedPipe
from gantry_broker.front.view import FrontView
from gantry_broker.remote import messages as wire
from gantry_broker.remote.connecting import StoreConnection
from gantry_broker.remote.reader import ReplicaConnection
from gantry_broker.remote.store import RemoteStore


class LedGroup:
    """See the module.

    Args:
        name: of the group.
        settings: of the front.
        key: shown to stores.
        peers: the controllers.
        turns: of the process's event loop.
        limits: of the process's client connections.
        doubted: called when the master may be another one.
        buckets: the store of the groups' tiers; None without one.
        tls: of the process.
        access: users of the cluster; None lets everybody in.
        spans: takes those of traced sends, while it is on; None where nothing is traced, ever.

    Attributes:
        course: where clients are led.
        port: for clients; 0 before ``start``.
        served: requests that were answered here, ever.
        bucket: serves the group from its tier while it has no master; None without a tier.
    """

    def __init__(
        self,
        name: str,
        settings: FrontSettings,
        key: KeyFile,
        peers: ControllerPeers,
        turns: Turns,
        limits: ConnectionLimits,
        doubted: Callable[["LedGroup"], None],
        buckets: Buckets | None = None,
        tls: Tls = NO_TLS,
        access: ClusterUsers | None = None,
        spans: SpanExport | None = None,
    ) -> None:
        """Nothing is opened before ``start``."""
        self.name = name
        self._spans = spans
        self._ratio = settings.tracing_ratio
        self.port = 0
        self.course = Course()
        self._settings = settings
        self._key = key
        self._served = 0  # by stores that are lost
        self._traffic = Traffic(time.monotonic())
        self.asides: Asides | None = None
        self.shares = Shares()
        self.replicas: dict[int, ReplicaConnection] = {}
        self._readers: dict[int, str] = {}  # by broker id: replicas in sync, as last heard
        self._left = 0  # reads that replicas which are gone left to the master
        self._stopping: set[asyncio.Task[None]] = set()
        self.router = ClientRouter(
            master_address=lambda: self.course.address,
            epoch=lambda: self.course.epoch or 0,
            ask=lambda: doubted(self),
            tls=tls,
        )
        self._passed: PassedSends | None = None  # once tracing was on
        self.trace(self._ratio)
        self._ungate = None if access is None else stand_before(self.router, access)
        self.remoting = RemotingServer(
            self.router.handle,
            on_close=self._closed,
            rules=CLIENT_RULES,
            turns=turns,
            limits=limits,
            tls=tls,
        )
        self.connection = StoreConnection(self._store_address, settings.cluster, name, self, key)
        self._consumers = Consumers(
            settings.cluster, name, peers, Elsewhere(settings.cluster, peers)
        )
        self.bucket: GroupBucket | None = None
        if buckets is not None:
            self.bucket = GroupBucket(
                name,
                cluster=settings.cluster,
                buckets=buckets,
                peers=peers,
                router=self.router,
                connections=self.remoting.connections.values,
                is_served=lambda: self.connection.store is not None,
            )

    async def start(self, index: int) -> None:
        """Take clients.

        Raises:
            PortInUseError: somebody listens there.
        """
        settings = self._settings
        self.port = await self.remoting.start(settings.bind, settings.first_port + index)
        self.connection.start(join_address(settings.bind, self.port))
        if self.bucket is not None:
            self.bucket.start()

    async def leave(self) -> None:
        """Take nobody any more, and end each connection with an answer, or idle."""
        await self.remoting.stop_listening()
        if self.bucket is not None:
            self.bucket.close()
        await self.router.cut_all()

    async def stop(self, answer_within_s: float) -> None:
        """Close everything."""
        await self.connection.stop()
        await asyncio.gather(*self._stopping, *(one.stop() for one in self.replicas.values()))
        if self.bucket is not None:
            await self.bucket.stop()
        if self._ungate is not None:
            self._ungate()
        self.router.close()
        if self._passed is not None:
            self._passed.close()
        await self.remoting.stop(answer_within_s)

    def trace(self, ratio: float) -> None:
        """Trace such a share of the sends that come, if there is a collector now, else none.

        Sends under way stay traced until they are answered, or are not.
        """
        self._ratio = ratio
        if self._spans is None or not self._spans.is_on:
            self.router.make_pipe = Pipe
            return
        if self._passed is None:
            self._passed = PassedSends(self._spans, ratio, self.name)
        self._passed.ratio = ratio
        self.router.make_pipe = partial(TracedPipe, self._passed)
        for pipe in self.router.pipes:
            TracedPipe.take_over(pipe, self._passed)
        if self.asides is not None:
            self._trace_asides(self.asides, self._spans)

    def _trace_asides(self, asides: Asides, spans: SpanExport) -> None:
        if asides.traced is None:
            asides.trace(OpenSends(spans, self._ratio, self.name))
        else:
            asides.traced.ratio = self._ratio

    @property
    def is_known(self) -> bool:
        """Whether clients may be sent here: a master was known once, or the tier is served."""
        return self.course.known or (self.bucket is not None and self.bucket.takes_requests)

    def heard(self, row: FrontGroupRow) -> bool:
        """A controller has named the master; whether that is news."""
        if self.bucket is not None:
            self.bucket.named(row.uid)
        self._readers = dict(row.replicas)
        self._look_at_replicas()
        if not self.course.heard(row.epoch, row.master_address):
            return False
        if self.bucket is not None and row.master_address:
            self.bucket.has_master()
        self.router.role_changed()
        self.connection.master_changed()
        return True

    @property
    def served(self) -> int:
        """Requests that were answered here, ever."""
        return self._served + (0 if self.asides is None else self.asides.served)

    @property
    def left(self) -> int:
        """Reads that replicas left to the master, ever."""
        return self._left + sum(replica.left for replica in self.replicas.values())

    def status(self) -> dict[str, Any]:
        """The group's part in the status document."""
        course, connection = self.course, self.connection
        return {
            "group": self.name,
            "port": self.port,
            "epoch": course.epoch or 0,
            "masterAddress": course.address or None,
            "storeAddress": connection.address if self.asides is not None else None,
            "noStore": None if self.asides is not None else connection.reason,
            "connections": self.remoting.stats.connections,
            "held": self.router.held,
            "served": self.served,
            "readsAt": sorted(member for member, one in self.replicas.items() if one.is_open),
            "tier": None if self.bucket is None else self.bucket.status(),
        }

    # ---- Served

    def store_opened(self, store: RemoteStore, epoch: Epoch) -> None:
        """Answer sends and pulls from now on."""
        if self.bucket is not None:
            self.bucket.has_master()
        view = FrontView(
            store, cluster=self._settings.cluster, store_host=self.connection.store_host
        )
        spread = SpreadStore(store, self.replicas, self.shares)
        self.asides = Asides(view, store, epoch, self._consumers, self._traffic, spread)
        if self._spans is not None and self._spans.is_on:
            self._trace_asides(self.asides, self._spans)
        self.router.aside = self.asides.take

    def state_told(self, state: wire.State) -> None:
        """Read settings of consumer groups that are new, and from replicas that are wanted."""
        self._look_at_replicas()
        self._consumers.catch_up(state.subscriptions_version)

    def store_lost(self) -> None:
        """Leave everything to masters, first of all what was to be answered here."""
        asides, self.asides = self.asides, None
        self.router.aside = None
        if asides is not None:
            self._served += asides.served
            self.router.take_back()
            asides.close()

    def beat(self) -> wire.Ping:
        """Tell the master what has gone through."""
        pulled = [] if self.asides is None else self.asides.pulled.take()
        return wire.Ping(*self._traffic.take(), pulled)

    # ---- inside

    def _look_at_replicas(self) -> None:
        """Have a link to each replica in sync, where some topic has readers."""
        store = self.connection.store
        is_wanted = store is not None and store.topics.has_readers
        wanted = {
            member: self._store_at(address)
            for member, address in (self._readers if is_wanted else {}).items()
        }
        for member, replica in list(self.replicas.items()):
            if wanted.get(member) != replica.address:
                del self.replicas[member]
                self._left += replica.left
                task = asyncio.create_task(replica.stop())
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)
        for member, address in wanted.items():
            if address and member not in self.replicas:
                replica = ReplicaConnection(address, self._settings.cluster, self.name, self._key)
                self.replicas[member] = replica
                replica.start()

    def _store_address(self) -> str:
        return self._store_at(self.course.address)

    def _store_at(self, address: str) -> str:
        try:
            host, _ = split_address(address)
        except ResolveError:
            return ""
        return join_address(host, self._settings.store_port)

    def _closed(self, conn: Connection) -> None:
        self.router.connection_closed(conn)
        if self.asides is not None:
            self.asides.forget(conn)
        if self.bucket is not None:
            self.bucket.forget(conn)
