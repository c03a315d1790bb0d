"""Everything at once: a real quorum under real metadata and liveness, and real replicas.

``ReplicaWorld`` with three ``SimController`` in place of the single stub. The group is what the
first node to apply an entry made of it: what one node has applied, the quorum has agreed on.
Volumes are not lost here (``ReplicaWorld`` loses them, and tells its controller): a broker whose
volume and process vanish together may look alive for a heartbeat time-out, and that is two
disasters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_controller.metadata.events import DeclareGroup, Event
from gantry_controller.raft.config import RaftConfig
from gantry_protocol.types import NodeId
from sim.controller_stub import CLUSTER, NAME
from sim.controller_world import MetadataInvariants
from sim.controllers import SimController
from sim.kernel.disk import DiskOptions
from sim.kernel.machine import Host, Machine
from sim.kernel.world import MS
from sim.raft.process import ProcessKnobs, machine_name
from sim.replica_world import ReplicaWorld

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gantry_controller.metadata.results import Result
    from gantry_controller.metadata.state import BrokerGroup

NODES = 3


class WholeWorld(ReplicaWorld):
    """See the module."""

    def make_controllers(self, rng: Random) -> list[Machine]:
        self._group: BrokerGroup | None = None
        self._agreed = 0
        self._voters = tuple(NodeId(number) for number in range(1, NODES + 1))
        self._knobs = ProcessKnobs(hints=rng.random() < 0.7)
        self.invariants = _Invariants(self)
        made = [
            Machine(
                self.world,
                self.network,
                machine_name(node),
                factory=self._controller,
                disk_options=DiskOptions(),
            )
            for node in self._voters
        ]
        for machine in made:
            self.invariants.watch(machine)
        return made

    def _controller(self, host: Host) -> SimController:
        config = RaftConfig(node_id=NodeId(int(host.name[1:])), voters=self._voters)
        return SimController(host, config, self._knobs, self.invariants)

    def extra_faults(self) -> dict[str, Callable[[], None]]:
        return {"drain": self.drain, **self.hardware.faults()}

    @property
    def group(self) -> BrokerGroup | None:
        return self._group

    def boot(self) -> None:
        super().boot()
        self._declare()

    def leader(self) -> SimController | None:
        """The node that serves."""
        for machine in self.controllers:
            if isinstance(machine.actor, SimController) and machine.actor.is_serving_leader:
                return machine.actor
        return None

    def _declare(self) -> None:
        """The operator repeats its wish until somebody takes it."""
        self.world.after(300 * MS, self._declare)
        leader = self.leader()
        group = None if leader is None else leader.group()
        if leader is not None and (group is None or group.declaration is None):
            event = DeclareGroup(
                cluster=CLUSTER,
                name=NAME,
                uid="u",
                replicas=self.replicas,
                min_in_sync_replicas=self.min_in_sync,
            )
            leader.submit(event, lambda _: None)

    def agreed(self, index: int, group: BrokerGroup | None) -> None:
        """Some node applied the entry at ``index``; the first to do so speaks for all."""
        if index <= self._agreed or group is None:
            return
        self._agreed = index
        before, self._group = self._group, group
        if before is not None:
            self.group_changed(before, group)


class _Invariants(MetadataInvariants):
    """The quorum's own invariants, and a word to the world about each agreement."""

    def __init__(self, whole: WholeWorld) -> None:
        super().__init__(whole.world)
        self._whole = whole

    def changed(
        self, node: SimController, before: BrokerGroup | None, event: Event, result: Result
    ) -> None:
        super().changed(node, before, event, result)
        self._whole.agreed(node.machine.state.index, result.group)
