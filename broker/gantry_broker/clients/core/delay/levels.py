"""The delay levels of a broker: level 1 is the first of them.

Upstream: ``MessageStoreConfig.messageDelayLevel``, ``ScheduleMessageService.parseDelayLevel``.
Changing the levels changes what is parked from then on; what is parked already keeps its delay.
"""

import re

import msgspec

MAX_LEVELS = 64  # each is a queue
MAX_DELAY_MS = 40 * 24 * 3600 * 1000

_LEVEL = re.compile(r"([1-9][0-9]{0,11})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
        words = text.split()
        if not 1 <= len(words) <= MAX_LEVELS:
            raise ValueError(f"1 to {MAX_LEVELS} delay levels are wanted, not {len(words)}")
        return cls(tuple(_delay_ms(word) for word in words))

    def clamp(self, level: int) -> int:
        """The level itself, or the highest there is."""
        return min(level, len(self.delays_ms))

    def delay_ms(self, level: int) -> int:
        """The time for which a message of ``level`` (from 1) waits."""
        return self.delays_ms[level - 1]


def _delay_ms(word: str) -> int:
    found = _LEVEL.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no delay like 500ms, 10s, 5m, 2h or 1d")
    delay_ms = int(found[1]) * _UNIT_MS[found[2]]
    if delay_ms > MAX_DELAY_MS:
        raise ValueError(f"the delay {word} is longer than 40 days")
    return delay_ms
