"""The Raft world: a quorum, its clients, its nemesis; one seed is one run.

``run_seed`` draws everything: the number of nodes, the knobs of the protocol and of the driver, the
network, the disks, the faults. Safety is checked after every event; then the faults stop and the
quorum owes progress: a leader, every proposal of a client that tries again, equal state everywhere,
and every node a voter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.errors import NotLeader, Overloaded
from gantry_controller.raft.members import Membership
from gantry_controller.raft.state import Role
from gantry_protocol.types import NodeId
from sim.kernel.disk import DiskOptions
from sim.kernel.machine import Host, Machine
from sim.kernel.nemesis import Nemesis, NemesisOptions
from sim.kernel.network import Network, NetworkOptions
from sim.kernel.world import MS, SECOND, Violation, World
from sim.raft.administrator import Administrator
from sim.raft.invariants import Invariants, majority, open_memberships
from sim.raft.leases import LeaseSwitch, lease_ns
from sim.raft.process import ProcessKnobs, RaftProcess, machine_name, node_id

if TYPE_CHECKING:
    from random import Random

LIVENESS_US = 60 * SECOND
EXTRA_FAULTS = ("wipe", "bounce", "kill_leader", "pause_leader", "isolate_leader")


@dataclass
class RaftOptions:
    """One run's parameters.

    Attributes:
        members: number of founding nodes.
        spares: nodes that run and wait to be taken in.
        administer_every_us: greatest pause between two acts of the administrator, who changes the
            members and moves leadership; 0: there is none.
        priorities: what each node's election priority is drawn from.
        faulty_us: how long faults go on.
        propose_every_us: greatest pause between two clients' proposals.
        commands_max: greatest number of commands proposed together.
        read_every_us: greatest pause between two reads.
        ask_leader_rate: share of requests that go to a node that believes to lead.
        switch_lease_every_us: greatest pause between two switches of leases; 0: they stay off.
    """

    members: int = 3
    spares: int = 0
    administer_every_us: int = 0
    priorities: tuple[int, ...] = (0,)
    promote_lag_max: int = 10
    faulty_us: int = 20 * SECOND
    propose_every_us: int = 50 * MS
    commands_max: int = 3
    read_every_us: int = 100 * MS
    ask_leader_rate: float = 0.9
    read_lag_max: int = 1_000
    switch_lease_every_us: int = 0
    election_ticks: int = 20
    heartbeat_ticks: int = 3
    append_bytes_max: int = 256 * 1024
    inflight_max: int = 64
    append_entries_min: int = 256
    uncommitted_bytes_max: int = 1 << 20
    apply_entries_max: int = 1024
    clock_drift: float = 0.0

    @classmethod
    def swarm(cls, rng: Random) -> RaftOptions:
        """Drawn parameters, the protocol's knobs included."""
        append_bytes_max = rng.choice([1, 1, 100, 256 * 1024])
        administered = rng.random() < 0.4
        return cls(
            members=rng.choice([1, 2, 3, 3, 3, 3, 3, 5, 5]),
            spares=rng.choice([0, 1, 2]) if administered else 0,
            administer_every_us=rng.choice([200, 1_000]) * MS if administered else 0,
            priorities=rng.choice([(0,), (0,), (0, 1), (0, 1, 5)]),
            promote_lag_max=rng.choice([0, 3, 100]),
            faulty_us=rng.choice([10, 20]) * SECOND,
            propose_every_us=rng.choice([20, 100, 500]) * MS,
            commands_max=rng.choice([1, 3, 20]),
            read_every_us=rng.choice([50, 300]) * MS,
            read_lag_max=rng.choice([0, 3, 1_000]),
            switch_lease_every_us=rng.choice([0, 300, 3_000]) * MS,
            election_ticks=rng.choice([5, 10, 20]),
            heartbeat_ticks=rng.choice([1, 3]),
            append_bytes_max=append_bytes_max,
            inflight_max=rng.choice([1, 2, 8, 64] if append_bytes_max > 1 else [1, 2, 8]),
            uncommitted_bytes_max=rng.choice([200, 3_000]),
            apply_entries_max=rng.choice([5, 50, 1024]),
            clock_drift=rng.choice([0.0, 0.05, 0.2]),
            append_entries_min=rng.choice([1, 4, 256]),
        )


class RaftWorld:
    """A quorum in a simulated world.

    Attributes:
        world, network, machines, nemesis: the kernel's parts.
        invariants: the observer.
        acked: commands that clients were told took effect.
    """

    process_class: type[RaftProcess] = RaftProcess

    def __init__(
        self,
        seed: int,
        options: RaftOptions | None = None,
        *,
        knobs: ProcessKnobs | None = None,
        network: NetworkOptions | None = None,
        disk: DiskOptions | None = None,
        nemesis: NemesisOptions | None = None,
    ) -> None:
        self.world = World(seed)
        self.options = options or RaftOptions()
        self.knobs = knobs or ProcessKnobs()
        self.network = Network(self.world, network or NetworkOptions())
        self.invariants = Invariants(self.world)
        self.voters = tuple(NodeId(number) for number in range(1, self.options.members + 1))
        everybody = range(1, self.options.members + self.options.spares + 1)
        drawn = self.world.stream("priorities")
        self._priorities = {node: drawn.choice(self.options.priorities) for node in everybody}
        self.machines = [
            Machine(
                self.world,
                self.network,
                machine_name(NodeId(node)),
                factory=self._process,
                disk_options=disk or DiskOptions(),
                clock_drift=self.options.clock_drift,
            )
            for node in everybody
        ]
        for machine in self.machines:
            self.invariants.watch(machine)
        self.nemesis = Nemesis(
            self.world,
            self.network,
            self.machines,
            nemesis or NemesisOptions(),
            {
                "wipe": self._wipe,
                "bounce": self._bounce,
                "kill_leader": self._kill_leader,
                "pause_leader": self._pause_leader,
                "isolate_leader": self._isolate_leader,
            },
        )
        self.acked: list[bytes] = []
        self.administrator = Administrator(self)
        self._rng = self.world.stream("clients")
        self._proposed = 0
        self._clients_stopped = False

    @classmethod
    def swarm(cls, seed: int) -> RaftWorld:
        """A world with everything drawn from the seed."""
        rng = World(seed).stream("swarm")
        knobs = ProcessKnobs(
            tick_us=rng.choice([10, 20]) * MS,
            tick_jitter_us=rng.choice([0, 1, 30]) * MS,
            turn_delay_us=rng.choice([1, 100, 5_000]),
            use_codec=rng.random() < 0.3,
            hints=rng.random() < 0.7,
            snapshot_entries=rng.choice([0, 5, 40]),
            snapshot_margin=rng.choice([0, 2, 20]),
            chunk_bytes=rng.choice([20, 100, 4096]),
        )
        return cls(
            seed,
            RaftOptions.swarm(rng),
            knobs=knobs,
            network=NetworkOptions.swarm(rng),
            disk=DiskOptions.swarm(rng),
            nemesis=NemesisOptions.swarm(rng, extra=EXTRA_FAULTS),
        )

    def _process(self, host: Host) -> RaftProcess:
        node = node_id(host.name)
        config = RaftConfig(
            node_id=node,
            voters=self.voters if self._founds(node) else (),
            priority=self._priorities[node],
            promote_lag_max=self.options.promote_lag_max,
            election_ticks=self.options.election_ticks,
            heartbeat_ticks=self.options.heartbeat_ticks,
            append_bytes_max=self.options.append_bytes_max,
            inflight_max=self.options.inflight_max,
            append_entries_min=self.options.append_entries_min,
            uncommitted_bytes_max=self.options.uncommitted_bytes_max,
            apply_entries_max=self.options.apply_entries_max,
            read_lag_max=self.options.read_lag_max,
            lease_ns=lease_ns(
                election_ticks=self.options.election_ticks,
                tick_us=self.knobs.tick_us,
                clock_drift=self.options.clock_drift,
            ),
        )
        return self.process_class(host, config, self.knobs, self.invariants)

    def _founds(self, node: NodeId) -> bool:
        """Whoever founded a quorum alone and comes back with an empty volume is told to join.

        Nobody could tell it from a first start, so it would found another quorum of one. Its volume
        is only lost here when others are the quorum by now (``can_spare``).
        """
        alone = self.voters == (node,)
        return node in self.voters and not (
            alone and self.network.machines[machine_name(node)].wipes
        )

    # ---- nodes -----------------------------------------------------------------------------------

    def nodes(self) -> list[RaftProcess]:
        """The processes that run now."""
        return [m.actor for m in self.machines if isinstance(m.actor, RaftProcess)]

    def leader(self) -> RaftProcess | None:
        """The running leader of the newest term, if there is one."""
        leaders = [node for node in self.nodes() if node.core.role is Role.LEADER]
        return max(leaders, key=lambda node: node.core.term, default=None)

    def boot(self) -> None:
        """Start all machines."""
        for machine in self.machines:
            machine.boot()

    # ---- clients ---------------------------------------------------------------------------------

    def start_clients(self) -> None:
        """Propose and read, at drawn times, on drawn nodes."""
        self._propose_later()
        self._read_later()

    def propose(self, node: RaftProcess) -> None:
        """Propose some new commands on ``node``, if it will take them."""
        count = self._rng.randint(1, self.options.commands_max)
        commands = [b"c%d" % (self._proposed + number) for number in range(count)]
        self._proposed += count

        def done(index: int) -> None:
            self.invariants.acknowledged(index)
            self.acked.extend(commands)

        try:
            node.propose(commands, done)
        except NotLeader:
            self.world.count("client.not-leader")
        except Overloaded:
            self.world.count("client.overloaded")

    def read(self, node: RaftProcess) -> None:
        """Read on ``node``, if it will answer."""
        acked_before = self.invariants.acked_index
        try:
            node.read(lambda: self.invariants.read_answered(node, acked_before))
        except NotLeader:
            self.world.count("client.not-leader")

    def _pick(self) -> RaftProcess | None:
        """Any node, mostly one that believes it leads (perhaps wrongly)."""
        nodes = self.nodes()
        leaders = [node for node in nodes if node.core.role is Role.LEADER]
        pool = leaders if leaders and self._rng.random() < self.options.ask_leader_rate else nodes
        return self._rng.choice(pool) if pool else None

    def _propose_later(self) -> None:
        self.world.after(self._rng.randint(1, self.options.propose_every_us), self._propose_now)

    def _propose_now(self) -> None:
        node = self._pick()
        if self._clients_stopped:
            return
        if node is not None:
            self.propose(node)
        self._propose_later()

    def _read_later(self) -> None:
        self.world.after(self._rng.randint(1, self.options.read_every_us), self._read_now)

    def _read_now(self) -> None:
        node = self._pick()
        if node is not None:
            self.read(node)
        self._read_later()

    # ---- faults ----------------------------------------------------------------------------------

    def _wipe(self) -> None:
        """Replace a volume, if the quorum can bear it.

        In no protocol do committed entries survive the loss of a majority, so in no membership that
        some node may act by may more than a minority be without the mark of a voter.
        """
        victim = self._rng.choice(self.machines)
        logs = self.invariants.durable
        if self.can_spare(victim):
            self.world.count("raft.wiped")
            logs[victim.name].refresh()  # what it held until now, it did hold
            victim.wipe()
            self.nemesis.boot_later(victim)

    def can_spare(self, victim: Machine) -> bool:
        """Whether every membership in some log or memory outlives the loss of this volume."""
        return all(
            self.is_sound(members.voters, without=victim.name) for members in self._memberships()
        )

    def _memberships(self) -> list[Membership]:
        founding = Membership(self.voters)
        found = [founding] if not self.invariants.canon else []
        for node in self.nodes():
            log = node.core._state.log
            found += open_memberships(node.core._state.history._changes, log.commit_index)
        for disk in self.invariants.durable.values():
            found += disk.memberships(founding)
        return found

    def is_sound(self, voters: tuple[NodeId, ...], *, without: str = "") -> bool:
        """Whether a majority of ``voters`` has the mark of a voter on its disk."""
        logs = self.invariants.durable
        names = [machine_name(node) for node in voters]
        marked = [name for name in names if name != without and logs[name].is_voter]
        return len(marked) >= majority(len(voters))

    def _bounce(self) -> None:
        """Restart every node that is not the leader, at once: what did they remember?"""
        leader = self._leading_machine()
        for machine in self.machines:
            if machine is not leader and machine.is_up:
                machine.power_cut()
                machine.boot()

    def _kill_leader(self) -> None:
        machine = self._leading_machine()
        if machine is not None:
            machine.kill()
            self.nemesis.boot_later(machine)

    def _pause_leader(self) -> None:
        """The old leader wakes up late and still believes that it leads."""
        machine = self._leading_machine()
        if machine is not None:
            machine.pause(self._rng.randint(1, 4 * SECOND))

    def _isolate_leader(self) -> None:
        machine = self._leading_machine()
        if machine is not None:
            self.network.isolate(machine.name)

    def _leading_machine(self) -> Machine | None:
        leader = self.leader()
        return None if leader is None else self.network.machines[leader.host.name]

    # ---- a whole run -----------------------------------------------------------------------------

    def run(self) -> None:
        """Faults, then peace; raises ``Violation``."""
        self.boot()
        self.start_clients()
        LeaseSwitch(self).start()
        self.administrator.start()
        self.nemesis.start()
        self.world.run(for_us=self.options.faulty_us)
        self.nemesis.stop()
        self.administrator.stop()
        self._expect_progress()

    def _expect_progress(self) -> None:
        self.network.options.latency_us = (200, 1_500)
        for machine in self.machines:
            machine.disk.options.sync_us = (100, 2_000)
        acked = len(self.acked)
        if not self.world.run(for_us=LIVENESS_US, until=lambda: len(self.acked) >= acked + 5):
            raise Violation(f"seed {self.world.seed}: no progress after the faults stopped")
        self._clients_stopped = True
        if not self.world.run(for_us=LIVENESS_US, until=self._converged):
            raise Violation(f"seed {self.world.seed}: nodes do not converge")
        committed = {encoded[17:] for _, encoded in self.invariants.canon}
        lost = [command for command in self.acked if command not in committed]
        if lost:
            raise Violation(f"seed {self.world.seed}: acknowledged commands are lost: {lost[:3]}")

    def _converged(self) -> bool:
        """Every member is up, a voter or an admitted learner, and has applied the same."""
        leader = self.leader()
        if leader is None:
            return False
        names = [machine_name(node) for node in leader.core._state.members.nodes]
        nodes = [node for node in self.nodes() if node.host.name in names]
        return (
            len(nodes) == len(names)
            and all(node.core.is_voter for node in nodes)
            and len({node.applied_index for node in nodes}) == 1
        )


def run_seed(seed: int) -> RaftWorld:
    """One run with everything drawn from ``seed``; raises ``Violation``."""
    world = RaftWorld.swarm(seed)
    world.run()
    return world
