"""The audit: is what lies in the tier what was committed, all of it, once?

The judgement is the protocol's (:mod:`gantry_protocol.tier.judgement`), the same that ``gantry tier
verify`` passes; here it is spread. The driver judges chains and listings. Tasks open the packs that
the sound part of a chain names: every byte (``messages``), or only footers (``runs``). Their rows,
one per run, go through one window per queue, which finds what no single pack shows: a queue whose
offsets jump, or repeat. T6 is judged where the caller knows a confirm offset; T7 and T8 need the
brokers, T13 needs the clients: a clean audit does not claim them.

Damage is a row, never an exception; only a store that does not answer ends the job, because then
nothing is known.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import ConfigError
from gantry_protocol.tier.findings import FAULT, NOTE, Finding, sort_key
from gantry_protocol.tier.judgement import jump
from gantry_protocol.tier.keys import shard

from gantry_pipeline.jobs.inspecting import inspect, strays
from gantry_pipeline.jobs.judging import JudgedSource, Work
from gantry_pipeline.source import chain
from gantry_pipeline.source.tier import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gantry_protocol.tier.judgement import Judgement
    from pyspark.sql import DataFrame, SparkSession

    from gantry_pipeline.source.tier import Wanted

LEVELS = ("messages", "runs")
FINDINGS_MAX = 1000  # that are listed; a tier that is all damage need not be listed to the end


class AuditedGroup(msgspec.Struct, frozen=True):
    """One broker group in the account: what its chain says, as far as it is sound."""

    cluster: str
    shard: str
    group: str
    version: int
    epoch: int
    inc: int
    writer: str
    start: int
    end: int
    packs: int
    records: int
    bytes: int


class Account(msgspec.Struct, frozen=True):
    """The audit's result.

    Attributes:
        tier: its URL.
        level: messages or runs.
        groups: in order of cluster and shard.
        findings: faults first; at most FINDINGS_MAX are listed, and gathered of each kind.
        faults: how many were gathered.
        notes: likewise.
        seconds: without the start of Spark.
    """

    tier: str
    level: str
    groups: list[AuditedGroup]
    findings: list[Finding]
    faults: int
    notes: int
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong; notes are not wrong."""
        return self.faults == 0


def audit(
    spark: SparkSession,
    wanted: Wanted,
    *,
    level: str = "messages",
    confirmed: Mapping[str, int] | None = None,
    say: Callable[[str], None],
) -> Account:
    """Judge every broker group below the URL, or those that ``wanted`` names.

    Args:
        spark: runs the tasks.
        wanted: which tier, and what of it.
        level: messages or runs.
        confirmed: confirm offsets by shard, read after this began; others are not known.
        say: told what is done.

    Raises:
        ConfigError: there is no broker group; an option that makes no sense here.
        StoreError: the store did not answer.
    """
    if level not in LEVELS:
        raise ConfigError(f"There is no level {level!r}; there are {', '.join(LEVELS)}.")
    began = time.monotonic()
    objects = wanted.open()
    found = [] if wanted.shard else list(strays(objects, cluster=wanted.cluster))
    inspected = []
    for place in chain.shards(objects, cluster=wanted.cluster, shard=wanted.shard):
        say(f"Reading the manifest of {place.uid}")
        inspected.append(inspect(objects, place))
        if confirmed is not None and place.uid in confirmed:
            inspected[-1].confirmed(confirmed[place.uid])
    for item in inspected:
        found += item.findings
    packs = sum(len(item.there) for item in inspected)
    size = sum(pack.entry.size for item in inspected for pack in item.there)
    say(f"Judging {packs} packs, {size / 1e6:.1f} MB, of {len(inspected)} broker groups")
    with _opened(spark, wanted, level, inspected) as opened:
        rows = opened.cache()  # one pass over the bytes, though two questions are asked of the rows
        damage = rows.where("finding is not null").limit(FINDINGS_MAX).collect()
        found += [msgspec.msgpack.decode(row.finding, type=Finding) for row in damage]
        unjudged = {(row.shard, row.lo) for row in damage}
        found += _jumps(rows, unjudged | {gap for item in inspected for gap in _gaps(item)})
        rows.unpersist()
    found.sort(key=sort_key)
    faults = sum(finding.grade == FAULT for finding in found)
    return Account(
        tier=wanted.url,
        level=level,
        groups=[_group(item) for item in inspected],
        findings=found[:FINDINGS_MAX],
        faults=faults,
        notes=sum(finding.grade == NOTE for finding in found),
        seconds=round(time.monotonic() - began, 3),
    )


def _group(one: Judgement) -> AuditedGroup:
    state = one.state
    return AuditedGroup(
        cluster=one.place.cluster,
        shard=one.place.uid,
        group=one.group,
        version=state.v,
        epoch=state.pair.epoch,
        inc=state.pair.inc,
        writer=state.writer,
        start=state.first,
        end=state.end,
        packs=len(one.packs),
        records=sum(pack.entry.count for pack in one.packs),
        bytes=sum(pack.entry.size for pack in one.packs),
    )


@contextmanager
def _opened(
    spark: SparkSession, wanted: Wanted, level: str, inspected: list[Judgement]
) -> Iterator[DataFrame]:
    """Rows of runs and findings of all packs that are there."""
    work = [
        Work(wanted, level, pieces, item.state.tail)
        for item in inspected
        for pieces in grouped(item.place, item.there, whole=level == "messages")
    ]
    spark.dataSource.register(JudgedSource)
    with tempfile.NamedTemporaryFile(prefix="gantry-audit-") as file:
        file.write(msgspec.msgpack.encode([msgspec.msgpack.encode(item) for item in work]))
        file.flush()
        yield spark.read.format(JudgedSource.name()).load(file.name)


def _gaps(one: Judgement) -> Iterator[tuple[str, int]]:
    """Where a pack is not there."""
    there = {pack.entry.key for pack in one.there}
    for pack in one.packs:
        if pack.entry.key not in there:
            yield one.place.uid, pack.entry.lo


def _jumps(rows: DataFrame, unjudged: set[tuple[str, int]]) -> list[Finding]:
    """Queues whose offsets do not continue from one run to the next.

    A queue may begin anew at 0 (its topic was deleted and made again). A hole is no finding of its
    own where a pack in between could not be judged.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it

    queue = Window.partitionBy("cluster", "shard", "topic", "queue_id").orderBy("lo", "position")
    jumps = (
        rows.where("finding is null")
        .withColumn("expected", F.lag(F.col("first") + F.col("records")).over(queue))
        .withColumn("before", F.lag("lo").over(queue))
        .where("first <> expected and first <> 0")
        .limit(FINDINGS_MAX)
        .collect()
    )
    found = []
    for row in jumps:
        hidden = any(uid == row.shard and row.before < lo < row.lo for uid, lo in unjudged)
        if row["first"] > row.expected and hidden:
            continue
        found.append(
            jump(
                shard(row.cluster, row.shard).key(row.pack),
                row.topic,
                row.queue_id,
                first=row["first"],
                expected=row.expected,
                byte=row.position,
                lo=row.lo,
            )
        )
    return found
