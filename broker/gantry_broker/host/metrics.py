"""Readiness, status and metrics of all the groups that one process hosts."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.sync_times import sync_times
from gantry_protocol.remoting.access_metrics import access_metrics
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.admin_metrics import AdminCollector
from gantry_broker.clients.delay_metrics import DelayCollector
from gantry_broker.clients.delivery import Delivery
from gantry_broker.clients.filter_metrics import FilterCollector
from gantry_broker.clients.lag import ConsumerLag
from gantry_broker.clients.lag_metrics import LagCollector
from gantry_broker.clients.lite.metrics import LiteCollector
from gantry_broker.clients.lite.requests import LiteRequests
from gantry_broker.clients.pop.metrics import PopCollector
from gantry_broker.clients.pop.requests import PopRequests
from gantry_broker.clients.transaction_metrics import TransactionCollector
from gantry_broker.clients.transactions import Transactions
from gantry_broker.clients.waiting_metrics import WaitingCollector
from gantry_broker.clients.waiting_room import WaitingRoom
from gantry_broker.host.hosting import HostedGroup
from gantry_broker.member.administration import (
    BrokerCollector,
    counter,
    error_answers,
    gauge,
    role_name,
)
from gantry_broker.member.cold_reads import ColdReads
from gantry_broker.member.group import ReplicationGroup
from gantry_broker.member.shared_resources import SharedResources
from gantry_broker.remote.metrics import StoreCollector
from gantry_broker.remote.serving import StoreServer
from gantry_broker.tier.metrics import SharedTierCollector, TierCollector


def state_of(hosted: HostedGroup) -> str:
    """``ready``, ``unready`` or ``failed``."""
    if hosted.failure.done():
        return "failed"
    return "ready" if hosted.ready()[0] else "unready"


def ready(hosted: Sequence[HostedGroup]) -> tuple[bool, str]:
    """Whether all groups of the process may be sent clients; otherwise which one may not.

    Whoever restarts processes one after the other waits for all groups of one before the next. A
    group that was added has no master before enough processes host it, and nobody is led there; so
    it is not waited for beside one that is ready, or the next process would never get it.
    """
    answers = [(item, *item.ready()) for item in hosted]
    if len(hosted) == 1:
        _, fine, reason = answers[0]
        return fine, reason
    serving = any(fine for _, fine, _ in answers)
    waiting = [
        (item.name, reason)
        for item, fine, reason in answers
        if not fine and not (serving and item.awaits_first_master)
    ]
    if not waiting:
        return True, f"{len(hosted)} groups"
    name, reason = waiting[0]
    return False, f"{len(waiting)} of {len(hosted)} groups are not ready, such as {name}: {reason}"


def overview(cluster: str, hosted: Sequence[HostedGroup]) -> dict[str, Any]:
    """The status document of a process that hosts many groups; each has one of its own."""
    rows = []
    for item in hosted:
        fine, reason = item.ready()
        group = item.group
        rows.append(
            {
                "group": item.name,
                "port": item.port,
                "state": state_of(item),
                "ready": fine,
                "reason": reason,
                "role": "starting" if group is None else role_name(group),
                "epoch": 0 if group is None else group.epoch,
            }
        )
    return {"cluster": cluster, "groups": rows}


def registry(
    hosted: Sequence[HostedGroup],
    shared: SharedResources,
    stores: StoreServer | None,
    *,
    labelled: bool,
) -> CollectorRegistry:
    """A registry with this process's metrics, by group if ``labelled``."""
    made = CollectorRegistry()
    made.register(ProcessCollector(hosted, shared, stores))
    made.register(GroupsCollector(hosted, labelled=labelled))
    made.register(SharedTierCollector(lambda: shared.tier))
    made.register(FilterCollector())
    return made


class HttpCollector(Collector):
    """Figures of the HTTP port."""

    def __init__(self, http: HttpServer) -> None:
        """Nothing is counted here."""
        self._http = http

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        yield counter(
            "gantry_broker_http_delayed",
            "Requests to the HTTP port that had to wait for their turn.",
            self._http.pace.delayed,
        )


class ProcessCollector(Collector):
    """Figures of everything that the groups of a process share."""

    def __init__(
        self,
        hosted: Sequence[HostedGroup],
        shared: SharedResources,
        stores: StoreServer | None,
    ) -> None:
        """Nothing is counted here."""
        self._hosted = hosted
        self._shared = shared
        self._stores = stores

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        states = Counter(state_of(item) for item in self._hosted)
        groups = GaugeMetricFamily(
            "gantry_broker_groups", "Groups of this process by state.", labels=["state"]
        )
        for state in ("ready", "unready", "failed"):
            groups.add_metric([state], states[state])
        yield groups
        line, writers = self._shared.line, self._shared.disks.writers
        yield gauge(
            "gantry_broker_controllers_connected",
            "Controllers with an open connection.",
            line.peers.connections,
        )
        yield counter(
            "gantry_broker_keys_refused",
            "Connections to the ports of replication and of stores that did not show the quorum's "
            "key.",
            self._shared.listener.gate.refused
            + (0 if self._stores is None else self._stores.gate.refused),
        )
        yield counter(
            "gantry_broker_store_refused",
            "Links of fronts that were refused: of another group, or not to the master.",
            0 if self._stores is None else self._stores.refused,
        )
        yield counter(
            "gantry_broker_controllers_disbelieved",
            "Connections to controllers that ended since one side did not believe the other's key.",
            line.peers.disbelieved,
        )
        reads = CounterMetricFamily(
            "gantry_broker_controller_reads",
            "Reads that controllers answered, by whether they led.",
            labels=["by"],
        )
        reads.add_metric(["leader"], line.peers.reads_by_leader)
        reads.add_metric(["follower"], line.peers.reads_by_follower)
        yield reads
        yield counter(
            "gantry_broker_controller_reads_moved",
            "Reads that went to another controller, since the first could not answer.",
            line.peers.reads_moved,
        )
        yield counter(
            "gantry_broker_cluster_consumers_pages",
            "Answers of controllers about who consumes in the cluster.",
            self._shared.elsewhere.pages,
        )
        yield from access_metrics("gantry_broker", self._shared.access)
        yield counter(
            "gantry_broker_begun_anew",
            "Times that a group's id was struck from the record here, so that it took another one.",
            sum(item.begun_anew for item in self._hosted),
        )
        yield counter(
            "gantry_broker_derived_rebuilds",
            "Times that the rows derived from a log were damaged or lost, and made again from it.",
            sum(item.rebuilt for item in self._hosted),
        )
        yield counter(
            "gantry_broker_heartbeat_messages",
            "Heartbeat messages of all groups together; each goes to every controller.",
            line.messages,
        )
        yield gauge(
            "gantry_broker_loop_lag_seconds",
            "The longest time for which this process served nobody, in the last 30 to 60 s.",
            self._shared.ticker.lag.longest_s,
        )
        turns = self._hosted[0].remoting.turns
        yield gauge(
            "gantry_broker_connections_waiting",
            "Connections that wait for their turn to be served.",
            len(turns),
        )
        yield counter(
            "gantry_broker_connections_put_off",
            "Times that a connection had to wait for a later turn.",
            turns.put_off,
        )
        yield counter(
            "gantry_broker_disk_syncs",
            "Syncs that made log bytes durable, of one log or of many at once.",
            sum(writer.syncs for writer in writers),
        )
        yield counter(
            "gantry_broker_kernel_syncs",
            "Disk syncs that the kernel carried out without a thread that waits for it.",
            sum(writer.kernel.syncs for writer in writers),
        )
        yield counter(
            "gantry_broker_group_commits",
            "Group commits of single logs that these syncs covered.",
            sum(writer.jobs for writer in writers),
        )
        yield sync_times(
            "gantry_broker_disk_sync_seconds",
            "How long the syncs took that made log bytes durable, as the broker waits for them.",
            [each for writer in writers for each in (writer.thread_times, writer.kernel.times)],
        )
        disk = self._shared.disk_space
        yield gauge(
            "gantry_broker_disk_used_ratio",
            "Share of the disk in use, at the last look.",
            disk.usage.used_percent / 100,
        )
        yield gauge(
            "gantry_broker_disk_has_room",
            "1 while a mastership may be handed over to here for want of room elsewhere.",
            disk.has_room,
        )
        yield gauge(
            "gantry_broker_disk_refusing",
            "1 while messages are refused because the disk is nearly full.",
            disk.refusing,
        )


class GroupsCollector(Collector):
    """Every group's metrics, with a label that names the group if the process hosts many."""

    def __init__(self, hosted: Sequence[HostedGroup], *, labelled: bool) -> None:
        """Nothing is counted here."""
        self._hosted = hosted
        self._labelled = labelled

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        families: dict[str, Metric] = {}
        for hosted in self._hosted:
            if hosted.group is None:
                continue
            for metric in _metrics_of(hosted, hosted.group):
                if not self._labelled:
                    yield metric
                    continue
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                family.samples += [
                    sample._replace(labels={**sample.labels, "group": hosted.name})
                    for sample in metric.samples
                ]
        yield from families.values()


def _metrics_of(hosted: HostedGroup, group: ReplicationGroup) -> Iterable[Metric]:
    router = hosted.router
    yield from BrokerCollector(group, router, hosted.remoting.stats).collect()
    yield error_answers("gantry_broker", hosted.remoting.error_answers)
    yield from TierCollector(lambda: group.tier.service, group.view.store.waits).collect()
    yield from DelayCollector(lambda: _delivery(hosted)).collect()
    yield from AdminCollector(lambda: hosted.processor).collect()
    yield from LagCollector(lambda: _lag(hosted), time.time).collect()
    yield from StoreCollector(hosted.stores, hosted.name).collect()
    yield from TransactionCollector(lambda: _transactions(hosted)).collect()
    yield from PopCollector(lambda: _pops(hosted)).collect()
    yield from LiteCollector(lambda: _lite(hosted)).collect()
    yield from WaitingCollector(lambda: _room(hosted)).collect()
    yield from _quotas(hosted)
    yield from _new_names(hosted)
    yield from _mapped(hosted)
    yield from _cold_reads(group.view.store.cold)
    yield from _reads(hosted, group)
    yield from _repeats(group)


def _cold_reads(cold: ColdReads | None) -> Iterable[Metric]:
    yield gauge(
        "gantry_broker_cold_pulls_waiting",
        "Pulls that wait for the disk.",
        0 if cold is None else len(cold),
    )
    yield counter(
        "gantry_broker_cold_pulls",
        "Pulls of records that were not in memory.",
        0 if cold is None else cold.asked,
    )
    yield counter(
        "gantry_broker_cold_pulls_refused",
        "Pulls sent back because too many waited for the disk.",
        0 if cold is None else cold.refused,
    )


def _repeats(group: ReplicationGroup) -> Iterable[Metric]:
    """Sends that came before (``member.repeats``)."""
    recent, repeats = group.store.recent, group.writes.repeats
    yield gauge(
        "gantry_broker_recent_keys",
        "Unique keys of the newest messages that this member knows.",
        len(recent),
    )
    yield counter(
        "gantry_broker_recent_keys_evicted",
        "Unique keys that made room for newer ones before their time (repeat_keys).",
        recent.evicted,
    )
    found = CounterMetricFamily(
        "gantry_broker_repeated_sends",
        "Messages with a known key: merged with the one that is there, or stored, since they are "
        "others or wanted twice.",
        labels=["outcome"],
    )
    found.add_metric(["merged"], repeats.merged)
    found.add_metric(["stored"], repeats.others)
    yield found


def _reads(hosted: HostedGroup, group: ReplicationGroup) -> Iterable[Metric]:
    """Reads at the master and at replicas (``member.replica_reads``)."""
    processor, reads = hosted.processor, group.reads
    pulled = CounterMetricFamily(
        "gantry_broker_pulled_bytes",
        "Bytes of records that pulls were answered with here; the master's under this mastership.",
        labels=["as"],
    )
    pulled.add_metric(["master"], 0 if processor is None else processor.read_bytes)
    pulled.add_metric(["replica"], reads.read_bytes)
    yield pulled
    yield counter(
        "gantry_broker_replica_pulls",
        "Pulls that this member took while another one was the master.",
        reads.served,
    )
    yield counter(
        "gantry_broker_replica_pulls_sent_back",
        "Pulls sent to the master while they waited, as this member was out of touch or left.",
        reads.sent_back,
    )
    yield gauge(
        "gantry_broker_replica_pulls_waiting",
        "Pulls at a replica that wait for a record.",
        reads.parked,
    )
    consumers = GaugeMetricFamily(
        "gantry_broker_placed_consumers",
        "Consumers of queues with several readers, by the member that the master suggests.",
        labels=["broker_id"],
    )
    able = [MASTER_ID, *group.reading_replicas()]
    if processor is not None:
        for member in able:
            consumers.add_metric([str(member)], processor.placing.at(member))
    yield consumers
    yield gauge(
        "gantry_broker_readers_missing",
        "Members in sync that are missing to the number of readers that a topic asks for.",
        0 if processor is None else max(group.store.topics.most_readers - len(able), 0),
    )


def _delivery(hosted: HostedGroup) -> Delivery | None:
    return None if hosted.processor is None else hosted.processor.delivery


def _lag(hosted: HostedGroup) -> ConsumerLag | None:
    return None if hosted.processor is None else hosted.processor.lag


def _lite(hosted: HostedGroup) -> LiteRequests | None:
    processor = hosted.processor
    return None if processor is None else processor.lite


def _pops(hosted: HostedGroup) -> PopRequests | None:
    return None if hosted.processor is None else hosted.processor.pops


def _transactions(hosted: HostedGroup) -> Transactions | None:
    return None if hosted.processor is None else hosted.processor.transactions


def _room(hosted: HostedGroup) -> WaitingRoom | None:
    return None if hosted.processor is None else hosted.processor.waiting_room


def _mapped(hosted: HostedGroup) -> Iterable[Metric]:
    """Requests about mapped topics, in this mastership."""
    processor = hosted.processor
    mapped = None if processor is None else processor.mapped
    yield gauge(
        "gantry_broker_mapped_requests_waiting",
        "Requests about queues that move, or whose map is not known yet.",
        0 if mapped is None else mapped.waiting,
    )
    for name, text, value in (
        (
            "passed_on",
            "Requests about mapped queues that another group's master was asked.",
            0 if mapped is None else mapped.passed_on,
        ),
        (
            "waited",
            "Requests about mapped queues that have waited.",
            0 if mapped is None else mapped.waited,
        ),
        (
            "refused",
            "Requests about mapped queues that waited in vain, or found no room.",
            0 if mapped is None else mapped.refused,
        ),
    ):
        yield counter(f"gantry_broker_mapped_requests_{name}", text, value)


def _new_names(hosted: HostedGroup) -> Iterable[Metric]:
    processor = hosted.processor
    yield counter(
        "gantry_broker_new_names_refused",
        "Topics and groups refused as too many new ones at once, under this mastership.",
        0 if processor is None else processor.new_topics.refused + processor.new_groups.refused,
    )


def _quotas(hosted: HostedGroup) -> Iterable[Metric]:
    throttle = None if hosted.processor is None else hosted.processor.throttle
    yield gauge(
        "gantry_broker_throttled_requests",
        "Requests held because their tenant is beyond its quota.",
        0 if throttle is None else len(throttle),
    )
    yield counter(
        "gantry_broker_requests_throttled",
        "Requests that were held, under this mastership.",
        0 if throttle is None else throttle.held_total,
    )
    yield counter(
        "gantry_broker_requests_over_quota",
        "Requests refused with flow control, under this mastership.",
        0 if throttle is None else throttle.refused_total,
    )
