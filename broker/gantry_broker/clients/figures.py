"""Metrics of a part of a mastership: figures that are read when they are scraped."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Part = TypeVar("Part")
Figures = Sequence[tuple[str, str, Callable[[Part], float]]]
"""Of each its name, what it is, and how it is read."""


class FigureCollector(Collector, Generic[Part]):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        prefix: of the names, behind ``gantry_broker_``.
        gauges, counters: what is told.
        part: of this mastership; None while this is not the master, and all figures are 0.
    """

    def __init__(
        self,
        prefix: str,
        gauges: Figures[Part],
        counters: Figures[Part],
        part: Callable[[], Part | None],
    ) -> None:
        """Nothing is counted here."""
        self._kinds = ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters))
        self._prefix = f"gantry_broker_{prefix}_"
        self._part = part

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        found = self._part()
        for family, figures in self._kinds:
            for name, text, figure in figures:
                value = 0.0 if found is None else figure(found)
                yield family(self._prefix + name, text, value=value)
