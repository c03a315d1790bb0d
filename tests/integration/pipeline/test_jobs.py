"""Ingest and report, from a tier to files."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gantry_pipeline.jobs.ingest import ingest
from gantry_pipeline.jobs.report import figures, rendered
from gantry_pipeline.source.tier import Wanted
from gantry_protocol.errors import ConfigError
from support.tier_directory import TierDirectory, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def silent(_: str) -> None:
    """For progress nobody reads."""


def test_a_table_has_every_message_once_through_crashes(
    spark: SparkSession, tier_path: Path, tmp_path: Path
) -> None:
    tier = TierDirectory(tier_path)
    tier.claim(1)
    tier.append(messages("orders", 12))
    tier.append(messages("%RETRY%billing", 5))
    table = tmp_path / "table"
    first = ingest(spark, Wanted(tier.url), table, say=silent)
    assert (first.messages, first.versions) == (17, {tier.place.uid: 3})
    assert ingest(spark, Wanted(tier.url), table, say=silent).messages == 0
    # A crash behind the sink's commit, before the stream's own: the batch comes again.
    commits = list((table / "_checkpoint" / "commits").iterdir())
    assert sorted(path.name for path in commits) == [".0.crc", "0"]
    for path in commits:
        path.unlink()
    tier.append(messages("orders", 3))
    assert ingest(spark, Wanted(tier.url), table, say=silent).versions == {tier.place.uid: 4}
    found = spark.read.parquet(str(table))
    assert found.count() == 20
    assert found.select("shard", "physical_offset").distinct().count() == 20
    assert sorted(path.name for path in table.glob("topic=*")) == [
        "topic=%25RETRY%25billing",
        "topic=orders",
    ]
    assert [path.name for path in table.glob("topic=orders/*")] == ["day=2023-11-14"]


def test_a_table_is_of_one_tier(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "stray").write_text("x")
    with pytest.raises(ConfigError, match="holds something else"):
        ingest(spark, Wanted("file:///srv/tier"), tmp_path, say=silent)
    (tmp_path / "stray").unlink()
    (tmp_path / "_tier.json").write_text('{"tier":"file:///other"}')
    with pytest.raises(ConfigError, match="was made from file:///other, not from file:///srv/tier"):
        ingest(spark, Wanted("file:///srv/tier"), tmp_path, say=silent)


class Page(HTMLParser):
    """Counts tags and refuses what a self-contained page must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag != "meta":
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_shows_traffic_hot_queues_and_growth(spark: SparkSession, tier_path: Path) -> None:
    tier = TierDirectory(tier_path)
    tier.claim(1)
    tier.append(messages("orders", 40, queues=4))
    tier.claim(2)
    tier.append(messages("<b>stock", 12, queues=1))
    empty = TierDirectory(tier_path, uid="empty")
    empty.claim(1)
    found = figures(spark, Wanted(tier.url), silent)
    assert found.messages == 52
    assert round(sum(count for _, count, _ in found.traffic)) == 52
    assert found.bytes == tier.state.end
    assert found.queues[0][:3] == ("<b>stock", 0, 12)
    assert [row[0] for row in found.topics] == ["orders", "<b>stock"]
    assert found.groups == [("demo", tier.place.uid, 2, 52, found.growth[-1][1], 4, 2)]
    assert found.growth[-1][1] == sum(pack.size for pack in tier.state.packs)
    text = rendered(found, datetime(2026, 1, 2, tzinfo=UTC))
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.seen["svg"] == 4
    assert page.seen["table"] == 2
    assert "<b>stock" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_report_of_nothing(spark: SparkSession, tier_path: Path) -> None:
    tier = TierDirectory(tier_path)
    tier.claim(1)
    text = rendered(figures(spark, Wanted(tier.url), silent))
    assert "0 messages" in text
    assert "Nothing to plot" in text
