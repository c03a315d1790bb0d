"""Metrics of a node's listeners: who is connected, who was turned away, who was cut off and why."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from gantry_protocol.process.strangers import AddressRate
from gantry_protocol.remoting.limits import ConnectionLimits
from gantry_protocol.remoting.stats import ServerStats
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "gantry_controller_"
ENDED = {
    "malformed": "malformed",
    "idle": "idle_closed",
    "stalled": "stalled_closed",
    "unread": "slow_closed",
}
"""The label of an ending and its counter."""


class Http(Protocol):
    """The HTTP server, as far as it is asked."""

    refused: int
    pace: AddressRate

    @property
    def connections(self) -> int:
        """Open now."""


class ConnectionMetrics(Collector):
    """Read off the listeners when somebody asks.

    Args:
        remoting: the counters of the remoting listeners, by name.
        limits: which they share.
        http: the HTTP listener.
    """

    def __init__(
        self, remoting: Mapping[str, ServerStats], limits: ConnectionLimits, http: Http
    ) -> None:
        self._remoting = remoting
        self._limits = limits
        self._http = http

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        open_ = GaugeMetricFamily(
            PREFIX + "connections", "Open connections, by listener.", labels=["listener"]
        )
        ended = CounterMetricFamily(
            PREFIX + "connections_ended_total",
            "Connections ended by this node: malformed bytes, silence, frames not ended, "
            "answers not read.",
            labels=["listener", "reason"],
        )
        busy = CounterMetricFamily(
            PREFIX + "requests_busy_total",
            "Requests answered SYSTEM_BUSY as too many at once.",
            labels=["listener"],
        )
        for name, stats in sorted(self._remoting.items()):
            open_.add_metric([name], stats.connections)
            busy.add_metric([name], stats.busy)
            for reason, counter in ENDED.items():
                ended.add_metric([name, reason], getattr(stats, counter))
        open_.add_metric(["http"], self._http.connections)
        yield open_
        yield ended
        yield busy
        yield self._refused()
        yield CounterMetricFamily(
            PREFIX + "http_delayed_total",
            "Requests to the HTTP port without the token that had to wait for their turn.",
            value=self._http.pace.delayed,
        )
        yield GaugeMetricFamily(
            PREFIX + "connections_limit",
            "Connections that the remoting listeners may hold together.",
            value=self._limits.total,
        )

    def _refused(self) -> Metric:
        refused = CounterMetricFamily(
            PREFIX + "connections_refused_total",
            "Connections closed as they came: too many in all, or from one address.",
            labels=["listener", "limit"],
        )
        refused.add_metric(["remoting", "total"], self._limits.refused_total)
        refused.add_metric(["remoting", "source"], self._limits.refused_source)
        refused.add_metric(["http", "total"], self._http.refused)
        return refused
