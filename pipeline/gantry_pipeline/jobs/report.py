"""The report: traffic, hot queues and growth of a tier, as one HTML page.

Everything on it comes from manifests and pack footers; no message is read, so a large tier costs a
range read per pack. The price: of a run only the first and the last time are known, so its messages
are spread evenly in between. The page says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gantry_pipeline.jobs.page.html import page, table
from gantry_pipeline.jobs.page.plots import amount, bars, line, when

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from gantry_pipeline.source.tier import Wanted

BUCKETS = 120
BUCKET_MIN_MS = 1000
HOT_QUEUES = 15
TOPICS = 15
GROWTH_POINTS = 1000


class Figures(msgspec.Struct, frozen=True):
    """The page's figures, as numbers.

    Attributes:
        tier: its URL.
        groups: (cluster, shard, packs, messages, bytes, newest version, masters that uploaded).
        bucket_ms: width of a point of ``traffic``.
        traffic: (ms, messages, bytes) per bucket, empty buckets included; runs are spread.
        queues: (topic, queue, messages, bytes), hottest first.
        topics: (topic, queues, messages, bytes), largest first.
        growth: (ms, bytes in the tier from then on).
        messages: of all.
        bytes: of all their records.
    """

    tier: str
    groups: list[tuple[str, str, int, int, int, int, int]]
    bucket_ms: int
    traffic: list[tuple[int, float, float]]
    queues: list[tuple[str, int, int, int]]
    topics: list[tuple[str, int, int, int]]
    growth: list[tuple[int, int]]
    messages: int
    bytes: int


def figures(spark: SparkSession, wanted: Wanted, say: Callable[[str], None]) -> Figures:
    """Read manifests and footers, and add them up.

    Raises:
        GantryError: a chain or a footer is not sound; the audit says more.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    def load(detail: str) -> DataFrame:
        options = {"detail": detail, "cluster": wanted.cluster, "shard": wanted.shard}
        options |= wanted.store
        given = {name: value for name, value in options.items() if value}
        return spark.read.format("tier").options(**given).load(wanted.url)

    say("Reading manifests")
    packs = load("packs").cache()
    groups = packs.groupBy("cluster", "shard").agg(
        F.count("*").alias("packs"),
        F.sum("records").alias("records"),
        F.sum("size").alias("bytes"),
        F.max("version").alias("version"),
        F.countDistinct("epoch", "inc").alias("masters"),
    )
    found_groups = [tuple(row) for row in groups.orderBy("cluster", "shard").collect()]
    growth = _growth(packs)
    packs.unpersist()
    say("Reading footers")
    runs = (
        load("runs")
        .withColumn("from", F.unix_millis("first_stored_at"))
        .withColumn("to", F.unix_millis("last_stored_at"))
        .cache()
    )
    span = runs.agg(F.min("from"), F.max("to"), F.sum("records"), F.sum("size")).collect()[0]
    first, last, messages, size = (value or 0 for value in span)
    bucket_ms = max(BUCKET_MIN_MS, -(-(last - first) // BUCKETS))
    counted = (
        runs.withColumn(
            "buckets",
            F.expr(f"sequence((from - {first}) div {bucket_ms}, (to - {first}) div {bucket_ms})"),
        )
        .select(
            F.explode("buckets").alias("bucket"),
            (F.col("records") / F.size("buckets")).alias("records"),
            (F.col("size") / F.size("buckets")).alias("size"),
        )
        .groupBy("bucket")
        .agg(F.sum("records"), F.sum("size"))
        .collect()
    )
    traffic = {int(row[0]): (float(row[1]), float(row[2])) for row in counted}
    queues = (
        runs.groupBy("topic", "queue_id")
        .agg(F.sum("records").alias("records"), F.sum("size").alias("bytes"))
        .orderBy(F.desc("bytes"), "topic", "queue_id")
    )
    topics = (
        runs.groupBy("topic")
        .agg(
            F.countDistinct("shard", "queue_id").alias("queues"),
            F.sum("records").alias("records"),
            F.sum("size").alias("bytes"),
        )
        .orderBy(F.desc("bytes"), "topic")
    )
    result = Figures(
        tier=wanted.url,
        groups=found_groups,
        bucket_ms=bucket_ms,
        traffic=[
            (first + at * bucket_ms, *traffic.get(at, (0.0, 0.0)))
            for at in range(max(traffic, default=-1) + 1)
        ],
        queues=[tuple(row) for row in queues.limit(HOT_QUEUES).collect()],
        topics=[tuple(row) for row in topics.limit(TOPICS).collect()],
        growth=growth,
        messages=int(messages),
        bytes=int(size),
    )
    runs.unpersist()
    return result


def _growth(packs: DataFrame) -> list[tuple[int, int]]:
    """Bytes in the tier after each moment at which some were committed, thinned by Spark."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    timed = packs.select(F.unix_millis("committed_at").alias("ms"), "size")
    span = timed.agg(F.min("ms"), F.max("ms")).collect()[0]
    if span[0] is None:
        return []
    step = max(1, -(-(span[1] - span[0]) // GROWTH_POINTS))
    steps = (
        timed.groupBy(F.expr(f"(ms - {span[0]}) div {step}").alias("at"))
        .agg(F.max("ms").alias("ms"), F.sum("size").alias("size"))
        .orderBy("at")
        .collect()
    )
    total, found = 0, []
    for row in steps:
        total += int(row["size"])
        found.append((int(row["ms"]), total))
    return found


def rendered(found: Figures, now: datetime | None = None) -> str:
    """The page. ``now`` is for its heading."""
    stamp = (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M:%S UTC")
    seconds = found.bucket_ms / 1000
    hottest = found.queues[0][3] / found.bytes if found.bytes else 0.0
    sections = [
        ("Broker groups", _groups(found.groups)),
        (
            "Messages per second",
            line(
                [(at, count / seconds) for at, count, _ in found.traffic],
                unit="/s",
                label="messages per second over time",
            )
            + _note(
                f"One point per {amount(seconds, 's')}. The messages of a queue in one pack are "
                "spread evenly from the first to the last."
            ),
        ),
        (
            "Bytes per second",
            line(
                [(at, size / seconds) for at, _, size in found.traffic],
                unit="B/s",
                label="bytes of messages per second over time",
            ),
        ),
        (
            "Hot queues",
            bars(
                [(f"{topic} · {queue}", size) for topic, queue, _, size in found.queues],
                unit="B",
                label="bytes by queue",
            )
            + _note(f"The hottest queue has {hottest:.1%} of all bytes."),
        ),
        ("Largest topics", _topics(found.topics)),
        (
            "Growth of the tier",
            line(found.growth, unit="B", label="bytes in the tier over time")
            + _note("By the clocks of the brokers that committed."),
        ),
    ]
    span = ""
    if found.traffic:
        span = f" from {when(found.traffic[0][0])} to {when(found.traffic[-1][0])} UTC"
    subtitle = (
        f"{found.tier} · {found.messages:,} messages, {amount(found.bytes, 'B')}{span} · "
        f"made {stamp}"
    )
    return page("What is in the tier", subtitle, sections)


def _groups(groups: Sequence[Sequence[Any]]) -> str:
    headings = ("Cluster", "Shard", "Packs", "Messages", "Bytes", "Version", "Uploaders")
    return table(headings, groups) + _note("Uploaders: masterships that added packs.")


def _topics(topics: Sequence[tuple[str, int, int, int]]) -> str:
    return table(("Topic", "Queues", "Messages", "Bytes"), topics)


def _note(text: str) -> str:
    from html import escape

    return f'<p class="sub">{escape(text)}</p>'
