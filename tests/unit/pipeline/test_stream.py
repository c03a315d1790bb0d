"""What a stream does with offsets, and what a batch is cut into; no Spark runs here."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gantry_pipeline.source import tier as tier_source
from gantry_pipeline.source.rows import Pieces
from gantry_pipeline.source.tier import TierReader, TierStream, Wanted, wanted
from gantry_protocol.errors import ConfigError
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from support.tier_directory import TierDirectory, messages

EVERYTHING = ReadAllAvailable()


def a_tier(root: Path, uid: str = "aaaa", packs: int = 3) -> TierDirectory:
    tier = TierDirectory(root, uid=uid)
    tier.claim(1)
    for _ in range(packs):
        tier.append(messages("orders", 10))
    return tier


def names(partitions: list[Any]) -> list[list[str]]:
    decoded = [msgspec.msgpack.decode(one.value, type=Pieces) for one in partitions]
    return [[pack.entry.key for pack in pieces.packs] for pieces in decoded]


def keys(tier: TierDirectory, first: int, last: int) -> list[str]:
    return [pack.key for pack in tier.state.packs[first:last]]


def test_a_batch_is_bounded_in_bytes_and_never_splits_a_version(tmp_path: Path) -> None:
    first, second = a_tier(tmp_path), a_tier(tmp_path, "bbbb")
    size = first.state.packs[0].size
    stream = TierStream(Wanted(first.url))
    assert stream.initialOffset() == {}
    seen: list[dict[str, int]] = [{}]
    while (end := stream.latestOffset(seen[-1], ReadMaxBytes(2 * size))) != seen[-1]:
        seen.append(end)
    assert seen[-1] == {"aaaa": 4, "bbbb": 4}
    read = [names(stream.partitions(a, b)) for a, b in pairwise(seen)]
    found = [name for batch in read for group in batch for name in group]
    assert sorted(found) == sorted(keys(first, 0, 3) + keys(second, 0, 3))
    assert max(sum(map(len, batch)) for batch in read) == 2


def test_a_pack_above_the_bound_is_a_batch_of_its_own(tmp_path: Path) -> None:
    a_tier(tmp_path, packs=2)
    stream = TierStream(Wanted(tmp_path.as_uri()))
    end = stream.latestOffset({}, ReadMaxBytes(1))
    assert end == {"aaaa": 2}
    assert stream.latestOffset(end, ReadMaxBytes(1)) == {"aaaa": 3}


def test_a_version_of_several_packs_is_read_as_one(tmp_path: Path) -> None:
    tier = a_tier(tmp_path, packs=0)
    tier.append_together(messages("orders", 3), messages("orders", 3))
    tier.append(messages("orders", 3))
    stream = TierStream(Wanted(tier.url))
    end = stream.latestOffset({}, ReadMaxBytes(1))
    assert end == {"aaaa": 2}
    assert names(stream.partitions({}, end)) == [keys(tier, 0, 2)]


def test_what_comes_later_is_found_and_nothing_is_read_twice(tmp_path: Path) -> None:
    tier = a_tier(tmp_path, packs=1)
    stream = TierStream(Wanted(tier.url))
    end = stream.latestOffset({}, EVERYTHING)
    assert stream.latestOffset(end, EVERYTHING) == end
    tier.claim(2)
    tier.append(messages("orders", 1))
    later = stream.latestOffset(end, EVERYTHING)
    assert later == {"aaaa": 4}
    assert names(stream.partitions(end, later)) == [keys(tier, 1, 2)]


def test_available_now_ends_where_the_chain_was(tmp_path: Path) -> None:
    tier = a_tier(tmp_path, packs=1)
    stream = TierStream(Wanted(tier.url))
    stream.prepareForTriggerAvailableNow()
    tier.append(messages("orders", 1))
    a_tier(tmp_path, "bbbb")
    assert stream.latestOffset({}, EVERYTHING) == {"aaaa": 2}


def test_after_a_restart_the_last_batch_is_the_same(tmp_path: Path) -> None:
    tier = a_tier(tmp_path)
    again = TierStream(Wanted(tier.url))
    assert names(again.partitions({"aaaa": 2}, {"aaaa": 3})) == [keys(tier, 1, 2)]


def test_a_checkpoint_of_another_tier_is_refused(tmp_path: Path) -> None:
    tier = a_tier(tmp_path)
    stream = TierStream(Wanted(tier.url))
    with pytest.raises(ConfigError, match="ends at version 4, and this stream has read up to 9"):
        stream.latestOffset({"aaaa": 9}, EVERYTHING)
    with pytest.raises(ConfigError, match="Version 9 of the manifest of aaaa is gone"):
        stream.partitions({"aaaa": 2}, {"aaaa": 9})
    with pytest.raises(ConfigError, match="Version 1 of the manifest of cccc is gone"):
        stream.partitions({}, {"cccc": 1})


def test_small_packs_share_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = a_tier(tmp_path, packs=5)
    size = max(pack.size for pack in tier.state.packs)
    monkeypatch.setattr(tier_source, "PARTITION_BYTES", 2 * size)
    whole = TierReader(Wanted(tier.url)).partitions()
    assert names(whole) == [keys(tier, 0, 2), keys(tier, 2, 4), keys(tier, 4, 5)]
    runs = TierReader(Wanted(tier.url, detail="runs")).partitions()
    assert names(runs) == [keys(tier, 0, 5)]  # footers only


def test_executors_are_told_where_the_driver_finds_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:9000")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    asked = wanted({"path": "s3://b/p", "region": "us-east-1"})
    assert asked.store == {"endpoint": "http://store:9000", "region": "us-east-1"}
    assert wanted({"path": "file:///b"}).store == {}


def test_options_are_told_apart_whatever_their_case() -> None:
    found = wanted({"path": "s3://b/p", "secretaccesskey": "s", "Columns": "topic, size"})
    assert found.store == {"secretAccessKey": "s"}
    assert found.columns == ("topic", "size")
    assert "topic" in str(found.schema)
