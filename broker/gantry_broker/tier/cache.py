"""A cache of what was read from the tier, bounded by bytes, with one load per entry at a time.

Rules protected: readers of one place share one load; a reader that gives up does not end it, so the
next one finds what it brought (a time-out of a client must not start the same download for ever).
What is being loaded is bounded too: loads wait until their bytes fit.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CACHE_BYTES = 96 * 1024 * 1024  # one run of a default pack, and as much again of smaller ones
LOADING_BYTES = 128 * 1024 * 1024  # two default packs; a larger one is loaded alone


class Weighted(Protocol):
    """Something with a size."""

    @property
    def weight(self) -> int:
        """Bytes of memory."""


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Weighted)


class Budget:
    """Bytes that may be on their way at once; whoever wants more than there is goes alone."""

    def __init__(self, limit_bytes: int = LOADING_BYTES) -> None:
        """Nothing is on its way."""
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, size_bytes: int) -> "AsyncIterator[None]":
        """Hold ``size_bytes``, once they are free."""
        async with self._freed:
            await self._freed.wait_for(
                lambda: not self.used_bytes or self.used_bytes + size_bytes <= self._limit_bytes
            )
            self.used_bytes += size_bytes
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
            async with self._freed:
                self._freed.notify_all()


class SharedCache(Generic[Key, Value]):
    """Values by key; the least recently used go first.

    Attributes:
        held_bytes: weight of everything that is kept.
        hits: values that were there.
        misses: loads that were begun.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        """Keep at most ``limit_bytes``, and always the newest value."""
        self.held_bytes = 0
        self.hits = 0
        self.misses = 0
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._loads: dict[Key, asyncio.Task[Value]] = {}

    async def get(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        """The value of ``key``; ``load`` makes it unless it is there or on its way.

        Raises:
            Exception: whatever ``load`` raises, to everybody who waits for it.
        """
        found = self._values.get(key)
        if found is not None:
            self.hits += 1
            self._values.move_to_end(key)
            return found
        task = self._loads.get(key)
        if task is None:
            self.misses += 1
            task = self._loads[key] = asyncio.create_task(self._load(key, load))
            task.add_done_callback(_seen)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End all loads."""
        tasks = list(self._loads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _load(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        try:
            value = await load()
        finally:
            del self._loads[key]
        self._values[key] = value
        self.held_bytes += value.weight
        while self.held_bytes > self._limit_bytes and len(self._values) > 1:
            self.held_bytes -= self._values.popitem(last=False)[1].weight
        return value


def _seen(task: "asyncio.Task[Value]") -> None:
    """Nobody may be waiting any more; the error was for those who did."""
    if not task.cancelled():
        task.exception()
