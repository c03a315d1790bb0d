"""Metrics with one value and no labels, and what every process counts."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_protocol import lookups


def gauge(name: str, text: str, value: float) -> Metric:
    """A value as of now."""
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """A total; ``name`` is without ``_total``."""
    return CounterMetricFamily(name, text, value=float(value))


class LookupsCollector(Collector):
    """Lookups of names in this process, by how they ended."""

    def collect(self) -> Iterator[Metric]:
        """One counter, by outcome."""
        made = CounterMetricFamily(
            "gantry_dns_lookups",
            "Names looked up in DNS: answered, failed, or an old address taken for want of one.",
            labels=["outcome"],
        )
        for outcome, count in lookups.outcomes.items():
            made.add_metric([outcome], count)
        yield made
