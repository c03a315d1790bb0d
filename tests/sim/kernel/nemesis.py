"""The nemesis: a seeded schedule of kills, power cuts, partitions and pauses, then peace.

One nemesis per world. Which faults it knows, how often they come and how long they last is drawn
per seed (swarm testing: a run that leaves some faults out reaches states that a run with all of
them does not). ``stop`` ends all faults and boots what is down; what the system owes after that is
liveness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.kernel.world import MS, SECOND, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.kernel.machine import Machine
    from sim.kernel.network import Network

ALL_FAULTS = (
    "kill",
    "power_cut",
    "power_cut_all",
    "isolate",
    "split",
    "one_way",
    "pause",
    "heal",
)


@dataclass
class NemesisOptions:
    """What goes wrong and how often.

    Attributes:
        faults: names from ``ALL_FAULTS`` or of ``extra`` faults.
        mean_gap_us: mean time between faults.
        down_us: greatest time a killed machine stays down.
        pause_us: greatest length of a pause.
    """

    faults: list[str] = field(default_factory=lambda: list(ALL_FAULTS))
    mean_gap_us: int = 2 * SECOND
    down_us: int = 3 * SECOND
    pause_us: int = SECOND

    @classmethod
    def swarm(cls, rng: Random, extra: tuple[str, ...] = ()) -> NemesisOptions:
        """A drawn set of faults (always with "heal") at a drawn pace."""
        faults = [name for name in (*ALL_FAULTS, *extra) if rng.random() < 0.6]
        if "heal" not in faults:
            faults.append("heal")
        return cls(
            faults=faults,
            mean_gap_us=rng.choice([300, 1_000, 4_000]) * MS,
            down_us=rng.choice([100, 1_000, 5_000]) * MS,
            pause_us=rng.choice([50, 600, 3_000]) * MS,
        )


class Nemesis:
    """Causes faults until it is stopped.

    Args:
        extra: more faults by name; each is called when drawn. They must be in ``options.faults``.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        machines: list[Machine],
        options: NemesisOptions,
        extra: dict[str, Callable[[], None]] | None = None,
    ) -> None:
        self._world = world
        self._network = network
        self._machines = machines
        self._options = options
        self._rng = world.stream("nemesis")
        self._stopped = False
        self._faults: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "power_cut": self._power_cut,
            "power_cut_all": self._power_cut_all,
            "isolate": self._isolate,
            "split": self._split,
            "one_way": self._one_way,
            "pause": self._pause,
            "heal": network.heal,
            **(extra or {}),
        }

    def start(self) -> None:
        """Begin; the first fault comes after a drawn gap."""
        self._schedule()

    def stop(self) -> None:
        """End all faults: links carry everything, machines run, nothing new goes wrong."""
        self._world.note("nemesis", "stop")
        self._stopped = True
        self._network.heal()
        self._network.options.calm()
        for machine in self._machines:
            machine.disk.options.stall_rate = 0.0
            machine.disk.mend()
            machine.resume()
            machine.boot()

    def boot_later(self, machine: Machine) -> None:
        """Boot ``machine`` after a drawn time (for extra faults that take one down)."""
        self._world.after(self._rng.randint(1, self._options.down_us), machine.boot)

    def _schedule(self) -> None:
        gap_us = int(self._rng.expovariate(1.0 / self._options.mean_gap_us))
        self._world.after(gap_us, self._strike)

    def _strike(self) -> None:
        if self._stopped:
            return
        name = self._rng.choice(self._options.faults)
        self._world.note("nemesis", name)
        self._world.count(f"fault.{name}")
        self._faults[name]()
        self._schedule()

    def _pick(self) -> Machine:
        return self._rng.choice(self._machines)

    def _kill(self) -> None:
        machine = self._pick()
        machine.kill()
        self.boot_later(machine)

    def _power_cut(self) -> None:
        machine = self._pick()
        machine.power_cut()
        self.boot_later(machine)

    def _power_cut_all(self) -> None:
        for machine in self._machines:
            machine.power_cut()
            self.boot_later(machine)

    def _isolate(self) -> None:
        self._network.isolate(self._pick().name)

    def _split(self) -> None:
        names = [machine.name for machine in self._machines]
        self._rng.shuffle(names)
        cut = self._rng.randint(1, len(names) - 1) if len(names) > 1 else 1
        self._network.split([names[:cut], names[cut:]])

    def _one_way(self) -> None:
        source, target = self._pick(), self._pick()
        if source is not target:
            self._network.block(source.name, target.name)

    def _pause(self) -> None:
        self._pick().pause(self._rng.randint(1, self._options.pause_us))
