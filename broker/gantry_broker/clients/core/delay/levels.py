"""The delay levels of a broker: level 1 is the first of them. And the steps of timers.

Changing the levels changes what is parked from then on; what is parked already keeps its delay.

A timer, a message for any moment, waits in steps of fixed lengths, each in a queue behind those of
the delay levels: messages of one queue are due in the order in which they came, as those of a
level, so no queue has to be sorted. A minute and 23.4 s are 60 s, 23 s and 0.4 s. A longer step
than an hour is none, since what waits keeps the log from being trimmed: a message of a day is
written 24 times.
"""

from bisect import bisect_right

import msgspec
from gantry_protocol.settings.delays import MAX_LEVELS, parse_delays

STEPS_MS = (
    *range(100, 1_000, 100),
    *range(1_000, 60_000, 1_000),
    *range(60_000, 3_600_001, 60_000),
)
"""The steps of timers, ascending."""
QUEUES = MAX_LEVELS + len(STEPS_MS)
"""Of the schedule topic: the delay levels, then the steps."""
_LONG_MS = 60_000  # late by a thousandth of itself: by more than a moment
_SPARE_MS = 200  # for reading and writing it again


class DelayLevels(msgspec.Struct, frozen=True):
    """The delays by level.

    Attributes:
        delays_ms: of level 1, 2, …; at least one, each from 1 ms to 40 days.
    """

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "DelayLevels":
        """Read ``1s 5s 10m 2h``; units are ms, s, m, h and d.

        Raises:
            ValueError: names the word that is no delay, or how many there are.
        """
        return cls(parse_delays(text))

    def clamp(self, level: int) -> int:
        """The level itself, or the highest there is."""
        return min(level, len(self.delays_ms))

    def delay_ms(self, level: int) -> int:
        """The time for which a message of ``level`` (from 1) waits."""
        return self.delays_ms[level - 1]


def next_step(left_ms: int) -> int:
    """The number of the step to wait for a message that is due in ``left_ms`` (from 1).

    What is left is rounded up to a tenth of a second. A step of a minute or more leaves time for
    shorter ones, which make up for what it is late.
    """
    left_ms = -(-left_ms // 100) * 100
    step = bisect_right(STEPS_MS, left_ms) - 1
    while (wait_ms := STEPS_MS[step]) >= _LONG_MS and wait_ms * 1.001 + _SPARE_MS > left_ms:
        step -= 1
    return step
