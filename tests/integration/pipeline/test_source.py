"""The data source in Spark: batch and stream, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def two_groups(root: Path) -> tuple[TierDirectory, TierDirectory]:
    """One with a failover and a blank, one small."""
    first = TierDirectory(root)
    first.claim(1)
    first.append(messages("orders", 30))
    first.append([*messages("billing", 10, queues=1), None, *messages("orders", 5)])
    first.claim(3)
    first.append(messages("orders", 20))
    second = TierDirectory(root, uid="bbbb", group="stock")
    second.claim(7, start=1000)
    second.append(messages("stock", 8))
    return first, second


def load(spark: SparkSession, tier: TierDirectory, **options: str) -> DataFrame:
    return spark.read.format("tier").options(**options).load(tier.url)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_a_batch_reads_every_message_once(spark: SparkSession, tier_path: Path) -> None:
    first, _ = two_groups(tier_path)
    frame = load(spark, first)
    assert frame.count() == 73
    assert frame.select("shard", "physical_offset").distinct().count() == 73
    billing = frame.where("topic = 'billing'").orderBy("queue_offset").collect()
    assert [row.queue_offset for row in billing] == list(range(10))
    assert bytes(billing[3].body) == b"billing-3" * 3
    assert bytes(billing[3].properties) == b"TAGS\x01red\x02"
    assert str(billing[3].stored_at).startswith("2023-11-14 22:13:20")


def test_details_and_columns(spark: SparkSession, tier_path: Path) -> None:
    first, second = two_groups(tier_path)
    packs = load(spark, first, detail="packs", columns="shard,version,epoch,lo,records,writer")
    assert rows(packs.orderBy("shard", "lo")) == [
        (first.place.uid, 2, 1, 0, 30, "orders-broker-1"),
        (first.place.uid, 3, 1, first.state.packs[1].lo, 15, "orders-broker-1"),
        (first.place.uid, 5, 3, first.state.packs[-1].lo, 20, "orders-broker-3"),
        (second.place.uid, 2, 7, 1000, 8, "orders-broker-7"),
    ]
    runs = load(spark, first, detail="runs", shard=first.place.uid)
    assert rows(runs.selectExpr("sum(records)", "count(distinct topic)")) == [(65, 2)]
    some = load(spark, first, shard="bbbb", columns="queue_offset,topic")
    assert max(rows(some)) == (3, "stock")


def test_a_batch_of_an_older_version(spark: SparkSession, tier_path: Path) -> None:
    first, _ = two_groups(tier_path)
    frame = load(spark, first, detail="packs", shard=first.place.uid, version="3")
    assert frame.count() == 2
    with pytest.raises(Exception, match="ends at version 5; version 9 does not exist"):
        load(spark, first, shard=first.place.uid, version="9").count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"detail": "bytes"}, "There is no detail 'bytes'; there are packs, runs, messages"),
        ({"columns": "topic,colour"}, "messages have no column 'colour'"),
        ({"colour": "red"}, "The tier source has no option 'colour'"),
        ({"version": "3"}, "give the option shard, too"),
        ({"shard": "cccc"}, "There is no broker group of shard cccc"),
    ],
    ids=["detail", "column", "option", "version", "shard"],
)
def test_an_option_that_cannot_be_meant(
    spark: SparkSession, tier_path: Path, options: dict[str, str], said: str
) -> None:
    first, _ = two_groups(tier_path)
    with pytest.raises(Exception, match=said):
        load(spark, first, **options).count()


def test_a_flipped_byte_fails_the_job_and_names_object_and_byte(
    spark: SparkSession, tier_path: Path
) -> None:
    first, _ = two_groups(tier_path)
    name = first.state.packs[1].key
    first.flip(name, 100)
    with pytest.raises(Exception, match=rf"{first.place.key(name)} is damaged at byte 4: the body"):
        load(spark, first).count()


def test_a_hole_in_the_chain_fails_the_job_and_names_the_version(
    spark: SparkSession, tier_path: Path
) -> None:
    first, _ = two_groups(tier_path)
    first.path(f"man/{3:020d}").unlink()
    with pytest.raises(
        Exception, match="The manifest is broken at version 4: T1: it follows version 2"
    ):
        load(spark, first, detail="packs").count()


def test_a_stream_reads_each_version_once(
    spark: SparkSession, tier_path: Path, tmp_path: Path
) -> None:
    """Through restarts, a new group, and nothing new at all."""
    first = TierDirectory(tier_path)
    first.claim(1)
    first.append(messages("orders", 6))

    def run() -> list[tuple[Any, ...]]:
        stream = (
            spark.readStream.format("tier")
            .option("columns", "shard,queue_id,queue_offset,version")
            .load(first.url)
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        return sorted(rows(spark.read.parquet(str(tmp_path / "out"))))

    assert len(run()) == 6
    assert len(run()) == 6
    first.append(messages("orders", 4))
    second = TierDirectory(tier_path, uid="bbbb")
    second.claim(2)
    second.append([Sent("stock", 0, b"x")])
    found = run()
    assert len(found) == len(set(found)) == 11
    assert [row[3] for row in found if row[0] == first.place.uid].count(3) == 4
