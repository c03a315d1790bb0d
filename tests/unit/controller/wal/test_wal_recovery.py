"""Recovery: nothing that was confirmed is lost or changed in silence, nothing is invented."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from gantry_controller.raft.messages import EntryKind, HardState, make_entry
from gantry_controller.raft.snapshot import Base, Marker
from gantry_controller.wal.format import (
    FLOOR_SIZE,
    HEADER_SIZE,
    MAGIC,
    SECTOR,
    Head,
    Header,
    Write,
    encode_batch,
)
from gantry_controller.wal.recovery import Recovered, recover
from gantry_controller.wal.wal import AHEAD_BYTES, Wal
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.types import Index, NodeId, Term
from google_crc32c import value
from hypothesis import given, settings
from hypothesis import strategies as st


class Reference:
    """What a log must hold: a list and a value."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, bytes]] = []
        self.hard_state: HardState | None = None

    def apply(self, writes: list[Write]) -> None:
        for write in writes:
            for entry in write.entries:
                del self.entries[entry.index - 1 :]
                self.entries.append((entry.index, entry.term, entry.command))
        self.hard_state = writes[-1].hard_state

    def copy(self) -> Reference:
        other = Reference()
        other.entries = list(self.entries)
        other.hard_state = self.hard_state
        return other


def content(found: Recovered) -> tuple[list[tuple[int, int, bytes]], HardState | None]:
    return [(entry.index, entry.term, entry.command) for entry in found.entries], found.hard_state


def expected(reference: Reference) -> tuple[list[tuple[int, int, bytes]], HardState | None]:
    return reference.entries, reference.hard_state


def write(first: int, term: int, commands: list[bytes]) -> Write:
    entries = [
        make_entry(EntryKind.COMMAND, Term(term), Index(first + place), command)
        for place, command in enumerate(commands)
    ]
    marker = Marker(Index(0), Term(0), Base(), restart=False)  # its bytes; it covers nothing
    markers = [marker] if term % 2 and first > 1 else []
    return Write(entries, HardState(Term(term), NodeId(2), Index(0), True), markers)


def random_writes(rng: random.Random, last: int, term: int) -> tuple[list[Write], int]:
    """One batch of one to three writes; some replace entries at the end."""
    writes: list[Write] = []
    for _ in range(rng.randint(1, 3)):
        first = max(1, last + 1 - rng.choice([0, 0, 0, 1, 3]))
        commands = [rng.randbytes(rng.choice([0, 1, 30, 700])) for _ in range(rng.randint(0, 4))]
        writes.append(write(first, term, commands))
        last = first + len(commands) - 1 if commands else last
    return writes, last


def segment_with(batches: list[list[Write]], size: int = 32 * 1024) -> tuple[bytearray, list[int]]:
    """A segment in memory, and where each batch ends."""
    header = Header(sequence=1, size=size, chain=0, batch=1)
    head = Head(sequence=1, size=size, offset=HEADER_SIZE, chain=header.seed, batch=1, last_index=0)
    data = bytearray(size)
    data[:HEADER_SIZE] = header.encode()
    ends: list[int] = []
    for batch in batches:
        start = head.offset
        encoded = encode_batch(head, batch)
        data[start : head.offset] = encoded
        ends.append(head.offset)
    return data, ends


def recovered(data: bytes | bytearray) -> Recovered:
    return recover([(Path("wal-1"), bytes(data))])


def some_batches(seed: int, count: int = 4) -> tuple[list[list[Write]], list[Reference]]:
    rng = random.Random(seed)
    batches: list[list[Write]] = []
    states = [Reference()]
    last = 0
    for term in range(1, count + 1):
        writes, last = random_writes(rng, last, term)
        batches.append(writes)
        states.append(states[-1].copy())
        states[-1].apply(writes)
    return batches, states


def test_empty_directory_holds_nothing(tmp_path: Path) -> None:
    wal, found = Wal.open(tmp_path / "new" / "wal")
    wal.close()
    assert (found.hard_state, found.entries, found.head) == (None, [], None)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), segment_size=st.sampled_from([600, 2_000, 64_000]))
def test_reopened_log_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, seed: int, segment_size: int
) -> None:
    """Differential: random batches, replaced entries, reopened now and then, small segments."""
    directory = tmp_path_factory.mktemp("wal")
    rng = random.Random(seed)
    reference = Reference()
    wal, _ = Wal.open(directory, segment_size_bytes=segment_size)
    last = 0
    for term in range(1, rng.randint(2, 12)):
        writes, last = random_writes(rng, last, term)
        wal.append(writes)
        reference.apply(writes)
        if rng.random() < 0.3:
            wal.close()
            wal, found = Wal.open(directory, segment_size_bytes=segment_size)
            assert content(found) == expected(reference)
    wal.close()
    wal, found = Wal.open(directory, segment_size_bytes=segment_size)
    wal.close()
    assert content(found) == expected(reference)


@pytest.mark.parametrize("seed", range(5))
def test_crash_at_every_byte_of_the_last_batch(seed: int) -> None:
    batches, states = some_batches(seed)
    data, ends = segment_with(batches)
    for cut in range(ends[-2], ends[-1]):
        torn = data[:cut] + bytes(len(data) - cut)
        found = recovered(torn)
        assert content(found) == expected(states[-2]), f"cut at {cut}"
        assert found.head is not None
        assert found.head.offset == ends[-2]
        assert found.torn_bytes == len(torn[ends[-2] :].rstrip(b"\x00"))
    assert content(recovered(data)) == expected(states[-1])


@pytest.mark.parametrize("seed", range(200))
def test_crash_that_loses_any_sectors_of_the_last_batch(seed: int) -> None:
    rng = random.Random(seed)
    batches, states = some_batches(seed % 7)
    batches.append([write(len(states[-1].entries) + 1, 9, [rng.randbytes(900)] * 4)])
    states.append(states[-1].copy())
    states[-1].apply(batches[-1])
    data, ends = segment_with(batches)
    before = bytearray(data)
    before[ends[-2] :] = bytes(len(data) - ends[-2])
    lost = 0
    for sector in range(ends[-2] // SECTOR, ends[-1] // SECTOR + 1):
        if rng.random() < 0.4:
            span = slice(sector * SECTOR, (sector + 1) * SECTOR)
            lost += data[span] != before[span]
            data[span] = before[span]
    found = recovered(data)
    assert content(found) == expected(states[-2] if lost else states[-1])


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_bit_is_reported(seed: int) -> None:
    """In the last batch too: it was written in full, so it was not torn."""
    batches, _ = some_batches(seed)
    data, ends = segment_with(batches)
    rng = random.Random(seed)
    for place in range(ends[-1]):
        data[place] ^= (bit := 1 << rng.randrange(8))
        with pytest.raises(CorruptionError) as caught:
            recovered(data)
        assert caught.value.offset <= place, f"flip at {place}"
        data[place] ^= bit


def test_flip_is_reported_at_its_record() -> None:
    batches, _ = some_batches(3)
    data, ends = segment_with(batches)
    data[ends[1] + FLOOR_SIZE + 10] ^= 1
    with pytest.raises(CorruptionError, match="cannot be read, but batch 4") as caught:
        recovered(data)
    assert caught.value.offset == ends[1] + FLOOR_SIZE


def test_lost_write_below_the_floor_is_damage_not_a_torn_tail() -> None:
    """Zeros where a batch was synced: only the later floor can tell."""
    batches, _ = some_batches(5)
    data, ends = segment_with(batches)
    data[ends[1] : ends[2]] = bytes(ends[2] - ends[1])
    with pytest.raises(CorruptionError, match="was written after it was durable"):
        recovered(data)


def test_noise_behind_the_end_is_never_an_entry() -> None:
    batches, states = some_batches(6)
    data, ends = segment_with(batches)
    rng = random.Random(6)
    for _ in range(50):
        noisy = bytearray(data)
        length = rng.randint(1, 200)
        noisy[ends[-1] : ends[-1] + length] = rng.randbytes(length)
        try:
            found = recovered(noisy)
        except CorruptionError:
            continue
        assert content(found) == expected(states[-1])


def test_older_bytes_in_place_of_newer_ones_do_not_pass() -> None:
    """The chain: a batch of another history of the same length is not accepted here."""
    mine, _states = segment_with([[write(1, 1, [b"a"])], [write(2, 1, [b"b"])]])
    other, ends = segment_with([[write(1, 2, [b"x"])], [write(2, 2, [b"y"])]])
    mine[ends[0] : ends[1]] = other[ends[0] : ends[1]]
    with pytest.raises(CorruptionError):
        recovered(mine)


def grown(directory: Path) -> list[Path]:
    """A log of several segments."""
    wal, _ = Wal.open(directory, segment_size_bytes=400)
    for index in range(1, 8):
        wal.append([write(index, 1, [b"v" * 150])])
    wal.close()
    paths = sorted(directory.iterdir())
    assert len(paths) > 3
    return paths


def reopen_fails(directory: Path) -> CorruptionError:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(CorruptionError) as caught:
        Wal.open(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    return caught.value


def test_missing_segment_is_named(tmp_path: Path) -> None:
    paths = grown(tmp_path)
    paths[1].unlink()
    error = reopen_fails(tmp_path)
    assert error.file == paths[1]
    paths[0].unlink()
    assert reopen_fails(tmp_path).file == paths[1]


def test_swapped_segments_are_damage(tmp_path: Path) -> None:
    paths = grown(tmp_path)
    first, second = paths[1].read_bytes(), paths[2].read_bytes()
    paths[1].write_bytes(second)
    paths[2].write_bytes(first)
    assert reopen_fails(tmp_path).file == paths[1]


def test_torn_tail_of_an_older_segment_is_damage(tmp_path: Path) -> None:
    paths = grown(tmp_path)
    data = bytearray(paths[0].read_bytes())
    used = len(data.rstrip(b"\x00"))
    data[used - 20 : used] = bytes(20)
    paths[0].write_bytes(data)
    assert reopen_fails(tmp_path).file == paths[0]


def test_shortened_file_is_damage(tmp_path: Path) -> None:
    paths = grown(tmp_path)
    os.truncate(paths[-1], 300)
    assert reopen_fails(tmp_path).offset == 300


def test_newer_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    paths = grown(tmp_path)
    data = bytearray(paths[0].read_bytes())
    fixed = MAGIC + struct.pack(">IQQIQ", 2, 1, 400, 0, 1)
    data[:HEADER_SIZE] = fixed + struct.pack(">I", value(fixed))
    paths[0].write_bytes(data)
    with pytest.raises(DataDirError, match="has format 2, this program knows 1: start a program"):
        Wal.open(tmp_path)


def test_unfinished_segment_of_a_crash_is_removed(tmp_path: Path) -> None:
    paths = grown(tmp_path)
    leftover = tmp_path / "wal-0000000099.new"
    leftover.write_bytes(b"half")
    wal, found = Wal.open(tmp_path)
    wal.close()
    assert not leftover.exists()
    assert len(found.entries) == 7
    assert sorted(tmp_path.iterdir()) == paths


def test_torn_batch_is_zeroed_before_going_on(tmp_path: Path) -> None:
    wal, _ = Wal.open(tmp_path)
    wal.append([write(1, 1, [b"kept"])])
    wal.append([write(2, 1, [b"torn" * 200])])
    wal.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\x00"))
    path.write_bytes(data[: used - 100] + bytes(len(data) - used + 100))
    wal, found = Wal.open(tmp_path)
    assert [entry.command for entry in found.entries] == [b"kept"]
    wal.append([write(2, 2, [b"next"])])
    wal.close()
    assert b"torn" not in path.read_bytes()
    wal, found = Wal.open(tmp_path)
    wal.close()
    assert [entry.command for entry in found.entries] == [b"kept", b"next"]


class PowerCut(Exception):  # noqa: N818 - what it is
    """Half of a write is there."""


@pytest.mark.parametrize("kept", [20, 45, 60, 110])
def test_a_start_that_is_cut_off_at_any_byte_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """It overwrites what the last crash left of a batch, which is less than a sector here."""
    wal, _ = Wal.open(tmp_path, segment_size_bytes=4096)
    wal.append([write(1, 1, [b"kept"])])
    start = wal._head.offset
    wal.append([write(2, 1, [b"torn" * 20])])
    wal.close()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    torn = data[: start + kept] + bytes(len(data) - start - kept)
    pwrite, left = os.pwrite, 0

    def cut(fd: int, part: bytes, offset: int) -> int:
        nonlocal left
        written = pwrite(fd, part[:left], offset)
        left -= written
        if written < len(part):
            raise PowerCut
        return written

    for power in range(kept):
        path.write_bytes(torn)
        left = power
        monkeypatch.setattr(os, "pwrite", cut)
        with pytest.raises(PowerCut):
            Wal.open(tmp_path)
        monkeypatch.setattr(os, "pwrite", pwrite)
        wal, found = Wal.open(tmp_path)
        wal.close()
        assert [entry.command for entry in found.entries] == [b"kept"]


def test_what_is_recovered_is_synced_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process may have left its last batch in the page cache only."""
    wal, _ = Wal.open(tmp_path)
    wal.append([write(1, 1, [b"kept"])])
    wal.close()
    (path,) = tmp_path.iterdir()
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    wal, _ = Wal.open(tmp_path)
    wal.close()
    assert str(path) in synced


def test_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    wal, _ = Wal.open(tmp_path, segment_size_bytes=500)
    wal.append([write(1, 1, [b"small"])])
    wal.append([write(2, 1, [b"x" * 5_000])])
    wal.append([write(3, 1, [b"small"])])
    wal.close()
    _, found = Wal.open(tmp_path)
    assert [len(entry.command) for entry in found.entries] == [5, 5_000, 5]


def test_zeros_go_ahead_of_what_is_written_once_per_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwritev, sizes = os.pwritev, []

    def note(fd: int, parts: list[bytes], offset: int, flags: int) -> int:
        sizes.append([len(part) for part in parts])
        return pwritev(fd, parts, offset, flags)

    monkeypatch.setattr(os, "pwritev", note)
    segment_size = AHEAD_BYTES + 100_000
    wal, _ = Wal.open(tmp_path, segment_size_bytes=segment_size)
    for index in range(1, 13):
        wal.append([write(index, 1, [bytes(100_000)])])
    wal.close()

    assert [len(parts) for parts in sizes] == [2] + [1] * 10 + [2]  # the last in a new segment
    assert HEADER_SIZE + sum(sizes[0]) == segment_size  # no further than it goes
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {segment_size}


def test_failed_disk_refuses_everything_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal, _ = Wal.open(tmp_path)
    wal.append([write(1, 1, [b"kept"])])
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwritev", lambda *_: 3)
        with pytest.raises(OSError, match="wrote 3 of"):
            wal.append([write(2, 1, [b"lost"])])
    with pytest.raises(OSError, match="wrote 3 of"):
        wal.append([write(2, 1, [b"too late"])])
    wal.close()
    _, found = Wal.open(tmp_path)
    assert [entry.command for entry in found.entries] == [b"kept"]
