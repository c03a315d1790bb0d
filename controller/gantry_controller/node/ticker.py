"""The core's clock: ticks of equal length, by the event loop's monotonic time.

Time during which the loop itself was stalled (a long garbage collection, a stopped process, a
stolen CPU) is not counted: nobody else was silent then, we were deaf. What arrived meanwhile is
handled before time goes on.
"""

import asyncio
import time
from collections.abc import Callable

from gantry_controller.node.options import TICK_MS

TICK_S = TICK_MS / 1000
TICKS_AT_ONCE_MAX = 2


def boottime_ns() -> int:
    """The clock of leases: never set, and it goes on while the machine is suspended.

    The event loop's clock (``CLOCK_MONOTONIC``) stands still then, while a promise runs out.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Ticker:
    """Counts ticks; calls ``due`` whenever there are some to take."""

    def __init__(self, due: Callable[[], None]) -> None:
        self._tell = due
        self._due = 0
        self._ticked_at = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to tick."""
        self._loop = loop
        self._ticked_at = loop.time()
        self._timer = loop.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop ticking; what is due stays to be taken."""
        if self._timer is not None:
            self._timer.cancel()

    def take(self) -> int:
        """Ticks since the last call."""
        due, self._due = self._due, 0
        return due

    def _tick(self) -> None:
        passed = int((self._loop.time() - self._ticked_at) / TICK_S)
        self._ticked_at += passed * TICK_S
        self._timer = self._loop.call_at(self._ticked_at + TICK_S, self._tick)
        if passed:  # uvloop's timers may fire some microseconds early
            self._due += min(passed, TICKS_AT_ONCE_MAX)
            self._tell()
