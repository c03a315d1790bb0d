"""The operator's metrics, in a registry of its own so that many operators fit into one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from gantry_operator.cache import Key
    from gantry_operator.plan.observed import Body

_GROUP = ("namespace", "group")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of one operator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.reconciles = Counter(
            "gantry_operator_reconciles",
            "Reconciles by kind and result (ok, retry, bug).",
            ("kind", "result"),
            registry=registry,
        )
        self.seconds = Histogram(
            "gantry_operator_reconcile_seconds",
            "Duration of a reconcile.",
            ("kind",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.disruptions = Counter(
            "gantry_operator_disruptions",
            "Disruptive actions that were carried out.",
            ("kind", "action"),
            registry=registry,
        )
        self.queue_depth = Gauge(
            "gantry_operator_queue_depth", "Resources waiting to be looked at.", registry=registry
        )
        self.queue_age = Gauge(
            "gantry_operator_queue_oldest_seconds",
            "How long the resource that waits longest has waited.",
            registry=registry,
        )
        self.resync_age = Gauge(
            "gantry_operator_resync_age_seconds",
            "Time since the last full comparison.",
            registry=registry,
        )
        self.pruned = Counter(
            "gantry_operator_pruned_objects",
            "Objects whose deletion no watch reported.",
            ("kind",),
            registry=registry,
        )
        self.stalled = Counter(
            "gantry_operator_stalled_watches",
            "Comparisons that found a watch behind for longer than it may be.",
            ("kind",),
            registry=registry,
        )
        self.leading = Gauge(
            "gantry_operator_leading", "1 while this operator may act.", registry=registry
        )
        self.streams = Gauge(
            "gantry_operator_role_streams",
            "Controller groups that are followed.",
            registry=registry,
        )
        self.epoch = Gauge(
            "gantry_group_master_epoch", "Master epoch of a group.", _GROUP, registry=registry
        )
        self.in_sync = Gauge(
            "gantry_group_in_sync_replicas",
            "Replicas of a group that are in sync.",
            _GROUP,
            registry=registry,
        )
        self.available = Gauge(
            "gantry_group_available",
            "1 if a master serves, 0 if not, -1 if that cannot be observed.",
            _GROUP,
            registry=registry,
        )

    def note_group(self, key: Key, status: Body) -> None:
        """Takes a broker group's numbers from its status."""
        labels = (key.namespace, key.name)
        master = status.get("master") or {}
        self.epoch.labels(*labels).set(master.get("epoch", 0))
        self.in_sync.labels(*labels).set(len(status.get("inSyncReplicas") or ()))
        for condition in status.get("conditions") or ():
            if condition["type"] == "Available":
                value = {"True": 1, "False": 0}.get(condition["status"], -1)
                self.available.labels(*labels).set(value)

    def drop_group(self, key: Key) -> None:
        """Forgets a deleted group, so that the number of series stays bounded."""
        for gauge in (self.epoch, self.in_sync, self.available):
            try:
                gauge.remove(key.namespace, key.name)
            except KeyError:
                continue
