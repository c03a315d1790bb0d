"""Machines that run one process each, and what such a process may touch.

A ``Machine`` is a name on the network, a disk, and a factory that makes the process. The factory
runs anew at every boot and gets a ``Host``: the process's only way to timers, peers, chance, and
the disk. A host dies with its process: timers and messages of an earlier life are never delivered.

    kill()       SIGKILL: the process is gone, the page cache stays
    power_cut()  unsynced writes are lost too (see disk)
    wipe()       killed, and the volume is replaced by an empty one
    jump_clock() the process's clock stands elsewhere, ahead or behind
    pause(us)    SIGSTOP, a long garbage collection, a stolen CPU: everything waits, in order

Each boot draws a clock rate within ``clock_drift``: timers of a fast clock fire early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sim.kernel.disk import Disk, DiskOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.kernel.network import Network
    from sim.kernel.world import Timer, World


class Actor(Protocol):
    """A process. It acts only inside these calls and its timers' callbacks."""

    def start(self) -> None:
        """The process has booted; read the disk, set timers."""

    def receive(self, source: str, message: object) -> None:
        """A message arrived from the machine ``source``."""

    def peer_closed(self, name: str) -> None:
        """A peer's connection closed because its process died (TCP's FIN or RST)."""


class Host:
    """What one life of a process may touch.

    Attributes:
        name: of the machine.
        disk: of the machine; see ``sim.kernel.disk``.
        rng: a stream of this life.
        life: 1 for the first boot.
    """

    def __init__(self, machine: Machine, life: int, clock_drift: float) -> None:
        self.name = machine.name
        self.disk = machine.disk
        self.life = life
        self.rng: Random = machine.world.stream(f"host/{machine.name}/{life}")
        self.world = machine.world
        self._machine = machine
        self._rate = 1.0 + self.rng.uniform(-clock_drift, clock_drift)
        self._born_us = machine.world.now_us
        self._skew_us = self.rng.randint(0, 1_000_000_000)

    @property
    def clock_us(self) -> int:
        """The process's own monotonic clock: another origin, a slightly different rate."""
        return self._skew_us + int((self.world.now_us - self._born_us) * self._rate)

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Call ``action`` after ``delay_us`` by the own clock, if this life lasts that long."""
        return self.world.after(int(delay_us / self._rate), self._machine.enter, self, action)

    def send(self, target: str, message: object) -> None:
        """Send an immutable ``message`` to the machine ``target``."""
        self._machine.network.send(self.name, target, message)

    def probe(self, target: str, answer: Callable[[str], None]) -> None:
        """Try to connect; ``answer`` gets "accepted", "refused" or "timeout"."""

        def relay(word: str) -> None:
            self._machine.enter(self, lambda: answer(word))

        self._machine.network.probe(self.name, target, relay)

    def jump(self, by_us: int) -> None:
        """Let the process's clock stand elsewhere from now on; timers that run are not moved."""
        self._skew_us += by_us

    def note(self, *facts: object) -> None:
        """Add a trace line under this machine's name."""
        self.world.note(self.name, *facts)


class Machine:
    """One machine of the world; see the module for its vocabulary.

    Attributes:
        is_up: a process runs (it may be paused).
        actor: the running process, or None.
        lives: boots so far.
        wipes: how often the volume was replaced.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        *,
        factory: Callable[[Host], Actor],
        disk_options: DiskOptions | None = None,
        clock_drift: float = 0.0,
    ) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.disk = Disk(world, name, disk_options or DiskOptions())
        self.actor: Actor | None = None
        self.lives = 0
        self.wipes = 0
        self._factory = factory
        self._clock_drift = clock_drift
        self._host: Host | None = None
        self._paused_until_us = 0
        network.machines[name] = self

    @property
    def is_up(self) -> bool:
        """Whether a process runs here."""
        return self._host is not None

    def boot(self) -> None:
        """Start a new process; nothing happens if one runs."""
        if self._host is not None:
            return
        self.lives += 1
        self._paused_until_us = 0
        self.world.note(self.name, "boot", self.lives)
        self._host = Host(self, self.lives, self._clock_drift)
        self.actor = self._factory(self._host)
        self.actor.start()

    def kill(self) -> None:
        """SIGKILL; peers that can still be reached see their connections close."""
        if self._host is None:
            return
        self.world.note(self.name, "kill")
        self.disk.kill()
        self._end()
        for peer in self.network.machines.values():
            if peer is not self and (self.name, peer.name) not in self.network.blocked:
                self.world.after(self.network.options.latency_us[0], peer.notice_close, self.name)

    def power_cut(self) -> None:
        """The machine loses power: no connection is closed, unsynced writes are gone."""
        self.world.note(self.name, "power-cut")
        self.disk.power_cut()
        self._end()

    def wipe(self) -> None:
        """Kill the process and replace the volume by an empty one."""
        self.kill()
        self.world.note(self.name, "wipe")
        self.wipes += 1
        self.disk.wipe()

    def pause(self, duration_us: int) -> None:
        """Let the process do nothing for a while; what arrives waits in order."""
        self.world.note(self.name, "pause", duration_us)
        self._paused_until_us = max(self._paused_until_us, self.world.now_us + duration_us)

    def jump_clock(self, by_us: int) -> None:
        """The clock of the running process jumps: a migrated machine, a corrected clock."""
        self.world.note(self.name, "clock-jump", by_us)
        if self._host is not None:
            self._host.jump(by_us)

    def resume(self) -> None:
        """End a pause; what waits still runs at the time the pause would have ended."""
        self._paused_until_us = 0

    def enter(self, host: Host, action: Callable[[], None]) -> None:
        """Run ``action`` in the process ``host`` belongs to, if it still lives; later if paused."""
        if host is not self._host:
            return
        if self.world.now_us < self._paused_until_us:
            self.world.at(self._paused_until_us, self.enter, host, action)
            return
        action()

    def deliver(self, source: str, message: object) -> None:
        """A message has arrived (called by the network)."""
        host, actor = self._host, self.actor
        if host is not None and actor is not None:
            self.enter(host, lambda: actor.receive(source, message))

    def notice_close(self, peer: str) -> None:
        """A peer's process has died (called by that machine)."""
        host, actor = self._host, self.actor
        if host is not None and actor is not None:
            self.enter(host, lambda: actor.peer_closed(peer))

    def _end(self) -> None:
        self._host = None
        self.actor = None
