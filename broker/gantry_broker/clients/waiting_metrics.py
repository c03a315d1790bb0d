"""Metrics of pulls that wait for records, in Prometheus' words."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.waiting_room import WaitingRoom


class WaitingCollector(Collector):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        room: of this mastership; None while clients are not served here.
    """

    def __init__(self, room: Callable[[], WaitingRoom | None]) -> None:
        """Nothing is counted here."""
        self._room = room

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        room = self._room()
        yield GaugeMetricFamily(
            "gantry_broker_waiting_pulls",
            "Pulls that wait for a message.",
            value=0 if room is None else room.pulls,
        )
        yield GaugeMetricFamily(
            "gantry_broker_waiting_pull_bytes",
            "About how much memory the pulls that wait hold.",
            value=0 if room is None else room.size_bytes,
        )
        yield CounterMetricFamily(
            "gantry_broker_pulls_without_room",
            "Pulls refused since too many waited, in this mastership.",
            value=0 if room is None else room.refused,
        )
