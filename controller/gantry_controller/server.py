"""One controller process: every part made, joined, started and stopped in order.

The data directory belongs to one node of one quorum; anything else in it is refused before anything
is written. The Raft node starts first, since every other part asks it. Readiness means that the
ports are served, not that there is a quorum; but clients are led to no process that is no member,
as far as it knows, nor to one with a log that has heard no leader since it started: it may have
been taken out.
"""

import asyncio
import contextlib
import gc
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_protocol.admin import LeaseView, PeerView, QuorumView
from gantry_protocol.errors import Busy, ConfigError, DataDirError
from gantry_protocol.headers.controller import GetMetadataResponseHeader
from gantry_protocol.key_gate import CONTROLLER
from gantry_protocol.member_tls.http import HttpCover
from gantry_protocol.member_tls.mixed import MixedPort
from gantry_protocol.member_tls.process import MemberTls, MemberTlsCollector
from gantry_protocol.process import log, runtime
from gantry_protocol.process.datadir import DataDir
from gantry_protocol.process.live_settings import SettingsFile, SettingsWatch
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.settings_word import SettingsWord
from gantry_protocol.process.steps import StepsApi, StepsMetrics
from gantry_protocol.quorum_key import KeyFile, demand_key
from gantry_protocol.remoting.limits import fair_limits
from gantry_protocol.remoting.server import Connection, Handler, RemotingServer
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.settings.controller import LIVE
from gantry_protocol.tls.listeners import ListenerTlsCollector, listener_tls
from gantry_protocol.tls.process import Tls, TlsCollector
from gantry_protocol.tracing.export import TracingCollector, live_export
from gantry_protocol.types import NodeId

from gantry_controller.admin.access import AccessApi
from gantry_controller.admin.api import AdminApi
from gantry_controller.admin.bounds import BoundMetrics, Sources
from gantry_controller.admin.connections import ConnectionMetrics
from gantry_controller.admin.consumer_groups import ConsumerGroupsApi
from gantry_controller.admin.fronts import FrontsApi
from gantry_controller.admin.members import MembersApi
from gantry_controller.admin.metrics import Metrics, RaftFigures
from gantry_controller.admin.offset_resets import OffsetResetsApi
from gantry_controller.admin.queue_maps import QueueMapsApi
from gantry_controller.admin.snapshots import SnapshotApi, SnapshotMetrics
from gantry_controller.admin.topics import TopicsApi
from gantry_controller.admin.watch import WatchHub
from gantry_controller.decisions.replay import RAFT
from gantry_controller.liveness.master_traces import MasterTraces
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import LAYOUT, BrokerGroup
from gantry_controller.nameserver.imports import Imports
from gantry_controller.nameserver.requests import NameRequests
from gantry_controller.node.node import RaftNode
from gantry_controller.node.options import NodeOptions
from gantry_controller.node.rejoin import aside, put_aside
from gantry_controller.node.status import PeerStatus, role_of
from gantry_controller.raft.state import Role
from gantry_controller.remoting.control import ControllerRequests
from gantry_controller.remoting.dispatcher import Dispatcher
from gantry_controller.remoting.forwarder import Forwarder
from gantry_controller.remoting.guard import MEMBERS, Guard
from gantry_controller.remoting.live_settings import LiveSettings
from gantry_controller.remoting.masters import Masters
from gantry_controller.remoting.notifier import Notifier
from gantry_controller.settings import (
    ControllerSettings,
    Peer,
    members_of,
    read_token,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gantry_protocol.remoting.tls_transport import ServedTls

LISTENER = "listener-"
LOG_DIRECTORY = "raft"
LOCK_WAIT_S = 10.0  # the predecessor of a restarted pod may still be closing its log
STOP_GRACE_S = 0.5
HAND_OVER_S = 1.0
SWITCH_INTERVAL_S = 0.0005
"""How long the thread of the log may wait for the interpreter to say that a batch is durable. With
Python's 5 ms a batch is confirmed after as much work on the loop as ten batches."""

_log = log.get("controller")


class Controller:
    """A running node; ``start`` it, and ``stop`` it even if ``start`` failed.

    Attributes:
        ports: what is listened on: raft, remoting, nameserver, http, and listener-NAME for each.
    """

    node_type: type[RaftNode] = RaftNode

    def __init__(
        self,
        settings: ControllerSettings,
        file: SettingsFile[ControllerSettings] | None = None,
    ) -> None:
        """Nothing is opened yet; ``file`` is where other settings may come from."""
        self.settings = settings
        self._settings_word = SettingsWord()
        self._settings_watch = SettingsWatch(settings, LIVE, file, self._tune, self._say_settings)
        self.ports: dict[str, int] = {}
        self.machine = MetadataStateMachine()
        self._read_contacts: dict[NodeId, str] = {}
        self._read_members: dict[NodeId, Peer] = {}
        self._has_been_led = False
        self.member_tls = MemberTls(settings, [CONTROLLER])
        self.key = KeyFile(settings.quorum_key_file, self.member_tls)
        self.tls = Tls(settings)
        self._options = self._node_options()
        self.node = self.node_type(self._options, self.machine)
        self.node.add_applied_listener(lambda _: self.node.digest_taken(self.machine.point))
        self.watchman = Watchman(
            self.machine,
            self.node.propose,
            default_timeout_s=settings.heartbeat_timeout_ms / 1000,
            may_raise=lambda: self.node.digests.share_layout(self.node.members.nodes),
            spreads=settings.spread_masters,
        )
        self._spans = live_export(
            settings.tracing_endpoint, "gantry-controller", settings.cluster_uid, settings.name
        )
        self.watchman.traces = MasterTraces(self._spans)
        self.guard = Guard(self.key, is_open=settings.allow_unauthenticated)
        self.forwarder = Forwarder(self._remoting_address, self.key)
        self.live_settings = LiveSettings()
        self.notifier = Notifier(
            self.machine.state, self._is_notifying, self._living_addresses, self.tls
        )
        self.masters = Masters(self.key, self.tls)
        self.machine.add_listener(self.notifier.applied)
        self.machine.add_consumer_listener(self.notifier.consumers_changed)
        self.imports = Imports(self.machine, self.node.propose, self._is_leading)
        self.hub = WatchHub(self.machine, self.node.read, self.watchman.liveness_changes)
        self.dispatcher = Dispatcher(
            self.node,
            self.forwarder,
            lambda: self.machine.state.index,
            self._describe_metadata,
            self.guard,
        )
        self._add_handlers()
        self._listeners = settings.listener_ports
        self._listener_tls = listener_tls(settings, self.tls)
        self.limits = fair_limits()
        turns = Turns()
        served: list[tuple[str, Handler, ServedTls]] = [
            ("remoting", self.dispatcher.handle, MixedPort(self.member_tls, MEMBERS)),
            ("nameserver", self.dispatcher.handle_named, self.tls),
        ]
        for name in self._listeners:
            outside = partial(self.dispatcher.handle_outside, name)
            served.append((LISTENER + name, outside, self._listener_tls[name]))
        self._servers = {
            name: RemotingServer(
                handler, on_close=self._connection_closed, limits=self.limits, turns=turns, tls=tls
            )
            for name, handler, tls in served
        }
        cover = HttpCover(self.member_tls) if self.member_tls.is_on else None
        self._http = HttpServer(ready=self._ready, token=self._token, cover=cover)
        self._add_http()
        self.node.add_role_listener(self._role_changed)
        self._directory: DataDir | None = None
        self._started: list[Callable[[], Awaitable[None]]] = []  # to undo, last first

    @property
    def _log_directory(self) -> Path:
        return self.settings.data_dir / LOG_DIRECTORY

    def _node_options(self) -> NodeOptions:
        settings = self.settings
        return NodeOptions(
            cluster_uid=settings.cluster_uid,
            node_id=settings.number,
            peers={peer.node_id: peer.contact for peer in settings.members},
            founds=settings.founds and not settings.rejoin and not aside(self._log_directory),
            join=settings.joins,
            unnamed=settings.number if settings.named and not settings.is_named else None,
            priority=settings.election_priority,
            directory=self._log_directory,
            bind=settings.bind,
            port=settings.raft_port,
            election_timeout_ms=settings.election_timeout_ms,
            read_lag_max=settings.read_lag_max,
            key=self.key,
            snapshot_log_bytes=settings.snapshot_log_bytes,
            snapshot_margin_entries=settings.snapshot_margin_entries,
            recorded_bytes=settings.recorded_bytes,
        )

    def _add_handlers(self) -> None:
        requests = ControllerRequests(
            self.dispatcher,
            self.machine,
            self.watchman,
            describe=self._describe_metadata,
            listing=self._listing,
            live_settings=self.live_settings,
            default_timeout_s=self.settings.heartbeat_timeout_ms / 1000,
            refresh=self.imports.refreshed,
        )
        self.polls = {
            "front_requests": requests.fronts.polls,
            "queue_map_requests": requests.queue_maps.polls,
            "access_requests": requests.users.polls,
        }
        NameRequests(self.dispatcher, self.machine, self.imports, self._listing)

    def _add_http(self) -> None:
        metrics = Metrics(
            self._figures,
            self.machine,
            self.watchman,
            self.dispatcher,
            self.forwarder,
            self.notifier,
            self.hub,
        )
        self._http.registry.register(metrics)
        self._http.registry.register(TlsCollector(self.tls))
        self._http.registry.register(ListenerTlsCollector(self._listener_tls))
        self._http.registry.register(MemberTlsCollector(self.member_tls))
        self._http.registry.register(TracingCollector(self._spans))
        listeners = {name: server.stats for name, server in self._servers.items()}
        self._http.registry.register(ConnectionMetrics(listeners, self.limits, self._http))
        api = AdminApi(
            self.node,
            self.machine,
            self.watchman,
            self.hub,
            describe=self._describe_quorum,
            leader_http=self._leader_http,
            peers_http=lambda: [self._http_url(peer) for peer in self._members.values()],
        )
        api.add_to(self._http)
        MembersApi(api, self.node).add_to(self._http)
        FrontsApi(api, self.machine).add_to(self._http)
        QueueMapsApi(api, self.machine, self.watchman).add_to(self._http)
        TopicsApi(api, self.machine, self.hub.gate).add_to(self._http)
        ConsumerGroupsApi(api, self.machine, self.hub.gate).add_to(self._http)
        OffsetResetsApi(api, self.machine, self.masters.ask).add_to(self._http)
        AccessApi(api, self.machine, has_key=self.guard.has_key).add_to(self._http)
        SnapshotApi(self.node).add_to(self._http)
        self._http.registry.register(SnapshotMetrics(self.node))
        rings = {"": self.node.steps}
        StepsApi(RAFT, lambda: rings, self.settings.name).add_to(self._http)
        self._http.registry.register(
            StepsMetrics("gantry_controller_", "the Raft core", lambda: rings)
        )
        sources = Sources(
            self.node.links,
            self.node.stats,
            self.forwarder,
            self.imports,
            self.hub,
            api,
            self.polls,
        )
        self._http.registry.register(BoundMetrics(sources))

    # ---- life

    async def start(self) -> None:
        """Opens the data directory, recovers the log, serves every port.

        Raises:
            GantryError: one sentence that says what is in the way.
        """
        settings = self.settings
        if settings.admin_token_file is not None:
            read_token(settings.admin_token_file)
        for tls in (self.tls, *self._listener_tls.values()):
            tls.load()
        self.member_tls.load()
        identity = {"cluster_uid": settings.cluster_uid, "node_id": str(settings.number)}
        self._directory = await DataDir.open_async(
            settings.data_dir, "controller", identity, LOCK_WAIT_S
        )
        await self._judge_log()
        self.ports["raft"] = await self.node.start()
        self.node.say_layout(LAYOUT)
        self._started.append(self.node.stop)
        self._spans.start()
        self._started.append(self._spans.stop)
        self.watchman.start()
        self.imports.start()
        self.hub.start()
        for name, port in (
            ("remoting", settings.remoting_port),
            ("nameserver", settings.nameserver_port),
            *((LISTENER + name, port) for name, port in self._listeners.items()),
        ):
            server = self._servers[name]
            self.ports[name] = await server.start(settings.bind, port)
            self._started.append(partial(server.stop, STOP_GRACE_S))
        self.ports["http"] = await self._http.start(settings.bind, settings.http_port)
        self._started.append(self._http.stop)
        self._settings_watch.start()
        self._started.append(self._settings_watch.stop)
        _log.info("controller serves", node=settings.number, name=settings.name, **self.ports)

    async def _judge_log(self) -> None:
        """Put a damaged log aside if that was asked for. The directory is this process's now.

        Raises:
            RejoinRefused: there is nothing damaged.
            DataDirError: another process did it since this one began and would found a quorum.
        """
        if self.settings.rejoin:
            done = await asyncio.to_thread(put_aside, self._log_directory, self.machine.assemble)
            if done is not None:
                file, offset = done.damage.file, done.damage.offset
                _log.warning(
                    "damaged log put aside", file=file, offset=offset, kept_in=done.kept_in
                )
        elif self._options.founds and aside(self._log_directory):
            raise DataDirError(
                f"The log in {self._log_directory} was put aside while this process waited for it; "
                "start it again."
            )

    async def hand_over(self) -> None:
        """A leader that is told to end lets another lead first; that takes a second at most."""
        if self.node.role is not Role.LEADER:
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.node.transfer(None, lambda _: None if over.done() else over.set_result(None))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                await over

    async def stop(self) -> None:
        """Stops everything in the reverse order; harmless at any point of ``start``."""
        self.hub.stop()
        self.imports.stop()
        while self._started:
            await self._started.pop()()
        await self.watchman.stop()
        for polls in self.polls.values():
            polls.close()
        self.dispatcher.close()
        await self.notifier.close()
        await self.masters.close()
        await self.forwarder.close()
        if self._directory is not None:
            self._directory.close()

    # ---- settings that change while it runs

    def _tune(self, settings: ControllerSettings) -> None:
        """Put settings in force that have changed; all that is ``LIVE`` is told here."""
        self.settings = settings
        log.set_level(settings.log_level)
        self._spans.point_to(settings.tracing_endpoint)

    def _say_settings(self, word: SettingsWord) -> None:
        self._settings_word = word

    # ---- what the parts ask

    def _is_leading(self) -> bool:
        return self.node.is_serving_leader

    def _is_notifying(self) -> bool:
        return self._is_leading() and self.live_settings.notify_role_changes

    def _role_changed(self) -> None:
        self._has_been_led |= self.node.leader_id is not None
        leading = self._is_leading()
        self.watchman.role_changed(leading=leading)
        self.imports.role_changed(leading=leading)
        self.hub.role_changed(leading=leading)

    def _connection_closed(self, connection: Connection) -> None:
        self.watchman.connection_closed(connection.id)
        self.imports.connection_closed(connection.id)

    def _living_addresses(self, group: BrokerGroup) -> list[str]:
        return [member.address for member in group.members if self.watchman.is_alive(group, member)]

    @property
    def _members(self) -> dict[NodeId, Peer]:
        """Who takes part, as far as the log says; before it says anything, as the settings do."""
        contacts = self.node.contacts
        if not contacts:
            return {peer.node_id: peer for peer in self.settings.members}
        if contacts != self._read_contacts:
            self._read_contacts = contacts
            self._read_members = members_of(self.settings, contacts)
        return self._read_members

    def _remoting_address(self, node: NodeId) -> str:
        """Raises Busy: the leader is a member that this node's log does not know yet."""
        peer = self._members.get(node)
        if peer is None:
            raise Busy(f"The address of node {node}, which leads, is not known here yet.")
        return peer.remoting_address

    def _leader(self) -> Peer | None:
        leader = self.node.leader_id
        return None if leader is None else self._members.get(leader)

    def _leader_http(self) -> str | None:
        leader = self._leader()
        return None if leader is None else self._http_url(leader)

    def _http_url(self, peer: Peer) -> str:
        return peer.http_url(tls=self.member_tls.is_enforced)

    def _describe_metadata(self) -> GetMetadataResponseHeader:
        leader = self._leader()
        return GetMetadataResponseHeader(
            group=self.settings.cluster_uid,
            is_leader=self._is_leading(),
            peers="".join(
                f"n{peer.node_id}:{peer.remoting_address};" for peer in self._members.values()
            ),
            controller_leader_id=None if leader is None else f"n{leader.node_id}",
            controller_leader_address=None if leader is None else leader.remoting_address,
        )

    def _describe_quorum(self) -> QuorumView:
        leader = self._leader()
        return QuorumView(
            cluster_uid=self.settings.cluster_uid,
            node_id=self.settings.number,
            name=self.settings.name,
            term=self.node.term,
            role=self.node.role.value,
            leader_id=None if leader is None else leader.node_id,
            leader_name=None if leader is None else leader.name,
            leader_http=self._leader_http(),
            commit_index=self.node.commit_index,
            applied_index=self.node.applied_index,
            snapshot_index=self.node.snapshots.index,
            digest_index=self.machine.point.index,
            digest=f"{self.machine.point.digest:016x}",
            lease=LeaseView(enabled=self.node.lease_is_on, valid=self.node.lease_is_valid),
            settings=self._settings_word.applied,
            settings_refused=self._settings_word.refused,
            peers=self._peer_views(),
        )

    def _peer_views(self) -> list[PeerView]:
        known = {status.node_id: status for status in self.node.peer_status()}
        views = []
        for peer in self._members.values():
            status = known.get(peer.node_id)
            views.append(
                PeerView(
                    id=peer.node_id,
                    name=peer.name,
                    address=peer.raft_address,
                    role=role_of(self.node.members, peer.node_id),
                    counted=self._is_counted(peer.node_id, status),
                    priority=None if status is None else status.priority,
                    match_index=None if status is None else status.match_index,
                    last_contact_ms=None if status is None else status.last_contact_ms,
                    differs_at_index=self.node.digests.differing.get(peer.node_id),
                )
            )
        return views

    def _is_counted(self, node: NodeId, status: PeerStatus | None) -> bool | None:
        if node == self.settings.number:
            return self.node.is_voter
        return None if status is None else status.counted

    def _figures(self) -> RaftFigures:
        node = self.node
        return RaftFigures(
            self._is_leading(),
            node.term,
            node.commit_index,
            node.applied_index,
            self.machine.point.index,
            len(node.digests.differing),
            {mode.value: count for mode, count in node.stats.reads.items()},
            node.stats.reads_redirected,
            node.lease_is_valid,
            len(node.members.voters),
            len(node.members.learners),
            node.stats.transfers,
        )

    def _listing(self) -> dict[str, str]:
        """The settings as GetControllerConfig lists them; the token itself is in none of them."""
        return {key: str(value) for key, value in self.settings.model_dump().items()}

    def _ready(self) -> tuple[bool, str]:
        if self.node.disk_hangs:
            silent_s = self.node.disk_silent_s
            return False, f"the disk has confirmed no write for {silent_s:.0f} s"
        if "http" not in self.ports:
            return False, "starting"
        if role_of(self.node.members, self.settings.number) == "none":
            return False, "waiting to be taken in"
        if self.node.term > 0 and not self._has_been_led:
            return False, "waiting for a leader"
        return True, "serving"

    def _token(self) -> str:
        """Read on each request, so that a rotated token takes effect; empty admits nobody."""
        file = self.settings.admin_token_file
        if file is None:
            return ""
        try:
            return read_token(file)
        except ConfigError as error:
            _log.warning("admin token cannot be read", why=error)
            return ""


async def serve(
    settings: ControllerSettings,
    stop: asyncio.Event,
    make: type[Controller] = Controller,
    file: SettingsFile[ControllerSettings] | None = None,
) -> None:
    """Runs a controller until ``stop`` is set; ``file`` is where other settings may come from.

    Raises:
        GantryError: it cannot start; one sentence says why and what to do.
    """
    demand_key(
        settings.quorum_key_file,
        allow_unauthenticated=settings.allow_unauthenticated,
        process="controller",
    )
    controller = make(settings, file)
    try:
        await controller.start()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        runtime.collect_seldom()
        controller.machine.add_restore_listener(gc.freeze)  # a snapshot brings new tables
        await stop.wait()
        await controller.hand_over()
    finally:
        await controller.stop()
