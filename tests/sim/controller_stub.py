"""One simulated controller over the real metadata state machine, without a Raft log under it.

It keeps every applied event through kills (the Raft log's promise), judges liveness by heartbeats
and closed connections, elects when the master is gone, and tells everybody. It may be killed,
paused, and cut off like any machine. ``sim.whole_world`` puts the real quorum in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry_broker.replica import ControllerView
from gantry_controller.metadata.apply import apply
from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    DeclareGroup,
    ElectMaster,
    Event,
    LiveMember,
    RegisterBroker,
)
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, Index, Offset
from sim.kernel.world import MS, SECOND
from sim.tcp import Tcp

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_controller.metadata.results import Result
    from sim.kernel.machine import Host

CLUSTER, NAME = "c", "g"
SCAN_US = 50 * MS
ALIVE_US = 2_500 * MS
FIRST_WAIT_US = 3 * SECOND


@dataclass(frozen=True)
class Request:
    """A broker asks; ``event`` None reads the group, and may say who wants to know."""

    number: int
    event: Event | None
    broker_id: BrokerId | None = None
    incarnation: str = ""


@dataclass(frozen=True)
class Reply:
    """The answer to ``number``."""

    number: int
    code: ResponseCode
    view: ControllerView | None
    next_broker_id: int


@dataclass(frozen=True)
class Heartbeat:
    """A broker lives."""

    broker_id: BrokerId
    incarnation: str
    epoch: Epoch
    max_offset: Offset
    draining: bool
    confirm_offset: Offset
    confirm_epoch: Epoch


@dataclass(frozen=True)
class Notice:
    """The group has changed."""

    view: ControllerView


class Durable:
    """What survives the controller's death, and who is told of each change."""

    def __init__(self, replicas: int, min_in_sync: int) -> None:
        self.state = MetadataState()
        self.listeners: list[Callable[[BrokerGroup, BrokerGroup], None]] = []
        self.min_in_sync = min_in_sync
        self.gone: set[BrokerId] = set()  # volumes that are lost; membership tests only
        self.apply(
            DeclareGroup(
                cluster=CLUSTER,
                name=NAME,
                uid="u",
                replicas=replicas,
                min_in_sync_replicas=min_in_sync,
            )
        )

    @property
    def group(self) -> BrokerGroup:
        group = self.state.find(CLUSTER, NAME)
        assert group is not None
        return group

    def apply(self, event: Event) -> Result:
        before = self.state.find(CLUSTER, NAME)
        result = apply(self.state, Index(self.state.index + 1), event)
        if before is not None and result.changed:
            for listener in self.listeners:
                listener(before, self.group)
        return result


def view_of(group: BrokerGroup, min_in_sync: int, draining: frozenset[BrokerId]) -> ControllerView:
    """What a broker is told of the group."""
    master = group.master
    return ControllerView(
        master_epoch=group.master_epoch,
        master_id=group.master_id,
        master_incarnation=group.master_incarnation,
        master_address="" if master is None else master.address,
        master_ha_address="" if master is None else master.address,
        sync_state_set=frozenset(group.sync_state_set),
        sync_state_set_epoch=group.sync_state_set_epoch,
        min_in_sync=min_in_sync,
        replicas=group.declaration.replicas if group.declaration is not None else 0,
        draining=draining,
    )


class Controller:
    """One life of the controller."""

    def __init__(self, host: Host, durable: Durable) -> None:
        self._host = host
        self._durable = durable
        self._heard: dict[BrokerId, tuple[int, Heartbeat]] = {}
        self._names: dict[BrokerId, str] = {}
        self._first_us: int | None = None
        self._tcp = Tcp(host, opened=_nothing, received=self._request, closed=_nothing)

    def start(self) -> None:
        self._host.after(SCAN_US, self._scan)

    def receive(self, source: str, message: object) -> None:
        if self._tcp.receive(source, message):
            return
        if isinstance(message, Heartbeat):
            self._heard[message.broker_id] = (self._host.clock_us, message)
            self._names[message.broker_id] = source

    def peer_closed(self, name: str) -> None:
        self._tcp.peer_closed(name)
        for broker_id in [one for one, source in self._names.items() if source == name]:
            self._heard.pop(broker_id, None)
            self._names.pop(broker_id)
        self._supervise()

    def _live(self) -> tuple[LiveMember, ...]:
        now_us = self._host.clock_us
        return tuple(
            LiveMember(
                broker_id=broker_id,
                incarnation=beat.incarnation,
                epoch=beat.epoch,
                max_offset=beat.max_offset,
                draining=beat.draining,
            )
            for broker_id, (heard_us, beat) in sorted(self._heard.items())
            if now_us - heard_us <= ALIVE_US and broker_id not in self._durable.gone
        )

    def _request(self, link: int, message: object) -> None:
        if not isinstance(message, Request):
            return
        if isinstance(message.event, RegisterBroker) and self._first_us is None:
            self._first_us = self._host.clock_us
        code = ResponseCode.SUCCESS
        if message.event is not None:
            code = self._apply(self._with_evidence(message.event)).code
        elif message.broker_id is not None and self._is_replaced(message.broker_id, message):
            code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        self._tcp.send(
            link, Reply(message.number, code, self._view(), self._durable.group.next_broker_id)
        )

    def _is_replaced(self, broker_id: BrokerId, message: Request) -> bool:
        """Whether another process of this broker is registered."""
        member = self._durable.group.member(broker_id)
        return member is None or not member.is_incarnation(message.incarnation)

    def _with_evidence(self, event: Event) -> Event:
        if isinstance(event, ElectMaster):
            return ElectMaster(
                cluster=CLUSTER,
                name=NAME,
                requester=event.requester,
                designate=event.designate,
                incarnation=event.incarnation,
                expected_epoch=event.expected_epoch,
                live=self._live(),
                first_wait_over=self._first_wait_over(),
            )
        if isinstance(event, AlterSyncStateSet):
            return AlterSyncStateSet(
                cluster=CLUSTER,
                name=NAME,
                master_id=event.master_id,
                master_epoch=event.master_epoch,
                new_set=event.new_set,
                expected_set_epoch=event.expected_set_epoch,
                incarnation=event.incarnation,
                live=self._live(),
            )
        return event

    def _first_wait_over(self) -> bool:
        first_us = self._first_us
        return first_us is not None and self._host.clock_us - first_us >= FIRST_WAIT_US

    def _apply(self, event: Event) -> Result:
        before = self._durable.group
        result = self._durable.apply(event)
        if result.changed and self._durable.group.master_epoch != before.master_epoch:
            self._host.note(
                "elected", self._durable.group.master_epoch, self._durable.group.master_id
            )
            for member in self._durable.group.members:
                self._host.send(member.address, Notice(self._view()))
        self._supervise()
        return result

    def _view(self) -> ControllerView:
        draining = frozenset(one.broker_id for one in self._live() if one.draining)
        return view_of(self._durable.group, self._durable.min_in_sync, draining)

    def _scan(self) -> None:
        self._host.after(SCAN_US, self._scan)
        self._supervise()

    def _supervise(self) -> None:
        """Elect when the master, or the process that was elected, is not there."""
        group = self._durable.group
        live = {one.broker_id for one in self._live()}
        if group.had_master and group.master_is_current and group.master_id in live:
            return
        event = self._with_evidence(ElectMaster(cluster=CLUSTER, name=NAME))
        result = self._durable.apply(event)
        if result.changed:
            self._host.note(
                "elected", self._durable.group.master_epoch, self._durable.group.master_id
            )
            for member in self._durable.group.members:
                self._host.send(member.address, Notice(self._view()))


def _nothing(_link: int) -> None:
    pass
