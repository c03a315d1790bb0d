"""The calls of the upload role on a real log and a store in memory: each ends in its one event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.log.segments import list_segments
from gantry_broker.tier import calls, packing
from gantry_broker.tier.calls import Calls
from gantry_broker.tier.core import effects as fx
from gantry_broker.tier.core import events as ev
from gantry_broker.tier.room import PackRoom
from gantry_broker.tier.seen import Seen
from gantry_broker.tier.stores.contract import Store
from gantry_broker.tier.stores.posix import PosixStore
from gantry_protocol.errors import CorruptionError
from gantry_protocol.tier.keys import ManKey, MetaKey, Pair, Shard, parse_name, shard
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support import stores
from support.memory_store import Fault, MemoryStore
from support.patience import PATIENCE_S
from support.small_disk import SmallDisk
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
        self.line, self.room = asyncio.Semaphore(8), PackRoom(1 << 20)
        self.calls = self.calls_of("orders")

    def calls_of(self, group: str) -> Calls:
        """Those of a group that shares the log, for once, and everything else."""
        return self.calls_to(self.store, group=group)

    def calls_to(
        self,
        store: Store,
        place: Shard = PLACE,
        seen: Callable[[], str] = lambda: "",
        group: str = "orders",
    ) -> Calls:
        return Calls(store, place, group, self.log, seen, line=self.line, room=self.room)

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
    uploads = harness.calls_to(harness.store, seen=lambda: why)
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
    uploads = harness.calls_to(PosixStore(mount), tier.place, lambda: why)
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


async def test_what_waits_for_room_for_its_sums_stays_out_of_a_pack(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk may need the upload to have room again."""
    disk = SmallDisk(tmp_path, monkeypatch)
    disk.fill()
    before = harness.log.end
    stores.put(harness.messages, stores.message(body=bytes(100)))
    harness.log.flush()
    assert disk.refused
    cut = await harness.calls.run(harness.cut(harness.log.end))
    assert isinstance(cut, ev.PackCut)
    assert (cut.pack.entry.lo, cut.pack.entry.hi) == (0, before)
    packing.free(cut.pack.data)
    assert not harness.log.checks.damage
    disk.free()


async def soon(call: asyncio.Task[ev.Result]) -> ev.Result:
    async with asyncio.timeout(PATIENCE_S):
        return await call


async def test_packs_of_other_groups_wait_until_one_was_sent_or_given_up(harness: Harness) -> None:
    """However many groups a process hosts, what their packs take in memory is bounded."""
    size = harness.log.end
    harness.room = PackRoom(2 * size)
    groups = [harness.calls_of(name) for name in ("one", "two", "three", "four")]
    cuts = [asyncio.create_task(group.run(harness.cut(size))) for group in groups]
    await soon(cuts[0])
    await soon(cuts[1])
    assert harness.room.used_bytes == 2 * size
    await asyncio.sleep(0.05)
    assert (harness.room.waiting, cuts[2].done()) == (2, False)
    for group in groups:
        group.settle(holds_pack=True)
    assert harness.room.used_bytes == 2 * size, "it is in hand"

    cut = cuts[0].result()
    assert isinstance(cut, ev.PackCut)
    await groups[0].run(fx.StorePack(5, parse_name(KEY), cut.pack.data))
    assert isinstance(await soon(cuts[2]), ev.PackCut), "the first one was sent"
    assert (harness.room.used_bytes, harness.room.waiting) == (2 * size, 1)
    groups[1].settle(holds_pack=False)
    assert isinstance(await soon(cuts[3]), ev.PackCut), "the second one was given up"
    for group in groups[2:]:
        group.settle(holds_pack=False)
        group.settle(holds_pack=False)
    assert (harness.room.used_bytes, harness.room.waiting) == (0, 0)


@pytest.mark.parametrize("how", ["it cannot be cut", "nobody waits for it", "it cannot be sent"])
async def test_a_pack_that_comes_to_nothing_takes_no_room(harness: Harness, how: str) -> None:
    cut: fx.CutPack = harness.cut(harness.log.end)
    if how == "it cannot be cut":
        (file,) = list_segments(harness.log.directory)
        file.path.write_bytes(bytes(file.path.stat().st_size))
        assert isinstance(await harness.calls.run(cut), ev.CallFailed)
    elif how == "nobody waits for it":
        running = asyncio.create_task(harness.calls.run(cut))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        made = await harness.calls.run(cut)
        assert isinstance(made, ev.PackCut)
        harness.store.fault = lambda operation, key: Fault.DENIED
        sent = await harness.calls.run(fx.StorePack(5, parse_name(KEY), made.pack.data))
        assert isinstance(sent, ev.CallFailed)
    assert harness.room.used_bytes == 0


async def test_calls_of_many_groups_wait_in_line_and_not_at_their_deadlines(
    harness: Harness,
) -> None:
    harness.line = asyncio.Semaphore(1)
    running = [0, 0]

    class Slow(MemoryStore):
        async def get(self, key: str, **limits: Any) -> bytes | None:
            running[0] += 1
            running[1] = max(running)
            await asyncio.sleep(0.005)
            running[0] -= 1
            return await super().get(key, **limits)

    slow = Slow()
    groups = [harness.calls_to(slow, shard("c", f"uid.{number}")) for number in range(5)]
    ended = await asyncio.gather(*(group.run(fx.CheckMeta(1)) for group in groups))
    assert [type(one) for one in ended] == [ev.MetaChecked] * 5
    assert running[1] == 1
