"""The time during which this process listened.

A process that stood still (stopped, swapped out, starved of CPU, in one very long turn) has heard
nobody meanwhile, and nobody was silent for that. So liveness is judged on a clock that stands still
with the process. It is driven by a pulse: when more than ``STALL_S`` has passed since the last one,
whoever looks at the clock first notices the stall, be it a heartbeat or a request that is read
before any timer runs.
"""

STALL_S = 0.5
PULSE_S = 0.1
_ROUNDING_S = 1e-6  # so that no timer fires before its listening time has come


class Attention:
    """Turns the event loop's clock into listening time; both in float seconds.

    Before the first ``pulse`` the two are equal.
    """

    def __init__(self) -> None:
        self.stalls = 0
        self._deaf_s = 0.0
        self._awake_s: float | None = None  # when the process was last known to run

    def pulse(self, clock_s: float) -> float:
        """The process runs; returns how long it had stood still, 0.0 if it had not."""
        stall_s = self.notice(clock_s)
        self._awake_s = clock_s
        return stall_s

    def notice(self, clock_s: float) -> float:
        """How long the process has stood still until just now; told once, 0.0 if it has not."""
        if self._awake_s is None or clock_s - self._awake_s <= STALL_S:
            return 0.0
        stall_s = clock_s - self._awake_s
        self._deaf_s += stall_s
        self._awake_s = clock_s
        self.stalls += 1
        return stall_s

    def listening(self, clock_s: float) -> float:
        """The listening time at ``clock_s``, as far as stalls have been noticed."""
        return clock_s - self._deaf_s

    def clock(self, listening_s: float) -> float:
        """When the clock will show that listening time, unless the process stands still before."""
        return listening_s + self._deaf_s + _ROUNDING_S
