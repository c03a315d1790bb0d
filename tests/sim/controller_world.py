"""Three whole controllers, a group of scripted brokers, a nemesis, and what must never be so.

The brokers are as simple as brokers can be: they take an id, register, send heartbeats, poll, and
whoever is the elected process widens its set to everybody it has heard from. They have no log; what
is tested is the metadata under a real quorum, on an unkind network, with crashes and power cuts.

======  ==========================================================================================
one     an epoch belongs to one process of one broker, whoever tells of it
mono    the epochs a broker is told by one node never fall while that node lives
inside  who is elected was in the set, and the new set is part of the old one
cas     the set changes by elections, changes under both epochs, or cleanings only
equal   replicas that applied the same entry have the same state (digest)
fresh   an answer is no older than any answer that was given before it was asked for
======  ==========================================================================================

Once the faults have stopped: the group has a living master, and everybody is in its set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    DeclareGroup,
    ElectMaster,
    Event,
    RegisterBroker,
    RemoveGroup,
)
from gantry_controller.raft.config import RaftConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId, Epoch, NodeId, Offset
from sim.controller_stub import CLUSTER, NAME, Heartbeat, Notice, Reply, Request
from sim.controllers import SimController
from sim.kernel.disk import DiskOptions
from sim.kernel.machine import Host, Machine
from sim.kernel.nemesis import Nemesis, NemesisOptions
from sim.kernel.network import Network, NetworkOptions
from sim.kernel.world import MS, SECOND, Violation, World
from sim.raft.invariants import Invariants
from sim.raft.process import ProcessKnobs, machine_name
from sim.tcp import Tcp

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.replica import ControllerView
    from gantry_controller.metadata.results import Result
    from gantry_controller.metadata.state import BrokerGroup

CALL_TIMEOUT_US = 500 * MS
HEARTBEAT_US = 300 * MS
POLL_US = 400 * MS
IDENTITY = "identity"
EXTRA_FAULTS = ("drain",)


class ScriptedBroker:
    """One life of a broker without a log."""

    def __init__(self, host: Host, world: ControllerWorld) -> None:
        self.host = host
        self.incarnation = f"{host.name}/{host.life}"
        self.view: ControllerView | None = None
        self.broker_id = BrokerId(0)
        self.registered = False
        self.draining = False
        self._world = world
        self._heard: dict[BrokerId, int] = {}  # members that greeted us, and when
        self._calls: dict[int, Callable[[Reply | None], None]] = {}
        self._numbers = 0
        self._links = 0
        self._link: int | None = None
        self._changing = False
        self._earlier: ControllerView | None = None
        self._tcp = Tcp(host, opened=_ignore, received=self._received, closed=self._closed)

    @property
    def is_master(self) -> bool:
        """Whether this very process was elected in the newest epoch it knows."""
        return self.view is not None and self.view.master_incarnation == self.incarnation

    def start(self) -> None:
        stored = self.host.disk.file(IDENTITY)
        if stored.data:
            self.broker_id = BrokerId(int(stored.data.decode()))
        self._beat()
        self._poll()
        self._join()

    def receive(self, source: str, message: object) -> None:
        if self._tcp.receive(source, message):
            return
        if isinstance(message, Notice):
            self._learn(message.view)
        elif isinstance(message, int):
            self._heard[BrokerId(message)] = self.host.clock_us

    def peer_closed(self, name: str) -> None:
        self._tcp.peer_closed(name)

    # ---- joining

    def _join(self) -> None:
        if self.broker_id:
            self._register()
        else:
            self._call(None, self._apply_for)

    def _again(self) -> None:
        self.host.after(self.host.rng.randint(50, 300) * MS, self._join)

    def _apply_for(self, reply: Reply | None) -> None:
        if reply is None:
            self._again()
            return
        wanted = BrokerId(reply.next_broker_id)
        # The volume's name, not the process's: a repeated application gets the same id.
        event = ApplyBrokerId(
            cluster=CLUSTER, name=NAME, broker_id=wanted, check_code=f"{self.host.name};{wanted}"
        )

        def applied(answer: Reply | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._world.invariants.identified(self.host.name, wanted)
                file = self.host.disk.file(IDENTITY)
                file.append(str(wanted).encode())
                file.truncate(len(file.data))
                self.broker_id = wanted
            self._again()

        self._call(event, applied)

    def _register(self) -> None:
        event = RegisterBroker(
            cluster=CLUSTER,
            name=NAME,
            broker_id=self.broker_id,
            address=self.host.name,
            incarnation=self.incarnation,
            pod_uid=self.host.name,
        )

        def done(reply: Reply | None) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS:
                self._again()
                return
            self.registered = True
            self._beat_once()

        self._call(event, done)

    # ---- serving

    def drain(self) -> None:
        """SIGTERM: hand over if somebody stays, then leave."""
        self.draining = True
        self._beat_once()
        view = self.view
        others = [] if view is None else sorted(view.sync_state_set - {self.broker_id})
        if view is not None and self.is_master and others:
            event = ElectMaster(
                cluster=CLUSTER,
                name=NAME,
                requester=others[0],
                designate=True,
                expected_epoch=view.master_epoch,
            )
            self._call(event, lambda _: self._world.left(self.host.name))
        else:
            self._world.left(self.host.name)

    def _beat(self) -> None:
        self.host.after(HEARTBEAT_US, self._beat)
        self._beat_once()

    def _beat_once(self) -> None:
        if not self.registered:
            return
        epoch = Epoch(-1) if self.view is None else self.view.master_epoch
        offset = Offset(self.host.rng.randint(0, 100))
        beat = Heartbeat(
            self.broker_id, self.incarnation, epoch, offset, self.draining, Offset(-1), Epoch(-1)
        )
        for name in self._world.controller_names:
            self.host.send(name, beat)
        if self.view is not None and self.view.master_address not in ("", self.host.name):
            self.host.send(self.view.master_address, self.broker_id)

    def _poll(self) -> None:
        self.host.after(POLL_US, self._poll)
        if self.registered:
            self._call(None, self._polled)

    def _polled(self, reply: Reply | None) -> None:
        if reply is None:
            return
        if reply.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self.host.world.count("registered-again")
            self._register()
        if reply.view is not None:
            self._learn(reply.view)
        self._change_set()

    def _learn(self, view: ControllerView) -> None:
        known = self.view
        key = (view.master_epoch, view.sync_state_set_epoch)
        if known is None or key > (known.master_epoch, known.sync_state_set_epoch):
            self.view, self._earlier = view, known
            self._world.invariants.told(self, view)

    def _change_set(self) -> None:
        view = self.view
        if view is None or not self.is_master or self._changing or self.draining:
            return
        recent_us = self.host.clock_us - SECOND
        wanted = {one for one, heard_us in self._heard.items() if heard_us > recent_us}
        wanted.add(self.broker_id)
        if self.host.rng.random() < 0.2:  # a replica that falls behind
            wanted = {self.broker_id, min(wanted)}
        if frozenset(wanted) == view.sync_state_set:
            return
        if self._earlier is not None and self.host.rng.random() < 0.1:
            view = self._earlier  # as a proposal that was long on its way
        self._changing = True
        event = AlterSyncStateSet(
            cluster=CLUSTER,
            name=NAME,
            master_id=self.broker_id,
            master_epoch=view.master_epoch,
            new_set=tuple(sorted(wanted)),
            expected_set_epoch=view.sync_state_set_epoch,
            incarnation=self.incarnation,
        )

        def done(reply: Reply | None) -> None:
            self._changing = False
            if reply is not None and reply.view is not None:
                self._learn(reply.view)

        self._call(event, done)

    # ---- calls

    def _call(self, event: Event | None, done: Callable[[Reply | None], None]) -> None:
        if self._link is None:
            self._links += 1
            self._link = -self._links
            names = self._world.controller_names
            self._tcp.connect(self._link, names[self._links % len(names)])
        self._numbers += 1
        number = self._numbers
        floor = self._world.invariants.answered_until_now
        self._calls[number] = lambda reply: self._judge(floor, event, reply, done)
        asking = self.broker_id or None
        self._tcp.send(self._link, Request(number, event, asking, self.incarnation))
        self.host.after(CALL_TIMEOUT_US, lambda: self._answer(number, None))

    def _judge(
        self,
        floor: tuple[int, int],
        event: Event | None,
        reply: Reply | None,
        done: Callable[[Reply | None], None],
    ) -> None:
        if reply is not None and reply.view is not None:
            self._world.invariants.answered(self.host.name, floor, reply.view)
        done(reply)

    def _answer(self, number: int, reply: Reply | None) -> None:
        done = self._calls.pop(number, None)
        if done is None:
            return
        if reply is None and self._link is not None:
            self._tcp.close(self._link)
            self._link = None
        done(reply)

    def _received(self, _link: int, message: object) -> None:
        if isinstance(message, Reply):
            self._answer(message.number, message)

    def _closed(self, link: int) -> None:
        if link == self._link:
            self._link = None
            for number in list(self._calls):
                self._answer(number, None)


class MetadataInvariants(Invariants):
    """The ghost of the whole run: what was told to whom, beside what the quorum must keep.

    Attributes:
        epochs: which process each epoch belongs to.
        answered_until_now: the newest (master epoch, set epoch) that any broker was answered.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.epochs: dict[int, str] = {}
        self.answered_until_now = (0, 0)
        self._digests: dict[int, int] = {}
        self._ids: dict[BrokerId, str] = {}

    # ---- what brokers see

    def identified(self, name: str, broker_id: BrokerId) -> None:
        if self._ids.setdefault(broker_id, name) != name:
            raise Violation(f"one: id {broker_id} belongs to {self._ids[broker_id]} and {name}")

    def told(self, broker: ScriptedBroker, view: ControllerView) -> None:
        if view.master_id is not None:
            self._belongs(view.master_epoch, view.master_incarnation, f"told to {broker.host.name}")

    def answered(self, name: str, floor: tuple[int, int], view: ControllerView) -> None:
        newest = (view.master_epoch, view.sync_state_set_epoch)
        if newest[0] < floor[0] or newest[1] < floor[1]:
            raise Violation(f"fresh: {name} was answered {newest}, {floor} was answered before")
        known = self.answered_until_now
        self.answered_until_now = (max(known[0], newest[0]), max(known[1], newest[1]))

    # ---- what controllers do (the observer)

    def changed(
        self, node: SimController, before: BrokerGroup | None, event: Event, result: Result
    ) -> None:
        index = node.machine.state.index
        digest = node.machine.state.digest()
        if self._digests.setdefault(index, digest) != digest:
            raise Violation(f"equal: {node.host.name} has another state at entry {index}")
        after = result.group
        if before is None or after is None:
            return
        if after.master_epoch > before.master_epoch:
            self._judge_election(before, after, event)
        elif after.master_incarnation not in ("", before.master_incarnation):
            raise Violation(f"H1: {event} gives epoch {after.master_epoch} to another process")
        elif after.sync_state_set != before.sync_state_set:
            self._altered(before, event)

    def _judge_election(self, before: BrokerGroup, after: BrokerGroup, event: Event) -> None:
        self._belongs(after.master_epoch, after.master_incarnation, "elected")
        if not isinstance(event, ElectMaster):
            raise Violation(f"cas: {event} elects")
        if before.had_master and after.master_id not in before.sync_state_set:
            raise Violation(f"inside: {after.master_id} was not in {before.sync_state_set}")
        if before.had_master and not set(after.sync_state_set) <= set(before.sync_state_set):
            raise Violation(f"inside: {before.sync_state_set} became {after.sync_state_set}")

    def _altered(self, before: BrokerGroup, event: Event) -> None:
        if isinstance(event, CleanBrokerData | RemoveGroup):
            return
        if not isinstance(event, AlterSyncStateSet) or (
            event.master_id,
            event.master_epoch,
            event.expected_set_epoch,
        ) != (before.master_id, before.master_epoch, before.sync_state_set_epoch):
            raise Violation(f"H6, cas: {event} changes the set of {before}")

    def _belongs(self, epoch: int, incarnation: str, where: str) -> None:
        owner = self.epochs.setdefault(epoch, incarnation)
        if owner != incarnation:
            raise Violation(f"one: epoch {epoch} belongs to {owner}, and {where} to {incarnation}")


class ControllerWorld:
    """One run."""

    process_class: type[SimController] = SimController

    def __init__(self, seed: int, *, swarm: bool = True, nodes: int = 3, replicas: int = 3) -> None:
        self.world = World(seed)
        rng = self.world.stream("swarm")
        self.network = Network(self.world, NetworkOptions.swarm(rng) if swarm else NetworkOptions())
        self.replicas = replicas
        self.invariants = MetadataInvariants(self.world)
        self._voters = tuple(NodeId(number) for number in range(1, nodes + 1))
        self._knobs = ProcessKnobs(hints=not swarm or rng.random() < 0.7)
        self.controller_names = [machine_name(node) for node in self._voters]
        self.controllers = [self._machine(name, self._controller) for name in self.controller_names]
        for machine in self.controllers:
            self.invariants.watch(machine)
        names = [f"broker-{number}" for number in range(replicas)]
        self.brokers = [self._machine(name, self._broker) for name in names]
        options = NemesisOptions.swarm(rng, EXTRA_FAULTS)
        machines = [*self.controllers, *self.brokers]
        self.nemesis = Nemesis(self.world, self.network, machines, options, {"drain": self._drain})
        self._rng = self.world.stream("operator")

    def _machine(
        self, name: str, factory: Callable[[Host], SimController | ScriptedBroker]
    ) -> Machine:
        return Machine(self.world, self.network, name, factory=factory, disk_options=DiskOptions())

    def _controller(self, host: Host) -> SimController:
        config = RaftConfig(node_id=NodeId(int(host.name[1:])), voters=self._voters)
        return self.process_class(host, config, self._knobs, self.invariants)

    def _broker(self, host: Host) -> ScriptedBroker:
        return ScriptedBroker(host, self)

    # ---- running

    def boot(self) -> None:
        for machine in (*self.controllers, *self.brokers):
            machine.boot()
        self._declare()

    def run(self, seconds: float) -> None:
        self.world.run(for_us=int(seconds * SECOND))

    def run_seed(self, seconds: float = 15) -> None:
        """Faults, then peace."""
        self.boot()
        self.nemesis.start()
        self.run(seconds)
        self.nemesis.stop()
        self.require_progress()

    def require_progress(self, seconds: float = 30) -> None:
        if not self.world.run(for_us=int(seconds * SECOND), until=self.settled):
            raise Violation(f"no progress: {self.group()}")

    def settled(self) -> bool:
        """A living master knows that it is one, and everybody is in its set."""
        group = self.group()
        if group is None or group.master is None or not group.master_is_current:
            return False
        broker = self.broker(group.master.address)
        in_set = len(group.sync_state_set) == self.replicas
        return broker is not None and broker.is_master and in_set

    def _declare(self) -> None:
        """The operator repeats its wish until somebody takes it."""
        self.world.after(self._rng.randint(100, 900) * MS, self._declare)
        leader = self.leader()
        group = None if leader is None else leader.group()
        if leader is not None and (group is None or group.declaration is None):
            event = DeclareGroup(
                cluster=CLUSTER,
                name=NAME,
                uid="u",
                replicas=self.replicas,
                min_in_sync_replicas=1,
            )
            leader.submit(event, lambda _: None)

    def _drain(self) -> None:
        machine = self._rng.choice(self.brokers)
        if isinstance(machine.actor, ScriptedBroker) and not machine.actor.draining:
            machine.actor.drain()

    def left(self, name: str) -> None:
        """A drained broker's process ends; the platform starts another."""
        machine = self.network.machines[name]
        self.world.after(10 * MS, machine.kill)
        self.world.after(500 * MS, machine.boot)

    def leader(self) -> SimController | None:
        for machine in self.controllers:
            if isinstance(machine.actor, SimController) and machine.actor.is_serving_leader:
                return machine.actor
        return None

    def group(self) -> BrokerGroup | None:
        leader = self.leader()
        return None if leader is None else leader.group()

    def broker(self, name: str) -> ScriptedBroker | None:
        actor = self.network.machines[name].actor
        return actor if isinstance(actor, ScriptedBroker) else None


def _ignore(_link: int) -> None:
    pass
