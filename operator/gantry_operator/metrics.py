"""The operator's metrics, in a registry of its own so that many operators fit into one process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

if TYPE_CHECKING:
    from gantry_operator.cache import Key
    from gantry_operator.plan.observed import Body

_GROUP = ("namespace", "group")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of one operator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Nobody else exports a second gauge for each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self._reconciling()
        self._hearing()
        self._groups()

    def _gauge(self, name: str, meaning: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _counter(self, name: str, meaning: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"gantry_operator_{name}", meaning, labels, registry=self.registry)

    def _reconciling(self) -> None:
        self.reconciles = self._counter(
            "reconciles",
            "Reconciles by kind and result (ok, retry, ending, bug).",
            ("kind", "result"),
        )
        self.seconds = Histogram(
            "gantry_operator_reconcile_seconds",
            "Duration of a reconcile.",
            ("kind",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.repeats = self._counter(
            "repeated_reconciles",
            "Reconciles that did what the ones before them had done, without any effect.",
            ("kind",),
        )
        self.spins = self._counter(
            "reconciles_without_change",
            "Reconciles that followed each other at once although nothing that they read changed.",
            ("kind",),
        )
        self.disruptions = self._counter(
            "disruptions", "Disruptive actions that were carried out.", ("kind", "action")
        )
        self.decisions = self._gauge(
            "gantry_operator_recorded_decisions",
            "Decisions that are kept for a report: about groups, or about entities.",
            ("ring",),
        )
        self.decision_bytes = self._gauge(
            "gantry_operator_recorded_bytes", "Memory that they take, about.", ("ring",)
        )
        self.decisions_dropped = self._counter(
            "recorded_decisions_dropped", "Decisions that made room for later ones.", ("ring",)
        )
        self.table_reads = self._counter(
            "table_reads",
            "Reads of the topics, users or consumer groups of a cluster: whole, or same as before.",
            ("kind", "result"),
        )
        self.drifts = self._counter(
            "drifts",
            "Changes that others made to what a Topic, MessageUser or ConsumerGroup owns; undone.",
            ("kind",),
        )
        self.queue_depth = self._gauge(
            "gantry_operator_queue_depth", "Resources waiting to be looked at."
        )
        self.queue_age = self._gauge(
            "gantry_operator_queue_oldest_seconds",
            "How long the resource that waits longest has waited; topics, users and consumer "
            "groups come last and do not count.",
        )
        self.image_groups = self._gauge(
            "gantry_operator_default_image_groups",
            "Groups that get the operator's image: under_way, or waiting for their turn.",
            ("state",),
        )
        self.leading = self._gauge("gantry_operator_leading", "1 while this operator may act.")

    def _hearing(self) -> None:
        self.resync_age = self._gauge(
            "gantry_operator_resync_age_seconds", "Time since the last full comparison."
        )
        self.pruned = self._counter(
            "pruned_objects", "Objects whose deletion no watch reported.", ("kind",)
        )
        self.stalled = self._counter(
            "stalled_watches",
            "Comparisons that found a watch behind for longer than it may be.",
            ("kind",),
        )
        self.relists = self._counter(
            "relists",
            "Lists that were read because a watch had begun anew from a list of its own.",
            ("kind",),
        )
        self.streams = self._gauge("gantry_operator_role_streams", "Quorums that are followed.")

    def _groups(self) -> None:
        self.epoch = self._gauge("gantry_group_master_epoch", "Master epoch of a group.", _GROUP)
        self.in_sync = self._gauge(
            "gantry_group_in_sync_replicas", "Replicas of a group that are in sync.", _GROUP
        )
        self.available = self._gauge(
            "gantry_group_available",
            "1 if a master serves, 0 if not, -1 if that cannot be observed.",
            _GROUP,
        )
        self.fronts_available = self._gauge(
            "gantry_operator_fronts_available",
            "1 if clients are led to the fronts, 0 if not, -1 if that is not known.",
            _GROUP,
        )
        self.tier_healthy = self._gauge(
            "gantry_group_tier_healthy",
            "1 if the master uploads to the tier, 0 if it cannot, -1 if that is not known.",
            _GROUP,
        )

    def note_group(self, key: Key, status: Body) -> None:
        """Takes a broker group's numbers from its status."""
        labels = (key.namespace, key.name)
        master = status.get("master") or {}
        if "shards" not in status:  # each has an epoch of its own
            self.epoch.labels(*labels).set(master.get("epoch", 0))
        self.in_sync.labels(*labels).set(len(status.get("inSyncReplicas") or ()))
        gauges = {"Available": self.available, "TierHealthy": self.tier_healthy}
        for condition in status.get("conditions") or ():
            gauge = gauges.get(condition["type"])
            if gauge is not None:
                gauge.labels(*labels).set({"True": 1, "False": 0}.get(condition["status"], -1))

    def note_fronts(self, key: Key, status: Body) -> None:
        """Takes what is said of a front group's fronts from its status."""
        for condition in status.get("conditions") or ():
            if condition["type"] == "Available":
                value = {"True": 1, "False": 0}.get(condition["status"], -1)
                self.fronts_available.labels(key.namespace, key.name).set(value)

    def drop_fronts(self, key: Key) -> None:
        """Forgets a deleted front group."""
        with contextlib.suppress(KeyError):
            self.fronts_available.remove(key.namespace, key.name)

    def drop_group(self, key: Key) -> None:
        """Forgets a deleted group, so that the number of series stays bounded."""
        for gauge in (self.epoch, self.in_sync, self.available, self.tier_healthy):
            try:
                gauge.remove(key.namespace, key.name)
            except KeyError:
                continue
