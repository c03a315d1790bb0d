"""Metrics of a store's calls, in Prometheus' words."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.tier.stores.calls import CallStats


class StoreCollector(Collector):
    """Reads the counts when they are scraped."""

    def __init__(self, stats: CallStats) -> None:
        """Report ``stats``."""
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """One family per count."""
        stats = self._stats
        for name, text, total in (
            ("gantry_tier_store_calls", "Calls sent to the object store.", stats.calls_total),
            (
                "gantry_tier_store_failed_calls",
                "Calls of the object store that ended with an error or at their deadline.",
                stats.failed_total,
            ),
            (
                "gantry_tier_store_abandoned_calls",
                "Calls of the object store that nobody waits for any more.",
                stats.abandoned_total,
            ),
        ):
            counter = CounterMetricFamily(name, text)
            counter.add_metric([], total)
            yield counter
        for name, text, now in (
            ("gantry_tier_store_running", "Calls that are waited for.", stats.running),
            ("gantry_tier_store_abandoned", "Threads that hang in a call.", stats.abandoned),
        ):
            gauge = GaugeMetricFamily(name, text)
            gauge.add_metric([], now)
            yield gauge
