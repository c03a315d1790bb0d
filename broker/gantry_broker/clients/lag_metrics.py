"""Metrics of consumer groups that are behind, in Prometheus' words."""

from collections.abc import Callable, Iterable

from gantry_protocol.process.metrics import gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.lag import ConsumerLag

_LABELS = ("consumer_group", "topic")


class LagCollector(Collector):
    """Reads the last pass when it is scraped.

    Args:
        lag: of this mastership; None while this is not the master.
        clock: seconds since 1970, as store times have them.
    """

    def __init__(self, lag: Callable[[], ConsumerLag | None], clock: Callable[[], float]) -> None:
        """Nothing is counted here."""
        self._lag = lag
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        lag, now_s = self._lag(), self._clock()
        messages = GaugeMetricFamily(
            "gantry_broker_consumer_lag_messages",
            "Messages that a consumer group has yet to consume, on the serving master.",
            labels=_LABELS,
        )
        age = GaugeMetricFamily(
            "gantry_broker_consumer_lag_seconds",
            "How long the first message that a consumer group has yet to consume has been stored.",
            labels=_LABELS,
        )
        for pair, found in () if lag is None else lag.told.items():
            messages.add_metric(pair, found.messages)
            if found.messages == 0 or found.oldest_ms is not None:
                age.add_metric(pair, max(0.0, now_s - (found.oldest_ms or now_s * 1000) / 1000))
        yield messages
        yield age
        yield gauge(
            "gantry_broker_consumer_lag_left_out",
            "Pairs of a consumer group and a topic without such figures: there are too many.",
            0 if lag is None else lag.left_out,
        )
