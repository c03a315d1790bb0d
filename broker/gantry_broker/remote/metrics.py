"""Metrics of a storage process about the brokers that it serves."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gantry_broker.remote.serving import StoreServer


class StoreCollector:
    """See the module; 0 everywhere where no other process is served.

    Args:
        server: the port for brokers; None without one.
    """

    def __init__(self, server: Callable[[], StoreServer | None]) -> None:
        """Nothing is counted here."""
        self._server = server

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        server = self._server()
        yield GaugeMetricFamily(
            "gantry_broker_store_served",
            "1 while a broker in another process is served from this store.",
            value=float(server is not None and server.is_serving),
        )
        yield GaugeMetricFamily(
            "gantry_broker_store_requests",
            "Requests of that broker, appends among them, that were not answered.",
            value=float(0 if server is None else server.unanswered),
        )
        yield CounterMetricFamily(
            "gantry_broker_store_sessions",
            "Brokers that were taken.",
            value=float(0 if server is None else server.sessions),
        )
        yield CounterMetricFamily(
            "gantry_broker_store_refused",
            "Links that were refused: of a second broker, of another group, or not to the master.",
            value=float(0 if server is None else server.refused),
        )
        yield CounterMetricFamily(
            "gantry_broker_store_stale_offsets",
            "Committed offsets that came after the end of their topic, and were left out.",
            value=float(0 if server is None else server.stale_rows),
        )
