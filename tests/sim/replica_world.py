"""A broker group in the simulated world, and everything that must never be so.

Checked where it happens, so that a violation is found at the step that causes it; the rows with a
star are in ``sim.replica_ghost``:

======  ==========================================================================================
H1      one process serves an epoch; what a replica acts in never falls
H2 *    the lineage says of every record which epoch wrote it
H3      same (epoch, offset) on two replicas: same bytes up to there (scanned now and then); what
        a replica acknowledges is what its master has
H4      a record carries the epoch of its master, and (epoch, start) was durable before it
H5      every confirmed record is the same on everybody who ever confirmed that offset, and every
        member of the controller's set holds all of them on its disk, as does who acknowledges them;
        confirm never falls
H6 *    a set epoch names one set, and masters go by the sets that the controllers agreed on
H7 *    who joins the set holds everything confirmed, and what the epoch began with
H8      nobody cuts its log below what it knows to be confirmed; nothing that was cut is on the
        disk of a replica that acknowledges
H9 *    a consumer is served what is confirmed
H10 *   consumers' positions are what the log says, and no acknowledged one is lost
H11 *   what is acknowledged is on as many disks as the set must have members
H12 *   the numbers of queues are what the log says at that offset, and have no gap
ack *   every acknowledged record is in the log of every master of a later epoch, whichever came
        first, the promotion or the answer. Who learns late, after a disk that hung, that it won an
        older epoch lacks what was written since, and can confirm nothing but what is in the later
        masters' logs
======  ==========================================================================================

"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_broker.replica import ReplicaCore, Role
from gantry_broker.replica import effects as fx
from sim.controller_stub import Controller, Durable
from sim.kernel.disk import DiskOptions
from sim.kernel.machine import Machine
from sim.kernel.nemesis import Nemesis, NemesisOptions
from sim.kernel.network import Network, NetworkOptions
from sim.kernel.world import MS, SECOND, Violation, World
from sim.replica_disk import (
    RECORD,
    SIZE,
    broker_id_of,
    durable_log,
    durable_state,
    epoch_at,
    sound_size,
)
from sim.replica_ghost import Ghost
from sim.replica_hardware import Hardware
from sim.replicas import Broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gantry_broker.replica.messages import Ack
    from gantry_controller.metadata.state import BrokerGroup
    from gantry_protocol.types import Offset
    from sim.kernel.machine import Actor, Host
    from sim.replica_tables import Tables

SCAN_US = 400 * MS
REPLACED_US = 5 * SECOND  # a pause, a delay and the silence of members or controllers
TABLES_CHECKED = 0.1  # share of the times that tables change; each check folds the whole log


class ReplicaWorld:
    """Three brokers, one controller, and the ghost of everything that was confirmed.

    Attributes:
        ghost: what was confirmed, promised and served.
        acknowledged_end: the end of the newest acknowledged record.
        acknowledgements: how many records were acknowledged.
        cuts: whether logs lose their beginning by the retention's rule.
    """

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        min_in_sync: int = 2,
        swarm: bool = True,
        cuts: bool = False,
    ) -> None:
        self.world = World(seed)
        rng = self.world.stream("swarm")
        self.network = Network(self.world, NetworkOptions.swarm(rng) if swarm else NetworkOptions())
        self.min_in_sync = min_in_sync
        self.cuts = cuts
        self.replicas = replicas
        self.ghost = Ghost()
        self.acknowledged_end = 0
        self.acknowledgements = 0
        self._numbers = 0
        self._serving: dict[int, str] = {}
        self._serving_us: dict[int, int] = {}  # since when
        self._acted: dict[str, int] = {}
        names = [f"broker-{number}" for number in range(replicas)]
        self.brokers = [self._machine(name, rng if swarm else None) for name in names]
        self.controllers = self.make_controllers(rng)
        self.hardware = Hardware(self.world, [*self.brokers, *self.controllers], self.brokers)
        options = NemesisOptions.swarm(rng, tuple(self.extra_faults()))
        self.nemesis = Nemesis(
            self.world,
            self.network,
            [*self.brokers, *self.controllers],
            options,
            self.extra_faults(),
        )
        self._rng = self.world.stream("replica-world")
        self.world.after(SCAN_US, self._scan)

    def _machine(self, name: str, rng: object) -> Machine:
        disk = DiskOptions() if rng is None else DiskOptions.swarm(self.world.stream(f"d/{name}"))
        return Machine(
            self.world,
            self.network,
            name,
            factory=self._broker,
            disk_options=disk,
            clock_drift=0.0 if rng is None else 0.02,
        )

    def _broker(self, host: Host) -> Actor:
        return Broker(host, self, [machine.name for machine in self.controllers])

    @property
    def history(self) -> bytearray:
        """The confirmed log."""
        return self.ghost.history

    @property
    def served_end(self) -> int:
        """Everything below was read by a consumer."""
        return self.ghost.served_end

    # ---- the controllers; a subclass may have others

    def make_controllers(self, rng: Random) -> list[Machine]:
        """One controller that needs no quorum."""
        self.durable = Durable(self.replicas, self.min_in_sync)
        self.durable.listeners.append(self.group_changed)
        return [
            Machine(
                self.world,
                self.network,
                "controller",
                factory=lambda host: Controller(host, self.durable),
            )
        ]

    def extra_faults(self) -> dict[str, Callable[[], None]]:
        return {"wipe": self.wipe, "drain": self.drain, **self.hardware.faults()}

    @property
    def group(self) -> BrokerGroup | None:
        """The group as it is, whoever knows; None before it is declared."""
        return self.durable.group

    # ---- running

    def boot(self) -> None:
        for machine in (*self.controllers, *self.brokers):
            machine.boot()

    def run(self, seconds: float) -> None:
        self.world.run(for_us=int(seconds * SECOND))

    def broker(self, machine: Machine) -> Broker | None:
        actor = machine.actor
        return actor if isinstance(actor, Broker) else None

    def master(self) -> Broker | None:
        """The serving master of the newest epoch."""
        serving = [
            broker
            for broker in map(self.broker, self.brokers)
            if broker is not None and broker.core is not None and broker.core.serving is not None
        ]
        return max(serving, key=lambda one: one.core.epoch if one.core else 0, default=None)

    def settled(self) -> bool:
        """Everybody is in the set, the master serves, and all it wrote is confirmed."""
        master = self.master()
        if master is None or master.core is None or not master.accepts_writes():
            return False
        ids = {broker_id_of(machine.disk) for machine in self.brokers}
        return self.group is not None and set(self.group.sync_state_set) == ids

    def require_progress(self, seconds: float = 30) -> None:
        """What the system owes once the faults have stopped."""
        if not self.world.run(for_us=int(seconds * SECOND), until=self.settled):
            raise Violation(f"no progress: {self.group}")
        before = self.acknowledgements
        # What a slow disk has begun to sync takes its time, also once new syncs are fast.
        syncing_us = max(machine.disk.busy_us for machine in self.brokers)

        def written() -> bool:
            return self.acknowledgements > before + 3

        if not self.world.run(for_us=syncing_us + 5 * SECOND, until=written):
            raise Violation("no write is acknowledged after the faults have stopped")

    # ---- faults

    def wipe(self) -> None:
        """The volume of a replica is lost, while the master and its volume are there.

        The controller is told (as the operator would tell it), so that it does not elect the dead
        on the strength of an old heartbeat and drop the living from the set.
        """
        machine = self._rng.choice(self.brokers)
        broker_id = broker_id_of(machine.disk)
        group = self.durable.group
        if broker_id is None or not group.had_master or broker_id == group.master_id:
            return
        if group.master_id in self.durable.gone:
            return
        self.durable.gone.add(broker_id)
        self._acted.pop(machine.name, None)
        machine.wipe()
        self.nemesis.boot_later(machine)

    def drain(self) -> None:
        """SIGTERM; the process ends when it has nothing more to do here."""
        broker = self.broker(self._rng.choice(self.brokers))
        if broker is not None:
            broker.drain()

    def failed(self, name: str) -> None:
        """The process ends for want of room; it is started again."""
        self.world.count("disk.process-ended")
        self.left(name)

    def left(self, name: str) -> None:
        machine = self.network.machines[name]
        self.world.after(0, machine.kill)
        self.world.after(self._rng.randint(10, 500) * MS, machine.boot)

    # ---- what brokers report

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def promoted(self, name: str, core: ReplicaCore, effect: fx.Promoted) -> None:
        owner = self._serving.setdefault(effect.epoch, core.incarnation)
        self._serving_us.setdefault(effect.epoch, self.world.now_us)
        if owner != core.incarnation:
            raise Violation(f"H1: {owner} and {core.incarnation} both serve epoch {effect.epoch}")
        log = self.network.machines[name].disk.file("log").data
        self.ghost.promoted(name, core, log)

    def appended(self, name: str, core: ReplicaCore, first: Offset) -> None:
        stored = durable_state(self.network.machines[name].disk)
        entry = stored.lineage.entry_at(first)
        if entry is None or entry.epoch != core.epoch:
            raise Violation(f"H4: {name} writes at {first} but its disk says {stored.lineage}")
        log = self.network.machines[name].disk.file("log").data
        if epoch_at(log, first) != core.epoch or core.view is None:
            raise Violation(f"H4: {name} wrote a record of another epoch")
        if core.view.master_incarnation != core.incarnation:
            raise Violation(f"H1: {core.incarnation} writes in the epoch of another start")
        later = [us for epoch, us in self._serving_us.items() if epoch > core.epoch]
        if later and self.world.now_us - min(later) > REPLACED_US:
            raise Violation(f"contact: {name} takes writes, long after another one was promoted")

    def confirmed(self, name: str, core: ReplicaCore, old: Offset, log: bytearray) -> None:
        self.ghost.in_set(name, core)
        new = core.log.confirm
        if new < old:
            raise Violation(f"H5: confirm fell from {old} to {new} on {name}")
        known = min(new, len(self.history))
        if log[old:known] != self.history[old:known]:
            raise Violation(f"H5: {name} confirms other records in [{old}, {known})")
        if new > len(self.history):
            self.ghost.confirm(log[len(self.history) : new])
            self._everybody_holds(self.group, f"confirm {new} on {name}")

    def acknowledged(self, name: str, end: Offset, number: int) -> None:
        if RECORD.unpack_from(self.history, end - SIZE)[1] != number:
            raise Violation(f"ack: {name} acknowledges {number}, which is not what was confirmed")
        broker = self.broker(self.network.machines[name])
        assert broker is not None
        assert broker.core is not None
        assert broker.core.view is not None
        self.ghost.acknowledge(name, broker.core.epoch, end)
        self.acknowledged_end = max(self.acknowledged_end, end)
        self.acknowledgements += 1
        self.world.count("acknowledged")
        if not any(machine.wipes for machine in self.brokers):
            disks = [machine.disk for machine in self.brokers]
            self.ghost.copied(end, disks, broker.core.view.min_in_sync)

    def served(self, name: str, start: int, data: bytes) -> None:
        self.ghost.serve(name, start, data)

    def tabled(self, name: str, tables: Tables) -> None:
        if self._rng.random() < TABLES_CHECKED:
            self.ghost.tabled(name, tables, self._log(name))

    def vouched(self, name: str, core: ReplicaCore, ack: Ack) -> None:
        """A replica acknowledges: all of that is on its medium, and nothing that it has cut."""
        file = self.network.machines[name].disk.file("log")
        end = ack.flushed_end
        if file.durable[:end] != file.data[:end] or len(file.durable) < end:
            raise Violation(f"H5: {name} acknowledges {end}, its disk has not got all of it")
        if len(file.durable) > len(file.data):
            raise Violation(f"H8: {name} acknowledges, and what it has cut is still on its disk")
        master = self.master()
        if master is not None and master.core is not None and master.core.epoch == ack.epoch:
            theirs = self._log(master.host.name)
            if theirs[:end] != file.data[:end]:
                raise Violation(f"H3: {name} acknowledges {end}, and its master has other bytes")
        self.ghost.lineage(name, core, file.data, end)

    def cut(self, name: str, core: ReplicaCore, point: Offset) -> None:
        self.world.count("cut")
        if point < core.log.confirm:
            raise Violation(f"H8: {name} cuts at {point}, below its confirm {core.log.confirm}")

    def stuck(self, name: str, effect: fx.Stuck) -> None:
        raise Violation(f"{name} is stuck: {effect.sentence}")

    def _log(self, name: str) -> bytearray:
        return self.network.machines[name].disk.file("log").data

    # ---- what the controller does

    def group_changed(self, before: BrokerGroup, after: BrokerGroup) -> None:
        """The controllers agreed on something about the group."""
        self.ghost.agreed(before, after)
        if after.sync_state_set != before.sync_state_set:
            self.world.note("set", after.sync_state_set, after.sync_state_set_epoch)
            for machine in self.brokers:
                broker_id = broker_id_of(machine.disk)
                if broker_id in after.sync_state_set and broker_id not in before.sync_state_set:
                    self.ghost.joined(machine.name, machine.disk, after.master_epoch)
            self._everybody_holds(after, f"the set became {after.sync_state_set}")

    def _everybody_holds(self, group: BrokerGroup | None, when: str) -> None:
        """H5 and H7: whoever may be elected has every confirmed record on its disk."""
        assert group is not None
        for machine in self.brokers:
            broker_id = broker_id_of(machine.disk)
            if broker_id not in group.sync_state_set:
                continue
            held = durable_log(machine.disk)[: len(self.history)]
            if held != self.history:
                raise Violation(
                    f"H5: {when}, but {machine.name} has {len(held)} of {len(self.history)} bytes"
                )

    # ---- now and then

    def _scan(self) -> None:
        self.world.after(SCAN_US, self._scan)
        for machine in self.brokers:
            broker = self.broker(machine)
            if broker is not None and broker.core is not None:
                self._epoch_never_falls(machine.name, broker.core)
                self.ghost.in_set(machine.name, broker.core)
                log = broker.disk.log.data
                if not broker.begins_anew:
                    self.ghost.lineage(machine.name, broker.core, log, len(log))
        logs = [self._sound_log(machine) for machine in self.brokers]
        for index, mine in enumerate(logs):
            for theirs in logs[index + 1 :]:
                log_matching(mine, theirs)

    def _sound_log(self, machine: Machine) -> bytes:
        """The log without what recovery will cut off."""
        log = bytes(machine.disk.file("log").data)
        broker = self.broker(machine)
        recovered = broker is not None and broker.core is not None
        return log if recovered else log[: sound_size(log)]

    def went_back(self, name: str, before: int, after: int) -> None:
        """A replica acts in an epoch that is older than one it has acted in."""
        raise Violation(f"H1: {name} went back from {before} to {after}")

    def _epoch_never_falls(self, name: str, core: ReplicaCore) -> None:
        if core.role is Role.IDLE:
            return
        if core.epoch < self._acted.get(name, 0):
            self.went_back(name, self._acted[name], core.epoch)
        self._acted[name] = core.epoch


def log_matching(mine: bytes, theirs: bytes) -> None:
    """H3. A shared epoch at one offset means equal bytes up to there."""
    size = min(len(mine), len(theirs)) // SIZE * SIZE
    if mine[:size] == theirs[:size]:
        return
    low, high = 0, size // SIZE  # the first `low` records are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if mine[: middle * SIZE] == theirs[: middle * SIZE]:
            low = middle
        else:
            high = middle
    for offset in range(low * SIZE, size, SIZE):
        if epoch_at(mine, offset) == epoch_at(theirs, offset):
            raise Violation(
                f"H3: two logs have epoch {epoch_at(mine, offset)} at {offset}, "
                f"and differ at {low * SIZE}"
            )
