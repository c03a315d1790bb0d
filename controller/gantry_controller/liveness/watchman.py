"""The watchman of one controller node: gives the overseer a clock, a loop and a voice.

It takes in heartbeats, closed connections, the operator's word and the changes of the metadata,
keeps one timer armed for whatever is due next (a broker's time-out, a knock at a closed address),
and proposes the elections that the overseer asks for. All elections of one wake-up go into the log
together; a wake-up looks at a bounded number of groups, and the next one follows at once, so that a
thousand groups without a master keep no request waiting for long.

All times are listening times (``attention``). A process that stood still gives its brokers a new
time-out, since their heartbeats wait in our own sockets.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gantry_protocol.process import log
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_controller.liveness.core import rules
from gantry_controller.liveness.core.attention import PULSE_S, Attention
from gantry_controller.liveness.core.claims import Claims, RefusedClaim
from gantry_controller.liveness.core.courses import MasterChange
from gantry_controller.liveness.core.overseer import Overseer, Trigger
from gantry_controller.liveness.core.probes import Knock, Probes
from gantry_controller.liveness.core.spread import REASON as SPREAD
from gantry_controller.liveness.core.spread import Spread
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable, MemberKey
from gantry_controller.liveness.core.unheard import UnheardConsumers
from gantry_controller.liveness.prober import knock
from gantry_controller.metadata.confirmed import Floor, Loss
from gantry_controller.metadata.draining import Drain
from gantry_controller.metadata.drains import has_other_taking, others_taking
from gantry_controller.metadata.events import (
    AcceptLoss,
    AlterSyncStateSet,
    ElectMaster,
    Event,
    FloorRow,
    LiveMember,
    MapQueues,
    RaiseFloors,
    TakeTopics,
    encode_event,
)
from gantry_controller.metadata.given_up import GoneGroups
from gantry_controller.metadata.leaving import DrainedGroups
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.newcomers import may_take
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.shares import Shares
from gantry_controller.metadata.state import BrokerGroup, GroupKey, Member

if TYPE_CHECKING:
    from gantry_controller.liveness.master_traces import MasterTraces

GROUPS_PER_TURN = 200  # about 2 ms of work
ROWS_PER_PULSE = 2000  # about 2 ms of work
KNOCKS_MAX = 256  # connections being opened at once
SAID_MAX = 20  # groups that are spoken of at a time
SAY_EVERY_S = 30.0

Propose = Callable[[bytes, Callable[[object], None]], None]

_log = log.get("liveness")


NOT_HEARD = "Most controllers have not said their version yet: try again in a moment"
"""The reason to refuse what needs to know ``may_raise``, while that is None."""


class Watchman:
    """Liveness of one node; see the module.

    Args:
        machine: whose applied state is watched.
        propose: puts a command into the log and calls back with its result or an exception.
        default_timeout_s: of brokers that have not told their own.
        may_raise: whether the members of the quorum understand ``RaiseFloors``,
            ``ForgetConsumers``, ``TakeTopics`` and ``TakeShare``; None while that is not known.
        spreads: whether masters are spread evenly over processes of many groups.
        knocker: how an address is knocked at.

    Attributes:
        may_raise: see above.
        spread: of masters over processes.
        elections: proposed by this node, by reason.
        elections_held_back: asked for by others, and not put into the log.
        traces: of changes of master; None traces none.
    """

    def __init__(
        self,
        machine: MetadataStateMachine,
        propose: Propose,
        *,
        default_timeout_s: float,
        may_raise: Callable[[], bool | None] = lambda: True,
        spreads: bool = True,
        knocker: Callable[[str], Awaitable[Knock]] = knock,
    ) -> None:
        self.table = HeartbeatTable()
        self._claims = Claims()
        self.elections: dict[str, int] = {}
        self.elections_held_back = 0
        self.traces: MasterTraces | None = None
        self.may_raise = may_raise
        self._said_s: dict[GroupKey, float] = {}  # when to speak of a group that waits again
        self._machine = machine
        self._propose = propose
        self._knocker = knocker
        self._overseer = Overseer(machine.state, self.table, default_timeout_s=default_timeout_s)
        self.spread = Spread(machine.state, self.table, self._overseer)
        self._spreads = spreads
        self._unheard = UnheardConsumers(machine.state, self._has_living_master)
        self._shares = Shares(machine.state, self._has_living_master)
        self._gone = GoneGroups(machine.state, self.may_serve)
        self._leaving = DrainedGroups(machine.state, self.may_serve)
        self._probes = Probes(self.table)
        self._knocks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0  # in listening time
        self._attention = Attention(self._stood_still)
        self._pulse_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        machine.add_listener(self._applied)
        machine.add_restore_listener(self._restored)

    def start(self) -> None:
        """Begins to keep time."""
        self._pulse()
        self._arm()

    async def stop(self) -> None:
        """Ends all timers and knocks."""
        self._stopped = True
        for timer in (self._timer, self._pulse_timer):
            if timer is not None:
                timer.cancel()
        for task in list(self._knocks):
            task.cancel()
        await asyncio.gather(*self._knocks, return_exceptions=True)

    def role_changed(self, *, leading: bool) -> None:
        """This node began or ceased to lead the quorum."""
        if leading == self._overseer.leading:
            return
        if not leading:
            self._overseer.follow()
            self._probes.clear()
            self.spread.follow()
            return
        now_s = self._now_s()
        self._unheard.began()
        self._shares.began()
        self._gone.began()
        self._leaving.began()
        self._overseer.lead(now_s)
        for member in self.table.closed_members():
            self._probes.start(member, now_s)
        self._arm()

    def heard(self, key: GroupKey, beat: Heartbeat, connection: int | None) -> None:
        """A broker spoke, on ``connection`` or through another controller."""
        now_s = self._now_s()
        self._claims.end(key, beat.broker_id)
        news = self.table.heard(key, beat, now_s=now_s, connection=connection)
        if news and self._overseer.heard(key, now_s, beat):
            self._arm()

    def connection_closed(self, connection: int) -> None:
        """A connection to this node is gone."""
        now_s = self._now_s()
        for member in self.table.closed(connection):
            if self._overseer.leading:
                self._probes.start(member, now_s)
        self._arm()

    def pod_is_gone(self, group: BrokerGroup, pod_uid: str) -> None:
        """The operator says so."""
        now_s = self._now_s()
        self.table.pod_is_gone(pod_uid, now_s)
        self._overseer.look(group.key, now_s)
        self._arm()

    def live_members(
        self, group: BrokerGroup, asking: BrokerId | None = None
    ) -> tuple[LiveMember, ...]:
        """The evidence for an election of ``group``."""
        return self._overseer.evidence(group, self._now_s(), asking)

    def before_election(self, group: BrokerGroup, event: ElectMaster) -> str:
        """Has the quorum know what is confirmed before ``event``, and give a new group its topics.

        Returns a sentence if that must not come there at all; mostly empty.
        """
        objection = self._overseer.objection(group, event, self._now_s())
        if objection:
            self.elections_held_back += 1
        else:
            self.let_the_quorum_know(group)
            self._give_topics(group)
        return objection

    def let_the_quorum_know(self, group: BrokerGroup) -> None:
        """Puts what was heard to be confirmed into the log, before anything that comes next."""
        self._raise(self._overseer.floors.row(group))

    def registration_refused(
        self, group: BrokerGroup, broker_id: BrokerId, epoch: Epoch, max_offset: Offset
    ) -> None:
        """A copy of ``group`` knows of epochs that this quorum never decided."""
        self._claims.note(group.key, broker_id, RefusedClaim(epoch, max_offset, self._now_s()))

    def claims(self, group: BrokerGroup) -> dict[BrokerId, RefusedClaim]:
        """Those who were refused lately, by id."""
        return self._claims.of(group.key, self._now_s())

    def floor(self, group: BrokerGroup) -> Floor | None:
        """The end that is known here to be confirmed."""
        return self._overseer.floors.floor(group.key)

    def loss(self, group: BrokerGroup) -> Loss | None:
        """The last time a person gave up what was confirmed."""
        return self._machine.state.losses.get(group.key)

    def course(self, group: BrokerGroup) -> MasterChange | None:
        """The way in which the group came to its present master."""
        return self._overseer.courses.of(group)

    def drain(self, group: BrokerGroup) -> Drain | None:
        """The drain of the group, if it is being drained."""
        return self._machine.state.drains.get(group.key)

    def has_others(self, group: BrokerGroup) -> bool:
        """Whether other groups of its cluster take messages."""
        return has_other_taking(self._machine.state, group)

    def others_serve(self, group: BrokerGroup) -> bool:
        """Whether one of them may have a living master."""
        return any(map(self.may_serve, others_taking(self._machine.state, group)))

    def mapped_queues(self, group: BrokerGroup) -> tuple[int, int]:
        """The queues of mapped topics that the group has, and will have once all have moved."""
        maps = self._machine.state.maps_of(group.cluster)
        return maps.held[group.name], maps.load[group.name]

    def why_nobody(self, group: BrokerGroup) -> str:
        """The reason why the group with living members has no master; else empty."""
        return self._overseer.why_nobody(group.key)

    @property
    def groups_held_back(self) -> int:
        """The number of groups that wait since those that live lack what was confirmed, or may."""
        return len(self._overseer.who_wait())

    @property
    def groups_unserved(self) -> int:
        """The number of groups, but for retired ones, without a master that is heard."""
        return sum(not self.may_serve(group) for group in self._machine.state.serving())

    @property
    def floors_raised(self) -> int:
        """Rows that this node has proposed to raise floors with."""
        return self._overseer.floors.raised

    def _raise(self, row: FloorRow | None) -> None:
        if row is not None and self.may_raise():
            self._propose(encode_event(RaiseFloors(rows=(row,))), lambda _: None)

    def _give_topics(self, group: BrokerGroup) -> None:
        """Has a group that is about to get its first master take over its cluster's topics."""
        if self.may_raise() and may_take(self._machine.state, group):
            event = TakeTopics(cluster=group.cluster, name=group.name, shares=True, beside=True)
            self._propose(encode_event(event), lambda _: None)

    def _raise_due(self, now_s: float) -> None:
        if not self._overseer.leading or not self.may_raise():
            return
        event = self._overseer.floors.due(now_s)
        if event is not None:
            self._propose(encode_event(event), lambda _: None)

    def _forget_unheard(self, now_s: float) -> None:
        if self._overseer.leading and self.may_raise():
            for event in self._unheard.due(now_s):
                _log.info("consumers forgotten", cluster=event.cluster, broker_name=event.name)
                self._propose(encode_event(event), lambda _: None)

    def _move_queues(self, now_s: float) -> None:
        """Has queues of mapped topics move to new groups, and from drained ones and gone ones."""
        if not self._overseer.leading or not self.may_raise():
            return
        due: dict[str, Sequence[Event]] = {
            "a group is new": self._shares.due(now_s),
            "their group is drained": self._leaving.due(now_s),
            "their group is gone": self._gone.due(now_s),
        }
        for why, events in due.items():
            for event in events:
                if isinstance(event, MapQueues):
                    count = len(event.places)
                    _log.info("queues move", topic=event.topic, queues=count, reason=why)
                self._propose(encode_event(event), lambda _: None)

    def _spread_masters(self, now_s: float) -> None:
        if self._overseer.leading and self._spreads:
            for trigger in self.spread.step(now_s):
                self._elect(trigger)

    def _has_living_master(self, group: BrokerGroup) -> bool:
        return (
            group.master is not None
            and group.master_is_current
            and self.is_alive(group, group.master)
        )

    def may_serve(self, group: BrokerGroup) -> bool:
        """Whether the group has a master that nothing speaks against.

        A new leader, which has heard nobody yet, must not have all queues go to who spoke first.
        """
        if group.master is None:
            return False
        return rules.master_suspicion(self.table, group, self._clock()) is None

    def not_proved_gone(self, group: BrokerGroup) -> tuple[LiveMember, ...]:
        """The evidence for an event that only concerns members that are surely gone."""
        return rules.not_proved_gone(self.table, group, self._clock())

    def to_forget(self, group: BrokerGroup, broker_id: BrokerId) -> tuple[LiveMember, ...]:
        """The evidence for forgetting ``broker_id``."""
        return rules.to_forget(self.table, group, self._clock(), broker_id)

    def alive_of(
        self, group: BrokerGroup, broker_ids: Iterable[BrokerId]
    ) -> tuple[LiveMember, ...]:
        """The evidence for a sync-state set of these members."""
        return rules.alive_of(self.table, group, broker_ids, self._clock())

    def draining(self, group: BrokerGroup) -> list[BrokerId]:
        """The living members that are about to stop."""
        if not rules.some_drain(self.table, group):  # asked for with every poll of a broker
            return []
        return rules.draining(self.table, group, self._clock())

    def is_alive(self, group: BrokerGroup, member: Member) -> bool:
        """Whether the member's registered process was heard in time and nothing contradicts it."""
        return rules.is_alive(self.table, group, member, self._clock())

    def first_wait_over(self, group: BrokerGroup) -> bool:
        """Whether the first election need not wait for the last members any more."""
        return self._overseer.first_wait_over(group, self._now_s())

    def heartbeat_age_s(self, group: BrokerGroup, member: Member) -> float | None:
        """The time since the member's registered process was heard."""
        row = rules.row_of(self.table, group, member)
        return None if row is None else self._now_s() - row.seen_s

    def brokers_heard(self) -> int:
        """Brokers that were heard within their time-outs."""
        return self.table.alive

    @property
    def stalls(self) -> int:
        """The number of times that this process stood still."""
        return self._attention.stalls

    def liveness_changes(self) -> set[GroupKey]:
        """Groups of which a member came, went, began to drain or fares otherwise with its tier."""
        return self.table.take_news()

    def _clock(self) -> rules.Clock:
        return self._overseer.clock(self._now_s())

    def _say_who_waits(self, now_s: float) -> None:
        """A line in the log for each group that waits, now and then."""
        waiting = self._overseer.who_wait()
        for key in [item for item in self._said_s if item not in waiting]:
            del self._said_s[key]
        for key, why in islice(waiting.items(), SAID_MAX):
            if now_s >= self._said_s.get(key, now_s):
                self._said_s[key] = now_s + SAY_EVERY_S
                _log.warning("no master is elected", cluster=key[0], broker_name=key[1], why=why)

    def _applied(self, event: Event, result: Result) -> None:
        if result.group is not None:
            if self._overseer.leading and result.changed:
                self._overseer.courses.applied(
                    event,
                    result.group,
                    now_s=self._now_s(),
                    wall_ms=time.time_ns() // 1_000_000,
                )
                if self.traces is not None and isinstance(event, ElectMaster | AcceptLoss):
                    self.traces.elected(result.group, self._overseer.courses.of(result.group))
            by_master = type(event) is AlterSyncStateSet
            self._overseer.floors.changed(result.group, self._now_s(), by_master=by_master)
            self._gone.applied(result.group)
        self.spread.applied(event, result, self._now_s())
        if not self._overseer.concerns(event, result):
            return
        if self._overseer.applied(event, result, self._now_s()):
            self._arm()

    def _restored(self) -> None:
        self._overseer.restored(self._now_s())

    def _now_s(self) -> float:
        """Listening time; a stall is noticed by whoever looks at the clock first after it."""
        return self._attention.listening(asyncio.get_running_loop().time())

    def _stood_still(self, stall_s: float, now_s: float) -> None:
        _log.warning("process stood still", seconds=round(stall_s, 3))
        self._overseer.did_not_listen(now_s)
        self._unheard.began()
        self._shares.began()
        self._gone.began()
        self._leaving.began()

    def _pulse(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = self._attention.pulse(loop.time())
        self.table.pass_time(now_s, ROWS_PER_PULSE)
        self._raise_due(now_s)
        self._forget_unheard(now_s)
        self._move_queues(now_s)
        self._spread_masters(now_s)
        self._say_who_waits(now_s)
        self._pulse_timer = loop.call_later(PULSE_S, self._pulse)

    def _arm(self) -> None:
        """Keeps the timer at the earliest thing due; due things run in a turn of their own."""
        if self._stopped:
            return
        knock_due_s = self._probes.next_due() if len(self._knocks) < KNOCKS_MAX else None
        due = [item for item in (self._overseer.next_due(), knock_due_s) if item is not None]
        if not due:
            return
        if self._timer is not None:
            if self._timer_due_s <= min(due):
                return
            self._timer.cancel()
        self._timer_due_s = min(due)
        self._timer = asyncio.get_running_loop().call_at(
            self._attention.clock(self._timer_due_s), self._turn
        )

    def _turn(self) -> None:
        now_s = self._now_s()
        self._timer = None
        for trigger in self._overseer.take(now_s, GROUPS_PER_TURN):
            self._elect(trigger)
        for member in self._probes.take(now_s, KNOCKS_MAX - len(self._knocks)):
            self._start_knock(member)
        self._arm()

    def _elect(self, trigger: Trigger) -> None:
        cluster, name = trigger.key
        event = trigger.event
        self._raise(trigger.floor)
        self._give_topics(self._machine.state.groups[trigger.key])
        _log.info(
            "election proposed",
            cluster=cluster,
            broker_name=name,
            reason=trigger.reason,
            master_epoch=event.expected_epoch,
        )
        self.elections[trigger.reason] = self.elections.get(trigger.reason, 0) + 1
        if self.traces is not None:
            self.traces.proposed(trigger.key, trigger.reason)
        self._propose(encode_event(event), lambda outcome: self._settled(trigger, outcome))

    def _settled(self, trigger: Trigger, outcome: object) -> None:
        ok = isinstance(outcome, Result) and outcome.ok
        if self.traces is not None:
            self.traces.settled(trigger.key)
        if not ok:
            why = outcome.remark if isinstance(outcome, Result) else outcome
            _log.info("election came to nothing", broker_name=trigger.key[1], why=why)
        self._overseer.settled(trigger.key, self._now_s(), ok=ok)
        if trigger.reason == SPREAD:
            self.spread.settled(trigger.key, self._now_s(), ok=ok)
        self._arm()

    def _start_knock(self, member: MemberKey) -> None:
        task = asyncio.create_task(self._knock(member))
        self._knocks.add(task)
        task.add_done_callback(self._knocked)

    async def _knock(self, member: MemberKey) -> None:
        cluster, name, broker_id = member
        group = self._machine.group(cluster, name)
        known = None if group is None else group.member(broker_id)
        outcome = Knock.OTHER if known is None else await self._knocker(known.address)
        now_s = self._now_s()
        if self._probes.answered(member, outcome, now_s):
            _log.info("broker is gone", cluster=cluster, broker_name=name, broker_id=broker_id)
            self._overseer.look((cluster, name), now_s)

    def _knocked(self, task: asyncio.Task[None]) -> None:
        self._knocks.discard(task)
        if not task.cancelled():
            task.result()
        self._arm()
