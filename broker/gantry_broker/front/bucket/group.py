"""The decision to serve a group from its tier: while it has no living master, and only then.

The tier is followed all along, so that it can be read at once. The controllers' leader is asked
whether the master lives while its store is not open here (``core.absence``). When the group is
off, the tables are read, and the clients who wait for a master are served from the tier. When a
master is named, clients are passed on to it with what they wait for, as by a master that ends.

What it refuses: to serve from a tier that has moved since its tables were read. They are read
again.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gantry_protocol.bodies import decode_body, encode_body
from gantry_protocol.bodies.controller import BrokerReplicasInfo, ReplicasInfo
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError, WireError
from gantry_protocol.process import log
from gantry_protocol.process.tasks import keep
from gantry_protocol.remoting.asking import Asker
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.tier.judgement import group_name
from gantry_protocol.tier.keys import MetaKey, Shard
from gantry_protocol.tier.manifests import MAX_OBJECT_BYTES
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_broker.clients.elsewhere import Elsewhere
from gantry_broker.clients.routing import ClientRouter
from gantry_broker.front.bucket.clients import BucketConsumers, BucketProcessor, BucketView
from gantry_broker.front.bucket.store import BucketStore
from gantry_broker.front.bucket.tables import NotKnownError, asked, read_tables
from gantry_broker.front.core.absence import ASK_EVERY_S, Absence
from gantry_broker.front.settings import FrontSettings, named_places
from gantry_broker.tier.cache import Budget
from gantry_broker.tier.core.values import TierLimits
from gantry_broker.tier.options import TierOptions, open_tier, tier_place
from gantry_broker.tier.reader import FOLLOW_MAX_S, RunCache, TierReader
from gantry_broker.tier.stores.calls import CallStats, DeadlineCalls
from gantry_broker.tier.stores.contract import Store
from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials

if TYPE_CHECKING:
    from gantry_protocol.bodies.consumers import ConsumerMembership

_log = log.get("front")


class Buckets:
    """The store of all groups of a process, and what is read from it: one cache for all.

    Attributes:
        cache: of runs.
        budget: bytes that are on their way.
        calls: counts of the store's calls, by who makes them.
        tls: of the process.
    """

    def __init__(self, settings: FrontSettings, tls: Tls = NO_TLS) -> None:
        self.tls = tls
        self.cache = RunCache()
        self.budget = Budget()
        self._settings = settings
        self._named = named_places(settings.tier_shards)
        self._calls = DeadlineCalls("tier-read")
        self.calls: dict[str, CallStats] = {"read": self._calls.stats}

    async def close(self) -> None:
        """End all reads."""
        await self.cache.close()

    def place(self, group: str, uid: str) -> Shard | None:
        """The place of a group; None while nobody has named it.

        Raises:
            ConfigError: it cannot be one.
        """
        name = self._named.get(group, uid)
        return tier_place(self._settings.cluster, name) if name else None

    def open(self, place: Shard) -> Store:
        """The store, for one group."""
        settings = self._settings
        directory = settings.tier_credentials_dir
        options = TierOptions(
            url=settings.tier_url or "",
            place=place,
            credentials=Credentials.from_environment(os.environ)
            if directory is None
            else CredentialFiles(directory),
            endpoint=settings.tier_endpoint,
            region=settings.tier_region,
            limits=TierLimits(),
        )
        return open_tier(options, self._calls)


class GroupBucket:
    """See the module; implements ``Served``.

    Args:
        group: its name.
        cluster: of it.
        buckets: of the process.
        peers: the controllers.
        router: of the group's clients.
        connections: of them.
        is_served: whether a master's store is open.

    Attributes:
        processor: serves clients; None while a master does.
        reader: of the tier; None while nobody has said where it is.
        reason: why it is not served from the tier.
        opened: how often it was.
        leaving: never; the router asks.
    """

    leaving = False

    def __init__(
        self,
        group: str,
        *,
        cluster: str,
        buckets: Buckets,
        peers: Asker,
        router: ClientRouter,
        connections: Callable[[], Iterable[Connection]],
        is_served: Callable[[], bool],
    ) -> None:
        """Nothing is read before ``start``."""
        self.processor: BucketProcessor | None = None
        self.reader: TierReader | None = None
        self.reason = "the group has a master"
        self.opened = 0
        self.absence = Absence()
        self._served = self._read_bytes = 0  # by processors that are closed
        self._group = group
        self._cluster = cluster
        self._buckets = buckets
        self._peers = peers
        self._router = router
        self._connections = connections
        self._is_served = is_served
        self._elsewhere = Elsewhere(cluster, peers)
        self._members: dict[str, ConsumerMembership] = {}  # whom the last master heard
        self._uid = ""
        self._version = 0  # of the chain that is served
        self._store: BucketStore | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the tier, once its place is known."""
        self._task = keep(self._run(), f"bucket-{self._group}")

    async def stop(self) -> None:
        """End everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.close()
        if self.reader is not None:
            await self.reader.stop()

    def named(self, uid: str) -> None:
        """A controller has said as what the group was declared."""
        self._uid = uid

    def has_master(self) -> None:
        """A master was named anew, or reached: it serves from now on."""
        self.absence.ended()
        self._members = {}
        self.close()
        self.reason = "the group has a master"

    @property
    def takes_requests(self) -> bool:
        """Whether clients are served from the tier."""
        return self.processor is not None

    @property
    def served(self) -> int:
        """Requests that were answered from the tier, ever."""
        return self._served + (0 if self.processor is None else self.processor.served)

    @property
    def read_bytes(self) -> int:
        """Bytes of records that were read from the tier, ever."""
        return self._read_bytes + (0 if self.processor is None else self.processor.read_bytes)

    @property
    def waiting(self) -> int:
        """Pulls that wait for the object store."""
        return 0 if self._store is None else len(self._store.waits)

    def forget(self, conn: Connection) -> None:
        """A client left."""
        if self.processor is not None:
            self.processor.connection_closed(conn)

    def status(self) -> dict[str, Any]:
        """The tier's part in the status document."""
        reader = self.reader
        return {
            "isServed": self.takes_requests,
            "reason": "" if self.takes_requests else self.reason,
            "readableOffset": None if reader is None else reader.readable_end,
            "unreadable": None if reader is None else reader.readable.complaint or None,
        }

    # ---- when

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except (GantryError, OSError) as error:
                self._not_served(str(error))
            await asyncio.sleep(ASK_EVERY_S)

    async def _look(self) -> None:
        if self.reader is None and not await self._follow():
            return
        if self._is_served():
            self.has_master()
            return
        was_off = self.absence.is_off
        self.absence.heard(await self._asked_leader(), asyncio.get_running_loop().time())
        if not self.absence.is_off:
            if was_off:
                self.has_master()
            return
        assert self.reader is not None
        if not was_off:
            self.reader.poke()
        if self.takes_requests and self._version != self.reader.index.chain.v:
            self.close()
        if not self.takes_requests:
            await self._open(self.reader)

    async def _follow(self) -> bool:
        """Whether the tier is followed from now on."""
        place = self._buckets.place(self._group, self._uid)
        if place is None:
            self.reason = "nobody has declared the group: name its place with tier_shards"
            return False
        store = self._buckets.open(place)
        meta = await store.get(place.key(MetaKey()), max_bytes=MAX_OBJECT_BYTES)
        owner = self._group if meta is None else group_name(meta, place)
        if owner != self._group:
            self.reason = f"{place.uid} is the place of the group {owner}, not of this one"
            return False
        self.reader = TierReader(
            store,
            place,
            follow_s=FOLLOW_MAX_S,
            moved=lambda chain: None,
            failed=self._failed,
            cache=self._buckets.cache,
            budget=self._buckets.budget,
        )
        self.reader.start()
        return True

    async def _asked_leader(self) -> ReplicasInfo | None:
        """What the controllers' leader says of the members; None if it says nothing."""
        command = request(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body([self._group])
        )
        try:
            answer = await asked(self._peers, command, "whether the master lives")
            table = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table
        except (NotKnownError, WireError) as error:
            self._not_served(str(error))
            return None
        return table.get(self._group)

    async def _open(self, reader: TierReader) -> None:
        as_of = await read_tables(reader, self._peers, self._cluster, self._group)
        if not self.absence.is_off:
            return  # a master came meanwhile
        self._members = {**self._members, **as_of.members}
        consumers = BucketConsumers(as_of.settings, self._members, self._elsewhere, self._group)
        self._store = BucketStore(reader, as_of)
        view = BucketView(
            self._store,
            consumers,
            cluster=self._cluster,
            broker_name=self._group,
            peers=self._peers,
            tls=self._buckets.tls,
        )
        self._version = as_of.version
        self.opened += 1
        self.processor = BucketProcessor(view)
        _log.warning("group is served from its tier", group=self._group, version=as_of.version)
        self._router.member = self
        self._router.processor = self.processor
        self._router.role_changed()

    def close(self) -> None:
        """Serve nobody from the tier; clients are passed on to whoever is the master next."""
        processor, self.processor = self.processor, None
        if processor is None:
            return
        self._router.processor = None
        self._served += processor.served
        self._read_bytes += processor.read_bytes
        processor.close()
        self._store = None
        self._router.end_sessions(list(self._connections()))
        self._router.role_changed()
        _log.info("group is served from its tier no more", group=self._group)

    def _not_served(self, reason: str) -> None:
        if reason != self.reason and self.absence.is_off:
            _log.warning("group cannot be served from its tier", group=self._group, reason=reason)
        self.reason = reason

    def _failed(self, error: BaseException) -> None:
        """A fault of ours: for the loop's handler, which ends the process."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": "the tier's reader died", "exception": error}
        )
