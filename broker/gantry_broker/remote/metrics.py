"""Metrics of a group about the fronts that are served from its store."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gantry_broker.remote.serving import StoreServer


class StoreCollector:
    """See the module; 0 everywhere where no front is served.

    Args:
        server: the port for fronts; None without one.
        group: that is served from.
    """

    def __init__(self, server: StoreServer | None, group: str) -> None:
        """Nothing is counted here."""
        self._server = server
        self._group = group

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        server, group = self._server, self._group
        sessions = [] if server is None else server.sessions(group)
        yield GaugeMetricFamily(
            "gantry_broker_store_served",
            "Fronts that are served from this store.",
            value=float(len(sessions)),
        )
        yield GaugeMetricFamily(
            "gantry_broker_store_requests",
            "Requests of fronts, sends among them, that were not answered.",
            value=float(sum(session.unanswered for session in sessions)),
        )
        yield CounterMetricFamily(
            "gantry_broker_store_sessions",
            "Sessions of fronts that were opened.",
            value=float(0 if server is None else server.opened[group]),
        )
