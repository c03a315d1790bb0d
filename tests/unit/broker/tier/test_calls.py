"""The calls of the upload role on a real log and a store in memory: each ends in its one event."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.log.segments import list_segments
from gantry_broker.tier import calls, packing
from gantry_broker.tier.calls import Calls
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.stores.posix import PosixStore
from gantry_protocol.errors import CorruptionError
from gantry_protocol.tier.keys import ManKey, MetaKey, Pair, parse_name
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support import stores
from support.memory_store import Fault, MemoryStore
from support.tier_directory import TierDirectory
from support.tier_logs import PLACE

KEY = f"pack/{Pair(1, 1)}/{0:020d}-{100:020d}-9-{7:032x}"
END = b"the last bytes"
LINEAGE = (EpochEntry(Epoch(1), Offset(0)),)


class Harness:
    """The calls of a group whose log holds nine records."""

    def __init__(self, directory: Path) -> None:
        self.messages = stores.open_store(directory)
        self.log = self.messages.log
        self.starts = [
            stores.put(self.messages, stores.message(body=bytes(100)))[0].offset for _ in range(9)
        ]
        self.log.flush()
        self.store = MemoryStore()
        self.calls = Calls(self.store, PLACE, "orders", self.log)

    def pack(self, data: bytes) -> None:
        self.store.objects[PLACE.key(parse_name(KEY))] = data

    async def find(self, size: int) -> ev.Result:
        return await self.calls.run(fx.FindPack(3, parse_name(KEY), size, END))

    def cut(self, limit: int, target_bytes: int = 1 << 20) -> fx.CutPack:
        return fx.CutPack(
            ticket=4,
            lo=Offset(0),
            limit=Offset(limit),
            target_bytes=target_bytes,
            lineage=LINEAGE,
            pair=Pair(1, 1),
            nonce="0" * 32,
        )


@pytest.fixture
def harness(tmp_path: Path):
    made = Harness(tmp_path)
    yield made
    made.messages.close()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(b"some bytes " + END, True, id="whole"),
        pytest.param(None, False, id="not there"),
        pytest.param(b"some bytes " + END[:-1], False, id="shorter"),
        pytest.param(b"some bytes " + END + b"x", False, id="longer"),
        pytest.param(b"some bytes " + END.upper(), False, id="another end"),
    ],
)
async def test_a_pack_of_doubtful_outcome_is_there_only_whole(
    harness: Harness, data: bytes | None, found: bool
) -> None:
    if data is not None:
        harness.pack(data)
    assert await harness.find(11 + len(END)) == ev.PackFound(3, found)


async def test_what_must_not_be_used_is_told_apart_from_what_may_pass(harness: Harness) -> None:
    """The first ends the uploads until somebody has looked; the second is tried again."""
    name = PLACE.key(MetaKey())
    harness.store.objects[name] = b"{}"
    refused = await harness.calls.run(fx.CheckMeta(1))
    assert isinstance(refused, ev.CallRefused)
    assert name in refused.sentence
    for fault in (Fault.LOST, Fault.DENIED):
        harness.store.fault = lambda _operation, _key, fault=fault: fault
        failed = await harness.calls.run(fx.CheckMeta(2))
        assert isinstance(failed, ev.CallFailed)
        assert failed.ticket == 2
    assert sorted(harness.calls.failures) == ["DamagedObject", "StoreRefused", "StoreUnavailable"]


async def test_a_pack_holds_nothing_at_or_above_the_limit(harness: Harness) -> None:
    limit = harness.starts[6]
    cut = await harness.calls.run(harness.cut(limit))
    assert isinstance(cut, ev.PackCut)
    entry = cut.pack.entry
    assert (entry.lo, entry.hi, entry.count) == (0, limit, 6)
    packing.free(cut.pack.data)


async def test_a_pack_is_cut_where_it_is_large_enough(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_RECORD_BYTES", 10)
    cut = await harness.calls.run(harness.cut(harness.log.end, target_bytes=harness.starts[2] - 5))
    assert isinstance(cut, ev.PackCut)
    assert cut.pack.entry.hi == harness.starts[2]
    packing.free(cut.pack.data)


async def test_the_tail_is_read_from_the_log_and_what_was_trimmed_may_pass(
    harness: Harness,
) -> None:
    size = harness.log.end - harness.starts[8]
    read = await harness.calls.run(fx.ReadTail(5, harness.starts[8], size))
    assert isinstance(read, ev.TailRead)
    again = await harness.calls.run(fx.ReadTail(6, harness.starts[7], size))
    assert isinstance(again, ev.TailRead)
    assert read.crc != again.crc, "the log offset is among the bytes"


async def test_no_version_is_no_empty_tier_where_packs_are(harness: Harness) -> None:
    """A promotion then waits: a first claim would hide what is there for ever."""
    assert await harness.calls.run(fx.ReadVersions(7, 0, 8)) == ev.VersionsRead(7, ())
    harness.pack(b"x")
    failed = await harness.calls.run(fx.ReadVersions(8, 0, 8))
    assert isinstance(failed, ev.CallFailed)
    assert "holds no manifest version" in failed.reason
    assert not any(PLACE.key(ManKey(1)) == key for key in harness.store.objects)


def test_a_volume_remembers_that_it_has_seen_its_tier(tmp_path: Path) -> None:
    seen = Seen(tmp_path, "s3://a/b", PLACE)
    assert seen.why == ""
    assert Seen(tmp_path, "s3://a/b", PLACE).why == "", "nothing was seen yet"
    seen.mark()
    for again in (seen, Seen(tmp_path, "s3://a/b", PLACE)):
        assert f"remove {tmp_path / 'tier.json'} to begin another tier" in again.why
    assert Seen(tmp_path, "s3://a/elsewhere", PLACE).why == ""
    (tmp_path / "tier.json").write_bytes(b"{")
    with pytest.raises(CorruptionError, match="does not read"):
        Seen(tmp_path, "s3://a/b", PLACE)


async def test_a_place_that_was_seen_with_versions_is_no_new_tier(harness: Harness) -> None:
    """A directory that is not mounted, or a bucket that was emptied, looks like one."""
    why = ""
    uploads = Calls(harness.store, PLACE, "orders", harness.log, lambda: why)
    assert await uploads.run(fx.ReadVersions(7, 0, 8)) == ev.VersionsRead(7, ())
    why = "this broker has read versions there"
    failed = await uploads.run(fx.ReadVersions(8, 0, 8))
    assert isinstance(failed, ev.CallFailed)
    assert "shows no version: this broker has read versions there" in failed.reason


async def test_a_directory_that_is_unmounted_while_it_is_followed_ends_no_chain(
    harness: Harness, tmp_path: Path
) -> None:
    """A claim in what is under the mount would be a hole once it is mounted again."""
    mount = tmp_path / "mount"
    tier = TierDirectory(mount)
    for epoch in (1, 2, 3):
        tier.claim(epoch)
    why = "this broker has read versions there"
    uploads = Calls(PosixStore(mount), tier.place, "orders", harness.log, lambda: why)
    assert await uploads.run(fx.ReadVersions(1, 3, 8)) == ev.VersionsRead(1, ())
    mount.rename(tmp_path / "away")
    mount.mkdir()
    failed = await uploads.run(fx.ReadVersions(2, 3, 8))
    assert isinstance(failed, ev.CallFailed)
    assert "shows no version from 3 on: this broker has read versions there" in failed.reason
    mount.rmdir()
    (tmp_path / "away").rename(mount)
    read = await uploads.run(fx.ReadVersions(3, 2, 8))
    assert isinstance(read, ev.VersionsRead)
    assert [one.v for one in read.versions] == [3]
    one = await uploads.run(fx.ReadVersions(4, 1, 1))
    assert isinstance(one, ev.VersionsRead)
    assert [one.v for one in one.versions] == [2], "as many as asked for"
    older = mount / tier.place.key(ManKey(3))
    older.rename(mount / tier.place.key(ManKey(4)))
    assert isinstance(await uploads.run(fx.ReadVersions(5, 9, 8)), ev.CallFailed), "another chain"


async def test_a_version_that_is_there_already_may_be_anothers(harness: Harness) -> None:
    said = [await harness.calls.run(fx.CreateVersion(5, 9, data)) for data in (b"ours", b"theirs")]
    assert [type(one) for one in said] == [ev.Created, ev.Maybe]


@pytest.mark.parametrize("thread_max", [1 << 20, 0], ids=["in a thread", "in a process"])
async def test_a_byte_that_rotted_is_told_to_the_log_and_the_pack_tried_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, thread_max: int
) -> None:
    monkeypatch.setattr(packing, "THREAD_MAX_BYTES", thread_max)
    file = list_segments(harness.log.directory)[0].path
    position = harness.starts[4] + 95  # in the body of the fifth record
    before = file.read_bytes()
    file.write_bytes(before[:position] + b"?" + before[position + 1 :])
    found = []
    harness.log.checks.on_damage = found.append
    cut = harness.cut(harness.log.end)
    failed = await harness.calls.run(cut)
    assert isinstance(failed, ev.CallFailed), failed
    assert "is damaged at byte" in failed.reason
    assert [one.start <= position < one.end for one in found] == [True]
    file.write_bytes(before)
    assert isinstance(await harness.calls.run(cut), ev.PackCut)
