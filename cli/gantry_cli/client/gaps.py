"""Gaps in a stream of acknowledgements: how long a client could not write.

A gap is the time between two successive acknowledgements. The gap of a fault is the longest one
that ends after the fault began: it starts at the last acknowledgement before the service stopped
and so contains everything the client noticed, including its own back-off.
"""

from __future__ import annotations

import msgspec


class Gap(msgspec.Struct, frozen=True):
    """From one acknowledgement to the next; seconds on the clock of the caller."""

    start_s: float
    end_s: float

    @property
    def ms(self) -> float:
        """Its length in milliseconds."""
        return (self.end_s - self.start_s) * 1000.0


class AckTimes:
    """The times of all acknowledgements of one run, in order of arrival."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def __len__(self) -> int:
        return len(self._times)

    def add(self, now_s: float) -> None:
        """One acknowledgement arrived; times never decrease."""
        assert not self._times or now_s >= self._times[-1], "a monotonic clock"
        self._times.append(now_s)

    @property
    def last_s(self) -> float | None:
        """When the newest acknowledgement arrived; None before the first."""
        return self._times[-1] if self._times else None

    def longest(self, since_s: float, until_s: float | None = None) -> Gap | None:
        """The longest gap that ends after `since_s` and starts before `until_s`.

        None when no acknowledgement came after `since_s`, or none before: there is no gap to
        speak of while the stream has not resumed.
        """
        found: Gap | None = None
        for start, end in self._pairs_back_to(since_s):
            if until_s is not None and start >= until_s:
                continue
            gap = Gap(start, end)
            if found is None or gap.ms > found.ms:
                found = gap
        return found

    def _pairs_back_to(self, since_s: float) -> list[tuple[float, float]]:
        """Successive acknowledgements, newest first, as far back as the one before `since_s`."""
        pairs = []
        for position in range(len(self._times) - 1, 0, -1):
            if self._times[position] < since_s:
                break
            pairs.append((self._times[position - 1], self._times[position]))
        return pairs

    def flowing(self, now_s: float, for_s: float) -> bool:
        """Whether acknowledgements came in every quarter of the last `for_s` seconds."""
        return all(self.rates(now_s, step_s=for_s / 4, steps=4))

    def rates(self, now_s: float, *, step_s: float, steps: int) -> list[int]:
        """Acknowledgements per step over the newest `steps` steps, oldest first."""
        counts = [0] * steps
        for time_s in reversed(self._times):
            age = int((now_s - time_s) / step_s)
            if age >= steps:
                break
            counts[steps - 1 - age] += 1
        return counts
