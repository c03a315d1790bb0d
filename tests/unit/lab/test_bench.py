"""What benchmarks make of what they saw: speeds of uploads, percentiles, shares of processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_lab.bench import pipeline, tier
from gantry_lab.bench.material import CLUSTER, LogMaker, a_pack, write_tier
from gantry_lab.bench.results import machine
from gantry_lab.bench.senders import BODY_BYTES, body
from gantry_lab.bench.tier import PACK_BYTES, Commit, Run
from gantry_protocol.errors import GantryError
from gantry_protocol.tier import chain, manifests
from gantry_protocol.tier.keys import PackKey, Pair, Shard, shard
from gantry_protocol.tier.manifests import PackEntry, decode_version
from gantry_protocol.tier.packs import verify_pack
from gantry_protocol.types import Epoch, EpochEntry, Offset

PLACE = Shard("gantry", "bench-0")


def commits(*steps: tuple[int, float]) -> list[Commit]:
    """A claim at second 0, then appends of so many bytes at these seconds."""
    state = chain.empty(PLACE)
    claim = chain.claim(state, pair=Pair(1, 0), writer="b", nonce="0" * 32, at_ms=0, start=0)
    state = chain.apply(state, claim)
    found = [Commit(claim, 0.0)]
    for number, (size, at_s) in enumerate(steps, start=1):
        lo, hi = state.end, state.end + size
        entry = PackEntry(
            key=str(PackKey(Pair(1, 0), lo, hi, 9, f"{number:032x}")),
            lo=lo,
            hi=hi,
            cls=9,
            epoch_first=1,
            epoch_last=1,
            size=size,
            crc="00000000",
            count=1,
            min_ts=0,
            max_ts=0,
        )
        version = chain.append(
            state,
            [entry],
            lineage=[EpochEntry(Epoch(1), Offset(0))],
            tail=manifests.Tail(at=lo, size=size, crc="00000000"),
            writer="b",
            nonce=f"{number:032x}",
            at_ms=0,
        )
        state = chain.apply(state, version)
        found.append(Commit(version, at_s))
    return found


def test_speed_is_from_the_claim_to_the_last_whole_pack() -> None:
    whole = commits((PACK_BYTES, 1.0), (PACK_BYTES, 3.0), (1000, 33.0), (PACK_BYTES, 99.0))
    speed, pack_ms = tier.upload(whole)
    assert speed == pytest.approx(2 * PACK_BYTES / 1e6 / 3.0)
    assert pack_ms == pytest.approx(1500.0)


def test_packs_that_are_committed_together_count_each() -> None:
    speed, pack_ms = tier.upload(commits((2 * PACK_BYTES, 1.0)))
    assert speed == pytest.approx(2 * PACK_BYTES / 1e6)
    assert pack_ms == pytest.approx(500.0)


def test_an_upload_without_a_whole_pack_is_no_measurement() -> None:
    with pytest.raises(GantryError, match="No whole pack was uploaded"):
        tier.upload(commits((1000, 1.0)))


def test_a_p99_needs_a_hundred_times() -> None:
    assert tier.p99([float(n) for n in range(1, 101)]) == pytest.approx(99.01)
    with pytest.raises(GantryError, match="Only 99 messages were timed"):
        tier.p99([1.0] * 99)


def test_both_sides_of_a_ratio_are_of_one_run() -> None:
    runs = [Run(60.0, 1000.0, 5.0, 10.0, 5.0, 100.0), Run(80.0, 800.0, 10.0, 15.0, 10.0, 200.0)]
    found = {(one.case, one.metric): one for one in tier.lines(runs)}
    ratio = found["producers-uploading/off", "ratio"]
    assert (ratio.min, ratio.max, ratio.runs) == (1.5, 2.0, 2)  # not 15 / 5
    assert found["upload", "mb_per_s"].median == 70.0


def test_processes_that_took_longer_count_by_their_own_time() -> None:
    shares = [pipeline.Share(packs=10, seconds=2.0), pipeline.Share(packs=6, seconds=3.0)]
    assert pipeline.rate(shares) == pytest.approx(7.0)


def test_bodies_differ() -> None:
    assert len(body(1)) == len(body(2)) == BODY_BYTES
    assert body(1) != body(2)


def test_what_is_measured_on_is_sound(tmp_path: Path) -> None:
    """The packs go through the broker's own check, the chains through its fold."""
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


def test_figures_say_what_they_were_measured_on() -> None:
    found = machine()
    assert found.cpus >= 1
    assert found.memory_mib > 100
    assert found.load >= 0
