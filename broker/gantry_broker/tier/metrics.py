"""Metrics of a member's tier, in Prometheus' words: uploads, the index, reads, local retention."""

from collections.abc import Callable, Iterable

from gantry_protocol.process.metrics import counter, gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.tier.core.values import State
from gantry_broker.tier.local_retention import LocalRetention
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.service import TierService
from gantry_broker.tier.shared import SharedTier
from gantry_broker.tier.stores.metrics import StoreCollector
from gantry_broker.tier.uploader import Uploader
from gantry_broker.tier.waits import TierWaits


class TierCollector(Collector):
    """Reads everything when it is scraped; nothing is reported without a tier.

    Args:
        service: the tier; None before the broker has joined its group.
        waits: the pulls that wait for the tier.
    """

    def __init__(
        self,
        service: Callable[[], TierService | None],
        waits: TierWaits,
    ) -> None:
        """Nothing is counted here."""
        self._service = service
        self._waits = waits

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        service = self._service()
        if service is None:
            return
        yield from _uploads(service.uploader)
        yield from _index(service.reader)
        yield from _reads(service.reader)
        yield from _retention(service.retention)
        yield from self._waiting()

    def _waiting(self) -> Iterable[Metric]:
        waits = self._waits
        yield gauge(
            "gantry_tier_pulls_waiting",
            "Pulls that wait for the tier, on the master.",
            len(waits),
        )
        unanswered = CounterMetricFamily(
            "gantry_tier_pulls_sent_back",
            "Pulls that the tier did not answer.",
            labels=["reason"],
        )
        unanswered.add_metric(["deadline"], waits.timed_out)
        unanswered.add_metric(["too_many"], waits.refused)
        yield unanswered


class SharedTierCollector(Collector):
    """Figures of what the tiers of a process's groups share; nothing without one.

    Args:
        shared: of the process; None before the first group has begun with its tier.
    """

    def __init__(self, shared: Callable[[], SharedTier | None]) -> None:
        """Nothing is counted here."""
        self._shared = shared

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        shared = self._shared()
        if shared is None:
            return
        cache, room = shared.cache, shared.room
        yield counter("gantry_tier_cache_hits", "Runs that were in memory.", cache.hits)
        yield counter("gantry_tier_cache_misses", "Runs that were fetched.", cache.misses)
        yield gauge("gantry_tier_cache_bytes", "Bytes of runs in memory.", cache.held_bytes)
        yield gauge(
            "gantry_tier_loading_bytes", "Bytes of runs on their way.", shared.budget.used_bytes
        )
        yield gauge(
            "gantry_tier_index_runs_left",
            "Runs that may still come into the indexes of all groups of the process.",
            shared.runs_left(),
        )
        yield gauge(
            "gantry_tier_pack_bytes",
            "Bytes of the log whose packs are being made or sent, of all groups of the process.",
            room.used_bytes,
        )
        yield gauge(
            "gantry_tier_packs_waiting", "Groups that wait for room for a pack.", room.waiting
        )
        yield from StoreCollector(lambda: shared.calls).collect()


def _uploads(uploader: Uploader) -> Iterable[Metric]:
    role = uploader.role
    state = GaugeMetricFamily(
        "gantry_tier_upload_state", "1 for the state of the upload role.", labels=["state"]
    )
    for item in State:
        state.add_metric([item.value], float(item is role.state))
    yield state
    yield gauge(
        "gantry_tier_upload_stalled",
        "1 while nothing is committed although something waits.",
        uploader.status.stalled,
    )
    committed = GaugeMetricFamily(
        "gantry_tier_committed_offset_bytes",
        "Where the tier ends, by this broker's own commits; absent while it does not upload.",
    )
    behind = GaugeMetricFamily(
        "gantry_tier_lag_bytes",
        "Confirmed bytes of the log that are not in the tier; absent while it does not upload.",
    )
    if role.committed_end is not None and role.session is not None:
        committed.add_metric([], role.committed_end)
        behind.add_metric([], max(0, role.session.local.limit - role.committed_end))
    yield committed
    yield behind
    yield counter("gantry_tier_commits", "Versions of the chain written here.", uploader.commits)
    failed = CounterMetricFamily(
        "gantry_tier_upload_failed_calls",
        "Calls of the upload role that failed, by kind of failure.",
        labels=["reason"],
    )
    for reason, count in sorted(uploader.failures.items()):
        failed.add_metric([reason], count)
    yield failed


def _index(reader: TierReader) -> Iterable[Metric]:
    index = reader.index
    offsets = GaugeMetricFamily(
        "gantry_tier_chain_offset_bytes",
        "The tier as read from its chain: start and end, and up to where it can be read here.",
        labels=["position"],
    )
    offsets.add_metric(["start"], index.chain.start)
    offsets.add_metric(["end"], index.chain.end)
    offsets.add_metric(["readable"], index.readable_end)
    yield offsets
    yield gauge("gantry_tier_chain_version", "Newest version of the chain read.", index.chain.v)
    yield gauge("gantry_tier_index_runs", "Runs in the index of the tier.", index.runs.size)
    yield gauge("gantry_tier_index_packs_waiting", "Packs not in the index yet.", index.waiting)
    yield gauge(
        "gantry_tier_index_packs_skipped",
        "Packs that cannot be read; they are asked for again, their records are refused by name.",
        len(index.losses.packs),
    )
    yield gauge(
        "gantry_tier_removed_offset_bytes",
        "Everything in the log below this was removed from the store; 0 while nothing was.",
        index.losses.removed_below,
    )
    yield gauge(
        "gantry_tier_readable",
        "1 while everything that the tier should hold can be read here.",
        not reader.readable.complaint,
    )
    yield counter(
        "gantry_tier_asked_again",
        "Packs that could not be read and were asked for again.",
        index.losses.asked_again,
    )
    yield gauge("gantry_tier_following", "1 while the chain can be followed.", not reader.reason)


def _reads(reader: TierReader) -> Iterable[Metric]:
    stats = reader.stats
    reads = CounterMetricFamily(
        "gantry_tier_reads", "Reads below the local log by outcome.", labels=["outcome"]
    )
    reads.add_metric(["found"], stats.found)
    reads.add_metric(["gone"], stats.gone)
    reads.add_metric(["behind"], stats.behind)
    reads.add_metric(["trouble"], stats.trouble)
    reads.add_metric(["refused"], stats.refused)
    yield reads
    yield counter("gantry_tier_read_bytes", "Bytes served from the tier.", stats.served_bytes)
    yield counter(
        "gantry_tier_fetched_bytes", "Bytes of runs fetched from the store.", stats.fetched_bytes
    )


def _retention(retention: LocalRetention | None) -> Iterable[Metric]:
    if retention is None:
        return
    yield counter("gantry_tier_trims", "How often the local log was trimmed.", retention.trims)
    yield counter(
        "gantry_tier_trimmed_bytes", "Bytes deleted of the local log.", retention.trimmed_bytes
    )
    yield counter("gantry_tier_states", "Whole states written to the log.", retention.states)
    yield gauge(
        "gantry_tier_retention_held",
        "1 while more is on the disk than was asked for.",
        bool(retention.reason),
    )
