"""Blocking calls with deadlines: a thread per call, bounded, and abandoned when it does not return.

Rules protected: a call that hangs costs one thread and nothing else: not its caller, who is told at
the deadline; not the exit of the process, since threads are daemons and belong to no executor that
would be waited for; not the memory, since both running and abandoned calls are bounded.

What it refuses: new calls while as many as ``abandoned_max`` never came back; the store is broken
then, and more threads would not mend it.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from gantry_broker.tier.stores.contract import StoreBusy, StoreUnavailable

Answer = TypeVar("Answer")

RUNNING_MAX = 8
ABANDONED_MAX = (
    32  # 8 hung calls a deadline, four deadlines; each thread has 8 MiB of address space
)


class CallStats:
    """Counts for the metrics.

    Attributes:
        running: calls whose caller still waits.
        abandoned: threads whose caller has gone; falls when they return.
        abandoned_total: how often that happened.
        failed_total: calls that ended with an error, abandoned ones included.
        calls_total: calls that were sent.
    """

    __slots__ = ("abandoned", "abandoned_total", "calls_total", "failed_total", "running")

    def __init__(self) -> None:
        self.running = 0
        self.abandoned = 0
        self.abandoned_total = 0
        self.failed_total = 0
        self.calls_total = 0


class DeadlineCalls:
    """Runs blocking functions beside one event loop.

    Attributes:
        stats: counts.
    """

    def __init__(
        self, name: str, *, running_max: int = RUNNING_MAX, abandoned_max: int = ABANDONED_MAX
    ) -> None:
        """Run at most ``running_max`` calls at once; further ones wait, within their deadline."""
        self.stats = CallStats()
        self._name = name
        self._places = asyncio.Semaphore(running_max)
        self._abandoned_max = abandoned_max

    async def run(self, what: str, work: Callable[[], Answer], timeout_s: float) -> Answer:
        """The result of ``work``, or its exception.

        A cancelled caller leaves the thread behind like a passed deadline does.

        Args:
            what: the call, for the sentence.
            work: called in a thread of its own; must not touch the event loop's objects.
            timeout_s: from now on, waiting for a place included.

        Raises:
            StoreUnavailable: the deadline passed; the call may still take effect.
            StoreBusy: too many calls never came back; this one was not made.
        """
        try:
            async with asyncio.timeout(timeout_s):
                async with self._places:
                    return await self._in_thread(what, work)
        except TimeoutError as error:
            raise StoreUnavailable(f"{what} had no answer within {timeout_s:g} s.") from error

    async def _in_thread(self, what: str, work: Callable[[], Answer]) -> Answer:
        stats = self.stats
        if stats.abandoned >= self._abandoned_max:
            raise StoreBusy(
                f"{what} was not tried: {stats.abandoned} earlier calls never came back."
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        call = _Call(loop, future, work, stats)
        try:
            threading.Thread(target=call.run, name=self._name, daemon=True).start()
        except RuntimeError as error:
            raise StoreBusy(f"{what} was not tried: {error}.") from error
        stats.calls_total += 1
        stats.running += 1
        try:
            return await future
        except asyncio.CancelledError:
            if not call.returned:
                call.abandoned = True
                stats.abandoned += 1
                stats.abandoned_total += 1
            stats.failed_total += 1
            raise
        except BaseException:
            stats.failed_total += 1
            raise
        finally:
            stats.running -= 1


class _Call:
    """One call. All but ``run`` happens on the event loop."""

    __slots__ = ("_future", "_loop", "_stats", "_work", "abandoned", "returned")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        future: "asyncio.Future[Any]",
        work: Callable[[], Any],
        stats: CallStats,
    ) -> None:
        self._loop = loop
        self._future = future
        self._work = work
        self._stats = stats
        self.abandoned = False
        self.returned = False

    def run(self) -> None:
        """The thread."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._work()
        except BaseException as caught:  # noqa: BLE001 - it is the caller's, whatever it is
            error = caught
        try:
            self._loop.call_soon_threadsafe(self._finish, result, error)
        except RuntimeError:
            return  # the loop was closed: nobody waits any more

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self.returned = True
        if self.abandoned:
            self._stats.abandoned -= 1
        if self._future.done():
            return
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)
