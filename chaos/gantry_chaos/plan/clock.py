"""The clock of a real run: CLOCK_MONOTONIC, which all pods of one machine share."""

from __future__ import annotations

import time


class SystemClock:
    """Time and waiting, for `engine.run`."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; a signal handler that raises ends it."""
        time.sleep(seconds)
