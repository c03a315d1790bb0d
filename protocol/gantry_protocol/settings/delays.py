"""Delay levels as people write them: `1s 5s 10m 2h`, level 1 first.

Upstream: ``MessageStoreConfig.messageDelayLevel``, ``ScheduleMessageService.parseDelayLevel``.
"""

import re

MAX_LEVELS = 64  # each is a queue
MAX_DELAY_MS = 40 * 24 * 3600 * 1000

_LEVEL = re.compile(r"([1-9][0-9]{0,11})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delays(text: str) -> tuple[int, ...]:
    """The delays in milliseconds, by level; units are ms, s, m, h and d.

    Raises:
        ValueError: names the word that is no delay, or how many there are.
    """
    words = text.split()
    if not 1 <= len(words) <= MAX_LEVELS:
        raise ValueError(f"1 to {MAX_LEVELS} delay levels are wanted, not {len(words)}")
    return tuple(_delay_ms(word) for word in words)


def _delay_ms(word: str) -> int:
    found = _LEVEL.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no delay like 500ms, 10s, 5m, 2h or 1d")
    delay_ms = int(found[1]) * _UNIT_MS[found[2]]
    if delay_ms > MAX_DELAY_MS:
        raise ValueError(f"the delay {word} is longer than 40 days")
    return delay_ms
