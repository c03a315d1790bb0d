"""Treatment of packets in a queue: when each is let go, or that it is dropped. Pure.

Delay and loss follow netem: a delay is uniform in latency ± jitter, and correlation makes each
random number resemble the one before (`x' = x·(1 - c) + x_before·c`). Packets overtake each other
when jitter says so. The queue is bounded: what arrives at a full one is let go at once, since a
harness that loses packets nobody asked for would prove the wrong thing.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKETS_MAX = 20_000  # about 0.5 s of what Python can answer for


class Treatment(msgspec.Struct, frozen=True):
    """Seconds and shares, as in a manifest."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    delay_correlation: float = 0.0
    loss: float = 0.0
    loss_correlation: float = 0.0


class PacketVerdict(msgspec.Struct, frozen=True):
    """The word to the kernel about a packet."""

    packet: int
    accept: bool


class Counts(msgspec.Struct):
    """The packets so far, by their end."""

    seen: int = 0
    dropped: int = 0
    released: int = 0
    overflowed: int = 0  # let go at once, because too many were held


class _Correlated:
    """Random numbers in [0, 1), each resembling the one before."""

    def __init__(self, random: Callable[[], float], correlation: float) -> None:
        self._random = random
        self._correlation = correlation
        self._last: float | None = None

    def next(self) -> float:
        fresh = self._random()
        if self._last is not None and self._correlation:
            fresh = fresh * (1 - self._correlation) + self._last * self._correlation
        self._last = fresh
        return fresh


class PacketQueue:
    """Holds packets back.

    Args:
        treatment: what is done to them.
        random: gives numbers in [0, 1); the same ones repeat everything.
        packets_max: how many are held.
    """

    def __init__(
        self, treatment: Treatment, random: Callable[[], float], *, packets_max: int = PACKETS_MAX
    ) -> None:
        self.counts = Counts()
        self._treatment = treatment
        self._delay = _Correlated(random, treatment.delay_correlation)
        self._loss = _Correlated(random, treatment.loss_correlation)
        self._held: list[tuple[float, int, int]] = []  # deadline, arrival number, packet
        self._packets_max = packets_max

    def __len__(self) -> int:
        return len(self._held)

    def arrive(self, packet: int, now_s: float) -> PacketVerdict | None:
        """A packet arrived; its verdict if there is one at once, else it is held."""
        self.counts.seen += 1
        treatment = self._treatment
        if treatment.loss and self._loss.next() < treatment.loss:
            self.counts.dropped += 1
            return PacketVerdict(packet, accept=False)
        wait_s = treatment.latency_s + treatment.jitter_s * (2 * self._delay.next() - 1)
        if wait_s <= 0:
            self.counts.released += 1
            return PacketVerdict(packet, accept=True)
        if len(self._held) >= self._packets_max:
            self.counts.overflowed += 1
            return PacketVerdict(packet, accept=True)
        heapq.heappush(self._held, (now_s + wait_s, self.counts.seen, packet))
        return None

    @property
    def next_s(self) -> float | None:
        """The time at which the next packet is due; None while none is held."""
        return self._held[0][0] if self._held else None

    def due(self, now_s: float) -> Iterator[PacketVerdict]:
        """Verdicts for all packets whose time has come, in the order of their deadlines."""
        while self._held and self._held[0][0] <= now_s:
            self.counts.released += 1
            yield PacketVerdict(heapq.heappop(self._held)[2], accept=True)

    def drain(self) -> Iterator[PacketVerdict]:
        """Let everything go, in the order of deadlines."""
        yield from self.due(float("inf"))
