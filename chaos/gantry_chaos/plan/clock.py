"""The clock of a real run: CLOCK_MONOTONIC, which all pods of one machine share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gantry_chaos.errors import InterruptedRunError

if TYPE_CHECKING:
    import threading


class SystemClock:
    """Time and waiting, for `engine.run`."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; a signal handler that raises ends it."""
        time.sleep(seconds)


class StoppableClock(SystemClock):
    """Time for a run in a thread of its own, which another thread may end.

    Args:
        stop: set to end the run; whoever waits raises, and the engine heals.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def sleep(self, seconds: float) -> None:
        """Wait, or raise `InterruptedRunError` as soon as the run is to end."""
        if self._stop.wait(seconds):
            raise InterruptedRunError("The run was interrupted; every fault is healed.")
