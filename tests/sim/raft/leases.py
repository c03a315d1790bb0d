"""Leases in the Raft world: how long they last there, and who switches them on and off.

    lease safety   while a lease is valid by its holder's clock, nobody has been elected since

The rule is checked after everything a node handles, whether a read uses the lease or not. What
clocks differ by is known here, so the lease is as long as it can be: a bug has little room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_controller.raft.errors import NotLeader

if TYPE_CHECKING:
    from sim.raft.world import RaftWorld

SHARE = 0.9  # of the election time-out, as ``node.options.lease_ms`` takes it
PHASE_TICKS = 1  # a promise begins between two ticks


def lease_ns(*, election_ticks: int, tick_us: int, clock_drift: float) -> int:
    """The longest lease that is safe when each clock's rate is off by up to ``clock_drift``."""
    promise_us = min(SHARE * election_ticks, election_ticks - PHASE_TICKS) * tick_us
    return int(promise_us * 1000 * (1 - clock_drift) / (1 + clock_drift))


class LeaseSwitch:
    """Switches leases on, and sometimes off, through whoever believes to lead."""

    def __init__(self, world: RaftWorld) -> None:
        self._world = world
        self._rng = world.world.stream("leases")
        self._every_us = world.options.switch_lease_every_us

    def start(self) -> None:
        """Begin, if leases are part of this run."""
        if self._every_us:
            self._later()

    def _later(self) -> None:
        self._world.world.after(self._rng.randint(1, self._every_us), self._switch)

    def _switch(self) -> None:
        leaders = [node for node in self._world.nodes() if node.core.role.value == "leader"]
        if leaders:
            on = self._rng.random() < 0.8
            node = self._rng.choice(leaders)
            try:
                node.core.set_lease(on=on)
            except NotLeader:  # it has stepped down in this very moment
                self._world.world.count("client.not-leader")
            else:
                self._world.world.count("lease.switched-on" if on else "lease.switched-off")
                node.arm()
        self._later()
