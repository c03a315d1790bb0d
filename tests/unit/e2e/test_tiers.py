"""Tiers that tests are given: packs pass the broker's own check, chains its fold."""

from __future__ import annotations

from pathlib import Path

from gantry_protocol.tier import chain
from gantry_protocol.tier.keys import Shard, shard
from gantry_protocol.tier.manifests import decode_version
from gantry_protocol.tier.packs import verify_pack
from harness.tiers import CLUSTER, LogMaker, a_pack, write_tier

PLACE = Shard("gantry", "bench-0")


def test_what_is_made_is_sound(tmp_path: Path) -> None:
    start, log, count = LogMaker().piece(10_000)
    pack = a_pack(PLACE, log, start)
    assert verify_pack(pack.data, PLACE, pack.key).hi == len(log)
    assert pack.entry.count == count
    messages = write_tier(tmp_path, groups=2, packs=3, pack_bytes=5_000)
    held = 0
    for number in range(2):
        place = shard(CLUSTER, f"group-{number}")
        folder = tmp_path / place.key("man")
        state = chain.fold(
            place,
            [
                decode_version(one.read_bytes(), place, int(one.name))
                for one in sorted(folder.iterdir())
            ],
        )
        assert len(state.packs) == 3
        held += sum(entry.count for entry in state.packs)
    assert held == messages
