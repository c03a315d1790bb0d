"""The simulated world: one event queue, one virtual clock, one seed.

Everything that happens in a simulation is a callback on this queue. Two callbacks due at the same
microsecond run in the order they were scheduled, every random choice comes from a stream derived
from the seed, and nothing reads the real clock, so a seed *is* a run: the same seed gives the same
events, the same trace and the same ``trace_hash``, in any process and under any PYTHONHASHSEED.
(FoundationDB and TigerBeetle test this way; a failure found once can be looked at for ever.)

A world is used like this:

    world = World(seed)
    network = Network(world, NetworkOptions())
    machine = Machine(world, network, "node-1", factory=lambda host: MyActor(host, ...))
    world.checks.append(my_invariants)      # run after every event
    machine.boot()
    world.run(for_us=10 * SECOND)

Time is an integer number of microseconds. Invariants raise ``Violation``; ``World.run`` adds the
seed, the time and the end of the trace to it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000
SECOND = 1_000_000

TRACE_LINES_KEPT = 60


class Violation(AssertionError):  # noqa: N818 - read as a sentence: "raise Violation(...)"
    """An invariant does not hold; the text says which, and ``World.run`` adds where."""


Timer = list[Any]  # one scheduled callback: time, sequence number, action, arguments


def cancel(timer: Timer) -> None:
    """Never run the callback; harmless once it has run."""
    timer[2] = None


class World:
    """Virtual time, the event queue, the streams of chance and the trace of one simulation.

    Attributes:
        seed: names the run.
        now_us: virtual time, microseconds since the world began; never goes back.
        checks: called after every event; raise ``Violation`` when something must not be so.
        events_run: how many events have run.
        counters: rare things that happened (``count``), so that a test can ask for them.
        trace_to: gets each line of the trace as it is written, or None.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.checks: list[Callable[[], None]] = []
        self.events_run = 0
        self.counters: dict[str, int] = {}
        self.trace_to: Callable[[str], None] | None = None
        self._queue: list[Timer] = []
        self._sequence = 0
        self._alone_until_us = 0  # until when nobody looks at the world between events
        self._hash = hashlib.blake2b(digest_size=16)
        self._recent: deque[str] = deque(maxlen=TRACE_LINES_KEPT)

    def stream(self, name: str) -> Random:
        """A generator of its own for ``name``: drawing more in one place moves nothing elsewhere.

        Seeding from a string hashes it with SHA-512, so the stream is equal in every process.
        """
        return Random(f"{self.seed}/{name}")

    def at(self, time_us: int, action: Callable[..., None], *arguments: object) -> Timer:
        """Run ``action(*arguments)`` at ``time_us``, or now if that has passed."""
        if time_us < self.now_us:
            time_us = self.now_us
        self._sequence += 1
        timer = [time_us, self._sequence, action, arguments]
        heappush(self._queue, timer)
        return timer

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> Timer:
        """Run ``action(*arguments)`` ``delay_us`` from now."""
        self._sequence += 1
        time_us = self.now_us + delay_us if delay_us > 0 else self.now_us
        timer = [time_us, self._sequence, action, arguments]
        heappush(self._queue, timer)
        return timer

    def pass_time(self, duration_us: int) -> bool:
        """Let time pass inside an event, if nothing else would happen meanwhile.

        An event that would be the next one anyway is then spared. False, and no time passes, where
        another event, a check, or ``until`` comes first.
        """
        then_us = self.now_us + duration_us
        queue = self._queue
        if then_us >= self._alone_until_us or (queue and queue[0][0] <= then_us):
            return False
        self.now_us = then_us
        return True

    def note(self, *facts: object) -> None:
        """Add one line to the trace. Facts must print the same in every process (no sets)."""
        line = f"{self.now_us} {' '.join(map(str, facts))}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._recent.append(line)
        if self.trace_to is not None:
            self.trace_to(line)

    def count(self, name: str) -> None:
        """Count a rare event, so that tests can prove that runs reach it."""
        self.counters[name] = self.counters.get(name, 0) + 1

    @property
    def trace_hash(self) -> str:
        """Digest of all trace lines so far; equal for equal runs."""
        return self._hash.hexdigest()

    @property
    def recent_trace(self) -> list[str]:
        """The last lines of the trace, oldest first."""
        return list(self._recent)

    def step(self) -> bool:
        """Run the next event and the checks. False if nothing is scheduled."""
        while self._queue:
            time_us, _, action, arguments = heappop(self._queue)
            if action is None:
                continue
            self.now_us = time_us
            self.events_run += 1
            action(*arguments)
            for check in self.checks:
                check()
            return True
        return False

    def run(
        self, *, for_us: int, until: Callable[[], bool] | None = None, every_us: int = 0
    ) -> bool:
        """Run for ``for_us`` of virtual time, or until ``until()`` holds after an event.

        Args:
            for_us: how long.
            until: ends it; asked after an event.
            every_us: ``until`` is asked when so much time has passed.

        Returns:
            True if ``until`` was met, or if there was none.

        Raises:
            Violation: an invariant broke; the text names seed, time and the last trace lines.
        """
        end_us = self.now_us + for_us
        asked_us = self.now_us if until is not None else end_us + 1
        queue, checks = self._queue, self.checks
        try:
            while queue and queue[0][0] <= end_us:
                if checks:
                    self.step()
                else:  # the same, for whoever runs millions of events
                    time_us, _, action, arguments = heappop(queue)
                    while action is None and queue:
                        time_us, _, action, arguments = heappop(queue)
                    if action is not None:
                        self._alone_until_us = asked_us if asked_us <= end_us else end_us + 1
                        self.now_us = time_us
                        self.events_run += 1
                        action(*arguments)
                if self.now_us >= asked_us:
                    asked_us = self.now_us + every_us
                    if until is not None and until():
                        return True
        except Violation as violation:
            raise Violation(self._explain(violation)) from violation
        finally:
            self._alone_until_us = 0
        self.now_us = max(self.now_us, end_us)
        return until is None

    def _explain(self, violation: Violation) -> str:
        trace = "\n    ".join(self._recent)
        return f"seed {self.seed} at {self.now_us} us: {violation}\n  trace:\n    {trace}"
