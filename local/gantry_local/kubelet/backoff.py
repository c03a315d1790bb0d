"""The back-off of a container that ended: 0.2 s doubling to 10 s, forgiven after 10 s up.

Kubernetes uses 10 s to 5 min; on one machine a tenth of that is long. The shape is the same, so a
crash loop looks like one.
"""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 0.2
LONGEST_S: Final = 10.0
HEALTHY_AFTER_S: Final = 10.0


class RestartBackoff:
    """Delay before the next start of one container."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def after_exit(self, ran_s: float) -> float:
        """Seconds to wait after a run of ``ran_s`` seconds."""
        if ran_s >= HEALTHY_AFTER_S:
            self._next_s = FIRST_S
        delay = self._next_s
        self._next_s = min(LONGEST_S, self._next_s * 2)
        return delay
