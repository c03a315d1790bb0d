"""Deadlines of many calls behind one timer of the event loop.

A heap of (deadline, key); the timer is armed for its head. A call that ends leaves its entry behind
until the deadline, or until such leftovers outnumber the living, when the heap is rebuilt. So
memory follows the number of open calls, and an answered call costs nothing.
"""

import asyncio
import heapq
from collections.abc import Callable

_REBUILD_ABOVE = 1024  # entries; below it leftovers are not worth a rebuild
_SLACK_S = 0.001  # calls due within it end together


class Deadlines:
    """Calls ``expired(key)`` once per key whose deadline passed, unless it was removed before."""

    def __init__(self, expired: Callable[[int], None]) -> None:
        self._expired = expired
        self._live: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0  # uvloop's handle of a timer that is due already has no ``when``

    def __len__(self) -> int:
        return len(self._live)

    def add(self, key: int, timeout_s: float) -> None:
        """Let ``key`` expire in ``timeout_s``; a key is added once at a time."""
        assert key not in self._live
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        self._live[key] = deadline_s
        heapq.heappush(self._heap, (deadline_s, key))
        if self._timer is None or deadline_s < self._timer_due_s:
            self._arm(loop, deadline_s)

    def remove(self, key: int) -> None:
        """Forget ``key``; unknown keys are fine."""
        self._live.pop(key, None)
        if len(self._heap) > _REBUILD_ABOVE and len(self._heap) > 2 * len(self._live):
            self._heap = [(deadline_s, key) for key, deadline_s in self._live.items()]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        """Forget everything, without calling anybody."""
        self._live.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(deadline_s, self._fire)
        self._timer_due_s = deadline_s

    def _fire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        due_s = loop.time() + _SLACK_S
        due = []
        while self._heap and self._heap[0][0] <= due_s:
            deadline_s, key = heapq.heappop(self._heap)
            if self._live.get(key) == deadline_s:
                del self._live[key]
                due.append(key)
        while self._heap and self._live.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            self._arm(loop, self._heap[0][0])
        for key in due:
            self._expired(key)
