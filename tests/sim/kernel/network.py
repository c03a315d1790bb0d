"""The simulated network: latency, loss, duplication, reordering, one-way partitions.

Machines are known by name. A message is any value; it is handed over as it is, so it must be
immutable (or bytes). Delivery re-checks the partition at arrival, as a cut cable would. Beside
messages the network answers the one question that TCP answers: is a process listening there?
``probe`` gives "accepted", "refused" (the machine is up, the process is not) or "timeout" (no
answer got through, which proves nothing).

It refuses nothing and keeps no order unless ``fifo`` is set: what is safe under this network is
safe under TCP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.kernel.world import MS, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.kernel.machine import Machine

PROBE_TIMEOUT_US = 300 * MS


@dataclass
class NetworkOptions:
    """All faults of the network in one place; ``swarm`` draws one set per seed.

    Attributes:
        latency_us: least and greatest ordinary one-way delay.
        spike_rate: share of messages that take up to ``spike_us`` instead.
        spike_us: the greatest delay of a late message.
        loss_rate: share of messages that never arrive.
        duplicate_rate: share of messages that arrive a second time, later.
        fifo: keep the order of each link, as one TCP connection does.
    """

    latency_us: tuple[int, int] = (200, 1_500)
    spike_rate: float = 0.0
    spike_us: int = 400 * MS
    loss_rate: float = 0.0
    duplicate_rate: float = 0.0
    fifo: bool = False

    @classmethod
    def swarm(cls, rng: Random) -> NetworkOptions:
        """A network whose kinds of misbehaviour are drawn, some of them switched off."""
        low = rng.choice([50, 200, 1_000])
        return cls(
            latency_us=(low, low * rng.choice([2, 10, 40])),
            spike_rate=rng.choice([0.0, 0.001, 0.02, 0.1]),
            spike_us=rng.choice([50, 400, 3_000]) * MS,
            loss_rate=rng.choice([0.0, 0.0, 0.01, 0.1, 0.3]),
            duplicate_rate=rng.choice([0.0, 0.01, 0.1, 0.4]),
            fifo=rng.random() < 0.25,
        )

    def calm(self) -> None:
        """Stop all faults; ordinary latency stays."""
        self.spike_rate = self.loss_rate = self.duplicate_rate = 0.0


class Network:
    """Carries messages between machines.

    Attributes:
        options: may be changed while the world runs.
        blocked: ordered pairs (source, target) that carry nothing at present.
        machines: by name; a ``Machine`` enters itself.
    """

    def __init__(self, world: World, options: NetworkOptions) -> None:
        self.world = world
        self.options = options
        self.blocked: set[tuple[str, str]] = set()  # membership tests only, never iterated
        self.machines: dict[str, Machine] = {}
        self._rng = world.stream("network")
        self._link_free_us: dict[tuple[str, str], int] = {}

    def send(self, source: str, target: str, message: object) -> None:
        """Send ``message``; it arrives once, twice, late or never."""
        if (source, target) in self.blocked or self._rng.random() < self.options.loss_rate:
            self.world.count("network.lost")
            return
        copies = 2 if self._rng.random() < self.options.duplicate_rate else 1
        for _ in range(copies):
            arrival_us = self._arrival_us(source, target)
            self.world.at(arrival_us, self._deliver, source, target, message)

    def probe(self, source: str, target: str, answer: Callable[[str], None]) -> None:
        """Ask whether a process listens at ``target``; ``answer`` gets the word (see above)."""
        if (source, target) in self.blocked or (target, source) in self.blocked:
            self.world.after(PROBE_TIMEOUT_US, answer, "timeout")
            return
        round_trip_us = self._latency_us() + self._latency_us()
        self.world.after(round_trip_us, self._answer_probe, target, answer)

    def block(self, source: str, target: str) -> None:
        """Carry nothing from ``source`` to ``target``; the other way is not touched."""
        self.blocked.add((source, target))

    def split(self, groups: list[list[str]]) -> None:
        """Carry nothing between machines of different groups, either way."""
        for here in groups:
            for there in groups:
                if here is not there:
                    self.blocked.update((a, b) for a in here for b in there)

    def isolate(self, name: str) -> None:
        """Cut one machine off from all others."""
        self.split([[name], [other for other in self.machines if other != name]])

    def heal(self) -> None:
        """Carry everything again."""
        self.blocked.clear()

    def _latency_us(self) -> int:
        if self.options.spike_rate and self._rng.random() < self.options.spike_rate:
            return self._rng.randint(self.options.latency_us[0], self.options.spike_us)
        return self._rng.randint(*self.options.latency_us)

    def _arrival_us(self, source: str, target: str) -> int:
        arrival_us = self.world.now_us + self._latency_us()
        if self.options.fifo:
            arrival_us = max(arrival_us, self._link_free_us.get((source, target), 0))
            self._link_free_us[source, target] = arrival_us
        return arrival_us

    def _deliver(self, source: str, target: str, message: object) -> None:
        if (source, target) in self.blocked:
            self.world.count("network.lost")
            return
        self.machines[target].deliver(source, message)

    def _answer_probe(self, target: str, answer: Callable[[str], None]) -> None:
        answer("accepted" if self.machines[target].is_up else "refused")
