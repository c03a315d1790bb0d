"""Metrics of lite topics, in Prometheus' words."""

from collections.abc import Callable

from gantry_broker.clients.figures import FigureCollector, Figures
from gantry_broker.clients.lite.requests import LiteRequests

_GAUGES: Figures[LiteRequests] = (
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
    ("clients", "Clients that take lite topics.", lambda lite: len(lite.book.registry.clients)),
    (
        "waiting",
        "Requests that wait for a message of lite topics.",
        lambda lite: len(lite.popping.polls),
    ),
    (
        "unserved",
        "1 while lite topics are not served, since subscriptions were not read.",
        lambda lite: not lite.book.ready,
    ),
)
_COUNTERS: Figures[LiteRequests] = (
    ("messages", "Messages of lite topics handed out.", lambda lite: lite.popping.taking.popped),
    ("again", "Messages of lite topics handed out again.", lambda lite: lite.popping.taking.again),
    (
        "dead",
        "Messages of lite topics sent to the dead letters.",
        lambda lite: lite.popping.taking.buried,
    ),
    (
        "gone",
        "Messages of lite topics that left the log in flight.",
        lambda lite: lite.popping.taking.gone,
    ),
    ("looks", "Looks at lite topics for messages.", lambda lite: lite.popping.looks),
    ("ended", "Lite topics whose time was over.", lambda lite: lite.expiry.ended),
    (
        "evicted",
        "Lite topics that clients lost to others of their group.",
        lambda lite: lite.subscribing.evicted,
    ),
    ("silent", "Clients of lite topics that were given up.", lambda lite: lite.subscribing.silent),
    (
        "over_quota",
        "Subscriptions to lite topics that were too many.",
        lambda lite: lite.subscribing.over_quota,
    ),
    ("refused", "Appends about lite topics that were refused.", lambda lite: lite.book.refused),
    ("renewed", "Whole subscriptions to lite topics written anew.", lambda lite: lite.book.renewed),
    (
        "full",
        "Requests for lite topics that found no room to wait.",
        lambda lite: lite.popping.polls.room.refused + lite.subscribing.early.room.refused,
    ),
)


class LiteCollector(FigureCollector[LiteRequests]):
    """See ``FigureCollector``; of the requests ``lite``."""

    def __init__(self, lite: Callable[[], LiteRequests | None]) -> None:
        super().__init__("lite", _GAUGES, _COUNTERS, lite)
