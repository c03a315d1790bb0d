"""A simulated object store: creates that land late or whose answer is lost, outages, and a journal.

The store's side of a request happens in the world and does not end with the process that asked:
a put of a dead, paused or deposed broker may land long after. The answer is an event of the asking
process: it waits while that is paused and is lost with it. What the store promises is kept: a
create writes a key at most once, a read sees every earlier write, a listing is sorted and whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.kernel.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.kernel.machine import Host
    from sim.kernel.world import World

DEADLINE_US = 2 * SECOND


class Failed(Exception):  # noqa: N818 - the outcome of a call, never an error of the test
    """The call ended without an answer one could use."""


@dataclass
class StoreOptions:
    """How slow and how unkind the store is; rates are shares of calls.

    Attributes:
        latency_us: least and greatest time each way.
        failure: nothing is applied, and the caller learns only that it failed.
        conflict: nothing is applied and the answer is "maybe" (409).
        lost_answer: applied, and the caller learns only that it failed.
        odd_answer: applied, and the answer is "maybe" (a retry that met its own write).
        late: the caller's deadline passes; the put lands up to ``late_us`` after that.
        outage_every_us: mean time between outages, in which every call fails; None for none.
    """

    latency_us: tuple[int, int] = (1 * MS, 10 * MS)
    failure: float = 0.0
    conflict: float = 0.0
    lost_answer: float = 0.0
    odd_answer: float = 0.0
    late: float = 0.0
    late_us: int = 5 * SECOND
    outage_every_us: int | None = None
    outage_us: int = 3 * SECOND

    @classmethod
    def swarm(cls, rng: Random) -> StoreOptions:
        """A store of drawn unkindness."""

        def rate() -> float:
            return rng.choice([0.0, 0.02, 0.1, 0.25])

        low = rng.choice([1, 5, 20]) * MS
        return cls(
            latency_us=(low, low * rng.choice([2, 5])),
            failure=rate(),
            conflict=rate(),
            lost_answer=rate(),
            odd_answer=rate(),
            late=rate(),
            late_us=rng.choice([500, 3_000, 8_000]) * MS,
            outage_every_us=rng.choice([None, None, 4 * SECOND]),
            outage_us=rng.choice([300, 3_000]) * MS,
        )

    def calm(self) -> None:
        """From now on every call is answered, and soon."""
        self.latency_us = (1 * MS, 5 * MS)
        self.failure = self.conflict = self.lost_answer = self.odd_answer = self.late = 0.0
        self.outage_every_us = None


class SimStore:
    """The objects, and who is told of each change.

    Attributes:
        objects: by key.
        put: called before an object is written, with its key and bytes; raises ``Violation``.
        conditional: off, a create overwrites, as some stores do (planted bugs).
    """

    def __init__(self, world: World, options: StoreOptions) -> None:
        self.world = world
        self.options = options
        self.objects: dict[str, bytes] = {}
        self.put: Callable[[str, bytes], None] = lambda _key, _data: None
        self.conditional: Callable[[str], bool] = lambda _key: True
        self.name: Callable[[str], str] = lambda key: key
        self._rng = world.stream("store")
        self._down_until_us = 0
        self._plan_outage()

    def _plan_outage(self) -> None:
        every_us = self.options.outage_every_us
        if every_us is not None:
            self.world.after(int(self._rng.expovariate(1 / every_us)), self._outage)

    def _outage(self) -> None:
        if self.options.outage_every_us is not None:
            self.world.count("store.outage")
            self._down_until_us = self.world.now_us + self._rng.randint(0, self.options.outage_us)
            self._plan_outage()

    # ---- calls: ``done`` gets the answer or a Failed

    def create(self, host: Host, key: str, data: bytes, done: Callable[[object], None]) -> None:
        """Answers True for created, False for maybe."""
        options = self.options
        fate = self._rng.choices(
            ["failure", "conflict", "lost_answer", "odd_answer", "late", "fine"],
            [
                options.failure,
                options.conflict,
                options.lost_answer,
                options.odd_answer,
                options.late,
                1.0,
            ],
        )[0]
        if fate == "late":
            self.world.count("store.late")
            delay_us = DEADLINE_US + self._rng.randint(0, options.late_us)
            self.world.after(delay_us, self._land, key, data)
            host.after(DEADLINE_US, lambda: done(Failed("its deadline passed")))
            return

        def arrive() -> None:
            if self.world.now_us < self._down_until_us or fate == "failure":
                self._answer(host, done, Failed("the store answered 503"))
            elif fate == "conflict":
                self._answer(host, done, False)
            else:
                created = self._write(key, data)
                if fate == "lost_answer":
                    self.world.count("store.lost_answer")
                    self._answer(host, done, Failed("the connection was lost"))
                else:
                    self._answer(host, done, created and fate == "fine")

        self.world.after(self._latency_us(), arrive)

    def read(self, host: Host, take: Callable[[], object], done: Callable[[object], None]) -> None:
        """Answer what ``take`` finds when the request arrives."""
        fails = self._rng.random() < self.options.failure

        def arrive() -> None:
            if fails or self.world.now_us < self._down_until_us:
                self._answer(host, done, Failed("the store answered 503"))
            else:
                self._answer(host, done, take())

        self.world.after(self._latency_us(), arrive)

    def keys_after(self, prefix: str, after: str, limit: int) -> list[str]:
        """Sorted keys of ``prefix`` after ``after``."""
        return sorted(key for key in self.objects if key.startswith(prefix) and key > after)[:limit]

    def _land(self, key: str, data: bytes) -> None:
        self._write(key, data)

    def _write(self, key: str, data: bytes) -> bool:
        key = self.name(key)
        if key in self.objects and self.conditional(key):
            return False
        self.put(key, data)
        self.objects[key] = data
        return True

    def _answer(self, host: Host, done: Callable[[object], None], answer: object) -> None:
        host.after(self._latency_us(), lambda: done(answer))

    def _latency_us(self) -> int:
        return self._rng.randint(*self.options.latency_us)
