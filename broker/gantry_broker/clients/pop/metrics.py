"""Metrics of POP, in Prometheus' words."""

from collections.abc import Callable

from gantry_broker.clients.figures import FigureCollector, Figures
from gantry_broker.clients.pop.requests import PopRequests

_GAUGES: Figures[PopRequests] = (
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
_COUNTERS: Figures[PopRequests] = (
    ("messages", "Messages handed out.", lambda pops: pops.taking.popped),
    (
        "again",
        "Messages handed out again, after their invisible time.",
        lambda pops: pops.taking.again,
    ),
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


class PopCollector(FigureCollector[PopRequests]):
    """See ``FigureCollector``; of the requests ``pops``."""

    def __init__(self, pops: Callable[[], PopRequests | None]) -> None:
        super().__init__("pop", _GAUGES, _COUNTERS, pops)
