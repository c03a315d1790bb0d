"""Gaps in a stream of acknowledgements: how long a client could not write.

A gap is the time between two successive acknowledgements. The gap of a fault is the longest one
that ends after the fault began: it starts at the last acknowledgement before the service stopped
and so contains everything the client noticed, including its own back-off. While the client pauses
of its own accord there is no gap.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


class Gap(msgspec.Struct, frozen=True):
    """From one acknowledgement to the next; seconds on the clock of the caller."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its length in seconds."""
        return self.end_s - self.start_s

    @property
    def ms(self) -> float:
        """Its length in milliseconds."""
        return self.length_s * 1000.0


class AckTimes:
    """The times of the acknowledgements of one run, in order of arrival.

    Args:
        keep: how many are remembered; None: all. The longest gap of all is never forgotten.
    """

    def __init__(self, *, keep: int | None = None) -> None:
        self._times: deque[float] = deque(maxlen=keep)
        self.longest_ever: Gap | None = None
        self._interrupted = False  # the next acknowledgement ends no gap
        self._beginnings: set[float] = set()  # times that end no gap

    def __len__(self) -> int:
        return len(self._times)

    def add(self, now_s: float) -> None:
        """One acknowledgement arrived; times never decrease."""
        if self._times:
            last_s = self._times[-1]
            assert now_s >= last_s, "a monotonic clock"
            if self._interrupted:
                self._beginnings.add(now_s)
            elif self.longest_ever is None or now_s - last_s > self.longest_ever.length_s:
                self.longest_ever = Gap(last_s, now_s)
        self._interrupted = False
        self._times.append(now_s)

    def interrupt(self) -> None:
        """Nobody asked for acknowledgements: the time until the next one is no gap."""
        self._interrupted = True
        self._beginnings = {time_s for time_s in self._beginnings if time_s >= self._times[0]}

    @property
    def last_s(self) -> float | None:
        """The time at which the newest acknowledgement arrived; None before the first."""
        return self._times[-1] if self._times else None

    def longest(self, since_s: float, until_s: float | None = None) -> Gap | None:
        """The longest gap that ends after `since_s` and starts before `until_s`.

        None when no acknowledgement came after `since_s`, or none before: there is no gap to
        speak of while the stream has not resumed. Of times that are forgotten only the longest
        gap of all is known.
        """
        found: Gap | None = None
        for start_s, end_s in self._pairs_back_to(since_s):
            if until_s is not None and start_s >= until_s:
                continue
            if found is None or end_s - start_s > found.length_s:
                found = Gap(start_s, end_s)
        ever = self.longest_ever
        if (
            ever is None
            or ever.end_s < since_s
            or (until_s is not None and ever.start_s >= until_s)
        ):
            return found
        return ever if found is None or ever.length_s > found.length_s else found

    def _pairs_back_to(self, since_s: float) -> Iterator[tuple[float, float]]:
        """Successive acknowledgements, newest first, as far back as the one before `since_s`."""
        for later_s, earlier_s in pairwise(reversed(self._times)):
            if later_s < since_s:
                break
            if later_s not in self._beginnings:
                yield earlier_s, later_s

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
