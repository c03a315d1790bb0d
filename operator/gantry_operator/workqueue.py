"""The work queue: keys that have to be looked at, each at most once at a time.

A key is queued, delayed, active, or a combination of active and one of the others. Adding a queued
key changes nothing, so a thousand events about one resource are one reconcile. A key that is added
while it is worked on is worked on again afterwards, since the first look may have come too early.

The number of entries is bounded by the number of keys. Failures of one key delay that key only.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

KeyT = TypeVar("KeyT")

FIRST_DELAY_S = 0.25
MAX_DELAY_S = 60.0
_URGENT, _NORMAL, _PATIENT = 0, 1, 2


class WorkQueue(Generic[KeyT]):
    """A set of keys with delays; belongs to the running event loop.

    Args:
        is_patient: such keys are taken when no other is due, and how long they wait is no sign of
            anything: there may be thousands of them.
    """

    def __init__(self, is_patient: Callable[[KeyT], bool] = lambda _: False) -> None:
        self._is_patient = is_patient
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.PriorityQueue[tuple[int, int, KeyT]] = asyncio.PriorityQueue()
        self._queued: dict[KeyT, tuple[int, int]] = {}  # priority and turn of the valid entry
        self._since: dict[KeyT, tuple[float, int]] = {}  # when a queued key became due; `_taken`
        self._taken = 0  # keys until now
        self._active: set[KeyT] = set()
        self._again: dict[KeyT, bool] = {}  # added while active; True: urgently
        self._delayed: list[tuple[float, int, KeyT]] = []
        self._due: dict[KeyT, float] = {}  # when a delayed key is due; stale heap entries differ
        self._failures: dict[KeyT, int] = {}
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0

    def __len__(self) -> int:
        """Keys that are due now and not being worked on."""
        return len(self._queued)

    @property
    def active(self) -> int:
        """Keys that are being worked on."""
        return len(self._active)

    def oldest_age_s(self) -> float:
        """The time for which the key that waits longest has been due; 0 if none waits.

        Patient ones do not count.
        """
        return self._loop.time() - min(self._since.values())[0] if self._since else 0.0

    def went_before(self) -> int:
        """The number of keys that were taken while the one that waits longest was due."""
        return self._taken - min(self._since.values())[1] if self._since else 0

    def add(self, key: KeyT, *, urgent: bool = False) -> None:
        """Queues a key. Urgent ones are taken first: roles changed, people wait for it."""
        if key in self._active:
            self._again[key] = urgent or self._again.get(key, False)
            return
        patient = self._is_patient(key)
        priority = _URGENT if urgent else _PATIENT if patient else _NORMAL
        entry = self._queued.get(key)
        if entry is not None and entry[0] <= priority:
            return
        self._turn += 1
        self._queued[key] = (priority, self._turn)
        if not patient:
            self._since.setdefault(key, (self._loop.time(), self._taken))
        self._due.pop(key, None)
        self._ready.put_nowait((priority, self._turn, key))

    def add_after(self, key: KeyT, delay_s: float) -> None:
        """Queues a key after a delay, unless it is due sooner anyway."""
        when = self._loop.time() + delay_s
        if key in self._queued or self._due.get(key, float("inf")) <= when:
            return
        self._turn += 1
        self._due[key] = when
        heapq.heappush(self._delayed, (when, self._turn, key))
        self._arm()

    def retry(self, key: KeyT, *, at_least_s: float = 0.0) -> float:
        """Queues a key that failed, later each time; returns the delay in seconds.

        Half of the delay is random, so that keys that failed together do not come back together.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(failures, 20), MAX_DELAY_S)
        delay_s = max(delay_s * random.uniform(0.5, 1.0), at_least_s)  # noqa: S311 -- no secret
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: KeyT) -> None:
        """The key succeeded: its next failure is its first."""
        self._failures.pop(key, None)

    def failures(self, key: KeyT) -> int:
        """The number of times in a row that the key failed."""
        return self._failures.get(key, 0)

    async def get(self) -> KeyT:
        """The next key; it is active until `done`."""
        while True:
            priority, turn, key = await self._ready.get()
            if self._queued.get(key) == (priority, turn):
                del self._queued[key]
                self._since.pop(key, None)
                self._taken += 1
                self._active.add(key)
                return key

    def done(self, key: KeyT) -> None:
        """The key is no longer worked on."""
        self._active.discard(key)
        urgent = self._again.pop(key, None)
        if urgent is not None:
            self.add(key, urgent=urgent)

    def close(self) -> None:
        """Stops the timer; nothing that is delayed comes due any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        when = self._delayed[0][0]
        if self._timer is not None:
            if self._timer_due_s <= when:
                return
            self._timer.cancel()
        # Not asked of the handle: uvloop's has no when() for what is due at once.
        self._timer_due_s = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._delayed and self._delayed[0][0] <= now:
            when, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key)
        if self._delayed:
            self._arm()
