"""Metrics with one value and no labels, as collectors of this package yield them."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def gauge(name: str, text: str, value: float) -> Metric:
    """A value as of now."""
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """A total; ``name`` is without ``_total``."""
    return CounterMetricFamily(name, text, value=float(value))
