"""The audit: silent on what is sound, and one row with object and offset for each thing planted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from gantry_pipeline.jobs.audit import Account, audit
from gantry_pipeline.source.tier import Wanted
from gantry_protocol.tier.keys import ManKey, Pair
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_tier(root: Path) -> TierDirectory:
    """Three packs under two masters."""
    tier = TierDirectory(root)
    tier.claim(1)
    tier.append(messages("orders", 12))
    tier.append([*messages("orders", 6), None, *messages("billing", 4)])
    tier.claim(2)
    tier.append(messages("orders", 8))
    return tier


def judged(spark: SparkSession, tier: TierDirectory, level: str = "messages") -> Account:
    return audit(spark, Wanted(tier.url), level=level, say=lambda _: None)


def lines(account: Account) -> list[tuple[str, str, int | None, int | None, str]]:
    return [
        (found.rule, found.object.split("/", 3)[3], found.byte, found.offset, found.reason)
        for found in account.findings
    ]


@pytest.mark.parametrize("level", ["messages", "runs"])
def test_a_sound_tier_has_no_finding(spark: SparkSession, tier_path: Path, level: str) -> None:
    tier = a_tier(tier_path)
    empty = TierDirectory(tier_path, uid="empty")
    empty.claim(4, start=77)
    account = judged(spark, tier, level)
    assert account.findings == []
    assert account.clean
    first, second = account.groups
    assert (first.group, first.version, first.epoch, first.packs, first.records, first.end) == (
        ("orders", 5, 2, 3, 30, tier.state.end)
    )
    assert (second.shard, second.start, second.end, second.packs) == ("empty", 77, 77, 0)


def test_a_removed_pack(spark: SparkSession, tier_path: Path) -> None:
    tier = a_tier(tier_path)
    pack = tier.state.packs[1]
    tier.path(pack.key).unlink()
    expected = f"it is missing; manifest version 3 names it for [{pack.lo}, {pack.hi})"
    assert lines(judged(spark, tier)) == [("T4", pack.key, None, pack.lo, expected)]


def test_a_flipped_byte(spark: SparkSession, tier_path: Path) -> None:
    tier = a_tier(tier_path)
    pack = tier.state.packs[2]
    tier.flip(pack.key, 95)
    ((rule, name, byte, offset, reason),) = lines(judged(spark, tier))
    assert (rule, name, byte, offset) == ("T4", pack.key, 4, pack.lo)
    assert reason.startswith("the body's CRC is ")


def test_a_pack_cut_short_is_seen_in_its_footer(spark: SparkSession, tier_path: Path) -> None:
    tier = a_tier(tier_path)
    pack = tier.state.packs[0]
    tier.put(pack.key, tier.path(pack.key).read_bytes()[:500])
    for level in ("messages", "runs"):
        ((rule, name, byte, offset, _),) = lines(judged(spark, tier, level))
        assert (rule, name, byte, offset) == ("T4", pack.key, 500, 0)


def test_a_pack_of_another_place(spark: SparkSession, tier_path: Path) -> None:
    tier = a_tier(tier_path)
    first, second, _ = tier.state.packs
    tier.put(second.key, tier.path(first.key).read_bytes())
    ((rule, name, _, offset, reason),) = lines(judged(spark, tier))
    assert (rule, name, offset) == ("foreign", second.key, second.lo)
    assert reason == f"its footer belongs to {first.key}"


def test_a_fabricated_overlap(spark: SparkSession, tier_path: Path) -> None:
    tier = a_tier(tier_path)
    before, last = tier.state, tier.state.packs[-1]
    forged = str(tier.forge_overlap())
    reason = (
        f"manifest version 6: overlap: {forged} begins at {last.lo + 3}, "
        f"the tier ends at {before.end}"
    )
    assert lines(judged(spark, tier)) == [("T3", forged, None, last.lo + 3, reason)]


def test_a_missing_and_a_flipped_version(spark: SparkSession, tier_path: Path) -> None:
    tier = a_tier(tier_path)
    tier.path(str(ManKey(3))).unlink()
    found = lines(judged(spark, tier))
    assert found == [
        ("T1", str(ManKey(3)), None, None, "version 3 is missing; the next one that is there is 4"),
        # Whoever removed the version removed the only name of its pack.
        ("orphan", *found[1][1:]),
    ]
    again = a_tier(tier_path / "again")
    again.flip(str(ManKey(5)), 40)
    flipped, orphan = lines(judged(spark, again))
    assert flipped[:2] == ("T4", str(ManKey(5)))
    assert orphan[:2] == ("orphan", again.state.packs[-1].key)


def test_what_no_version_names(spark: SparkSession, tier_path: Path) -> None:
    """A pack of a master that lost, one of the newest, and a stray: only the last is a fault."""
    tier = a_tier(tier_path)
    tier.put("notes.txt", b"hello")
    now = tier.build(messages("orders", 1))
    tier.put(str(now.key), now.data)
    late = now.key._replace(pair=Pair(1, 1))
    tier.put(str(late), now.data)
    account = judged(spark, tier)
    assert (account.faults, account.notes) == (1, 2)
    assert [(found.rule, found.object.rsplit("/", 1)[-1][:5]) for found in account.findings] == [
        ("foreign", "notes"),
        ("orphan", "00000"),
        ("orphan", "00000"),
    ]
    assert "lost the chain" in account.findings[1].reason
    assert "(yet)" in account.findings[2].reason


def test_a_queue_whose_offsets_jump_or_repeat(spark: SparkSession, tier_path: Path) -> None:
    tier = TierDirectory(tier_path)
    tier.claim(1)
    tier.append([Sent("orders", 0, b"a", queue_offset=5), Sent("stock", 0, b"a", queue_offset=5)])
    tier.append([Sent("orders", 0, b"b", queue_offset=8), Sent("stock", 0, b"b", queue_offset=5)])
    tier.append([Sent("orders", 0, b"c", queue_offset=0)])  # made anew
    for level in ("messages", "runs"):
        found = lines(judged(spark, tier, level))
        assert [(row[0], row[3], row[4]) for row in found] == [
            (
                "queue",
                tier.state.packs[1].lo,
                "hole: queue offset 8 of orders queue 0 stands where 6 belongs",
            ),
            (
                "queue",
                tier.state.packs[1].lo,
                "overlap: queue offset 5 of stock queue 0 stands where 6 belongs",
            ),
        ]


def test_a_tail_that_is_not_there(spark: SparkSession, tier_path: Path) -> None:
    tier = TierDirectory(tier_path)
    tier.claim(1)
    pack = tier.build(messages("orders", 3))
    tier.put(str(pack.key), pack.data)
    assert pack.tail is not None
    tier.add(pack._replace(tail=msgspec.structs.replace(pack.tail, crc="00000000")))
    ((rule, _, _, offset, reason),) = lines(judged(spark, tier))
    assert (rule, offset) == ("tail", pack.tail.at)
    assert reason.endswith("with 00000000")
