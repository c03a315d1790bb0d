"""Metrics of filters in SQL, in Prometheus' words."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.core.filters.sql import FILTERS, Filters


class FilterCollector(Collector):
    """Reads everything when it is scraped.

    Args:
        filters: of this process.
    """

    def __init__(self, filters: Filters = FILTERS) -> None:
        """Nothing is counted here."""
        self._filters = filters

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        yield GaugeMetricFamily(
            "gantry_broker_filters",
            "Filters in SQL that are kept, compiled.",
            value=len(self._filters),
        )
        yield CounterMetricFamily(
            "gantry_broker_filter_examined",
            "Records that this process has read to filter them by SQL.",
            value=self._filters.examined,
        )
        yield CounterMetricFamily(
            "gantry_broker_filter_passed",
            "Records that passed a filter in SQL and fitted into an answer.",
            value=self._filters.passed,
        )
