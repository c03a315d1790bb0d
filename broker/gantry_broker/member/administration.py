"""Answers about replication itself: GetBrokerEpochCache, 907, the status document, the metrics.

Answered by every member about itself, master or not, and never handed on: people and tools want to
know what *this* broker thinks.
"""

from collections.abc import Iterable
from typing import Any

from gantry_protocol.bodies import (
    EpochCacheEntry,
    EpochEntryCache,
    HaConnectionInfo,
    HaStatus,
    encode_body,
)
from gantry_protocol.bodies.controller import OPEN_END, HaClientInfo
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.remoting.error_answers import ErrorAnswers
from gantry_protocol.remoting.stats import ServerStats
from gantry_protocol.types import BrokerId
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gantry_broker.clients.drain import GroupDrain
from gantry_broker.clients.routing import ClientRouter
from gantry_broker.clients.routing_metrics import routing_metrics
from gantry_broker.log.checked import holds
from gantry_broker.member.group import ReplicationGroup
from gantry_broker.replica import Role
from gantry_broker.replica.syncset import Member
from gantry_broker.tier.service import TierService

UNREAD_SHOWN = 100  # consumer groups and topics
DAMAGE_SHOWN = 8  # ranges named in the status document
UNREADABLE_SHOWN = 8  # packs of the tier named in the status document
MASTER_ID = BrokerId(0)  # upstream's role id of a master


def epoch_cache(group: ReplicationGroup, request: RemotingCommand) -> RemotingCommand:
    """GetBrokerEpochCache (1007): the lineage of this member's log."""
    core = group.core
    entries = () if core is None else core.log.lineage.entries
    ends = [entry.start_offset for entry in entries[1:]] + [OPEN_END]
    listed = [
        EpochCacheEntry(entry.epoch, entry.start_offset, end)
        for entry, end in zip(entries, ends, strict=False)
    ]
    role_id = MASTER_ID if group.serving or core is None else core.me
    body = EpochEntryCache(
        cluster_name=group.cluster,
        broker_name=group.broker_name,
        broker_id=role_id,
        epoch_list=listed,
        max_offset=group.store.log.end,
    )
    return reply(request, body=encode_body(body))


def ha_status(group: ReplicationGroup, request: RemotingCommand) -> RemotingCommand:
    """GetBrokerHaStatus (907): the links of a master, or a replica's own."""
    core, end = group.core, group.store.log.end
    master = None if core is None else core.serving
    connections: list[HaConnectionInfo] = []
    in_sync = 0
    if master is not None:
        in_sync = master.in_sync - 1
        connections = [
            HaConnectionInfo(
                addr=group.links.peer(member.link),
                slave_ack_offset=member.acked,
                diff=end - member.acked,
                in_sync=member.broker_id in master.set.members,
                transfer_from_where=member.sent,
            )
            for member in master.members.values()
            if member.link is not None
        ]
    following = None if core is None else core.following
    client = HaClientInfo(
        master_addr="" if following is None else following.view.master_ha_address,
        max_offset=end,
    )
    body = HaStatus(
        master=master is not None,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=in_sync,
        ha_connection_info=connections,
        ha_client_runtime_info=client,
    )
    return reply(request, body=encode_body(body))


def role_name(group: ReplicationGroup) -> str:
    """``master``, ``leaving``, ``replica``, ``promoting``, ``fenced``, ``stuck`` or ``idle``."""
    core = group.core
    if core is None:
        return "starting"
    if group.serving:
        return "leaving" if group.writes.leaving else "master"
    return "replica" if core.role is Role.FOLLOWING else core.role.value


def status(
    group: ReplicationGroup, router: ClientRouter, drain: GroupDrain | None = None
) -> dict[str, Any]:
    """The status document of ``GET /status``; ``drain`` is of this mastership."""
    core, agent, log = group.core, group.agent, group.store.log
    ready, reason = group.ready()
    view = None if core is None else core.view
    master = None if core is None else core.serving
    following = None if core is None else core.following
    members = master.set.members if master is not None else ()
    if master is None and view is not None:
        members = view.sync_state_set
    return {
        "cluster": group.cluster,
        "group": group.broker_name,
        "brokerId": None if core is None else core.me,
        "address": group.address,
        "incarnation": group.incarnation,
        "role": role_name(group),
        "ready": ready,
        "reason": reason,
        "leaving": group.writes.leaving,
        "epoch": group.epoch,
        "masterBrokerId": None if view is None else view.master_id,
        "masterAddress": group.address if group.serving else group.master_address or None,
        "syncStateSet": sorted(members),
        "syncStateSetEpoch": None if view is None else view.sync_state_set_epoch,
        "minInSyncReplicas": None if view is None else view.min_in_sync,
        "inSync": group.serving or (following is not None and following.in_sync is True),
        "lineage": []
        if core is None
        else [[entry.epoch, entry.start_offset] for entry in core.log.lineage.entries],
        "logStart": log.log_start,
        "endOffset": log.end,
        "flushedOffset": log.flushed,
        "confirmOffset": 0 if core is None else core.log.confirm,
        "diskWaitedMs": 0 if core is None else core.disk.waited_ms,
        "diskReason": group.disk_reason,
        "members": [] if master is None else [_member(group, member) for member in _members(group)],
        "controllersConnected": 0 if agent is None else agent.peers.connections,
        "registered": agent is not None and agent.registered,
        "topicsVersion": group.store.topics.version,
        "pendingSends": group.writes.waiting,
        "spliced": router.spliced,
        "held": router.held,
        "retention": _retention(group),
        "tier": _tier(group),
        "drain": None if drain is None else _drain(drain),
        "logDamage": _damage(group),
    }


def _drain(drain: GroupDrain) -> dict[str, Any] | None:
    """What is left of a group that is drained, as its master saw it last."""
    report = drain.report
    return (
        None
        if report is None
        else {
            "done": report.done,
            "unread": report.unread,
            "parked": report.parked,
            "transactions": report.transactions,
            "offsets": len(drain.offsets),
            "waitsFor": report.waits_for,
            "refusedSends": drain.refused,
            "consumerGroups": [item._asdict() for item in drain.unread[:UNREAD_SHOWN]],
        }
    )


def _damage(group: ReplicationGroup) -> dict[str, Any]:
    """What is damaged in the log, and how old the newest knowledge of all of it is."""
    checks, scrubber, repairs = group.store.log.checks, group.store.scrubber, group.repairs
    damaged = sorted(checks.damage.values(), key=lambda item: item.start)
    return {
        "ranges": len(damaged),
        "found": checks.found,
        "repaired": repairs.repaired,
        "scrubbedAt": 0 if scrubber is None else int(scrubber.passed_at_s),
        "first": [
            {
                "file": str(item.path),
                "position": item.position,
                "start": item.start,
                "end": item.end,
                "reason": item.reason,
                "repair": repairs.reasons.get(item.start, ""),
                "holds": holds(item),
            }
            for item in damaged[:DAMAGE_SHOWN]
        ],
    }


def _retention(group: ReplicationGroup) -> dict[str, Any] | None:
    """How much of the log is kept without a tier, what holds more of it, and what comes next."""
    retention = group.tier.retention
    if retention is None:
        return None
    return {
        "hours": retention.kept.hours,
        "bytes": retention.kept.bytes,
        "whenFull": "delete" if retention.kept.gives_way else "refuse",
        "keptReason": retention.reason,
        "stuck": retention.is_stuck,
        "nextCutMs": retention.next_cut_ms,
        "cuts": retention.trims,
        "cutBytes": retention.trimmed_bytes,
        "states": retention.states,
    }


def _tier(group: ReplicationGroup) -> dict[str, Any] | None:
    report, service = group.tier.report(), group.tier.service
    if report is None or service is None:
        return None
    return {
        "state": report.state,
        "reason": report.reason,
        "stalled": service.uploader.status.stalled,
        "epoch": report.epoch,
        "version": report.version,
        "committedOffset": report.committed_offset,
        "lagMs": report.lag_ms,
        **_reading(service),
    }


def _reading(tier: TierService) -> dict[str, Any]:
    """What can be read of the tier here, and what is kept on the disk."""
    retention, index = tier.retention, tier.reader.index
    lost = sorted(index.losses.packs.values(), key=lambda item: item.entry.lo)
    return {
        "readableFrom": index.readable_from,
        "readableOffset": index.readable_end,
        "readReason": tier.reader.reason or tier.reader.readable.complaint,
        "unreadable": len(lost),
        "unreadableFirst": [
            {
                "object": item.entry.key,
                "start": item.entry.lo,
                "end": item.entry.hi,
                "tries": item.tries,
            }
            for item in lost[:UNREADABLE_SHOWN]
        ],
        "keptReason": None if retention is None else retention.reason,
    }


def _members(group: ReplicationGroup) -> list[BrokerId]:
    master = None if group.core is None else group.core.serving
    return [] if master is None else sorted(master.members)


def _member(group: ReplicationGroup, broker_id: BrokerId) -> dict[str, Any]:
    assert group.core is not None
    master = group.core.serving
    assert master is not None
    member = master.members[broker_id]
    return {
        "brokerId": broker_id,
        "connected": member.link is not None,
        "streaming": member.streaming,
        "ackedOffset": member.acked,
        "lagBytes": max(0, group.store.log.end - member.acked),
        "inSync": broker_id in master.set.members,
        "draining": member.draining,
        "hasRoom": member.has_room,
        "waitedMs": member.pace.recent_ms,
        "reason": _why_out(group, member),
    }


def _why_out(group: ReplicationGroup, member: Member) -> str:
    """Why a member that keeps up is not in the set; empty if that is not so."""
    now_ms = 0 if group.shell is None else group.shell.now_ms
    if not member.pace.is_out(now_ms):
        return ""
    left_ms = member.pace.out_until_ms - now_ms
    return f"slow: everybody waited for it; it comes back when it keeps up for {left_ms} ms more"


class BrokerCollector:
    """One group's metrics, read off its parts when they are asked for."""

    def __init__(
        self, group: ReplicationGroup, router: ClientRouter, remoting: ServerStats
    ) -> None:
        """Nothing is counted here."""
        self._group = group
        self._router = router
        self._remoting = remoting

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        yield from self._role()
        yield from self._log()
        yield from self._damage()
        yield from self._retention()
        yield from self._links()
        yield from self._clients()

    def _role(self) -> Iterable[Metric]:
        group = self._group
        core = group.core
        master = None if core is None else core.serving
        view = None if core is None else core.view
        role = GaugeMetricFamily("gantry_broker_role", "1 for the present role.", labels=["role"])
        role.add_metric([role_name(group)], 1)
        yield role
        yield gauge("gantry_broker_epoch", "Newest epoch acted in.", group.epoch)
        yield gauge("gantry_broker_ready", "1 while clients may be sent here.", group.ready()[0])
        yield gauge(
            "gantry_broker_cut_off",
            "1 while this master takes nothing, as another one may have been elected.",
            bool(group.alone),
        )
        yield counter(
            "gantry_broker_cut_offs",
            "Times that this master heard neither controllers nor members, and stepped back.",
            0 if group.shell is None else group.shell.cut_offs,
        )
        yield gauge(
            "gantry_broker_in_sync_replicas",
            "Members of the sync-state set, as the serving master knows it; 0 elsewhere.",
            0 if master is None else master.in_sync,
        )
        yield gauge(
            "gantry_broker_in_sync_replicas_min",
            "Members of that set that a send needs, on the serving master; 0 elsewhere.",
            0 if master is None else master.min_in_sync,
        )
        yield gauge(
            "gantry_broker_replicas",
            "Members that the group should have, on the serving master; 0 elsewhere.",
            0 if master is None or view is None else view.replicas,
        )
        agent = group.agent
        yield counter(
            "gantry_broker_heartbeats",
            "Heartbeats to the controllers.",
            0 if agent is None else agent.heartbeats,
        )

    def _log(self) -> Iterable[Metric]:
        log, core = self._group.store.log, self._group.core
        offsets = GaugeMetricFamily(
            "gantry_broker_log_offset_bytes", "Positions in the commit log.", labels=["position"]
        )
        offsets.add_metric(["start"], log.log_start)
        offsets.add_metric(["flushed"], log.flushed)
        offsets.add_metric(["end"], log.end)
        offsets.add_metric(["confirm"], 0 if core is None else core.log.confirm)
        offsets.add_metric(["dispatched"], self._group.store.dispatched)
        yield offsets
        yield gauge(
            "gantry_broker_disk_waited_seconds",
            "How long the disk has made nothing durable that waits for it.",
            0 if core is None else core.disk.waited_ms / 1000,
        )
        yield counter(
            "gantry_broker_disk_silences",
            "Times that the disk did not answer for too long, without an error.",
            0 if self._group.shell is None else self._group.shell.disk_silences,
        )
        yield counter(
            "gantry_broker_disk_reliefs",
            "Times that a master with a full disk began to give way to a member with room.",
            0 if self._group.shell is None else self._group.shell.reliefs,
        )
        yield gauge(
            "gantry_broker_topics_version",
            "Version of the controllers' topic table in the confirmed log.",
            self._group.store.topics.version,
        )

    def _retention(self) -> Iterable[Metric]:
        retention = self._group.tier.retention  # None with a tier
        yield counter(
            "gantry_broker_retention_cuts",
            "How often the beginning of the log was deleted, in a group without a tier.",
            0 if retention is None else retention.trims,
        )
        yield counter(
            "gantry_broker_retention_cut_bytes",
            "Bytes of the log deleted by retention.",
            0 if retention is None else retention.trimmed_bytes,
        )
        yield counter(
            "gantry_broker_retention_states",
            "How often the whole state was written so that the log before it may go.",
            0 if retention is None else retention.states,
        )
        yield gauge(
            "gantry_broker_retention_held",
            "1 while more of the log is kept than the retention asks for.",
            retention is not None and bool(retention.reason),
        )
        yield gauge(
            "gantry_broker_retention_stuck",
            "1 while the disk is nearly full and nothing of the log may be deleted.",
            retention is not None and retention.is_stuck,
        )

    def _damage(self) -> Iterable[Metric]:
        checks, scrubber = self._group.store.log.checks, self._group.store.scrubber
        yield gauge(
            "gantry_broker_log_damaged_ranges",
            "Ranges of the log that are not what was flushed, and not repaired yet.",
            len(checks.damage),
        )
        yield counter(
            "gantry_broker_log_damage", "Damaged ranges of the log that were found.", checks.found
        )
        yield counter(
            "gantry_broker_log_repairs",
            "Damaged ranges that were written anew from another member.",
            self._group.repairs.repaired,
        )
        yield counter(
            "gantry_broker_log_scrubbed_bytes",
            "Bytes of the log that were compared with their checksums in the background.",
            0 if scrubber is None else scrubber.scanned_bytes,
        )
        yield gauge(
            "gantry_broker_log_scrubbed_timestamp_seconds",
            "When the last such pass reached the end of the log; 0 before the first.",
            0 if scrubber is None else scrubber.passed_at_s,
        )

    def _links(self) -> Iterable[Metric]:
        group = self._group
        core = group.core
        master = None if core is None else core.serving
        lag = GaugeMetricFamily(
            "gantry_broker_replica_lag_bytes",
            "Bytes a replica has not acknowledged, on the serving master.",
            labels=["broker_id"],
        )
        if master is not None:
            for broker_id, member in sorted(master.members.items()):
                lag.add_metric([str(broker_id)], max(0, group.store.log.end - member.acked))
        yield lag
        yield from self._paces()
        yield gauge("gantry_broker_links", "Open replication links.", len(group.links))
        yield counter(
            "gantry_broker_links_refused", "Replication links refused.", group.links.refused
        )

    def _paces(self) -> Iterable[Metric]:
        group = self._group
        master = None if group.core is None else group.core.serving
        waited = CounterMetricFamily(
            "gantry_broker_replica_waited_seconds",
            "How long confirm has waited for a replica that stalled, in this mastership.",
            labels=["broker_id"],
        )
        out = GaugeMetricFamily(
            "gantry_broker_replica_slow",
            "1 while a replica is kept out of the set since everybody waited for it.",
            labels=["broker_id"],
        )
        members = {} if master is None else master.members
        now_ms = 0 if group.shell is None else group.shell.now_ms
        for broker_id, member in sorted(members.items()):
            waited.add_metric([str(broker_id)], member.pace.stalled_ms / 1000)
            out.add_metric([str(broker_id)], float(member.pace.is_out(now_ms)))
        yield waited
        yield out

    def _clients(self) -> Iterable[Metric]:
        group, router, stats = self._group, self._router, self._remoting
        sends = CounterMetricFamily(
            "gantry_broker_sends",
            "Records by outcome: of sends, and those that the broker writes itself.",
            labels=["outcome"],
        )
        sends.add_metric(["confirmed"], group.writes.confirmed)
        sends.add_metric(["unconfirmed"], group.writes.unconfirmed)
        yield sends
        yield gauge(
            "gantry_broker_pending_sends",
            "Appends that wait for replication.",
            group.writes.waiting,
        )
        yield gauge(
            "gantry_broker_store_time_ahead_seconds",
            "How far store times are ahead of the wall clock since it jumped; negative behind.",
            group.writes.clock.ahead_ms / 1000,
        )
        yield from routing_metrics("gantry_broker", router)
        consumers = group.known_consumers
        yield counter(
            "gantry_broker_consumer_reports",
            "Changes of consumer groups that the controllers took, in batches.",
            0 if consumers is None else consumers.reports,
        )
        yield counter(
            "gantry_broker_consumers_unreported",
            "Changes of consumer groups that the controllers will not learn of.",
            0 if consumers is None else consumers.unreported,
        )
        yield gauge("gantry_broker_connections", "Open client connections.", stats.connections)
        yield gauge("gantry_broker_requests_in_flight", "Unanswered requests.", stats.in_flight)
        yield gauge(
            "gantry_broker_request_bytes_in_flight",
            "Bodies of unanswered requests.",
            stats.in_flight_bytes,
        )
        yield gauge(
            "gantry_broker_unread_bytes",
            "Answers that wait in this process for peers to read them.",
            stats.unread_bytes,
        )
        yield counter(
            "gantry_broker_slow_connections_closed",
            "Connections ended since their peer did not read what it asked for.",
            stats.slow_closed,
        )
        yield counter(
            "gantry_broker_stalled_connections_closed",
            "Connections ended since their peer sent no whole frame in time.",
            stats.stalled_closed,
        )
        yield counter(
            "gantry_broker_malformed_connections_closed",
            "Connections ended by a malformed frame, or a header too large.",
            stats.malformed,
        )
        yield counter(
            "gantry_broker_connections_refused",
            "Connections closed as they came: too many in all, or from one address.",
            stats.refused,
        )
        yield counter(
            "gantry_broker_requests_too_large",
            "Requests refused since their bodies were larger than their codes may have.",
            stats.too_large,
        )
        yield counter(
            "gantry_broker_requests_too_old",
            "Requests refused since they had waited for their turn too long.",
            stats.too_old,
        )
        yield gauge(
            "gantry_broker_unserved_bytes",
            "Bytes of frames that are not whole, or wait for their turn.",
            stats.partial_bytes,
        )
        yield counter("gantry_broker_requests", "Requests served.", stats.requests)
        yield counter("gantry_broker_busy_answers", "Requests refused as too many.", stats.busy)


def error_answers(prefix: str, answers: ErrorAnswers) -> Metric:
    """Requests that were answered ``SYSTEM_ERROR``."""
    family = CounterMetricFamily(
        f"{prefix}_error_answers",
        "Requests answered SYSTEM_ERROR (1), by name and reason.",
        labels=["request", "reason"],
    )
    for kind, count in answers.counts.items():
        family.add_metric(kind, count)
    return family


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    """A counter without labels."""
    return CounterMetricFamily(name, text, value=float(value))
