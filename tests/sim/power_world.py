"""Simultaneous power cuts of all nodes, again and again, while clients send.

``WholeWorld`` whose only disaster is this one, over disks and networks of drawn speed, the networks
good enough for a quorum to get somewhere between two cuts. Controllers and brokers lose their power
at the same moment, and each file keeps of its unsynced writes none, a prefix torn at any byte, or
any of its sectors. Some cuts come while the group still recovers from the one before; before the
others somebody was acknowledged. The counters of a run say how many cuts there were
(``power.cut-all``) and how many records were acknowledged; a lost one is a violation, at the latest
when the next master is promoted without it, or at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.world import MS, SECOND, Violation
from sim.replica_disk import broker_id_of, durable_log
from sim.whole_world import WholeWorld

if TYPE_CHECKING:
    from collections.abc import Callable

CUTS = 20
EARLY = 0.3  # share of cuts that wait for nothing
OFF_MAX_US = 300 * MS
SENDING_MAX_US = 1 * SECOND
RECOVERY_S = 60


class PowerWorld(WholeWorld):
    """See the module."""

    def __init__(self, seed: int, *, cuts: int = CUTS) -> None:
        super().__init__(seed)
        options = self.network.options
        options.loss_rate = min(options.loss_rate, 0.01)
        options.spike_rate = min(options.spike_rate, 0.001)
        self._cuts = cuts
        self._power = self.world.stream("power")

    def extra_faults(self) -> dict[str, Callable[[], None]]:
        return {}

    def run_seed(self) -> None:
        """All cuts, then peace: everything acknowledged is on the disks of the whole set."""
        self.boot()
        for _ in range(self._cuts):
            self._send()
            self.cut_all()
        self.nemesis.stop()
        self.require_progress()
        self.require_everything()

    def _send(self) -> None:
        """Until somebody was acknowledged in this period of power, mostly; then a while longer."""
        before = self.acknowledgements
        if self._power.random() >= EARLY and not self.world.run(
            for_us=RECOVERY_S * SECOND, until=lambda: self.acknowledgements > before
        ):
            raise Violation(f"nothing was acknowledged for {RECOVERY_S} s: {self.group}")
        self.world.run(for_us=self._power.randint(0, SENDING_MAX_US))
        if self.acknowledgements > before:
            self.world.count("power.cut-after-acknowledgement")

    def cut_all(self) -> None:
        """Every machine at this very moment; each comes back after a drawn time."""
        self.world.count("power.cut-all")
        for machine in (*self.brokers, *self.controllers):
            machine.power_cut()
            self.world.after(self._power.randint(1, OFF_MAX_US), machine.boot)

    def require_everything(self) -> None:
        """What was ever acknowledged is durable on each member of the set."""
        assert self.group is not None
        for machine in self.brokers:
            if broker_id_of(machine.disk) in self.group.sync_state_set:
                held = durable_log(machine.disk)[: self.acknowledged_end]
                if held != self.history[: self.acknowledged_end]:
                    raise Violation(f"ack: {machine.name} lost an acknowledged record")
