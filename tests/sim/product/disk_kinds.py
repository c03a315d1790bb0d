"""Runs in which disks stop to answer, or have no room, for longer than anybody waits for them.

==========  ====================================================================================
silent      the master's disk answers nothing: another member serves, long before the disk answers
full        the master's disk has no room: another member serves, whose disk has some
promoted    the master dies while the disks of all others are silent: the next one serves once its
            disk answers
all         no disk answers: nobody acknowledges anything, and the group serves on once they do
all-full    no disk has room: sends are refused, and taken once there is room
==========  ====================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.kernel.world import SECOND, Violation
from sim.product.kinds import ProductRun
from sim.product.scraper import Scraper
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.product.cluster import Node
    from sim.product.faults import Fault
    from sim.product.workload import Load

STORIES = ("silent", "full", "promoted", "all", "all_full")
TAKES_OVER_S = 12.0  # within which another member serves: a disk is waited for first
LONG_S = 15.0  # for which a disk does not answer
SILENT_S = (4.0, 9.0)  # likewise, of all that there are
SOON_S = 1.0  # what was on its way to the disk, and to the clients, has come
MORE = 5  # acknowledgements


class DisksRun(ProductRun):
    """See the module. One story after the other, each from a group that stands."""

    onlookers = (Scraper,)

    def __init__(self, seed: int, schedule: Sequence[Fault] | None = None, **named: Any) -> None:
        super().__init__(seed, schedule or (), **named)

    def loads(self) -> Sequence[Load]:
        """Few."""
        return [Workload(self._cluster, self._watch, producers=2)]

    def disturb(self) -> None:
        """Raises Violation."""
        rng = self.world.stream("stories")
        for story in rng.sample(STORIES, len(STORIES)):
            self.recover()
            self._cluster.run(rng.random())
            self.world.note("story", story)
            self.world.count(f"story.{story}")
            getattr(self, f"_{story}")(rng)
            self._mend()

    def _mend(self) -> None:
        for node in self._cluster.nodes:
            node.machine.volume.mend()
            node.boot()

    def _master(self) -> Node:
        """Raises Violation: nobody is."""
        master = self._cluster.master()
        if master is None:
            raise Violation("nobody serves")
        return master

    # ---- stories

    def _silent(self, rng: Random) -> None:
        master = self._master()
        master.machine.volume.hang(int(LONG_S * SECOND))
        self._another_serves(master)

    def _full(self, rng: Random) -> None:
        master = self._master()
        master.machine.volume.is_full = True
        self._another_serves(master)

    def _promoted(self, rng: Random) -> None:
        master, silent_s = self._master(), rng.uniform(*SILENT_S)
        for node in self._cluster.brokers:
            if node is not master:
                node.machine.volume.hang(int(silent_s * SECOND))
        master.kill()
        acks = self._watch.acks
        self._cluster.run(silent_s)
        self._answered(acks, "the disks of its heirs answer again")

    def _all(self, rng: Random) -> None:
        silent_s = rng.uniform(*SILENT_S)
        for node in self._cluster.brokers:
            node.machine.volume.hang(int(silent_s * SECOND))
        self._cluster.run(SOON_S)
        acks = self._watch.acks
        self._cluster.run(silent_s - SOON_S)
        if self._watch.acks > acks:
            raise Violation("messages are acknowledged while no disk answers")
        self._answered(acks, "all disks answer again")

    def _all_full(self, rng: Random) -> None:
        for node in self._cluster.brokers:
            node.machine.volume.is_full = True
        self._cluster.run(rng.uniform(2.0, 4.0))
        acks = self._watch.acks
        self._mend()
        self._answered(acks, "there is room again")

    # ---- parts of them

    def _another_serves(self, former: Node) -> None:
        """Raises Violation: sends are not answered by another member, while the disk is bad."""
        cluster = self._cluster

        def serves() -> bool:
            master = cluster.master()
            return master is not None and master is not former

        if not cluster.run(TAKES_OVER_S, until=serves):
            raise Violation(f"nobody takes over from {former.name}, whose disk is bad")
        self._answered(self._watch.acks, f"another one than {former.name} serves")

    def _answered(self, acks: int, since: str, within_s: float = 2 * TAKES_OVER_S) -> None:
        if not self._cluster.run(within_s, until=lambda: self._watch.acks > acks + MORE):
            raise Violation(f"no send is answered, although {since}")
