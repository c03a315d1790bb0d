"""Metrics of POP, in Prometheus' words."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.pop.requests import PopRequests

Figure = Callable[[PopRequests], float]

_GAUGES: tuple[tuple[str, str, Figure], ...] = (
    (
        "in_flight",
        "Messages that were popped and not acknowledged, on the serving master.",
        lambda pops: pops.book.ledger.in_flight,
    ),
    (
        "queues",
        "Queues that some consumer group pops, each counted per group.",
        lambda pops: len(pops.book.ledger.queues),
    ),
    ("waiting", "Requests that wait for a message.", lambda pops: len(pops.polls)),
    (
        "segments_asked_about",
        "Segments of mapped queues about which other broker groups are asked.",
        lambda pops: pops.parts.waiting,
    ),
    (
        "unserved",
        "1 while POP is not served, since its records were not read.",
        lambda pops: not pops.book.ready,
    ),
)
_COUNTERS: tuple[tuple[str, str, Figure], ...] = (
    ("messages", "Messages handed out.", lambda pops: pops.taking.popped),
    ("again", "Of these, those handed out before.", lambda pops: pops.taking.again),
    ("acks", "Messages acknowledged.", lambda pops: pops.acked),
    ("changes", "Invisible times changed.", lambda pops: pops.changed),
    ("over", "Receipts that were over, or unknown.", lambda pops: pops.over),
    ("dead", "Messages sent to the dead letters.", lambda pops: pops.taking.buried),
    (
        "gone",
        "Messages in flight that left the log, or that fit into no dead letter.",
        lambda pops: pops.taking.gone,
    ),
    ("refused", "Appends that were refused.", lambda pops: pops.book.refused),
    ("tables", "Tables of messages in flight in the log.", lambda pops: pops.book.tables),
    (
        "segment_questions",
        "Questions to other broker groups about segments of mapped queues.",
        lambda pops: pops.parts.asked,
    ),
    (
        "crowded",
        "Looks at segments of mapped queues that were left out, since too many wait for answers.",
        lambda pops: pops.parts.crowded,
    ),
    (
        "full",
        "Requests that found no room to wait.",
        lambda pops: pops.polls.room.refused + pops.early.room.refused,
    ),
)


class PopCollector(Collector):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        pops: of this mastership; None while this is not the master.
    """

    def __init__(self, pops: Callable[[], PopRequests | None]) -> None:
        """Nothing is counted here."""
        self._pops = pops

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        found = self._pops()
        for name, text, figure in _GAUGES:
            value = 0.0 if found is None else figure(found)
            yield GaugeMetricFamily(f"gantry_broker_pop_{name}", text, value=value)
        for name, text, figure in _COUNTERS:
            value = 0.0 if found is None else figure(found)
            yield CounterMetricFamily(f"gantry_broker_pop_{name}", text, value=value)
