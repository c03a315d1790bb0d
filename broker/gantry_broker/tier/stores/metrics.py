"""Metrics of a store's calls, in Prometheus' words."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.tier.stores.calls import CallStats

_COUNTERS = (
    ("calls", "Calls sent to the object store.", "calls_total"),
    (
        "failed_calls",
        "Calls of the object store that ended with an error or at their deadline.",
        "failed_total",
    ),
    (
        "abandoned_calls",
        "Calls of the object store that nobody waits for any more.",
        "abandoned_total",
    ),
)
_GAUGES = (
    ("running", "Calls that are waited for.", "running"),
    ("abandoned", "Threads that hang in a call.", "abandoned"),
)


class StoreCollector(Collector):
    """Reads the counts when they are scraped."""

    def __init__(self, stats: Callable[[], Mapping[str, CallStats]]) -> None:
        """Report ``stats()``: counts by who makes the calls."""
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """One family per count."""
        pools = self._stats()
        for name, text, field in _COUNTERS:
            counter = CounterMetricFamily(f"gantry_tier_store_{name}", text, labels=["pool"])
            for pool, stats in pools.items():
                counter.add_metric([pool], getattr(stats, field))
            yield counter
        for name, text, field in _GAUGES:
            gauge = GaugeMetricFamily(f"gantry_tier_store_{name}", text, labels=["pool"])
            for pool, stats in pools.items():
                gauge.add_metric([pool], getattr(stats, field))
            yield gauge
