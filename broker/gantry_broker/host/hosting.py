"""One group in a process that may host many: its port for clients, and its way in and out.

A RocketMQ client knows a broker by the address in its route, and old clients name no broker in most
of what they say (a pull of 4.9 says topic and queue, a heartbeat neither), so each group listens on
a port of its own. Everything else is the process's (``member.shared_resources``).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import volume_error
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.headers.consumers import ConsumersChangedHeader
from gantry_protocol.process import log
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.limits import ConnectionLimits
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.remoting.turns import Turns
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_broker.clients.access import ClusterUsers, stand_before
from gantry_broker.clients.core.drain import DrainReport
from gantry_broker.clients.request_rules import CLIENT_RULES
from gantry_broker.clients.routing import ClientRouter
from gantry_broker.control.joining import IdStruck
from gantry_broker.host.client_options import ClientOptions
from gantry_broker.host.tracing import BrokerTracing, TakeoverTrace
from gantry_broker.log import DerivedLostError
from gantry_broker.member import administration
from gantry_broker.member.group import ReplicationGroup
from gantry_broker.member.local_view import LeavingGroup, StoreView
from gantry_broker.member.options import GroupOptions, Watcher
from gantry_broker.member.restoring import restore
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.remote.messages import Ping
from gantry_broker.remote.serving import StoreServer
from gantry_broker.replica import Role

if TYPE_CHECKING:
    from gantry_broker.clients import ClientProcessor
    from gantry_broker.clients.traced_sends import OpenSends

LEAVE_WITHIN_S = 5.0  # hand-over, including a refused and a second try
WAIT_S = 0.05
REBUILDS_MAX = 3  # of what is derived from a log, within
REBUILDS_WITHIN_S = 600.0  # so long; a disk that spoils more is not worth it
ANSWER_WITHIN_S = 0.2  # for answers that are being written when the process ends

_log = log.get("server")


def _notice(group: ReplicationGroup, request: RemotingCommand) -> RemotingCommand:
    """The controllers name a role."""
    group.notice(request)
    return reply(request)


def _consumers_changed(group: ReplicationGroup, request: RemotingCommand) -> RemotingCommand:
    """The controllers have news of who consumes in a cluster.

    Raises:
        HeaderError: they do not say in which.
    """
    if from_ext(ConsumersChangedHeader, request.ext).cluster_name == group.cluster:
        group.consumers_changed()
    return reply(request)


# What is asked of a member of the group, whatever its role.
_ABOUT_MEMBER: dict[int, Callable[[ReplicationGroup, RemotingCommand], RemotingCommand]] = {
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _notice,
    RequestCode.GANTRY_CONSUMERS_CHANGED: _consumers_changed,
    RequestCode.GET_BROKER_EPOCH_CACHE: administration.epoch_cache,
    RequestCode.GET_BROKER_HA_STATUS: administration.ha_status,
}


def _tune(group: ReplicationGroup, options: GroupOptions) -> None:
    """Settings that have changed, for a group whose volume is read; it may not have begun yet."""
    group.options = options
    group.tier.tune(options)


class HostedGroup(Watcher):
    """See the module.

    Args:
        name: of the group.
        options: how clients are served.
        stores: where fronts append to stores and read from them; None serves none.
        turns: of the process's event loop.
        limits: of the process's client connections.
        tls: of the process.
        tracing: of the process, on or off; None traces nothing, ever.

    Attributes:
        failure: set to what ended this group; never to a result.
        listener_ports: that of each listener.
        group: None until its volume is read.
        begun_anew: how often its id was struck from the record, so that it took another.
        rebuilt: how often what is derived from its log was lost, and made again from the log.
    """

    def __init__(
        self,
        name: str,
        options: ClientOptions,
        stores: StoreServer | None = None,
        turns: Turns | None = None,
        limits: ConnectionLimits | None = None,
        tls: Tls = NO_TLS,
        tracing: BrokerTracing | None = None,
    ) -> None:
        """Nothing is opened before ``listen``."""
        self.name = name
        self._tracing = tracing
        self._takeover = None if tracing is None else tracing.takeover(name)
        self._traced: OpenSends | None = None  # of this mastership, once tracing was on in it
        self.stores = stores
        self._client_options = options
        self._options: GroupOptions | None = None
        self._tuned: GroupOptions | None = None
        self._shared: SharedResources | None = None
        self._anew: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_gated = False
        self._doing = "reading its volume"
        self.begun_anew = 0
        self.rebuilt = 0
        self._rebuilt_s: list[float] = []  # when, lately
        self.port = 0
        self.listener_ports: dict[str, int] = {}
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.group: ReplicationGroup | None = None
        self.router = ClientRouter(
            master_address=self._where_clients_are_served,
            epoch=lambda: 0 if self.group is None else self.group.epoch,
            ask=self._ask,
            tls=tls,
        )
        self.remoting = RemotingServer(
            self.router.handle,
            on_close=self._closed,
            on_response=self._answered,
            rules=CLIENT_RULES,
            turns=turns,
            limits=limits,
            tls=tls,
        )
        self.processor: ClientProcessor | None = None

    # ---- the way in

    async def listen(self, host: str, port: int) -> None:
        """Take connections; they are held until the group knows a master.

        Raises:
            PortInUseError: somebody listens there.
        """
        self.port = await self.remoting.start(host, port)

    async def listen_also(self, host: str, name: str, port: int, tls: Tls) -> None:
        """Take connections at the port of a listener, too, once ``listen`` has.

        Raises:
            PortInUseError: somebody listens there.
        """
        self.listener_ports[name] = await self.remoting.listen_also(host, port, tls)

    def tune(self, client_options: ClientOptions, options: GroupOptions) -> None:
        """Take over settings that have changed, now and whenever the group begins anew."""
        self._client_options, self._tuned = client_options, options
        if self._options is not None:
            self._options = options
        if self.group is not None:
            _tune(self.group, options)
        if self.processor is not None:
            self.processor.tune(client_options.tuning())
            self._trace_sends()
            if self._traced is not None:
                self.processor.trace(self._traced)
            self._let_in(self.processor)

    async def open(self, options: GroupOptions, shared: SharedResources) -> None:
        """Read the volume.

        Raises:
            GantryError: it is damaged, or not this group's.
        """
        self._options = options = options if self._tuned is None else self._tuned
        self._shared = shared
        if options.tier is not None and options.tier.owner:
            await restore(options, options.tier, shared.tier_of(options.tier).reads, self._told)
        opening = asyncio.ensure_future(ReplicationGroup.open(options, shared))
        try:
            await asyncio.shield(opening)
        finally:  # the thread that reads it cannot be stopped, and must not outlive the lock
            self.group = await opening
        if self._tuned is not None:  # perhaps meanwhile
            _tune(self.group, self._tuned)
        self.group.watcher = self
        self.router.about_member = {
            code: partial(answer, self.group) for code, answer in _ABOUT_MEMBER.items()
        }
        self.router.member = self.group.writes
        self._ask_at_gate(shared.access)
        if self.stores is not None:
            served = StoreView(self.group, self._is_offered, self._moved)
            self.stores.add(self.name, served, self._traced_now)
        self.group.failure.add_done_callback(self._group_failed)

    def _ask_at_gate(self, access: ClusterUsers) -> None:
        """Let in who may, once; a group that begins anew is behind the same gate."""
        if not self._is_gated:
            self._is_gated = True
            stand_before(self.router, access)

    def _told(self, doing: str) -> None:
        """What the volume waits for, before it is read."""
        self._doing = doing

    async def start(self) -> None:
        """Join the group; takes as long as it takes.

        Raises:
            GantryError: the volume is not ours.
        """
        assert self.group is not None
        await self.group.start()

    def fail(self, error: BaseException) -> None:
        """This group ends here."""
        if isinstance(error, OSError):
            where = None if self._options is None else self._options.directory
            error = volume_error(error, where) or error
        if not self.failure.done():
            self.failure.set_exception(error)
            self.failure.exception()  # it is looked at when the process ends, if at all

    def _group_failed(self, failure: "asyncio.Future[None]") -> None:
        error = None if failure.cancelled() else failure.exception()
        if error is None:
            return
        if isinstance(error, IdStruck) and not self._is_stopping:
            self.begun_anew += 1
        elif isinstance(error, DerivedLostError) and not self._is_stopping and self._may_rebuild():
            self.rebuilt += 1
        else:  # who is stopping closes its files, and so would whoever begins anew
            self.fail(error)
            return
        self._anew = asyncio.create_task(self._begin_anew(leaves=not isinstance(error, IdStruck)))
        self._anew.add_done_callback(self._begun_anew)

    def _may_rebuild(self) -> bool:
        """Whether this is not all that the disk lets us do."""
        now_s = asyncio.get_running_loop().time()
        self._rebuilt_s = [item for item in self._rebuilt_s if now_s - item < REBUILDS_WITHIN_S]
        self._rebuilt_s.append(now_s)
        return len(self._rebuilt_s) <= REBUILDS_MAX

    async def _begin_anew(self, *, leaves: bool) -> None:
        """Take part again from the same volume.

        Args:
            leaves: it is a member still, and a master hands over first; otherwise its id was
                struck, and it will be another member.
        """
        assert self.group is not None
        assert self._options is not None
        assert self._shared is not None
        if leaves:
            await self._hand_over(self.group)
        former, self.group = self.group, None
        self.router.aside = None
        former.reads.close()
        self.router.member, self.router.about_member = None, {}
        self.serving_ends()
        self.router.role_changed()
        if self.stores is not None:
            self.stores.remove(self.name)
        await former.stop()
        await self.open(self._options, self._shared)
        await self.start()

    def _begun_anew(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here, and why not."""
        if self.failure.done():
            return False, f"failed: {self.failure.exception()}"
        return (False, self._doing) if self.group is None else self.group.ready()

    @property
    def awaits_first_master(self) -> bool:
        """Whether the controllers have said that the group never had a master."""
        core = None if self.group is None else self.group.core
        return core is not None and core.view is not None and core.view.master_epoch == 0

    # ---- the way out

    async def leave(self) -> None:
        """Hand over, and let every client finish what it is saying."""
        if self.group is None or self.failure.done():
            return
        await self._hand_over(self.group)
        # Whom this process has cut comes back, and would be cut amid a request if it came here.
        await self.remoting.stop_listening()
        await self.router.cut_all()

    async def _hand_over(self, group: ReplicationGroup) -> None:
        if self.processor is not None:
            self.processor.flush_offsets(lambda: None)
        group.leave()
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await group.left.wait()
        except TimeoutError:
            _log.warning("nobody took over in time", group=self.name, epoch=group.epoch)

    async def stop(self) -> None:
        """Close everything."""
        self._is_stopping = True
        if self._anew is not None:
            while self.group is None and not self._anew.done():  # closing or reading the volume
                await asyncio.wait({self._anew}, timeout=WAIT_S)
            self._anew.cancel()
            await asyncio.gather(self._anew, return_exceptions=True)
        self.serving_ends()
        self.router.close()
        # Before the store is closed, which takes a while: who connects now must find nobody here.
        await self.remoting.stop(ANSWER_WITHIN_S)
        if self.stores is not None:
            self.stores.remove(self.name)
        if self.group is not None:
            await self.group.stop()

    # ---- Watcher

    def role_changed(self) -> None:
        """The role, the epoch or the master's address may be another."""
        core = None if self.group is None else self.group.core
        if self._takeover is not None and core is not None and core.role is Role.PROMOTING:
            self._takeover.told(core.epoch)
        self.router.role_changed()

    def serving_began(self) -> None:
        """Serve clients here."""
        assert self.group is not None
        assert self._shared is not None
        # First: what waits here as at a replica is served as at a master.
        self.router.aside = None
        self.router.take_back()
        self.group.reads.close()
        leaving = LeavingGroup(self.group)
        self._trace()
        self.processor = self._client_options.processor(
            self.group.view,
            self._shared.disk_space,
            leaving.reading_replicas,
            leaving,
            self._shared.access,
            self._traced,
        )
        self._let_in(self.processor)

    def _let_in(self, processor: "ClientProcessor") -> None:
        """Have requests of clients served, behind the entrance of traced sends if they are."""
        traced = self._traced_now()
        self.router.processor = processor if traced is None else traced.entrance(processor)

    def _traced_now(self) -> "OpenSends | None":
        """Where sends that come are traced; None while they are not."""
        return self._traced if self._tracing is not None and self._tracing.is_on else None

    def _trace(self) -> None:
        """The takeover has come to its end, and traced sends begin."""
        if self._takeover is not None and self.group is not None:
            self._takeover.promoted(self.group.epoch)
        self._trace_sends()

    def _trace_sends(self) -> None:
        """Trace sends of this mastership, or other shares of them, if that is wished now."""
        tracing, group = self._tracing, self.group
        if tracing is None or not tracing.is_on or group is None or group.shell is None:
            return
        if self._traced is None:
            self._traced = tracing.sends(self.name)
            group.shell.on_flushed = self._traced.flushed
        self._traced.ratio = tracing.ratio

    def _look_for_first_write(self, takeover: TakeoverTrace) -> None:
        core = None if self.group is None else self.group.core
        if takeover.waits and self.group is not None and core is not None:
            report = self.group.writes.takeover(core.log.confirm)
            if report is not None and report.first_ms is not None:
                takeover.wrote(report.first_ms)

    def ticked(self) -> None:
        """Answer pulls while this is a replica that may."""
        if self._takeover is not None:
            self._look_for_first_write(self._takeover)
        reads = None if self.group is None else self.group.reads
        self.router.aside = reads.take if reads is not None and reads.is_open else None

    def cut_off(self) -> None:
        """Let clients look elsewhere; who comes all the same waits a moment, and is let go, too."""
        if self.stores is not None:
            self.stores.end(self.name, "this broker is cut off, and may be the master no more")
        self.router.let_go(list(self.remoting.connections.values()))

    def drain_learned(self) -> None:
        """The controllers may have said something new of the group's drain."""
        if self.processor is not None:
            self.processor.drain.learned()

    def drain_report(self) -> DrainReport | None:
        """The master's word on the group's drain; None where there is none."""
        return None if self.processor is None else self.processor.drain.report

    def clients_move(self) -> None:
        """Pass clients on with what they wait for."""
        if self.processor is not None:
            self.router.end_sessions(list(self.remoting.connections.values()))

    def serving_will_end(self) -> None:
        """Write what consumers have committed."""
        if self.processor is not None:
            self.processor.flush_offsets(lambda: None)

    def serving_ends(self) -> None:
        """Serve clients here no more; whoever waits for a record is sent on to ask again."""
        if self.stores is not None:
            self.stores.end(self.name, "this is not the master of its group any more")
        processor, self.processor = self.processor, None
        self.router.processor = None
        if self._takeover is not None and (processor is not None or self._traced is not None):
            self._takeover.ended()
        if self._traced is not None:
            self._traced.close()
            self._traced = None
        if processor is not None:
            processor.close()
            self.router.end_sessions(list(self.remoting.connections.values()))

    # ---- requests

    def _is_offered(self) -> bool:
        """Whether fronts may serve sends and pulls.

        That is while there is room, nobody has a quota or needs a user, and the group is not
        drained.
        """
        if self._shared is not None and self._shared.access.enabled:
            return False
        if self.group is not None and LeavingGroup(self.group).drain_began_ms is not None:
            return False
        is_full = self._shared is not None and self._shared.disk_space.refusing
        return not is_full and self._client_options.quotas is None

    def _moved(self, said: Ping) -> None:
        """Count what went through a front."""
        if self.processor is not None:
            self.processor.traffic.add(said.put, said.got)
            for row in said.pulled:
                self.processor.pulled.note(*row)

    def _where_clients_are_served(self) -> str:
        """By another process; empty while nobody knows."""
        group = self.group
        return "" if group is None or group.serving else group.master_address

    def _answered(self, conn: Connection, response: RemotingCommand) -> bool:
        return self.processor is not None and self.processor.answered(conn, response)

    def _closed(self, conn: Connection) -> None:
        self.router.connection_closed(conn)
        if self.group is not None:
            self.group.reads.forget(conn)
        if self.processor is not None:
            self.processor.connection_closed(conn)

    def _ask(self) -> None:
        if self.group is not None and self.group.agent is not None:
            self.group.agent.refresh()
