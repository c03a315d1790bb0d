"""How much goes through: messages put per topic and got per consumer group.

Counted where they pass, turned into rates every ``EXPIRY_SCAN_S`` by the processor's one timer.
Names are forgotten at each turn, so what is kept is bounded by what moved since the last one.
"""

from collections import Counter, deque
from typing import NamedTuple

WINDOWS_S = (10, 60, 600)  # upstream's, as ``clusterList`` shows the first of them


class _Totals(NamedTuple):
    at_s: float
    put: int
    got: int


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

    def put(self, topic: str, count: int) -> None:
        """Messages of ``topic`` were stored and confirmed."""
        self._put[topic] += count

    def got(self, group: str, count: int) -> None:
        """Messages went out to a member of ``group``."""
        self._got[group] += count

    def turn(self, now_s: float) -> None:
        """Make rates of what was counted since the last turn."""
        last = self._totals[-1]
        passed_s = now_s - last.at_s
        if passed_s <= 0:
            return
        self._put_rates = {name: count / passed_s for name, count in self._put.items()}
        self._got_rates = {name: count / passed_s for name, count in self._got.items()}
        self._totals.append(
            _Totals(now_s, last.put + self._put.total(), last.got + self._got.total())
        )
        self._put.clear()
        self._got.clear()

    def put_rate(self, topic: str) -> float:
        """Messages of ``topic`` per second, in the last turn."""
        return self._put_rates.get(topic, 0.0)

    def got_rate(self, group: str) -> float:
        """Messages to ``group`` per second, in the last turn."""
        return self._got_rates.get(group, 0.0)

    def rates(self) -> tuple[list[float], list[float]]:
        """Messages put and got per second over each of ``WINDOWS_S``, or since the beginning."""
        last = self._totals[-1]
        put, got = [], []
        for window_s in WINDOWS_S:
            first = next(one for one in self._totals if last.at_s - one.at_s <= window_s * 1.05)
            passed_s = last.at_s - first.at_s
            put.append((last.put - first.put) / passed_s if passed_s else 0.0)
            got.append((last.got - first.got) / passed_s if passed_s else 0.0)
        return put, got
