"""The metrics of a front."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.remoting.access_metrics import access_metrics
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.front.bucket.metrics import bucket_metrics

if TYPE_CHECKING:
    from gantry_broker.front.server import FrontServer


class FrontCollector(Collector):
    """See the module; sums over the groups that are served."""

    def __init__(self, front: "FrontServer") -> None:
        """Nothing is counted here."""
        self._front = front

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        front = self._front
        groups = list(front.groups.values())
        stores = [group.connection.store for group in groups if group.connection.store is not None]
        stats = [group.remoting.stats for group in groups]
        asides = [group.asides for group in groups if group.asides is not None]
        yield gauge(
            "gantry_front_ready", "1 once a master of some group was known.", front.ready()[0]
        )
        yield gauge("gantry_front_groups", "Groups that are served.", len(groups))
        yield gauge(
            "gantry_front_groups_beyond_ports",
            "Groups of the cluster that have no port here.",
            len(front.directory.beyond),
        )
        yield gauge(
            "gantry_front_controllers", "Controllers that are connected.", front.peers.connections
        )
        yield counter(
            "gantry_front_connections_aged",
            "Connections of producers that were ended after connection_age_s.",
            front.aged,
        )
        yield from access_metrics("gantry_front", front.access)
        yield counter("gantry_front_asked", "Questions for groups and masters.", front.asked)
        yield counter("gantry_front_answered", "Answers to them.", front.answered)
        yield gauge(
            "gantry_front_stores", "Groups whose sends and pulls are answered here.", len(stores)
        )
        yield gauge(
            "gantry_front_appending_bytes",
            "Bytes that were sent to stores and not answered; at most 64 MiB for each.",
            sum(store.appending_bytes for store in stores),
        )
        yield gauge(
            "gantry_front_store_requests",
            "Other requests to stores that were not answered; at most 10,000 for each.",
            sum(store.waiting for store in stores),
        )
        yield counter(
            "gantry_front_store_overloads",
            "Sends and pulls that were refused, since too many were under way to a store.",
            sum(group.connection.overloads for group in groups),
        )
        yield counter(
            "gantry_front_stores_opened",
            "Stores that were found: a new one for each master.",
            sum(group.connection.opened for group in groups),
        )
        yield counter(
            "gantry_front_stores_refused",
            "Refusals of stores: not the master, another group, or an older epoch.",
            sum(group.connection.refused for group in groups),
        )
        yield counter(
            "gantry_front_served",
            "Sends and pulls that were answered here.",
            sum(group.served for group in groups),
        )
        at_master = sum(group.shares.read_bytes.get(MASTER_ID, 0) for group in groups)
        read = sum(sum(group.shares.read_bytes.values()) for group in groups)
        pulled = CounterMetricFamily(
            "gantry_front_pulled_bytes",
            "Bytes of records that clients were given from stores, by who has it.",
            labels=["at"],
        )
        pulled.add_metric(["master"], at_master)
        pulled.add_metric(["replicas"], read - at_master)
        yield pulled
        yield gauge(
            "gantry_front_replicas",
            "Replicas that are read from.",
            sum(one.is_open for group in groups for one in group.replicas.values()),
        )
        yield gauge(
            "gantry_front_replica_requests",
            "Reads of replicas that were not answered; at most 2,000 for each.",
            sum(one.waiting for group in groups for one in group.replicas.values()),
        )
        yield counter(
            "gantry_front_replica_reads_left",
            "Reads that replicas left to the master.",
            sum(group.left for group in groups),
        )
        yield gauge(
            "gantry_front_parked_pulls",
            "Pulls that wait here for a record.",
            sum(aside.parked for aside in asides),
        )
        yield gauge(
            "gantry_front_connections",
            "Open client connections.",
            sum(item.connections for item in stats),
        )
        yield counter(
            "gantry_front_connections_refused",
            "Connections turned away, too many were open.",
            sum(item.refused for item in stats),
        )
        yield gauge(
            "gantry_front_held_connections",
            "Client connections that wait for a master.",
            sum(group.router.held for group in groups),
        )
        yield gauge(
            "gantry_front_spliced_connections",
            "Client connections that are passed on to a master.",
            sum(group.router.spliced for group in groups),
        )
        yield counter(
            "gantry_front_sends_given_again",
            "Sends that a master had not answered and the next one was given.",
            sum(group.router.budget.given_again for group in groups),
        )
        buckets = [group.bucket for group in groups if group.bucket is not None]
        yield from bucket_metrics(front.buckets, buckets)
