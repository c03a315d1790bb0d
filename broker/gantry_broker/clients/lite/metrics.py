"""Metrics of lite topics, in Prometheus' words."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.lite.requests import LiteRequests

Figure = Callable[[LiteRequests], float]

_GAUGES: tuple[tuple[str, str, Figure], ...] = (
    (
        "topics",
        "Lite topics that have a message, on the serving master.",
        lambda lite: lite.count,
    ),
    (
        "subscriptions",
        "Lite topics that clients take, each counted per client.",
        lambda lite: lite.book.registry.count,
    ),
    ("clients", "Clients that take some.", lambda lite: len(lite.book.registry.clients)),
    ("waiting", "Requests that wait for a message.", lambda lite: len(lite.popping.polls)),
    (
        "unserved",
        "1 while lite topics are not served, since subscriptions were not read.",
        lambda lite: not lite.book.ready,
    ),
)
_COUNTERS: tuple[tuple[str, str, Figure], ...] = (
    ("messages", "Messages handed out.", lambda lite: lite.popping.taking.popped),
    ("again", "Of these, those handed out before.", lambda lite: lite.popping.taking.again),
    ("dead", "Messages sent to the dead letters.", lambda lite: lite.popping.taking.buried),
    ("gone", "Messages in flight that left the log.", lambda lite: lite.popping.taking.gone),
    ("looks", "Looks at lite topics for messages.", lambda lite: lite.popping.looks),
    ("ended", "Lite topics whose time was over.", lambda lite: lite.expiry.ended),
    (
        "evicted",
        "Lite topics that clients lost to others of their group.",
        lambda lite: lite.subscribing.evicted,
    ),
    ("silent", "Clients that were given up.", lambda lite: lite.subscribing.silent),
    ("over_quota", "Subscriptions that were too many.", lambda lite: lite.subscribing.over_quota),
    ("refused", "Appends that were refused.", lambda lite: lite.book.refused),
    ("renewed", "Whole subscriptions written anew.", lambda lite: lite.book.renewed),
    (
        "full",
        "Requests that found no room to wait.",
        lambda lite: lite.popping.polls.room.refused + lite.subscribing.early.room.refused,
    ),
)


class LiteCollector(Collector):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        lite: of this mastership; None while this is not the master.
    """

    def __init__(self, lite: Callable[[], LiteRequests | None]) -> None:
        """Nothing is counted here."""
        self._lite = lite

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        found = self._lite()
        for name, text, figure in _GAUGES:
            value = 0.0 if found is None else figure(found)
            yield GaugeMetricFamily(f"gantry_broker_lite_{name}", text, value=value)
        for name, text, figure in _COUNTERS:
            value = 0.0 if found is None else figure(found)
            yield CounterMetricFamily(f"gantry_broker_lite_{name}", text, value=value)
