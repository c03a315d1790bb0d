"""The judgement as it is fed: in pieces, out of order, with gaps. The table of damages is elsewhere
(``support.damaged_tiers``), since every reader has to pass it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_protocol.tier.findings import Finding
from gantry_protocol.tier.footer import MAX_PACK_BYTES, Footer
from gantry_protocol.tier.judgement import Judgement, Queues, judge_pack
from gantry_protocol.tier.keys import ManKey
from gantry_protocol.tier.manifests import Version, decode_version
from support.tier_directory import TierDirectory, messages
from support.tier_logs import Sent


@pytest.fixture
def tier(tmp_path: Path) -> TierDirectory:
    found = TierDirectory(tmp_path)
    found.claim(1)
    found.append(messages("orders", 4))
    found.claim(2)
    found.append(messages("orders", 4))
    found.append(messages("orders", 4))
    return found


def versions(tier: TierDirectory) -> list[Version]:
    numbers = range(1, tier.state.v + 1)
    return [decode_version(tier.path(str(ManKey(v))).read_bytes(), tier.place, v) for v in numbers]


def listing(tier: TierDirectory) -> list[tuple[str, int]]:
    return [
        (str(path.relative_to(tier.root)), path.stat().st_size)
        for path in sorted(tier.root.rglob("*"))
        if path.is_file()
    ]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_versions_come_in_pieces_of_any_size(tier: TierDirectory, size: int) -> None:
    judgement, found = Judgement(tier.place), versions(tier)
    for at in range(0, len(found), size):
        judgement.versions(found[at : at + size])
    judgement.objects(listing(tier))
    assert judgement.state == tier.state
    assert [pack.entry for pack in judgement.packs] == list(tier.state.packs)
    assert judgement.there == judgement.packs
    assert [claim.epoch for claim in judgement.claims] == [1, 2]
    assert [pack.v for pack in judgement.packs] == [2, 4, 5]
    assert judgement.findings == []


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nothing_is_believed_behind_a_gap(tier: TierDirectory, size: int) -> None:
    judgement, found = Judgement(tier.place), versions(tier)
    del found[2]
    for at in range(0, len(found), size):
        judgement.versions(found[at : at + size])
    judgement.objects(listing(tier))
    assert judgement.state.v == 2
    (finding,) = judgement.findings  # later packs are named by versions that can be read
    assert finding.reason == "version 3 is missing; the next one that is there is 4"
    assert len(judgement.packs) == 1


def test_the_rest_is_judged_where_the_oldest_versions_are_gone(tier: TierDirectory) -> None:
    judgement, found = Judgement(tier.place), versions(tier)
    judgement.versions(found[2:])
    judgement.objects(listing(tier))
    fault, note = judgement.findings
    assert fault.reason == "version 1 is missing; the next one that is there is 3"
    assert "the version that named it is gone, with all up to version 2" in note.reason
    assert judgement.faults == [fault]
    assert judgement.state.v == tier.state.v
    assert [pack.entry for pack in judgement.there] == list(tier.state.packs[1:])


def test_an_object_that_is_too_large_is_not_read(tier: TierDirectory) -> None:
    judgement = Judgement(tier.place)
    judgement.versions(versions(tier))
    pack = tier.place.key(tier.state.packs[1].key)
    judgement.objects(
        (key, MAX_PACK_BYTES + 1 if key == pack else size) for key, size in listing(tier)
    )
    (finding,) = judgement.findings
    assert (finding.object, finding.byte) == (pack, MAX_PACK_BYTES)
    assert len(judgement.there) == 2


def test_the_first_pack_above_confirm_is_named(tier: TierDirectory) -> None:
    judgement = Judgement(tier.place)
    judgement.versions(versions(tier))
    first, second, _ = tier.state.packs
    judgement.confirmed(tier.state.end)
    assert judgement.findings == []
    for confirm, pack, offset in (
        (tier.state.end - 1, tier.state.packs[2], tier.state.end - 1),
        (second.lo, second, second.lo),
        (first.lo + 5, first, first.lo + 5),
        (0, first, 0),
    ):
        judgement.findings.clear()
        judgement.confirmed(confirm)
        (finding,) = judgement.findings
        assert (finding.rule, finding.object) == ("T6", tier.place.key(pack.key))
        assert finding.offset == offset


@pytest.mark.parametrize(("hidden", "found"), [(False, 1), (True, 0)])
def test_a_hole_in_a_queue_is_none_where_a_pack_was_not_judged(
    tmp_path: Path, hidden: bool, found: int
) -> None:
    tier = TierDirectory(tmp_path)
    tier.claim(1)
    for offset in (0, 1, 7):
        tier.append([Sent("orders", 0, b"x", queue_offset=offset)])
    judgement, queues = Judgement(tier.place), Queues(tier.place)
    judgement.versions(versions(tier))
    told: list[Finding] = []
    for number, pack in enumerate(judgement.packs):
        if number == 1 and hidden:
            queues.unjudged()
            continue
        data = tier.path(pack.entry.key).read_bytes()
        footer = judge_pack(data, tier.place, pack, None)
        assert isinstance(footer, Footer)
        told += queues.take(pack, footer)
    assert len(told) == found
