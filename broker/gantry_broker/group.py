"""One replication group's member: store, replica core, links and controller joined.

Everything a group is lives in one ``ReplicationGroup``; nothing is global, so one process holds
many, and what they share (``commons``) is handed in. Its clients see its ``view``; to its platform
it is ready or not, and it can be asked to leave. All methods are called on the event loop's thread.

Rules protected: a record is accepted only by the serving master of the current epoch with enough
in-sync members (H11), checked *before* it is appended; the answer 0 follows confirm (``appends``);
a volume whose log ends below what was confirmed on it is refused, not repaired.
"""

import asyncio
import secrets
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import GantryError
from gantry_protocol.hosts import join_address
from gantry_protocol.process import log
from gantry_protocol.records import MessageRecord
from gantry_protocol.tier.keys import Pair
from gantry_protocol.types import Epoch, Offset

from gantry_broker.appends import PendingAppends
from gantry_broker.asking import Outcome
from gantry_broker.clients.view import Created
from gantry_broker.commons import Commons
from gantry_broker.consumers import Claim, Consumers
from gantry_broker.control.agent import ControlAgent
from gantry_broker.control.requests import Report, Speaker
from gantry_broker.delay.pin import oldest_parked
from gantry_broker.group_options import GroupOptions, Watcher
from gantry_broker.ha.links import ReplicationLinks
from gantry_broker.ha.listener import GroupKey
from gantry_broker.ha.wire import Caller
from gantry_broker.local_view import LocalView
from gantry_broker.queues import MessageStore
from gantry_broker.recovery import recover
from gantry_broker.replica import (
    ControllerView,
    LogFacts,
    ReplicaCore,
    Role,
    StoredState,
)
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.shell import ReplicaShell
from gantry_broker.store.contract import Appended, Refusal, SendOutcome
from gantry_broker.tier.boots import next_boot
from gantry_broker.tier.report import TierReport, store_time_at, tier_report
from gantry_broker.tier.service import TierService
from gantry_broker.tier.values import Head, LocalLog
from gantry_broker.topic_sync import TopicSync
from gantry_broker.transactions.pin import pins as transaction_pins

if TYPE_CHECKING:
    from gantry_broker.tier.reader import TierReader
    from gantry_broker.tier.uploader import Uploader

BETWEEN_MASTERS_S = 10.0  # an election takes 3 s where the master merely went silent
_NOT_MASTER = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is not the master of its group",
)
_LEAVING = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. this broker is handing its mastership over",
)
_NOT_WHOLE = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "this broker has not confirmed yet what was said before its log begins",
)
_TOO_FEW = Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")

_log = log.get("group")


class ReplicationGroup:
    """See the module. Make one with ``open``, then ``start`` it.

    Attributes:
        failure: set to the error that ends this member; never to a result.
        left: set when a draining member has nothing more to do here.
        stuck: why a person must look; empty while nobody must.
        view: the group as its clients see it.
    """

    def __init__(
        self, options: GroupOptions, commons: Commons, store: MessageStore, stored: StoredState
    ) -> None:
        """Join the parts; nothing is sent before ``start``."""
        self.options = options
        self._commons = commons
        self.incarnation = secrets.token_hex(8)
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = asyncio.Event()
        self.stuck = ""
        self.pending = PendingAppends()
        self.watcher = Watcher()
        self.core: ReplicaCore | None = None
        self.shell: ReplicaShell | None = None
        self.links = ReplicationLinks(self._caller, self._deliver, self._writable)
        self._store = store
        self._stored = stored
        self._key = GroupKey(options.cluster, options.group)
        self._serving_epoch: Epoch | None = None
        self._leaving = False
        self._master_seen = ""
        self._in_place_s = float("-inf")  # when it last followed or served
        self._agent: ControlAgent | None = None
        self._topics: TopicSync | None = None
        self._consumers: Consumers | None = None
        self._topics_due = False  # the state of the log was not whole when they were to be read
        self.uploader: Uploader | None = None
        self.tier: TierService | None = None
        store.tiered = options.tier is not None
        self._boots = 0
        self.view = LocalView(self)

    @classmethod
    async def open(cls, options: GroupOptions, commons: Commons) -> "ReplicationGroup":
        """Recover the volume; reading a large log takes a while and does not block the loop.

        Raises:
            CorruptionError: the volume is damaged.
            DataDirError: it holds something this version cannot read.
        """
        store, stored = await asyncio.to_thread(
            recover, options.directory, options.log_segment_bytes, commons.disks
        )
        return cls(options, commons, store, stored)

    # ---- life

    async def start(self) -> None:
        """Find out who we are, listen for replicas, and take part.

        Raises:
            GantryError: the volume is not ours.
        """
        options, commons = self.options, self._commons
        commons.listener.add(self._key, self.links)
        agent = self._agent = ControlAgent(
            Speaker(
                cluster=options.cluster,
                group=options.group,
                address=self.address,
                ha_port=commons.ha_port,
                incarnation=self.incarnation,
                pod_uid=options.pod_uid,
                priority=options.priority,
            ),
            options.directory,
            commons.line,
            report=self._report,
            learned=self._learned,
            failed=self._fail,
        )
        self._topics = TopicSync(self.view, agent.peers, lambda: self.serving)
        self._consumers = Consumers(options.cluster, options.group, agent.peers)
        me = await agent.join()
        shell_log = LogFacts(
            log_start=self._store.log.log_start,
            end=self._store.log.end,
            flushed=self._store.log.flushed,
            stored=self._stored,
        )
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        self.core = ReplicaCore(
            me=me,
            incarnation=self.incarnation,
            log=shell_log,
            now_ms=now_ms,
            limits=options.limits,
        )
        self.shell = ReplicaShell(
            self.core, self._store, options.directory, agent, self, commons, self._fail
        )
        if options.tier is not None:
            self._boots = next_boot(options.directory)
            self.tier = TierService(
                options.tier,
                self,
                self,
                group=options.group,
                writer=options.name,
                failed=self._fail,
            )
            self.uploader = self.tier.uploader
            self.tier.start()
        self.shell.start(self.links)
        agent.start()
        self._store.verify_soon(self._fail)

    async def stop(self) -> None:
        """Take no further part, close the store; what is not flushed is flushed."""
        self._serving_epoch = None  # for answers that are still on the process's line
        self.pending.end()
        self.view.store.end()
        if self._consumers is not None:
            self._consumers.end()
        if self.tier is not None:
            await self.tier.stop()
        if self._topics is not None:
            self._topics.end()
        self._commons.listener.remove(self._key)
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
        self._leaving = True
        if self.shell is None:
            self.left.set()
            return
        self.shell.step(ev.DrainRequested())
        if self._agent is not None:
            self._agent.beat()

    def _fail(self, error: BaseException) -> None:
        _log.error("this broker cannot go on", reason=error)
        if not self.failure.done():
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
        return (
            self._serving_epoch is not None
            and self.core is not None
            and self.core.serving is not None
        )

    @property
    def leaving(self) -> bool:
        """Whether it has been asked to leave."""
        return self._leaving

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

    def ready(self) -> tuple[bool, str]:
        """Whether clients may be sent here, and why not.

        A replica that loses its master stays ready for a while: it holds clients until the next
        one is known. If all replicas said no at that moment, a group's address would lead nowhere,
        or only to the lost master, for as long as probes take to notice that all is well again.
        """
        core, agent = self.core, self._agent
        if self._leaving:
            return False, "leaving"
        if core is None or agent is None:
            return False, "waiting for the controllers"
        if self.stuck or agent.behind:
            return False, self.stuck or agent.behind
        if not agent.registered:
            return False, "not registered with the controllers"
        now_s = asyncio.get_running_loop().time()
        if self.serving or (core.role is Role.FOLLOWING and core.streaming):
            self._in_place_s = now_s
            return True, f"{'master of' if self.serving else 'following in'} epoch {core.epoch}"
        if now_s - self._in_place_s <= BETWEEN_MASTERS_S:
            return True, "between two masters"
        return False, "no master to follow"

    def tier_report(self) -> TierReport | None:
        """What there is to say of the tier; None without one."""
        if self.uploader is None or self.core is None:
            return None
        return tier_report(
            self.uploader.role,
            self.core.log.confirm,
            lambda offset: store_time_at(self._store.log, offset),
            int(time() * 1000),
        )

    # ---- what a broker in another process is told and may ask

    @property
    def claim(self) -> Claim:
        """By what this member is the master; there is one only while it serves."""
        assert self.core is not None, "nobody serves before the volume has a name"
        return Claim(self.core.me, self.epoch, self.incarnation)

    @property
    def subscriptions_version(self) -> int:
        """Which version of the subscription groups the controllers named last."""
        return 0 if self._agent is None else self._agent.known.subscriptions_version

    def ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        """Pass something on to the controllers; ``done`` comes once, maybe at once."""
        assert self._agent is not None, "nobody serves before it has joined"
        self._agent.peers.ask(command, done, timeout_s)

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
        """Where this broker can be asked for a record by its offset id."""
        return self.options.advertise, self.options.remoting_port

    @property
    def consumers(self) -> Consumers:
        """Subscription groups, and who is in them; there are clients only once it exists."""
        assert self._consumers is not None, "nobody is served before start"
        return self._consumers

    @property
    def known_consumers(self) -> Consumers | None:
        """The same, or None before ``start``."""
        return self._consumers

    def accepting_writes(self) -> Refusal | None:
        """None when a send may be appended (H11)."""
        master = None if self.core is None else self.core.serving
        if master is None or self._serving_epoch is None:
            return _NOT_MASTER
        if self._leaving or master.drain is not None:
            return _LEAVING
        if master.in_sync < master.min_in_sync:
            return _TOO_FEW
        return None if self._store.is_whole else _NOT_WHOLE

    def append(self, records: list[MessageRecord], done: Appended) -> None:
        """Store and replicate; ``done(outcome)`` comes exactly once, maybe at once.

        Raises:
            RecordError: a record cannot be stored; ``done`` is not called.
            DiskFullError: there is no room; ``done`` is not called.
        """
        if not self.serving or self.shell is None:
            done(SendOutcome(_NOT_MASTER.code, _NOT_MASTER.remark))
            return
        stored = self._store.put(records, now_ms=int(time() * 1000))
        self.pending.add(stored, done, asyncio.get_running_loop().time())
        self.shell.appended()

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controllers first, then by a record in the log."""
        if not self.serving or self._topics is None:
            done(_NOT_MASTER)
            return
        if not self._store.is_whole:
            done(_NOT_WHOLE)
            return
        self._topics.create(topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic here: by the controllers first, then by a record in the log."""
        if not self.serving or self._topics is None:
            done(_NOT_MASTER)
        elif not self._store.is_whole:
            done(_NOT_WHOLE)
        else:
            self._topics.delete(topic, done)

    # ---- RoleObserver

    def promoted(self, epoch: Epoch, start: Offset) -> None:
        """Serve from now on."""
        self._serving_epoch = epoch
        if self._consumers is not None and not self.options.clients_elsewhere:
            self._consumers.began(self.claim)
        if self.uploader is not None:
            self.uploader.promoted(Pair(epoch, self._boots))
        self.watcher.serving_began()
        self._changed()
        if self._agent is not None:
            self._agent.beat()
            self._catch_up_topics(self._agent)

    def demoted(self, epoch: Epoch) -> None:
        """Serve no more; nobody waits for an answer any longer."""
        self._serving_epoch = None
        if self.uploader is not None:
            self.uploader.demoted()
        self.pending.end()
        self.view.store.end()
        if self._topics is not None:
            self._topics.end()
        if self._consumers is not None:
            self._consumers.end()
        self.watcher.serving_ends()
        self._changed()

    def confirmed(self, confirm: Offset) -> None:
        """Answer what waited for it."""
        master = None if self.core is None else self.core.serving
        if master is not None:
            enough = master.in_sync >= master.min_in_sync
            self.pending.confirm(confirm, enough_in_sync=enough)
            if self.uploader is not None:
                self.uploader.advanced()
            if self._topics_due and self._agent is not None:
                self._catch_up_topics(self._agent)

    def drained(self, reason: str) -> None:
        """Nothing more is gained by staying."""
        _log.info("drained", reason=reason)
        self.left.set()

    def stuck_at(self, effect: fx.Stuck) -> None:
        """A person must look."""
        self.stuck = f"{effect.code}: {effect.sentence}"
        self._changed()

    def ticked(self) -> None:
        """Answer what has waited long enough."""
        self.pending.expire(asyncio.get_running_loop().time())

    # ---- UploadObserver

    def tier_committed(self, head: Head) -> None:
        """Whoever follows the chain need not wait for its next look."""
        if self.tier is not None:
            self.tier.reader.poke()

    def tier_fenced(self, own: Pair, by: Pair | None) -> None:
        """A later master has been at the tier: the controllers know who it is."""
        if self._agent is not None:
            self._agent.refresh()

    # ---- RetentionHost

    @property
    def tier_reader(self) -> "TierReader | None":
        """Reads what the local log no longer has; None without a tier."""
        return None if self.tier is None else self.tier.reader

    def pins(self) -> tuple[Offset, ...]:
        """From where on the log is needed: by replicas, parked messages, open transactions."""
        parked = oldest_parked(self._store)
        pins = (*transaction_pins(self._store), *(() if parked is None else (parked,)))
        master = None if self.core is None else self.core.master
        if master is None:
            return pins
        sent = (one.sent for one in master.members.values() if one.link is not None)
        return (*pins, *sent)

    def log_trimmed(self, start: Offset) -> None:
        """The log begins at ``start`` now."""
        if self.shell is not None:
            self.shell.step(ev.LogTrimmed(start))

    def local_log(self) -> LocalLog:
        """The log as it is now."""
        core = self.core
        assert core is not None, "nobody is master before the volume has a name"
        facts = core.log
        return LocalLog(
            log_start=facts.log_start,
            end=facts.end,
            flushed=facts.flushed,
            confirm=min(facts.confirm, facts.flushed),
            lineage=facts.lineage,
        )

    # ---- inside

    def _changed(self) -> None:
        self.watcher.role_changed()

    def _report(self) -> Report:
        core = self.core
        assert core is not None, "nothing is reported before the volume has a name"
        facts = core.log
        return Report(
            epoch=facts.lineage.last_epoch,
            log_start=facts.log_start,
            end=facts.end,
            confirm=facts.confirm,
            draining=self._leaving,
            tier=self.tier_report(),
        )

    def _learned(self, view: ControllerView) -> None:
        if self.shell is None or self._agent is None:
            return
        before = (self.epoch, self.master_address)
        self.shell.step(ev.ViewLearned(view))
        self._catch_up_topics(self._agent)
        if self._consumers is not None:
            self._consumers.catch_up(self._agent.known.subscriptions_version)
        if (self.epoch, self.master_address) != before:
            self._changed()

    def _catch_up_topics(self, agent: ControlAgent) -> None:
        if self._topics is None or not self.serving:
            return
        self._topics_due = not self._store.is_whole  # a part of a table is compared with nothing
        if not self._topics_due:
            self._topics.catch_up(agent.known.topics_version)

    def notice(self, notice: RemotingCommand) -> bool:
        """Take a notification (1008); False if it is not for this group.

        Raises:
            WireError: it is malformed.
        """
        return self._agent is not None and self._agent.notice(notice)

    def _caller(self) -> Caller:
        uid = "" if self._agent is None else self._agent.known.group_uid
        return Caller(self.options.cluster, self.options.group, uid)

    def _deliver(self, event: ev.Event) -> None:
        if self.shell is not None:
            self.shell.step(event)
        elif isinstance(event, ev.Received):
            self.links.close(event.link)  # too early: it will call again

    def _writable(self) -> None:
        if self.shell is not None:
            self.shell.feed()
