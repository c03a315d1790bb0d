"""Long work in turns of the event loop.

What is proportional to the number of groups (a list of all of them, the route of a topic that all
of them have) takes longer than an election time-out once there are tens of thousands. A leader that
is silent for so long is deposed, by a question that changes nothing. So such work is a generator
that yields after each bounded bit of it, and one bit is done per turn of the loop, whoever it is
for: many who ask at once wait longer, and the loop does not.

The rule kept here: a turn costs a few milliseconds, however much there is and whoever asks. What
waits is bounded; beyond that, whoever asks is told to come back.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]
"""Yields between two bits; its value is the outcome."""

BITS = 200
"""Groups, topics or the like that one bit handles: 2 to 6 ms of work."""

WAITING_MAX = 64
"""Of either kind. More than so many lists at once are made for nobody: their askers give up."""


def _itself(item: T) -> T:
    return item


def sorted_in_turns(items: Iterable[T], key: Callable[[T], Any] = _itself) -> Work[list[T]]:
    """``items``, sorted; a bit sorts or merges a few thousand of them."""
    all_items = list(items)
    run = BITS * 16  # the sort is C, and much faster than what else is done per item
    runs: list[list[T]] = []
    for start in range(0, len(all_items), run):
        if start:
            yield
        runs.append(sorted(all_items[start : start + run], key=key))
    if len(runs) < 2:
        return runs[0] if runs else []
    merged: list[T] = []
    for item in heapq.merge(*runs, key=key):
        merged.append(item)
        if len(merged) % run == 0:
            yield
    return merged


def step(work: Work[T]) -> tuple[T] | None:
    """Do the next bit; the outcome if it was the last one."""
    try:
        next(work)
    except StopIteration as end:
        return (end.value,)
    return None


class TurnQueue:
    """Works on one thing after the other, a bit per turn.

    Attributes:
        refused: work that found the queue full.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._waiting: deque[Callable[[], bool]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, bit: Callable[[], bool]) -> bool:
        """Call ``bit`` until it says that nothing is left to do (True). False: there is no room."""
        if len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            return False
        self._waiting.append(bit)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)
        return True

    def stop(self) -> None:
        """Leave off everything."""
        self._waiting.clear()

    def _turn(self) -> None:
        done = True  # what fails is left off, and what waits behind it is done
        try:
            done = not self._waiting or self._waiting[0]()
        finally:
            if done and self._waiting:
                self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)


class TurnGate:
    """For coroutines: lets one of them do a bit in each turn of the loop, in the order they came.

    Attributes:
        waiting: who wants to.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._lock = asyncio.Lock()

    async def bit(self, work: Callable[[], T]) -> T:
        """The result of ``work``, in a turn in which no other bit is done."""
        self.waiting += 1
        try:
            async with self._lock:
                outcome = work()
                await asyncio.sleep(0)
                return outcome
        finally:
            self.waiting -= 1

    async def all(self, work: Work[T]) -> T:
        """The result of ``work``, each bit in a turn of its own."""
        while True:
            outcome = await self.bit(lambda: step(work))
            if outcome is not None:
                return outcome[0]
