"""Ingest: messages of the tier as Parquet, by topic and day, each exactly once.

A stream over manifest versions into Spark's file sink. The checkpoint lies in the table's own
directory and says up to which version of each chain the table goes; a batch that was interrupted is
repeated with the same versions, and its half-written files are in no list. Spark reads a table by
that list (``_spark_metadata``). Other readers see every file, also those of a batch that was
interrupted: give them the table only when the last ingest ended well.

What it refuses: another tier for the same table, and damage: it stops before the version in
question, and goes on from there when the object is whole again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gantry_pipeline.source.tier import Wanted

CHECKPOINT = "_checkpoint"  # Spark's readers pass over names with an underscore
SOURCE = "_tier.json"


class Ingested(msgspec.Struct, frozen=True):
    """The additions of one run.

    Attributes:
        table: its directory.
        batches: that had something in them.
        messages: in these.
        versions: of each chain, up to which the table goes now.
    """

    table: str
    batches: int
    messages: int
    versions: dict[str, int]


class _Source(msgspec.Struct):
    tier: str


def ingest(
    spark: SparkSession,
    wanted: Wanted,
    table: Path,
    *,
    every_s: float | None = None,
    say: Callable[[str], None],
) -> Ingested:
    """Bring the table up to what the tier holds now, or keep it there every ``every_s`` seconds.

    Args:
        spark: the session.
        wanted: the tier; its detail and columns do not matter.
        table: the directory; made if it is not there.
        every_s: None ends when everything that was there at the start is in the table.
        say: for progress.

    Raises:
        ConfigError: the table was made from another tier.
    """
    _claim(table, wanted.url)
    options = {"detail": "messages", "cluster": wanted.cluster, "shard": wanted.shard}
    options |= wanted.store
    stream = (
        spark.readStream.format("tier")
        .options(**{name: value for name, value in options.items() if value})
        .load(wanted.url)
        .selectExpr("*", "to_date(stored_at) AS day")
    )
    writer = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(table / CHECKPOINT))
        .option("path", str(table))
        .option("compression", "zstd")
        .partitionBy("topic", "day")
    )
    if every_s is None:
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=f"{every_s} seconds").start()
    try:
        _await(query, say)
    finally:
        query.stop()
    done = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return Ingested(
        table=str(table),
        batches=len(done),
        messages=sum(int(progress["numInputRows"]) for progress in done),
        versions=_versions(table),
    )


def _await(query: StreamingQuery, say: Callable[[str], None]) -> None:
    """Until the query ends; what it did is told on the way."""
    told = -1
    while not query.awaitTermination(1):
        last = query.lastProgress
        if last is not None and last["batchId"] != told and last["numInputRows"]:
            told = last["batchId"]
            say(f"Batch {told}: {last['numInputRows']} messages")


def _claim(table: Path, url: str) -> None:
    """A table is of one tier."""
    table.mkdir(parents=True, exist_ok=True)
    mark = table / SOURCE
    try:
        found = msgspec.json.decode(mark.read_bytes(), type=_Source).tier
    except FileNotFoundError:
        if any(table.iterdir()):
            raise ConfigError(f"{table} holds something else; give an empty directory.") from None
        mark.write_bytes(msgspec.json.encode(_Source(url)))
        return
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{mark} is not what ingest wrote; give another directory.") from error
    if found != url:
        raise ConfigError(f"{table} was made from {found}, not from {url}; give another directory.")


def _versions(table: Path) -> dict[str, int]:
    """The offsets of the newest batch that was committed."""
    checkpoint = table / CHECKPOINT
    commits = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not commits:
        return {}
    offsets = (checkpoint / "offsets" / str(max(commits))).read_text(encoding="utf-8")
    return msgspec.json.decode(offsets.splitlines()[-1], type=dict[str, int])
