"""A simulated object store: creates that land late or whose answer is lost, outages, and a journal.

The store's side of a request happens in the world and does not end with the process that asked:
a put of a dead, paused or deposed broker may land long after. The answer is an event of the asking
process: it waits while that is paused and is lost with it. What the store promises is kept: a
create writes a key at most once, a read sees every earlier write, a listing is sorted and whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.kernel.world import SECOND
from sim.product.bucket import BucketOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.kernel.machine import Host
    from sim.kernel.world import World

DEADLINE_US = 2 * SECOND


class Failed(Exception):  # noqa: N818 - the outcome of a call, never an error of the test
    """The call ended without an answer one could use."""


class SimStore:
    """The objects, and who is told of each change.

    Attributes:
        objects: by key.
        put: called before an object is written, with its key and bytes; raises ``Violation``.
        conditional: off, a create overwrites, as some stores do (planted bugs).
    """

    def __init__(self, world: World, options: BucketOptions) -> None:
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
