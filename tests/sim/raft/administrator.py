"""The administrator of a simulated quorum: changes the members and moves leadership, at random.

It is as careful as a person who reads ``gantry status``: it takes nobody out while a volume that is
left is new, because a quorum that loses a volume and a member at once is lost (``raft.admission``).
Everything else it may ask at the worst of times, and the core must refuse or survive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_controller.raft.errors import ChangeRefused, NotLeader
from gantry_controller.raft.state import Role
from gantry_protocol.types import NodeId
from sim.raft.process import node_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.raft.process import RaftProcess
    from sim.raft.world import RaftWorld


class Administrator:
    """Acts at drawn times on a node that believes it leads."""

    def __init__(self, quorum: RaftWorld) -> None:
        self._quorum = quorum
        self._world = quorum.world
        self._rng = quorum.world.stream("administrator")
        self._stopped = False
        self._acts: dict[str, Callable[[RaftProcess], None]] = {
            "add": self._add,
            "promote": self._promote,
            "remove": self._remove,
            "transfer": self._transfer,
        }

    def start(self) -> None:
        """Begin, unless this quorum has no administrator."""
        if self._quorum.options.administer_every_us:
            self._later()

    def stop(self) -> None:
        """Leave everything as it is."""
        self._stopped = True

    def _later(self) -> None:
        every_us = self._quorum.options.administer_every_us
        self._world.after(self._rng.randint(1, every_us), self._act)

    def _act(self) -> None:
        if self._stopped:
            return
        self._later()
        leaders = [node for node in self._quorum.nodes() if node.core.role is Role.LEADER]
        if not leaders:
            return
        leader = self._rng.choice(leaders)
        name = self._rng.choice(list(self._acts))
        try:
            self._acts[name](leader)
        except (ChangeRefused, NotLeader):
            self._world.count(f"admin.{name} refused")
            return
        leader.arm()

    def _done(self, leader: RaftProcess, act: str, node: object) -> None:
        self._world.count(f"admin.{act}")
        leader.host.note("admin", act, node)

    def _add(self, leader: RaftProcess) -> None:
        members = leader.core._state.members.nodes
        strangers = [m for m in self._quorum.machines if node_id(m.name) not in members]
        if strangers:
            node = node_id(self._rng.choice(strangers).name)
            leader.core.add_learner(node, f"{node}:1")
            self._done(leader, "add", node)

    def _promote(self, leader: RaftProcess) -> None:
        learners = leader.core._state.members.learners
        if learners:
            node = self._rng.choice(learners)
            leader.core.promote(node)
            self._done(leader, "promote", node)

    def _remove(self, leader: RaftProcess) -> None:
        members = leader.core._state.members
        node = self._rng.choice(members.nodes)
        left = members.without(node).voters
        if len(left) >= min(2, self._quorum.options.members) and self._all_marked(left):
            leader.core.remove(node)
            self._done(leader, "remove", node)

    def _transfer(self, leader: RaftProcess) -> None:
        target = self._rng.choice([None, *leader.core._state.members.voters])
        self._done(leader, "transfer", leader.core.transfer(target))

    def _all_marked(self, voters: tuple[NodeId, ...]) -> bool:
        logs = self._quorum.invariants.durable
        return all(logs[f"n{node}"].is_voter for node in voters)
