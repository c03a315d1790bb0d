"""One clock for all groups of a process.

Ticks only let time-outs pass; what happens is told by events. So a process with many groups need
not tick each of them every ``TICK_S``: a wake-up ticks at most ``PER_WAKE_UP``, in turn. Up to 64
groups feel no difference; of 300 each is ticked every 0.1 s, and 1000, the most that a process may
hold, every 0.32 s, which is below the gap that a replica takes for a stand-still of its process
(``Limits.pause_ms``).
"""

import asyncio
from collections.abc import Callable

TICK_S = 0.02
PER_WAKE_UP = 64
LAG_KEPT_S = 30.0  # a metric that is read less often misses some

Tick = Callable[[], None]


class LoopLag:
    """The longest delay of due work in the event loop in the last 30 to 60 s; pure."""

    def __init__(self) -> None:
        self._longest_s = 0.0  # since ``_since_s``
        self._before_s = 0.0  # in the ``LAG_KEPT_S`` before that
        self._since_s = 0.0

    @property
    def longest_s(self) -> float:
        """Nobody was served for so long."""
        return max(self._longest_s, self._before_s)

    def note(self, late_s: float, now_s: float) -> None:
        """Note that work that was due ``late_s`` ago has its turn now."""
        if now_s - self._since_s >= LAG_KEPT_S:
            self._before_s, self._longest_s, self._since_s = self._longest_s, 0.0, now_s
        self._longest_s = max(self._longest_s, late_s)


class Ticker:
    """See the module. Begins with the first ``add`` and ends with the last ``remove``.

    Attributes:
        lag: how late its wake-ups were.
    """

    def __init__(self) -> None:
        """Nobody is ticked."""
        self.lag = LoopLag()
        self._due_s = 0.0
        self._ticks: list[Tick] = []
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, tick: Tick) -> None:
        """Call ``tick`` again and again, each time within ``period_s``."""
        self._ticks.append(tick)
        if self._timer is None:
            self._arm()

    def remove(self, tick: Tick) -> None:
        """Call it no more; unknown ones are fine."""
        if tick in self._ticks:
            self._ticks.remove(tick)
        if not self._ticks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def period_s(self) -> float:
        """Between two ticks of one group, while the loop is not late."""
        return TICK_S * max(1, -(-len(self._ticks) // PER_WAKE_UP))

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + TICK_S
        self._timer = loop.call_at(self._due_s, self._wake_up)

    def _wake_up(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self.lag.note(now_s - self._due_s, now_s)
        self._arm()
        count = min(len(self._ticks), PER_WAKE_UP)
        start = self._next if self._next < len(self._ticks) else 0
        turn = (self._ticks + self._ticks)[start : start + count]
        self._next = start + count
        if self._next >= len(self._ticks):
            self._next -= len(self._ticks)
        for tick in turn:
            tick()
