"""Metrics of bounds that have no place elsewhere: peers, proposals, forwards, imports, waits.

Each bound says how full it is or how often it refused, so that whoever is turned away can be
explained. The listeners for clients are in ``connections``, snapshots in ``snapshots``.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_controller.admin.watch import WatchHub
from gantry_controller.nameserver.imports import Imports
from gantry_controller.node.links import LinkStats
from gantry_controller.node.status import NodeStats
from gantry_controller.remoting.forwarder import Forwarder

PREFIX = "gantry_controller_"


class Links(Protocol):
    """The connections to the peers, as far as they are asked."""

    @property
    def stats(self) -> LinkStats:
        """Counters since the start."""


class Expiring(Protocol):
    """The admin API, as far as it is asked."""

    expired: int
    lists_refused: int


class Polls(Protocol):
    """Requests that wait for news, as far as they are asked."""

    crowded_out: int

    @property
    def waiting(self) -> int:
        """Those that wait for a change."""


_ASKED = {
    "front_requests": "fronts for the groups that they serve",
    "queue_map_requests": "brokers for queue maps",
    "access_requests": "brokers and fronts for users",
}


class Sources(NamedTuple):
    """Whose plain counters are read."""

    links: Links
    node: NodeStats
    forwarder: Forwarder
    imports: Imports
    hub: WatchHub
    api: Expiring
    polls: Mapping[str, Polls]


class BoundMetrics(Collector):
    """Read off the ``sources`` when somebody asks."""

    def __init__(self, sources: Sources) -> None:
        self._of = sources

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        yield from _peers(self._of.links.stats)
        yield _count(
            "proposals_refused_total",
            "Events refused as too many waited for a quorum.",
            self._of.node.proposals_refused,
        )
        yield _gauge(
            "requests_forward_waiting",
            "Requests that wait for a connection to the leader.",
            self._of.forwarder.waiting,
        )
        yield _gauge(
            "imported_brokers",
            "Brokers of the old kind that this node hears.",
            self._of.imports.heard,
        )
        yield _count(
            "imported_brokers_refused_total",
            "Brokers of the old kind that were not heard, since too many are.",
            self._of.imports.refused,
        )
        yield _count("watchers_refused_total", "Watches beyond their bound.", self._of.hub.refused)
        yield _count(
            "admin_lists_refused_total",
            "Lists of groups beyond as many as are made at a time.",
            self._of.api.lists_refused,
        )
        for kind, polls in self._of.polls.items():
            of = _ASKED[kind]
            yield _gauge(
                f"{kind}_waiting", f"Requests of {of} that wait for a change.", polls.waiting
            )
            yield _count(
                f"{kind}_crowded_out_total",
                f"Requests of {of} that were answered at once, since too many waited.",
                polls.crowded_out,
            )
        yield _count(
            "admin_requests_expired_total",
            "Requests of the admin API that the quorum did not answer in time.",
            self._of.api.expired,
        )


def _peers(stats: LinkStats) -> Iterator[Metric]:
    yield _gauge("peer_connections", "Incoming connections of other controllers.", stats.incoming)
    yield _count(
        "peer_refused_total",
        "Peers turned away: too many connections, another cluster or version, here or there.",
        stats.refused,
    )
    yield _count("peer_connects_total", "Connections made to peers.", stats.connects)
    yield _count("peer_messages_sent_total", "Raft messages for peers.", stats.sent)
    yield _count(
        "peer_messages_dropped_total",
        "Raft messages for peers that were dropped; Raft repeats what matters.",
        stats.dropped,
    )
    yield _count("peer_messages_received_total", "Raft messages of peers.", stats.received)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _count(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)
