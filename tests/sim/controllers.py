"""A whole controller as a simulated process: the real quorum under the real metadata and liveness.

``SimController`` is a ``RaftProcess`` whose state machine is the metadata, with the heartbeat
table, the rules, the probes and the overseer of the product; only asyncio, sockets and threads are
missing. Brokers talk to it as to ``sim.controller_stub.Controller``: a ``Request`` over ``Tcp``
carries an event without evidence (or none, to read the group) and is answered by a ``Reply``;
``Heartbeat`` comes as a plain message, ``Notice`` goes out as one after each election.

    register        Request(number, RegisterBroker(...))
    elect           Request(number, ElectMaster(...))
    alter           Request(number, AlterSyncStateSet(...))
    get info        Request(number, None)
    heartbeat       Heartbeat(...)

A node that does not lead answers "get info" from its own state, once it has asked the leader how
new that must be, and passes all else on once, over its own connection to the leader. Nobody answers
while there is no leader; the broker asks another node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gantry_controller.liveness.core import rules
from gantry_controller.liveness.core.overseer import Overseer, Trigger
from gantry_controller.liveness.core.probes import Knock, Probes
from gantry_controller.liveness.core.table import Heartbeat as TableHeartbeat
from gantry_controller.liveness.core.table import HeartbeatTable, MemberKey
from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    CleanBrokerData,
    ElectMaster,
    Event,
    FloorRow,
    LiveMember,
    RaiseFloors,
    encode_event,
)
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.raft.messages import EntryKind
from gantry_controller.raft.state import Role
from gantry_protocol.codes import ResponseCode
from msgspec.structs import replace
from sim.controller_stub import CLUSTER, NAME, Heartbeat, Notice, Reply, Request, view_of
from sim.kernel.world import MS
from sim.raft.process import Observer, ProcessKnobs, RaftProcess, machine_name
from sim.tcp import Tcp

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.replica import ControllerView
    from gantry_controller.metadata.results import Result
    from gantry_controller.metadata.state import BrokerGroup
    from gantry_controller.raft.config import RaftConfig
    from gantry_controller.raft.messages import Entry
    from gantry_protocol.types import BrokerId
    from sim.kernel.machine import Host

KEY = (CLUSTER, NAME)
SCAN_US = 5 * MS
TIMEOUT_S = 2.5
LEADER_LINK = -1
GROUPS_PER_TURN = 10
KNOCKS_PER_TURN = 10


@dataclass(frozen=True)
class PassedOn:
    """A request that another controller received."""

    number: int
    request: Request


@dataclass(frozen=True)
class PassedBack:
    """The leader's answer to it."""

    number: int
    reply: Reply


class MetadataObserver(Observer, Protocol):
    """Sees what the state machines do, too."""

    def changed(
        self, node: SimController, before: BrokerGroup | None, event: Event, result: Result
    ) -> None:
        """``node`` applied an event that changed something."""


class SimController(RaftProcess):
    """The actor; see the module."""

    observer: MetadataObserver

    def __init__(
        self, host: Host, config: RaftConfig, knobs: ProcessKnobs, observer: MetadataObserver
    ) -> None:
        super().__init__(host, config, knobs, observer)
        self.machine = MetadataStateMachine()
        self.machine.add_listener(self._changed)
        self.table = HeartbeatTable()
        self.overseer = Overseer(self.machine.state, self.table, default_timeout_s=TIMEOUT_S)
        self.probes = Probes(self.table)
        self._results: dict[int, Result] = {}
        self._before: BrokerGroup | None = None
        self._connections: dict[tuple[str, str], int] = {}  # (machine, incarnation) → number
        self._passed_on: dict[int, tuple[int, Request]] = {}
        self._numbers = 0
        self._leader_name: str | None = None
        self._tcp = Tcp(host, opened=_nothing, received=self._received, closed=self._closed)

    @property
    def now_s(self) -> float:
        return self.host.clock_us / 1e6

    @property
    def is_serving_leader(self) -> bool:
        core = self.core
        return (
            core.role is Role.LEADER
            and core.term_is_committed
            and self.applied_index == core.commit_index
        )

    def group(self) -> BrokerGroup | None:
        return self.machine.group(*KEY)

    # ---- actor

    def start(self) -> None:
        super().start()
        self._scan()

    def receive(self, source: str, message: object) -> None:
        if self._tcp.receive(source, message):
            return
        if isinstance(message, Heartbeat):
            self._heard(source, message)
        else:
            super().receive(source, message)

    def peer_closed(self, name: str) -> None:
        self._tcp.peer_closed(name)
        if name.startswith("n"):
            super().peer_closed(name)
            return
        for (source, _), number in self._connections.items():
            if source == name:
                for member in self.table.closed(number):
                    if self.overseer.leading:
                        self.probes.start(member, self.now_s)

    def turn(self) -> None:
        super().turn()
        leading = self.core.role is Role.LEADER and (
            self.overseer.leading or self.is_serving_leader
        )
        if leading == self.overseer.leading:
            return
        self.host.note("leading", leading)
        if not leading:
            self.overseer.follow()
            self.probes.clear()
            return
        self.overseer.lead(self.now_s)
        for member in self.table.closed_members():
            self.probes.start(member, self.now_s)

    def apply(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.kind is EntryKind.COMMAND:
                self._before = self.group()
                self._results[entry.index] = self.machine.apply(
                    entry.index, entry.term, entry.command
                )
        super().apply(entries)
        self._results.clear()  # whoever waited for one has been told

    def _changed(self, event: Event, result: Result) -> None:
        self.observer.changed(self, self._before, event, result)
        if result.group is not None:
            by_master = isinstance(event, AlterSyncStateSet)
            self.overseer.floors.changed(result.group, self.now_s, by_master=by_master)
        self.overseer.applied(event, result, self.now_s)
        group = result.group
        if group is None or not isinstance(event, ElectMaster):
            return
        self.host.note("elected", group.master_epoch, group.master_id)
        if self.core.role is Role.LEADER:
            for member in group.members:
                self.host.send(member.address, Notice(self._view(group)))

    # ---- brokers

    def _heard(self, source: str, beat: Heartbeat) -> None:
        known = (source, beat.incarnation)
        number = self._connections.setdefault(known, len(self._connections) + 1)
        heartbeat = TableHeartbeat(
            broker_id=beat.broker_id,
            timeout_s=TIMEOUT_S,
            incarnation=beat.incarnation,
            epoch=beat.epoch,
            max_offset=beat.max_offset,
            confirm_offset=beat.confirm_offset,
            confirm_epoch=beat.confirm_epoch,
            draining=beat.draining,
        )
        if self.table.heard(KEY, heartbeat, now_s=self.now_s, connection=number):
            self.overseer.heard(KEY, self.now_s, heartbeat)

    def _received(self, link: int, message: object) -> None:
        if isinstance(message, Request):
            self._serve_or_pass_on(link, message)
        elif isinstance(message, PassedOn):
            number, request = message.number, message.request
            self._serve(request, lambda reply: self._tcp.send(link, PassedBack(number, reply)))
        elif isinstance(message, PassedBack):
            waiting = self._passed_on.pop(message.number, None)
            if waiting is not None:
                self._tcp.send(waiting[0], message.reply)

    def _closed(self, link: int) -> None:
        if link == LEADER_LINK:
            self._leader_name = None

    def _serve_or_pass_on(self, link: int, request: Request) -> None:
        leader = self.core.leader
        here = self.core.role is Role.LEADER or request.event is None
        if here and self._serve(request, lambda reply: self._tcp.send(link, reply)):
            return
        if leader is not None and leader != self.core.node_id:
            if self._leader_name != machine_name(leader):
                self._tcp.close(LEADER_LINK)
                self._leader_name = machine_name(leader)
                self._tcp.connect(LEADER_LINK, self._leader_name)
            self._numbers += 1
            self._passed_on[self._numbers] = (link, request)
            self._tcp.send(LEADER_LINK, PassedOn(self._numbers, request))

    def _serve(self, request: Request, answer: Callable[[Reply], None]) -> bool:
        """Catches up first: what evidence is composed from must be no older than this request.

        False if this node cannot say how new the state must be, and the leader should be asked.
        """

        def done(code: ResponseCode) -> None:
            group = self.machine.state.groups.get(KEY)
            view = None if group is None or group.removed else self._view(group)
            next_id = 1 if group is None else group.next_broker_id
            answer(Reply(request.number, code, view, next_id))

        def current() -> None:
            if request.event is None:
                done(self._read_code(request))
                return
            event = self._with_evidence(request.event)
            group = self.group()
            if isinstance(event, ElectMaster) and group is not None:
                if self.overseer.objection(group, event, self.now_s):
                    self.world_count("election.held-back")
                    done(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
                    return
                self._raise(self.overseer.floors.row(group))
            self.submit(event, lambda result: done(result.code))

        try:
            self.read(current)
        except NotLeader:
            self.world_count("controller.not-leader")
            return False
        return True

    def _read_code(self, request: Request) -> ResponseCode:
        group = self.group()
        member = None
        if group is not None and request.broker_id is not None and request.incarnation:
            member = group.member(request.broker_id)
        if member is None or member.is_incarnation(request.incarnation):
            return ResponseCode.SUCCESS
        return ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED

    def submit(self, event: Event, done: Callable[[Result], None]) -> bool:
        """Puts ``event`` into the log; ``done`` is called if and when it is applied here."""
        try:
            self.propose([encode_event(event)], lambda index: done(self._results[index]))
        except (NotLeader, Overloaded):
            self.world_count("controller.refused")
            return False
        return True

    def world_count(self, name: str) -> None:
        self.host.world.count(name)

    def _with_evidence(self, event: Event) -> Event:
        group = self.group()
        if group is None:
            return event
        if isinstance(event, ElectMaster):
            asking = None if event.designate else event.requester
            over = self.overseer.first_wait_over(group, self.now_s)
            live = self.overseer.evidence(group, self.now_s, asking)
            return replace(event, live=live, first_wait_over=over)
        if isinstance(event, AlterSyncStateSet | CleanBrokerData):
            return replace(event, live=self._live(group, None))
        return event

    def _live(self, group: BrokerGroup, asking: BrokerId | None) -> tuple[LiveMember, ...]:
        clock = self.overseer.clock(self.now_s)
        return rules.live_members(self.table, group, clock, asking=asking)

    def _view(self, group: BrokerGroup) -> ControllerView:
        draining = frozenset(one.broker_id for one in self._live(group, None) if one.draining)
        wish = group.declaration
        return view_of(group, 1 if wish is None else wish.min_in_sync_replicas, draining)

    # ---- liveness

    def _scan(self) -> None:
        self.host.after(SCAN_US, self._scan)
        floors = self.overseer.floors.due(self.now_s) if self.overseer.leading else None
        if floors is not None:
            self.submit(floors, lambda _: None)
        for trigger in self.overseer.take(self.now_s, GROUPS_PER_TURN):
            self._elect(trigger)
        for member in self.probes.take(self.now_s, KNOCKS_PER_TURN):
            self._knock(member)

    def _raise(self, row: FloorRow | None) -> None:
        if row is not None:
            self.submit(RaiseFloors(rows=(row,)), lambda _: None)

    def _elect(self, trigger: Trigger) -> None:
        self.world_count(f"election.{trigger.reason}")
        self._raise(trigger.floor)

        def settled(result: Result) -> None:
            self.overseer.settled(trigger.key, self.now_s, ok=result.ok)

        if not self.submit(trigger.event, settled):
            self.overseer.settled(trigger.key, self.now_s, ok=False)

    def _knock(self, member: MemberKey) -> None:
        group = self.group()
        known = None if group is None else group.member(member[2])
        if known is None:
            self.probes.answered(member, Knock.OTHER, self.now_s)
            return

        def answered(word: str) -> None:
            knock = Knock.REFUSED if word == "refused" else Knock.OTHER
            if self.probes.answered(member, knock, self.now_s):
                self.overseer.look(KEY, self.now_s)

        self.host.probe(known.address, answered)


def _nothing(_link: int) -> None:
    pass
