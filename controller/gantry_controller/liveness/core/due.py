"""Keys by the time at which they are due.

A key is due at one time. To put it off costs nothing until its old time comes (then it is queued
anew), so what is put off again and again, as a broker's time-out is by each heartbeat, is touched
once per time-out and not once per heartbeat. ``take`` costs what is due, never what is known.
Entries left behind by keys that were moved forward or dropped are at most as many as the keys.
"""

import heapq
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=tuple[object, ...])

_REBUILD_ABOVE = 64  # entries; below it leftovers are not worth a rebuild


class DueQueue(Generic[KeyT]):
    """Keys (comparable tuples) and their times, in float seconds of any one clock."""

    def __init__(self) -> None:
        self._due_s: dict[KeyT, float] = {}
        self._queued_s: dict[KeyT, float] = {}  # the valid entry of each key: not after its due_s
        self._heap: list[tuple[float, KeyT]] = []

    def __len__(self) -> int:
        return len(self._due_s)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._due_s

    def put(self, key: KeyT, due_s: float) -> None:
        """``key`` is due at ``due_s`` and at no other time."""
        self._due_s[key] = due_s
        queued_s = self._queued_s.get(key)
        if queued_s is None or due_s < queued_s:
            self._push(key, due_s)

    def hasten(self, key: KeyT, due_s: float) -> None:
        """``key`` is due at ``due_s``, or earlier if it was."""
        known_s = self._due_s.get(key)
        if known_s is None or due_s < known_s:
            self.put(key, due_s)

    def drop(self, key: KeyT) -> None:
        """``key`` is not due any more; unknown keys are fine."""
        if self._due_s.pop(key, None) is not None:
            del self._queued_s[key]
            self._tidy()

    def clear(self) -> None:
        """Nothing is due any more."""
        self._due_s.clear()
        self._queued_s.clear()
        self._heap.clear()

    def next_due(self) -> float | None:
        """The earliest time at which something is due."""
        while self._heap:
            queued_s, key = self._heap[0]
            if self._queued_s.get(key) == queued_s:
                due_s = self._due_s[key]
                if due_s == queued_s:
                    return due_s
                self._queued_s[key] = due_s  # it was put off meanwhile
                heapq.heapreplace(self._heap, (due_s, key))
            else:
                heapq.heappop(self._heap)
        return None

    def take(self, now_s: float, limit: int) -> list[KeyT]:
        """Removes and returns up to ``limit`` keys that are due, the earliest first."""
        taken: list[KeyT] = []
        while len(taken) < limit:
            due_s = self.next_due()
            if due_s is None or due_s > now_s:
                break
            _, key = heapq.heappop(self._heap)
            del self._due_s[key], self._queued_s[key]
            taken.append(key)
        return taken

    def _push(self, key: KeyT, due_s: float) -> None:
        self._queued_s[key] = due_s
        heapq.heappush(self._heap, (due_s, key))
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > _REBUILD_ABOVE and len(self._heap) > 2 * len(self._due_s):
            self._heap = [(due_s, key) for key, due_s in self._due_s.items()]
            heapq.heapify(self._heap)
            self._queued_s = dict(self._due_s)
