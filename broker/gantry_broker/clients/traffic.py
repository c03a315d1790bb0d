"""Counters of traffic: messages put per topic and got per consumer group.

Counted where they pass, turned into rates every ``EXPIRY_SCAN_S`` by the processor's one timer.
Names that nothing moves for are forgotten with the day, and each window keeps at most
``NAMES_MAX`` of them.
"""

from collections import Counter, deque
from itertools import islice
from typing import NamedTuple

WINDOWS_S = (10, 60, 600)  # upstream's, as ``clusterList`` shows the first of them
NAMES_MAX = 4096  # of topics, and of topics with a group, in one part of a window
TAKEN_MAX = 1_000  # names of each that are taken at once
NAME_CHARS = 512  # longer ones are not passed on


class _Totals(NamedTuple):
    at_s: float
    put: int
    got: int


class Moved(NamedTuple):
    """The number of messages of one name in a window, and the length of the window."""

    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds > 0 else 0.0


class _Window:
    """Counts by name over the last parts of a time, and the part that is under way."""

    def __init__(self, part_s: float, parts: int, now_s: float) -> None:
        self._part_s = part_s
        self._began_s = now_s
        self._now_s = now_s
        self._open: Counter[str] = Counter()
        self._closed: deque[tuple[float, Counter[str]]] = deque(maxlen=parts - 1)

    def add(self, counts: Counter[str], now_s: float) -> None:
        """Add what moved until ``now_s``."""
        self._now_s = now_s
        for name, count in counts.items():
            if name in self._open or len(self._open) < NAMES_MAX:
                self._open[name] += count
        if now_s - self._began_s >= self._part_s:
            self._closed.append((self._began_s, self._open))
            self._began_s, self._open = now_s, Counter()

    def moved(self, name: str) -> Moved:
        """All of it."""
        began_s = self._closed[0][0] if self._closed else self._began_s
        count = self._open[name] + sum(part[name] for _, part in self._closed)
        return Moved(count, self._now_s - began_s)


class Traffic:
    """Counters and rates of one mastership.

    Args:
        now_s: seconds, never falling.
    """

    def __init__(self, now_s: float) -> None:
        """Nothing has moved."""
        self._put: Counter[str] = Counter()
        self._got: Counter[str] = Counter()
        self._put_rates: dict[str, float] = {}
        self._got_rates: dict[str, float] = {}
        self._totals = deque([_Totals(now_s, 0, 0)], maxlen=WINDOWS_S[-1] // WINDOWS_S[0] + 1)
        # A minute, an hour, a day: upstream's, with its parts.
        self._windows = [_Window(10, 7, now_s), _Window(600, 7, now_s), _Window(3600, 25, now_s)]

    def put(self, topic: str, count: int) -> None:
        """Messages of ``topic`` were stored and confirmed."""
        self._put[topic] += count

    def got(self, group: str, topic: str, count: int) -> None:
        """Messages of ``topic`` went out to a member of ``group``."""
        self._got[f"{topic}@{group}"] += count

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Messages put and got by name since this was asked last; what is too much waits."""
        return _taken(self._put), _taken(self._got)

    def add(self, put: dict[str, int], got: dict[str, int]) -> None:
        """Count what somebody else has taken."""
        self._put.update(put)
        self._got.update(got)

    def totals(self) -> tuple[int, int]:
        """Messages put and got, ever."""
        last = self._totals[-1]
        return last.put + self._put.total(), last.got + self._got.total()

    def turn(self, now_s: float) -> None:
        """Make rates of what was counted since the last turn."""
        last = self._totals[-1]
        passed_s = now_s - last.at_s
        if passed_s <= 0:
            return
        by_group: Counter[str] = Counter()
        for name, count in self._got.items():
            by_group[name.partition("@")[2]] += count
        self._put_rates = {name: count / passed_s for name, count in self._put.items()}
        self._got_rates = {name: count / passed_s for name, count in by_group.items()}
        self._totals.append(
            _Totals(now_s, last.put + self._put.total(), last.got + self._got.total())
        )
        moved = self._put + self._got  # no topic has an @ in its name
        for window in self._windows:
            window.add(moved, now_s)
        self._put.clear()
        self._got.clear()

    def put_rate(self, topic: str) -> float:
        """Messages of ``topic`` per second, in the last turn."""
        return self._put_rates.get(topic, 0.0)

    def got_rate(self, group: str) -> float:
        """Messages to ``group`` per second, in the last turn."""
        return self._got_rates.get(group, 0.0)

    def moved(self, name: str) -> list[Moved]:
        """Of a topic, or of ``topic@group``, about the last minute, hour and day."""
        return [window.moved(name) for window in self._windows]

    def rates(self) -> tuple[list[float], list[float]]:
        """Messages put and got per second over each of ``WINDOWS_S``, or since the beginning."""
        last = self._totals[-1]
        put, got = [], []
        for window_s in WINDOWS_S:
            first = next(
                total for total in self._totals if last.at_s - total.at_s <= window_s * 1.05
            )
            passed_s = last.at_s - first.at_s
            put.append((last.put - first.put) / passed_s if passed_s else 0.0)
            got.append((last.got - first.got) / passed_s if passed_s else 0.0)
        return put, got


def _taken(counts: Counter[str]) -> dict[str, int]:
    found = {name: counts.pop(name) for name in list(islice(counts, TAKEN_MAX))}
    return {name: count for name, count in found.items() if len(name) <= NAME_CHARS}
