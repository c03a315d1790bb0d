"""Faults of the machines under a broker group: disks that fail, fill up or slow down, and clocks.

``io_error``      the next sync of a broker ends in EIO, and its process with it
``slow_disk``     every sync of some machine takes ten times as long, for a while
``full_disk``     a broker's disk has no room, for a while
``clock_jump``    a broker's clock stands elsewhere, up to ten seconds ahead or behind
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.kernel.machine import Machine
    from sim.kernel.world import World

SLOWNESS = 10
JUMP_MAX_S = 10


class Hardware:
    """See the module."""

    def __init__(self, world: World, machines: list[Machine], brokers: list[Machine]) -> None:
        self._world = world
        self._machines = machines
        self._brokers = brokers
        self._rng = world.stream("hardware")

    def faults(self) -> dict[str, Callable[[], None]]:
        """For the nemesis."""
        return {
            "io_error": self._io_error,
            "slow_disk": self._slow_disk,
            "full_disk": self._full_disk,
            "clock_jump": self._clock_jump,
        }

    def _io_error(self) -> None:
        machine = self._rng.choice(self._brokers)

        def failed() -> None:
            self._world.count("disk.io-error")
            machine.kill()
            self._world.after(self._rng.randint(10, 2_000) * MS, machine.boot)

        machine.disk.on_error = failed
        machine.disk.is_failing = True

    def _slow_disk(self) -> None:
        disk = self._rng.choice(self._machines).disk
        disk.slowness = SLOWNESS
        self._world.after(self._rng.randint(1, 5) * SECOND, disk.mend)

    def _full_disk(self) -> None:
        disk = self._rng.choice(self._brokers).disk
        disk.is_full = True
        self._world.after(self._rng.randint(100, 3_000) * MS, disk.mend)

    def _clock_jump(self) -> None:
        machine = self._rng.choice(self._brokers)
        machine.jump_clock(self._rng.randint(-JUMP_MAX_S, JUMP_MAX_S) * SECOND)
