"""The broker process: ports, parts, and the orderly way in and out.

In: lock the data directory, recover the store, listen, join the group. Out, on SIGTERM: accept no
more writes, hand the mastership over, keep handing clients on to the new master until their pipes
are quiet, close the store. Every step out has a bound, and the sum of them is below the grace
period of a pod.

What it refuses: another group's volume, a volume in use, a damaged one; each is one sentence and an
exit code.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

from aiohttp import web
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.process import log
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.server import RemotingServer

from gantry_broker import administration
from gantry_broker.clients import ClientProcessor
from gantry_broker.delay.levels import DelayLevels
from gantry_broker.group import ReplicationGroup
from gantry_broker.group_options import GroupOptions, Watcher
from gantry_broker.routing import ClientRouter
from gantry_broker.settings import BrokerSettings
from gantry_broker.tier.options import TierOptions, tier_place
from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials
from gantry_broker.tier.values import Limits

LEAVE_WITHIN_S = 5.0  # hand-over, including a refused and a second try
SWITCH_S = 0.0005  # a thread's turn while clients wait; each send would feel Python's 5 ms
ANSWER_WITHIN_S = 0.2  # for answers that are being written when the process ends

_log = log.get("server")


class BrokerServer(Watcher):
    """One broker's ports and what stands behind them."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Nothing is opened before ``run``."""
        self.settings = settings
        self.remoting_port = settings.remoting_port
        self.http_port = settings.http_port
        self.group: ReplicationGroup | None = None
        self.router = ClientRouter(
            serving=lambda: self.group is not None and self.group.serving,
            leaving=lambda: self.group is not None and self.group.leaving,
            master_address=lambda: "" if self.group is None else self.group.master_address,
            ask=self._ask,
        )
        self.remoting = RemotingServer(
            self._handle, on_close=self._closed, on_response=self._answered
        )
        self._processor: ClientProcessor | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set or this broker cannot go on.

        Raises:
            GantryError: an operating error, as one sentence.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            group = self.group
            assert group is not None
            await self._serve_until(stop, group)
            if not group.failure.done():
                await self._leave(group)
        if group.failure.done():
            group.failure.result()

    async def _serve_until(self, stop: asyncio.Event, group: ReplicationGroup) -> None:
        """Until ``stop`` is set or the group has failed; joining takes as long as it takes."""
        starting = asyncio.create_task(group.start())
        stopping = asyncio.create_task(stop.wait())
        ends: set[asyncio.Future[Any]] = {stopping, group.failure}
        try:
            await asyncio.wait(ends | {starting}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)

    async def _open(self, stack: AsyncExitStack) -> None:
        """Everything up to the point where the controllers are needed, in the order of undoing."""
        settings = self.settings
        identity = {"cluster": settings.cluster, "group": settings.group}
        data_dir = await DataDir.open_async(
            settings.data_dir, "broker", identity, settings.lock_wait_s
        )
        stack.callback(data_dir.close)
        self.remoting_port = await self.remoting.start(settings.bind, settings.remoting_port)
        stack.push_async_callback(self.remoting.stop, ANSWER_WITHIN_S)
        group = await ReplicationGroup.open(self._options(data_dir))
        group.watcher = self
        self.group = group
        stack.push_async_callback(group.stop)
        # Before the store is closed, which takes a while: who connects now must find nobody here.
        stack.push_async_callback(self.remoting.stop, ANSWER_WITHIN_S)
        stack.callback(self._end_clients)
        http = HttpServer(
            ready=group.ready,
            registry=administration.registry(group, self.router, self.remoting.stats),
        )
        http.add_route("GET", "/status", self._status)
        self.http_port = await http.start(settings.bind, settings.http_port)
        stack.push_async_callback(http.stop)
        _log.info(
            "listening",
            remoting=self.remoting_port,
            http=self.http_port,
            group=settings.group,
            end=group.store.log.end,
        )

    def _options(self, data_dir: DataDir) -> GroupOptions:
        settings = self.settings
        return GroupOptions(
            cluster=settings.cluster,
            group=settings.group,
            directory=data_dir.path,
            controllers=settings.controllers,
            bind=settings.bind,
            advertise=settings.advertised,
            remoting_port=self.remoting_port,
            ha_port=settings.ha_port,
            pod_uid=settings.pod_uid,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            heartbeat_timeout_ms=settings.heartbeat_timeout_ms,
            log_segment_bytes=settings.log_segment_bytes,
            name=settings.name,
            tier=_tier(settings),
        )

    async def _leave(self, group: ReplicationGroup) -> None:
        """Hand over, and let every client finish what it is saying."""
        processor = self._processor
        if processor is not None:
            processor.flush_offsets(lambda: None)
        group.leave()
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await group.left.wait()
        except TimeoutError:
            _log.warning("nobody took over in time", epoch=group.epoch)
        await self.router.cut_all()

    # ---- Watcher

    def role_changed(self) -> None:
        """The role, the epoch or the master's address may be another."""
        self.router.role_changed()

    def serving_began(self) -> None:
        """Serve clients here."""
        assert self.group is not None
        levels = DelayLevels.parse(self.settings.delay_levels)
        self._processor = ClientProcessor(self.group.view, levels=levels)
        self.router.processor = self._processor

    def serving_ends(self) -> None:
        """Serve clients here no more; whoever waits for a record is sent on to ask again."""
        processor, self._processor = self._processor, None
        self.router.processor = None
        if processor is not None:
            processor.close()
            self.router.end_sessions(list(self.remoting.connections.values()))

    def _end_clients(self) -> None:
        self.serving_ends()
        self.router.close()

    # ---- requests

    def _handle(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        group = self.group
        if group is not None:
            match request.code:
                case RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                    group.notice(request)
                    return reply(request)
                case RequestCode.GET_BROKER_EPOCH_CACHE:
                    return administration.epoch_cache(group, request)
                case RequestCode.GET_BROKER_HA_STATUS:
                    return administration.ha_status(group, request)
        return self.router.handle(conn, request)

    def _answered(self, conn: Connection, response: RemotingCommand) -> bool:
        return self._processor is not None and self._processor.answered(conn, response)

    def _closed(self, conn: Connection) -> None:
        self.router.connection_closed(conn)
        if self._processor is not None:
            self._processor.connection_closed(conn)

    def _ask(self) -> None:
        if self.group is not None and self.group.agent is not None:
            self.group.agent.refresh()

    async def _status(self, request: web.Request) -> web.Response:
        assert self.group is not None
        return web.json_response(administration.status(self.group, self.router))


async def serve(settings: BrokerSettings, stop: asyncio.Event) -> None:
    """Run one broker until ``stop`` is set.

    Raises:
        GantryError: an operating error, as one sentence.
    """
    if settings.tier_url is not None:
        sys.setswitchinterval(SWITCH_S)
    await BrokerServer(settings).run(stop)


def _tier(settings: BrokerSettings) -> TierOptions | None:
    if settings.tier_url is None or settings.tier_shard is None:
        return None
    return TierOptions(
        url=settings.tier_url,
        place=tier_place(settings.cluster, settings.tier_shard),
        credentials=_tier_credentials(settings),
        endpoint=settings.tier_endpoint,
        region=settings.tier_region,
        limits=Limits(
            pack_bytes=settings.tier_pack_bytes,
            linger_ms=settings.tier_linger_ms,
            backoff_last_ms=settings.tier_retry_max_ms,
        ),
        local_bytes=settings.tier_local_bytes,
    )


def _tier_credentials(settings: BrokerSettings) -> Credentials | CredentialFiles:
    if settings.tier_credentials_dir is None:
        return Credentials.from_environment(os.environ)
    return CredentialFiles(settings.tier_credentials_dir)
