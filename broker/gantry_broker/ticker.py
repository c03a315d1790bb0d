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

Tick = Callable[[], None]


class Ticker:
    """See the module. Begins with the first ``add`` and ends with the last ``remove``."""

    def __init__(self) -> None:
        """Nobody is ticked."""
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
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._wake_up)

    def _wake_up(self) -> None:
        self._arm()
        count = min(len(self._ticks), PER_WAKE_UP)
        start = self._next if self._next < len(self._ticks) else 0
        turn = (self._ticks + self._ticks)[start : start + count]
        self._next = start + count
        if self._next >= len(self._ticks):
            self._next -= len(self._ticks)
        for tick in turn:
            tick()
