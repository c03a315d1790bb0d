"""Decorrelated jitter: how long to wait after a failed call of the store.

Each wait is drawn between the shortest one and three times the one before, so that brokers that
failed together do not come back together, and the bound grows only while failures last.
"""

from gantry_broker.tier.core.values import TierLimits

GROWTH = 3


class Backoff:
    """The waits of one upload role."""

    __slots__ = ("_last_ms", "_limits")

    def __init__(self, limits: TierLimits) -> None:
        """The next wait is a short one."""
        self._limits = limits
        self._last_ms = limits.retry_min_ms

    def reset(self) -> None:
        """Something succeeded."""
        self._last_ms = self._limits.retry_min_ms

    def next_ms(self, chance: float) -> int:
        """The next wait; ``chance`` is in [0, 1) and drawn by the caller."""
        first, last = self._limits.retry_min_ms, self._limits.retry_max_ms
        drawn = first + chance * (self._last_ms * GROWTH - first)
        self._last_ms = min(last, int(drawn))
        return self._last_ms
