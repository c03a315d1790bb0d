"""The metrics of what a front reads from tiers: sums over the groups."""

from collections.abc import Iterable, Sequence

from gantry_protocol.process.metrics import counter, gauge
from prometheus_client.core import Metric

from gantry_broker.front.bucket.group import Buckets, GroupBucket


def bucket_metrics(buckets: Buckets | None, groups: Sequence[GroupBucket]) -> Iterable[Metric]:
    """The metrics as of now; 0 without a tier."""
    readers = [group.reader for group in groups if group.reader is not None]
    yield gauge(
        "gantry_front_tier_groups",
        "Groups without a master that are served from their tier.",
        sum(group.takes_requests for group in groups),
    )
    yield gauge(
        "gantry_front_tier_followed",
        "Groups whose tier is followed.",
        sum(not reader.reason and reader.index.chain.v > 0 for reader in readers),
    )
    yield counter(
        "gantry_front_tier_opened",
        "How often a group was served from its tier, anew for each version of it.",
        sum(group.opened for group in groups),
    )
    yield counter(
        "gantry_front_tier_served",
        "Requests that were answered from tiers.",
        sum(group.served for group in groups),
    )
    yield counter(
        "gantry_front_tier_read_bytes",
        "Bytes of records that clients were given from tiers.",
        sum(group.read_bytes for group in groups),
    )
    yield counter(
        "gantry_front_tier_fetched_bytes",
        "Bytes of runs that were fetched from the object store.",
        sum(reader.stats.fetched_bytes for reader in readers),
    )
    yield counter(
        "gantry_front_tier_damaged_reads",
        "Reads that were refused, since an object is damaged.",
        sum(reader.stats.refused for reader in readers),
    )
    yield gauge(
        "gantry_front_tier_waiting_pulls",
        "Pulls that wait for the object store; at most 512 for each group.",
        sum(group.waiting for group in groups),
    )
    yield gauge(
        "gantry_front_tier_cache_bytes",
        "Bytes of runs in memory, of all groups; at most 96 MiB, or one run.",
        0 if buckets is None else buckets.cache.held_bytes,
    )
    yield gauge(
        "gantry_front_tier_loading_bytes",
        "Bytes of runs on their way; at most 128 MiB, or one run.",
        0 if buckets is None else buckets.budget.used_bytes,
    )
    yield gauge(
        "gantry_front_tier_index_runs",
        "Runs in the indexes of tiers; at most 2,000,000 for each group.",
        sum(reader.index.runs.size for reader in readers),
    )
