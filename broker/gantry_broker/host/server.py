"""The broker process: one data directory, the groups in it, and the orderly way in and out.

In: lock the data directory, listen, recover every group's volume, join the groups. Out, on SIGTERM:
accept no more writes, hand all masterships over at once, keep handing clients on to the new masters
until their pipes are quiet, close the volumes. Every step out has a bound, the same for one group
and for hundreds, and the sum of them is below the grace period of a pod.

What it refuses: another group's volume, a volume in use, a damaged one; each is one sentence and an
exit code. Where a process hosts many groups, what is wrong with one of them ends that one only; it
is named by the readiness probe, the status and the metrics, and the process goes on for the others.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from gantry_protocol.headers.controller import LOWEST_ELECTION_PRIORITY
from gantry_protocol.member_tls.names import MemberKind, MemberName
from gantry_protocol.member_tls.process import MemberTls, MemberTlsCollector
from gantry_protocol.process import log, runtime
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.process.files import make_directory
from gantry_protocol.process.live_settings import SettingsFile, SettingsWatch
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.steps import StepsApi, StepsMetrics, utc_now
from gantry_protocol.quorum_key import KeyFile, demand_key
from gantry_protocol.remoting.limits import fair_limits
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.settings.broker import FILE_BYTES_MIN, LIVE
from gantry_protocol.tier.keys import shared_uid
from gantry_protocol.tls.listeners import ListenerTlsCollector, listener_tls, written
from gantry_protocol.tls.process import Tls, TlsCollector
from gantry_protocol.tracing.export import TracingCollector, live_export

from gantry_broker.control.line import ControllerLine
from gantry_broker.decisions.replay import REPLICA
from gantry_broker.decisions.rings import GroupRings
from gantry_broker.host import metrics
from gantry_broker.host.client_options import ClientOptions
from gantry_broker.host.hosting import HostedGroup
from gantry_broker.host.port_map import election_priority
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.host.tracing import BrokerTracing
from gantry_broker.member import administration
from gantry_broker.member.options import GroupOptions
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.remote.serving import StoreServer
from gantry_broker.replica import DEFAULT_LIMITS, Limits
from gantry_broker.retention.core.rules import bounded_file_bytes
from gantry_broker.retention.disk_space import DiskSpace
from gantry_broker.tier.core.values import TierLimits
from gantry_broker.tier.options import TierOptions, tier_place
from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials

SWITCH_S = 0.0005  # a thread's turn while clients wait; each send would feel Python's 5 ms
MANY_GROUPS = 64  # from here on links are kept alive less often
MANY_HEARTBEAT_MS = 500  # a fourth of the silence after which a replica leaves its master's link

_log = log.get("server")


class BrokerServer:
    """One process's ports and what stands behind them.

    Attributes:
        hosted: the groups, in the order of the settings.
        stores: where fronts are served from all of them; None where none are.
    """

    def __init__(
        self, settings: BrokerSettings, file: SettingsFile[BrokerSettings] | None = None
    ) -> None:
        """Nothing is opened before ``run``; ``file`` is where other settings may come from."""
        self.settings = settings
        self._file = file
        self.http_port = settings.http_port
        client_options = ClientOptions.of(settings)
        turns, limits = Turns(), fair_limits()
        self._member_tls = MemberTls(
            settings,
            [MemberName(MemberKind.BROKER, settings.cluster, at.name) for at in settings.port_map],
        )
        self._key = KeyFile(settings.quorum_key_file, self._member_tls)
        self._tls = Tls(settings)
        self._listener_tls = listener_tls(settings, self._tls)
        self.stores = None if settings.store_port is None else StoreServer(self._key)
        self._spans = live_export(
            settings.tracing_endpoint, "gantry-broker", settings.cluster, settings.name
        )
        self._tracing = BrokerTracing(self._spans, settings.cluster, settings.tracing_ratio)
        self.hosted = [
            HostedGroup(
                at.name, client_options, self.stores, turns, limits, self._tls, self._tracing
            )
            for at in settings.port_map
        ]

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set or no group can go on.

        Raises:
            GantryError: an operating error, as one sentence.
        """
        async with AsyncExitStack() as stack:
            shared, options = await self._open(stack)
            groups = zip(self.hosted, options, strict=True)
            lives = [
                asyncio.create_task(self._live(hosted, group, shared)) for hosted, group in groups
            ]
            try:
                await self._serve_until(stop)
                await asyncio.gather(*(hosted.leave() for hosted in self.hosted))
            finally:
                for life in lives:
                    life.cancel()
                await asyncio.gather(*lives, return_exceptions=True)
        if all(hosted.failure.done() for hosted in self.hosted):
            self.hosted[0].failure.result()

    async def _live(
        self, hosted: HostedGroup, options: GroupOptions, shared: SharedResources
    ) -> None:
        """Read the volume and join; what is wrong with it ends this group."""
        try:
            await asyncio.to_thread(make_directory, options.directory)
            await hosted.open(options, shared)
            await hosted.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, no group stays half there
            hosted.fail(error)
            if len(self.hosted) > 1:
                _log.error(
                    "a group cannot take part", group=hosted.name, reason=hosted.failure.exception()
                )

    async def _serve_until(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set or every group has failed."""
        stopping = asyncio.create_task(stop.wait())
        failures: set[asyncio.Future[Any]] = {hosted.failure for hosted in self.hosted}
        try:
            while failures and not stopping.done():
                await asyncio.wait(failures | {stopping}, return_when=asyncio.FIRST_COMPLETED)
                failures = {failure for failure in failures if not failure.done()}
        finally:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)

    async def _open(self, stack: AsyncExitStack) -> tuple[SharedResources, list[GroupOptions]]:
        """Everything that needs neither volumes nor controllers, in the order of undoing."""
        settings = self.settings
        for tls in (self._tls, *self._listener_tls.values()):
            tls.load()
        self._member_tls.load()
        data_dir = await DataDir.open_async(
            settings.data_dir, "broker", settings.identity, settings.lock_wait_s
        )
        stack.callback(data_dir.close)
        self._spans.start()
        stack.push_async_callback(self._spans.stop)
        shared = SharedResources(
            ControllerLine(
                settings.cluster,
                settings.controllers,
                pod_uid=settings.pod_uid,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                heartbeat_timeout_ms=settings.heartbeat_timeout_ms,
                key=self._key,
            ),
            DiskSpace(data_dir.path, settings.watermarks),
            self._key,
            self._tls,
            logs_all_access=settings.access_log == "all",
            rings=GroupRings(settings.recorded_bytes, len(self.hosted), utc_now),
        )
        stack.push_async_callback(shared.stop)
        if self.stores is not None:
            stack.push_async_callback(self.stores.stop)
        stack.push_async_callback(self._stop_groups)
        firsts = settings.listener_ports
        for place, (hosted, at) in enumerate(zip(self.hosted, settings.port_map, strict=True)):
            await hosted.listen(settings.bind, at.port)
            for name, first in firsts.items():
                port = first + place if first else 0
                await hosted.listen_also(settings.bind, name, port, self._listener_tls[name])
        await shared.start(settings.bind, settings.ha_port)
        if self.stores is not None and settings.store_port is not None:
            await self.stores.start(settings.bind, settings.store_port)
        http = HttpServer(
            ready=lambda: metrics.ready(self.hosted),
            registry=metrics.registry(
                self.hosted, shared, self.stores, labelled=settings.hosts_many
            ),
        )
        http.registry.register(metrics.HttpCollector(http))
        http.registry.register(TlsCollector(self._tls))
        http.registry.register(ListenerTlsCollector(self._listener_tls))
        http.registry.register(MemberTlsCollector(self._member_tls))
        http.registry.register(TracingCollector(self._spans))
        self._serve_steps(http, shared.rings)
        http.add_route("GET", "/status", self._status)
        http.add_route("GET", "/status/{group}", self._group_status)
        self.http_port = await http.start(settings.bind, settings.http_port)
        stack.push_async_callback(http.stop)
        _log.info(
            "listening",
            remoting=self.hosted[0].port,
            ha=shared.ha_port,
            http=self.http_port,
            groups=len(self.hosted),
            group=self.hosted[0].name,
            **written(self.hosted[0].listener_ports),
        )
        tune = partial(self._tune, shared, data_dir.path)
        live = SettingsWatch(settings, LIVE, self._file, tune, shared.say)
        live.start()
        stack.push_async_callback(live.stop)
        return shared, [self._options(hosted, data_dir.path) for hosted in self.hosted]

    def _serve_steps(self, http: HttpServer, rings: GroupRings) -> None:
        by_group = rings.by_group
        steps = StepsApi(REPLICA, lambda: by_group, self.settings.name, rings.note)
        steps.add_to(http)
        http.registry.register(StepsMetrics("gantry_broker_", "replica cores", lambda: by_group))
        if rings.note:
            _log.warning("no steps are recorded", reason=rings.note)

    def _tune(self, shared: SharedResources, directory: Path, settings: BrokerSettings) -> None:
        """Put settings in force that have changed; all that is ``LIVE`` is told here, each time."""
        self.settings = settings
        log.set_level(settings.log_level)
        shared.access.logs_all = settings.access_log == "all"
        shared.disk_space.watermarks = settings.watermarks
        self._tracing.tune(settings.tracing_endpoint, settings.tracing_ratio)
        client_options = ClientOptions.of(settings)
        for hosted in self.hosted:
            hosted.tune(client_options, self._options(hosted, directory))

    async def _stop_groups(self) -> None:
        await asyncio.gather(*(hosted.stop() for hosted in self.hosted))

    def _options(self, hosted: HostedGroup, directory: Path) -> GroupOptions:
        settings = self.settings
        if settings.hosts_many:
            directory = directory / "groups" / hosted.name
        return GroupOptions(
            cluster=settings.cluster,
            group=hosted.name,
            directory=directory,
            advertise=settings.advertised,
            remoting_port=hosted.port,
            pod_uid=settings.pod_uid,
            log_segment_bytes=file_bytes(settings, directory),
            log_scrub_s=settings.log_scrub_hours * 3600,
            limits=limits_for(len(self.hosted), settings.heartbeat_timeout_ms),
            name=settings.name,
            priority=(
                election_priority(hosted.name, settings.name)
                if settings.hosts_many
                else LOWEST_ELECTION_PRIORITY
            ),
            tier=_tier(settings, hosted.name),
            kept=settings.kept,
            repeat_window_ms=settings.repeat_window_s * 1000,
            repeat_keys=max(1, settings.repeat_keys // len(self.hosted)),
        )

    async def _status(self, request: web.Request) -> web.Response:
        if self.settings.hosts_many:
            return web.json_response(metrics.overview(self.settings.cluster, self.hosted))
        return self._status_of(self.hosted[0])

    async def _group_status(self, request: web.Request) -> web.Response:
        for hosted in self.hosted:
            if hosted.name == request.match_info["group"]:
                return self._status_of(hosted)
        raise web.HTTPNotFound(text="This process hosts no such group; GET /status lists them.")

    @staticmethod
    def _status_of(hosted: HostedGroup) -> web.Response:
        if hosted.group is None:
            raise web.HTTPServiceUnavailable(text=f"The group is {hosted.ready()[1]}.")
        drain = None if hosted.processor is None else hosted.processor.drain
        return web.json_response(administration.status(hosted.group, hosted.router, drain))


async def serve(
    settings: BrokerSettings,
    stop: asyncio.Event,
    file: SettingsFile[BrokerSettings] | None = None,
) -> None:
    """Run one broker until ``stop`` is set; ``file`` is where other settings may come from.

    Raises:
        GantryError: an operating error, as one sentence.
    """
    demand_key(
        settings.quorum_key_file,
        allow_unauthenticated=settings.allow_unauthenticated,
        process="broker",
    )
    if settings.tier_url is not None:
        sys.setswitchinterval(SWITCH_S)
    runtime.collect_seldom()
    await BrokerServer(settings, file).run(stop)


def limits_for(groups: int, heartbeat_timeout_ms: int) -> Limits:
    """The waiting times of a member of one of so many groups in a process."""
    limits = msgspec.structs.replace(DEFAULT_LIMITS, cut_off_ms=heartbeat_timeout_ms)
    if groups < MANY_GROUPS:
        return limits
    return msgspec.structs.replace(limits, heartbeat_ms=MANY_HEARTBEAT_MS)


def file_bytes(settings: BrokerSettings, directory: Path) -> int:
    """The size of a file of the log: as set, or less on a small disk or in a small log."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return settings.log_segment_bytes
    kept_bytes = settings.kept.bytes if settings.tier_url is None else None
    return bounded_file_bytes(
        settings.log_segment_bytes, disk.f_blocks * disk.f_frsize, kept_bytes, FILE_BYTES_MIN
    )


def _tier(settings: BrokerSettings, group: str) -> TierOptions | None:
    if settings.tier_url is None or settings.tier_shard is None:
        return None
    uid = settings.tier_shard
    return TierOptions(
        url=settings.tier_url,
        place=tier_place(settings.cluster, shared_uid(uid, group) if settings.hosts_many else uid),
        credentials=_tier_credentials(settings),
        endpoint=settings.tier_endpoint,
        region=settings.tier_region,
        limits=TierLimits(
            pack_bytes=settings.tier_pack_bytes,
            linger_ms=settings.tier_linger_ms,
            retry_max_ms=settings.tier_retry_max_ms,
        ),
        local_bytes=settings.tier_local_bytes,
        groups=len(settings.port_map),
        owner=settings.tier_owner or "",
        former=settings.tier_former_owner or uid,
    )


def _tier_credentials(settings: BrokerSettings) -> Credentials | CredentialFiles:
    if settings.tier_credentials_dir is None:
        return Credentials.from_environment(os.environ)
    return CredentialFiles(settings.tier_credentials_dir)
