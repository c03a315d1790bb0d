"""Snapshots as operators see them: POST /v1/quorum/snapshot, and the metrics of their making."""

from collections.abc import Iterator
from itertools import accumulate

from aiohttp import web
from gantry_protocol.admin import ErrorView, SnapshotView
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.process.sync_times import sync_times
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gantry_controller.node import RaftNode
from gantry_controller.node.disk import DiskError
from gantry_controller.node.snapshots import PAUSE_BOUNDS_S, SnapshotBusy, SnapshotStats

PREFIX = "gantry_controller_"
PATH = "/v1/quorum/snapshot"


class SnapshotApi:
    """Takes a snapshot of the answering node when asked; every node takes its own."""

    def __init__(self, node: RaftNode) -> None:
        self._node = node

    def add_to(self, server: HttpServer) -> None:
        """Serves the route on ``server``."""
        server.add_route("POST", PATH, self._post)

    async def _post(self, _: web.Request) -> web.Response:
        snapshots = self._node.snapshots
        try:
            meta = await snapshots.take()
        except SnapshotBusy as error:
            return _refused(409, "SNAPSHOT_BUSY", error)
        except DiskError as error:
            return _refused(507, "SNAPSHOT_FAILED", error)
        stats = snapshots.stats
        view = SnapshotView(
            index=meta.index,
            term=meta.term,
            size_bytes=stats.last_bytes,
            took_ms=round(stats.last_s * 1000),
        )
        return web.json_response(text=view.to_json())


def _refused(status: int, error: str, reason: Exception) -> web.Response:
    view = ErrorView(error=error, message=str(reason))
    return web.json_response(text=view.to_json(), status=status)


class SnapshotMetrics(Collector):
    """Metrics of one node's snapshots and of its log."""

    def __init__(self, node: RaftNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        stats, shipped = self._node.snapshots.stats, self._node.traffic.sender.stats
        yield _count("snapshots_taken_total", "Snapshots this node took.", stats.taken)
        yield _count(
            "snapshots_installed_total", "Snapshots this node got from a peer.", stats.installed
        )
        yield _count("snapshots_failed_total", "Snapshots that were given up.", stats.failed)
        yield _count("snapshots_sent_total", "Snapshots this node gave to peers.", shipped.sent)
        yield _count("snapshot_sent_bytes_total", "Bytes of snapshots sent.", shipped.sent_bytes)
        yield _count(
            "snapshot_received_bytes_total",
            "Bytes of snapshots received.",
            self._node.traffic.receiver.received_bytes,
        )
        yield _count(
            "snapshot_transfers_interrupted_total",
            "Connections that broke amid a snapshot; the next one went on there.",
            shipped.interrupted,
        )
        yield _gauge(
            "snapshot_index", "Last entry of the newest snapshot.", self._node.snapshots.index
        )
        yield _gauge("snapshot_bytes", "Size of the last snapshot taken.", stats.last_bytes)
        yield _gauge("snapshot_seconds", "Duration of the last snapshot taken.", stats.last_s)
        yield _gauge(
            "snapshot_longest_slice_seconds",
            "Longest time the event loop stood still for a snapshot.",
            stats.longest_slice_s,
        )
        yield _pauses(stats)
        yield _gauge(
            "log_bytes_since_snapshot", "Applied log behind the newest snapshot.", stats.log_bytes
        )
        yield _gauge("log_file_bytes", "Size of the log's files.", self._node.log_file_bytes)
        yield sync_times(
            PREFIX + "disk_sync_seconds",
            "How long the log's disk took to make a batch durable.",
            [self._node.disk_sync_times],
        )
        yield _gauge(
            "disk_silent_seconds",
            "How long the log's disk has owed a confirmation without any.",
            self._node.disk_silent_s,
        )
        yield _gauge(
            "disk_hangs",
            "1 while the log's disk has been silent for too long.",
            int(self._node.disk_hangs),
        )
        yield _count(
            "disk_gave_way_total",
            "Times this node led, its disk hung, and it let another lead.",
            self._node.stats.gave_way,
        )
        held = self._node.messages_held
        yield _gauge("messages_held", "Messages that wait for the log's disk.", len(held))
        yield _count(
            "messages_held_dropped_total",
            "Messages dropped as too many waited for the log's disk.",
            held.dropped,
        )


def _pauses(stats: SnapshotStats) -> HistogramMetricFamily:
    bounds = [*map(str, PAUSE_BOUNDS_S), "+Inf"]
    return HistogramMetricFamily(
        PREFIX + "snapshot_slice_seconds",
        "Times the event loop stood still for a snapshot.",
        buckets=list(zip(bounds, accumulate(stats.pauses), strict=True)),
        sum_value=stats.paused_s,
    )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _count(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)
