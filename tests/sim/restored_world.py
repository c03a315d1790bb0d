"""Outages of a whole group, after which a volume comes back as it was some time ago.

``WholeWorld`` whose only disaster is this one: while clients send, a copy of one broker's volume is
taken, and put back once all brokers are dead. In some rounds the controllers live on, in others
they lose their power as well. The older copy is started first, alone for a while, or among the
others. Nobody may be elected who lacks what was acknowledged: the next master is promoted with all
of it (``ack``), nobody is stuck with records that the group has lost, and the group comes back by
itself, with the older copy as a replica.

The copy is as old as the promise says (``liveness.core.floors``): taken before the last time that a
floor was raised for certain. What is younger is protected by the others of the set, if they come
within the wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_controller.liveness.core.floors import RAISE_EVERY_S
from sim.kernel.world import MS, SECOND, Violation
from sim.whole_world import WholeWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.kernel.machine import Machine

ROUNDS = 3
ALONE_MAX_US = 8 * SECOND
APART_MAX_US = 2 * SECOND
HEARTBEAT_SURELY_S = 1.5
RAISED_SURELY_S = RAISE_EVERY_S + 2.0
RECOVERY_S = 60


class RestoredWorld(WholeWorld):
    """See the module."""

    def __init__(self, seed: int, *, rounds: int = ROUNDS) -> None:
        super().__init__(seed)
        options = self.network.options
        options.loss_rate = min(options.loss_rate, 0.01)
        options.spike_rate = min(options.spike_rate, 0.001)
        self._rounds = rounds
        self._fate = self.world.stream("restored")

    def extra_faults(self) -> dict[str, Callable[[], None]]:
        return {}

    def run_seed(self) -> None:
        """All rounds, each to the end: everybody is back in the set."""
        self.boot()
        for _ in range(self._rounds):
            self.require_progress(RECOVERY_S)
            self._round()
        self.require_progress(RECOVERY_S)

    def _round(self) -> None:
        victim = self._fate.choice(self.brokers)
        victim.kill()
        copy = {name: bytes(file.data) for name, file in victim.disk.files.items()}
        victim.boot()
        self.require_progress(RECOVERY_S)
        controllers_too = self._fate.random() < 0.5
        self._send(RAISED_SURELY_S if controllers_too else HEARTBEAT_SURELY_S)
        self.world.count("restored.round")
        for machine in self.brokers:
            machine.power_cut()
        if controllers_too:
            self.world.count("restored.controllers-too")
            for machine in self.controllers:
                machine.power_cut()
                self.world.after(self._fate.randint(1, 300) * MS, machine.boot)
        self._restore(victim, copy)
        self._return(victim)

    def _send(self, seconds: float) -> None:
        """Until more was acknowledged than the copy holds, and surely told."""
        before = self.acknowledgements
        if not self.world.run(
            for_us=RECOVERY_S * SECOND, until=lambda: self.acknowledgements > before + 3
        ):
            raise Violation(f"nothing was acknowledged for {RECOVERY_S} s: {self.group}")
        self.run(seconds)

    def _restore(self, machine: Machine, copy: dict[str, bytes]) -> None:
        machine.wipe()
        for name, content in copy.items():
            file = machine.disk.file(name)
            file.write(0, content)
            file.truncate(len(content))
        self._acted.pop(machine.name, None)

    def _return(self, victim: Machine) -> None:
        """The older copy first; the others after it, each in its time."""
        victim.boot()
        alone_us = self._fate.choice([0, self._fate.randint(0, ALONE_MAX_US)])
        self.world.run(for_us=alone_us)
        for machine in self.brokers:
            if machine is not victim:
                self.world.after(self._fate.randint(0, APART_MAX_US), machine.boot)
