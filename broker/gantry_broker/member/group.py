"""One replication group's member: store, replica core, links and controller joined.

Everything a group is lives in one ``ReplicationGroup``; nothing is global, so one process holds
many, and what they share (``shared_resources``) is handed in. Its clients see its ``view``; to its
platform it is ready or not, and it can be asked to leave. All methods are called on the event
loop's thread.

What is written through it is in ``writes``, what concerns the tier and the log's beginning in
``tier``; here is its life, and what becomes of it when its role changes.

Rule protected: a volume whose log ends below what was confirmed on it is refused, not repaired.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress

from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import join_address
from gantry_protocol.process import log
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.mapped.book import QueueBook
from gantry_broker.control.agent import ControlAgent
from gantry_broker.control.joining import IdStruck
from gantry_broker.control.requests import Report, Speaker
from gantry_broker.ha.links import ReplicationLinks
from gantry_broker.ha.listener import GroupKey
from gantry_broker.ha.repair import Repairs, give
from gantry_broker.ha.wire import Caller
from gantry_broker.log import DerivedLostError
from gantry_broker.log.checked import Damage
from gantry_broker.member.local_view import LocalView
from gantry_broker.member.options import GroupOptions, Watcher
from gantry_broker.member.readiness import Readiness, Standing
from gantry_broker.member.recovery import recover
from gantry_broker.member.replica_reads import ReplicaReads
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.member.shell import ReplicaShell
from gantry_broker.member.tier import GroupTier
from gantry_broker.member.topic_sync import TopicSync
from gantry_broker.member.writes import GroupWrites
from gantry_broker.queues import MessageStore
from gantry_broker.queues.recent_keys import RecentKeys
from gantry_broker.replica import ControllerView, LogFacts, ReplicaCore, Role, StoredState
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.messages import Range, RangeAsk

_log = log.get("group")


class ReplicationGroup:
    """See the module. Make one with ``open``, then ``start`` it.

    Attributes:
        failure: set to the error that ends this member; never to a result.
        left: set when a draining member has nothing more to do here.
        stuck: why a person must look; empty while nobody must.
        writes: what is written through this member.
        tier: its part in the group's tier.
        view: the group as its clients see it.
        reads: pulls that are answered here while another member is the master.
    """

    def __init__(
        self,
        options: GroupOptions,
        shared: SharedResources,
        store: MessageStore,
        stored: StoredState,
    ) -> None:
        """Join the parts; nothing is sent before ``start``."""
        self.options = options
        self._shared = shared
        self.incarnation = secrets.token_hex(8)
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = asyncio.Event()
        self.stuck = ""
        self.watcher = Watcher()
        self.core: ReplicaCore | None = None
        self.shell: ReplicaShell | None = None
        self.links = ReplicationLinks(
            self._caller, self._too_early, self._writable, shared.key, self._give
        )
        self.repairs = Repairs(
            store.log,
            self._caller,
            self._followed,
            shared.key,
            self._trimmed_by_the_master,
            self._confirmed,
        )
        self._store = store
        self._stored = stored
        self._key = GroupKey(options.cluster, options.group)
        self._silent: tuple[BrokerId, ...] = ()  # whom it did not hear when it was last cut off
        self._readiness = Readiness()
        self._agent: ControlAgent | None = None
        self._consumers: Consumers | None = None
        self._queues: QueueBook | None = None
        store.tiered = options.tier is not None
        loop = asyncio.get_running_loop()
        store.on_lost = lambda reason: self._derived_lost(loop, reason)
        self.writes = GroupWrites(store, shared.disk_space.met_full)
        self.tier = GroupTier(store, self.writes, self.store_host)
        self.view = LocalView(self, shared.readers)
        self.reads = ReplicaReads(self, self.view.store)

    @classmethod
    async def open(cls, options: GroupOptions, shared: SharedResources) -> "ReplicationGroup":
        """Recover the volume; reading a large log takes a while and does not block the loop.

        Raises:
            CorruptionError: the volume is damaged.
            DataDirError: it holds something this version cannot read.
        """
        store, stored = await asyncio.to_thread(
            recover,
            options.directory,
            options.log_segment_bytes,
            shared.disks,
            RecentKeys(options.repeat_keys, options.repeat_window_ms),
        )
        return cls(options, shared, store, stored)

    # ---- life

    async def start(self) -> None:
        """Find out who we are, listen for replicas, and take part.

        Raises:
            GantryError: the volume is not ours.
        """
        options, shared = self.options, self._shared
        shared.listener.add(self._key, self.links)
        agent = self._agent = ControlAgent(
            Speaker(
                cluster=options.cluster,
                group=options.group,
                address=self.address,
                ha_port=shared.ha_port,
                incarnation=self.incarnation,
                pod_uid=options.pod_uid,
                priority=options.priority,
            ),
            options.directory,
            shared.line,
            report=self._report,
            learned=self._learned,
            answered=self._controllers_answered,
            failed=self._fail,
        )
        self.writes.topics = TopicSync(
            self.view, agent.peers, lambda: self.serving, lambda: self.claim
        )
        self._consumers = Consumers(options.cluster, options.group, agent.peers, shared.elsewhere)
        self._queues = QueueBook(self.view, shared.queue_maps, shared.other_masters, agent.peers)
        self._store.first_offset = shared.queue_maps.first_offset
        me = await agent.join()
        shell_log = LogFacts(
            log_start=self._store.log.log_start,
            end=self._store.log.end,
            flushed=self._store.log.flushed,
            stored=self._stored,
        )
        self.core = shared.rings.new_core(
            options.group,
            me=me,
            incarnation=self.incarnation,
            log=shell_log,
            now_ms=int(asyncio.get_running_loop().time() * 1000),
            limits=options.limits,
        )
        self.shell = ReplicaShell(
            self.core,
            self._store,
            options.directory,
            agent,
            self,
            self.writes.ended,
            shared,
            self._fail,
        )
        self.tier.start(
            self.options,
            shell_log,
            shared,
            trimmed=lambda start: self.step(ev.LogTrimmed(start)),
            look_for_master=agent.refresh,
            failed=self._fail,
        )
        self.shell.start(self.links)
        agent.start()
        self._store.log.checks.on_damage = self._damaged
        for damage in list(self._store.log.checks.damage.values()):
            self._damaged(damage)
        self.repairs.start()
        self._store.scrub(options.log_scrub_s)

    async def stop(self) -> None:
        """Take no further part, close the store; what is not flushed is flushed."""
        self.writes.end()  # first: answers may still be on the process's line
        if self.core is not None:
            for ended in self.core.stopped():
                self.writes.ended(ended.fate, ended.writes)
        self.reads.close()
        self.view.store.end()
        self._end_books()
        await self.tier.stop()
        await self.repairs.stop()
        self._shared.listener.remove(self._key)
        await self.links.stop()
        if self._agent is not None:
            await self._agent.stop()
        if self.shell is not None:
            self.shell.stop()
        if self._store.is_master:
            self._store.drop_mastership()
        try:
            await asyncio.to_thread(self._store.close)
        except GantryError as error:
            self._fail(error)

    def leave(self) -> None:
        """SIGTERM: accept no more writes, hand over if this is the master; ``left`` follows."""
        self.writes.leaving = True
        if self.shell is None:
            self.left.set()
            return
        self.shell.step(ev.DrainRequested())
        if self._agent is not None:
            self._agent.beat()

    def _derived_lost(self, loop: asyncio.AbstractEventLoop, reason: str) -> None:
        """In any thread; the loop was closed where nobody takes part any more."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._fail, self._lost_error(reason))

    def _lost_error(self, reason: str) -> DerivedLostError:
        return DerivedLostError(
            f"What is derived from the log in {self.options.directory} is lost ({reason}): it is "
            "made again from the log; check the volume if this happens again."
        )

    def _fail(self, error: BaseException) -> None:
        if self._store.lost and not isinstance(error, DerivedLostError | IdStruck):
            error = self._lost_error(self._store.lost)
        if self.failure.done():
            return
        if isinstance(error, DerivedLostError):
            _log.error("what is derived from the log is made again", reason=error)
        elif isinstance(error, IdStruck):
            _log.warning("this broker begins anew under another id", reason=error)
        else:
            _log.error("this broker cannot go on", reason=error)
        self.failure.set_exception(error)

    # ---- what it is

    @property
    def address(self) -> str:
        """Our remoting service, as others reach it."""
        return join_address(self.options.advertise, self.options.remoting_port)

    @property
    def agent(self) -> ControlAgent | None:
        """The conversation with the controllers; None before ``start``."""
        return self._agent

    @property
    def serving(self) -> bool:
        """Whether this is the serving master, leaving or not."""
        return self.writes.mastership is not None

    def reading_replicas(self) -> list[BrokerId]:
        """The replicas that may serve reads, as this master knows them."""
        master = self.writes.mastership
        return [] if master is None else master.holders()

    @property
    def alone(self) -> str:
        """The reason why this master takes no requests; empty when it does, or is none."""
        master = self.writes.mastership
        if master is None or not master.cut_off:
            return ""
        silent = ", ".join(map(str, self._silent))
        return f"cut off: it hears neither the controllers nor broker {silent} of its set"

    @property
    def epoch(self) -> Epoch:
        """The newest epoch acted in."""
        return Epoch(0) if self.core is None else self.core.epoch

    @property
    def master_address(self) -> str:
        """Another broker's remoting service that is the master; empty while none is known."""
        core = self.core
        view = None if core is None else core.view
        if core is None or view is None or view.master_id is None or view.master_id == core.me:
            return ""
        return view.master_address

    @property
    def disk_reason(self) -> str:
        """The fault of this member's disk, and what is done about it; empty for none."""
        core = self.core
        if core is not None and core.disk_says:
            return f"its disk does not answer: {core.disk_says}"
        return self._room_reason or self._damage_reason

    @property
    def _damage_reason(self) -> str:
        """What this master cannot read of its log, so that it cannot write; empty for nothing."""
        core, damage = self.core, self._store.in_the_way
        if damage is None or core is None or core.serving is None:
            return ""
        where = f"from offset {damage.start} to {damage.end}"
        return f"its log is damaged {where}, it takes no messages"

    @property
    def _room_reason(self) -> str:
        """The same for want of room only."""
        says = "" if self.core is None else self.core.room_says
        return says or ("its disk is nearly full" if self._shared.disk_space.refusing else "")

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here, and why not."""
        core, agent = self.core, self._agent
        standing = Standing(
            leaving=self.writes.leaving,
            joined=core is not None and agent is not None,
            stuck=self.stuck or ("" if agent is None else agent.behind),
            registered=agent is not None and agent.registered,
            serving=self.serving,
            following=core is not None and core.role is Role.FOLLOWING and core.streaming,
            fenced=core is not None and core.role is Role.FENCED,
            epoch=self.epoch,
            disk=self.disk_reason,
            alone=self.alone or ("" if self.serving else self._damage_reason),
        )
        return self._readiness.look(standing, asyncio.get_running_loop().time())

    @property
    def claim(self) -> Claim:
        """By what this member is the master; there is one only while it serves."""
        assert self.core is not None, "nobody serves before the volume has a name"
        return Claim(self.core.me, self.epoch, self.incarnation)

    # ---- what its view shows

    @property
    def store(self) -> MessageStore:
        """The group's store."""
        return self._store

    @property
    def broker_name(self) -> str:
        """The group's name."""
        return self.options.group

    @property
    def cluster(self) -> str:
        """The name of its cluster."""
        return self.options.cluster

    @property
    def store_host(self) -> tuple[str, int]:
        """The address at which this broker is asked for a record by its offset id."""
        return self.options.advertise, self.options.remoting_port

    @property
    def consumers(self) -> Consumers:
        """Subscription groups, and who is in them; there are clients only once it exists."""
        assert self._consumers is not None, "nobody is served before start"
        return self._consumers

    @property
    def queues(self) -> QueueBook:
        """The queue maps of its cluster."""
        assert self._queues is not None, "nobody is served before start"
        return self._queues

    def _end_books(self) -> None:
        """The mastership is over, for what the controllers know of it."""
        if self._consumers is not None:
            self._consumers.end()
        if self._queues is not None:
            self._queues.end()

    @property
    def known_consumers(self) -> Consumers | None:
        """The same, or None before ``start``."""
        return self._consumers

    # ---- RoleObserver

    def promoted(self, epoch: Epoch, start: Offset) -> None:
        """Serve from now on."""
        assert self.shell is not None, "only a core is promoted"
        self.writes.begin(self.shell)
        if self._consumers is not None:
            self._consumers.began(self.claim)
        if self._queues is not None:
            self._queues.began(self.claim)
        self.tier.promoted(epoch)
        self._give_way()
        self.watcher.serving_began()
        self._changed()
        if self._agent is not None:
            self._agent.beat()
            self._catch_up_topics()

    def held_back(self) -> None:
        """Have a member take over that may have what is damaged here."""
        self._give_way()
        self._changed()

    def demoted(self, writes: Sequence[object]) -> None:
        """Serve no more; nobody waits for an answer any longer."""
        self.watcher.clients_move()  # first: the next master answers what is not answered here
        self.tier.demoted()
        self.writes.ended(Fate.DEPOSED, writes)
        self.writes.end()
        self.view.store.end()
        self._end_books()
        self.watcher.serving_ends()
        self._changed()

    def drained(self, reason: str) -> None:
        """Nothing more is gained by staying."""
        _log.info("drained", reason=reason)
        self.left.set()

    def cut_off(self, effect: fx.CutOff) -> None:
        """Take nothing more, and let clients look for another master."""
        self._silent = effect.silent
        self.watcher.cut_off()  # who passes a client on keeps what was not answered

    def in_touch(self) -> None:
        """Go on; clients that wait are served."""
        self._changed()

    def stuck_at(self, effect: fx.Stuck) -> None:
        """A person must look."""
        self.stuck = f"{effect.code}: {effect.sentence}"
        self._changed()

    def giving_way(self) -> None:
        """Somebody will be asked to take over: append what is only in memory yet."""
        self.watcher.serving_will_end()

    def ticked(self) -> None:
        """Follow the clock, and read topics that could not be compared before."""
        self.writes.ticked()
        self.reads.look()
        self.watcher.ticked()
        if self.writes.topics_due:
            self._catch_up_topics()

    def step(self, event: ev.Event) -> None:
        """Feed the core, if there is one yet."""
        if self.shell is not None:
            self.shell.step(event)

    # ---- damage in the log

    def _damaged(self, damage: Damage) -> None:
        """Have it repaired: by ourselves as a replica, after another member took over otherwise."""
        _log.error(
            "the log is damaged",
            file=damage.path,
            position=damage.position,
            start=damage.start,
            end=damage.end,
            reason=damage.reason,
        )
        self.repairs.wake()
        self.step(ev.LogDamaged(Offset(damage.start)))

    def _give_way(self) -> None:
        """Tell the core of all damage; it asks for another master, not too often."""
        for start in self._store.log.checks.damage:
            self.step(ev.LogDamaged(Offset(start)))

    def _followed(self) -> str:
        core = self.core
        following = None if core is None or not core.streaming else core.following
        return "" if following is None else following.view.master_ha_address

    def _trimmed_by_the_master(self, damage: Damage, log_start: Offset) -> None:
        """Let go of a damaged range that the master has let go of, if nothing is derived from it.

        The whole state stands in the log behind the master's start, so what follows from the log
        can be made again from there. A range that is dispatched hinders nothing: it goes with the
        rest when this member's own retention comes to it.
        """
        store, core = self._store, self.core
        in_the_way = store.in_the_way
        if core is None or not core.streaming or in_the_way is None:
            return
        if in_the_way.start != damage.start:
            return
        found = [start for start in store.log.starts if damage.end <= start <= log_start]
        if not found or found[-1] > store.log.confirm_floor:
            return
        _log.warning(
            "the master has trimmed what is damaged here: beginning behind it",
            file=damage.path,
            start=damage.start,
            end=damage.end,
            log_start=found[-1],
        )
        store.begin_behind(found[-1])

    def _give(self, ask: RangeAsk) -> Range:
        return give(self._store.log, ask, self._confirmed())

    def _confirmed(self) -> Offset:
        return Offset(0) if self.core is None else self.core.log.confirm

    # ---- inside

    def _changed(self) -> None:
        self.watcher.role_changed()

    def _report(self) -> Report:
        core = self.core
        assert core is not None, "nothing is reported before the volume has a name"
        facts = core.log
        confirmed = facts.lineage.entry_at(Offset(facts.confirm - 1)) if facts.confirm else None
        return Report(
            epoch=facts.lineage.last_epoch,
            log_start=facts.log_start,
            end=facts.end,
            confirm=facts.confirm,
            draining=self.writes.leaving,
            confirm_epoch=None if confirmed is None else confirmed.epoch,
            acted_epoch=core.epoch,
            tier=self.tier.report(),
            disk_stuck=self.tier.disk_stuck or self._room_reason,
            log_damage=self.repairs.told(),
            drain=self.watcher.drain_report(),
            takeover=self.writes.takeover(facts.confirm),
            settings=self._shared.settings,
        )

    def _learned(self, view: ControllerView) -> None:
        if self.shell is None or self._agent is None:
            return
        before = (self.epoch, self.master_address)
        self.shell.step(ev.ViewLearned(view))
        self._catch_up_topics()
        if self._consumers is not None:
            self._consumers.catch_up(self._agent.known.subscriptions_version)
        self.watcher.drain_learned()
        if (self.epoch, self.master_address) != before:
            self._changed()

    def _controllers_answered(self, asked_s: float) -> None:
        self.step(ev.ControllersAnswered(int(asked_s * 1000)))

    def _catch_up_topics(self) -> None:
        if self._agent is not None:
            self.writes.catch_up_topics(self._agent.known.topics_version)

    def consumers_changed(self) -> None:
        """The controllers have news of who consumes in the cluster."""
        self._shared.elsewhere.look()

    def notice(self, notice: RemotingCommand) -> bool:
        """Take a notification (1008); False if it is not for this group.

        Raises:
            WireError: it is malformed.
        """
        return self._agent is not None and self._agent.notice(notice)

    def _caller(self) -> Caller:
        uid = "" if self._agent is None else self._agent.known.group_uid
        return Caller(self.options.cluster, self.options.group, uid)

    def _too_early(self, event: ev.Event) -> None:
        """Links deliver to the shell once it has started; who calls before will call again."""
        if isinstance(event, ev.Received):
            self.links.close(event.link)

    def _writable(self) -> None:
        if self.shell is not None:
            self.shell.feed()
