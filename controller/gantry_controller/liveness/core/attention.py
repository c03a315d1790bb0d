"""The time during which this process listened.

A process that stood still (stopped, swapped out, starved of CPU, in one very long turn) has heard
nobody meanwhile, and nobody was silent for that. So liveness is judged on a clock that stands still
with the process. It is driven by a pulse: when more than ``STALL_S`` has passed since the last one,
whoever looks at the clock first notices the stall, be it a heartbeat or a request that is read
before any timer runs.
"""

import math
from collections.abc import Callable

STALL_S = 0.5
PULSE_S = 0.1
_ROUNDING_S = 1e-6  # so that no timer fires before its listening time has come


class Attention:
    """Turns the event loop's clock into listening time; both in float seconds.

    Before the first ``pulse`` the two are equal.

    Args:
        stood_still: told of each stall once: how long it was, and the listening time.

    Attributes:
        stalls: how many there were.
    """

    def __init__(self, stood_still: Callable[[float, float], None]) -> None:
        self.stalls = 0
        self._tell = stood_still
        self._deaf_s = 0.0
        self._awake_s = math.inf  # when the process was last known to run

    def pulse(self, clock_s: float) -> float:
        """The process runs; returns the listening time."""
        now_s = self.listening(clock_s)
        self._awake_s = clock_s
        return now_s

    def listening(self, clock_s: float) -> float:
        """The listening time at ``clock_s``; notices a stall."""
        if clock_s - self._awake_s > STALL_S:
            self._notice(clock_s)
        return clock_s - self._deaf_s

    def clock(self, listening_s: float) -> float:
        """The clock's reading at that listening time, unless the process stands still."""
        return listening_s + self._deaf_s + _ROUNDING_S

    def _notice(self, clock_s: float) -> None:
        stall_s = clock_s - self._awake_s
        self._deaf_s += stall_s
        self._awake_s = clock_s
        self.stalls += 1
        self._tell(stall_s, clock_s - self._deaf_s)
