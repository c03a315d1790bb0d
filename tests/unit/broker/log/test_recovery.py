"""Opening a log: what is cut, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, checkpoint, recovery, sums
from gantry_protocol.errors import CorruptionError, DataDirError, GantryError
from gantry_protocol.types import Offset
from support import logs

FIRST = "00000000000000000000"


def _open(directory: Path, **options) -> CommitLog:
    return CommitLog.open(directory, logs.SEGMENT_BYTES, **options)


def _refused(directory: Path, **options) -> CorruptionError:
    """The refusal, after which every byte is as before and a second try is refused as well."""
    before = logs.directory_bytes(directory)
    for _ in range(2):
        with pytest.raises(CorruptionError) as caught:
            _open(directory, **options)
        assert logs.directory_bytes(directory) == before
    return caught.value


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Ten flushed records, then three that were written and not flushed, then the end.

    The room behind them is left away; zeros there are a case of `garbage`.
    """
    log = logs.filled(tmp_path / "log", 10, segment_bytes=1 << 20)
    for number in range(10, 13):
        logs.append(log, number, 40)
    logs.contents(log)  # whoever reads sees to it that it is written
    copy = logs.clone(log.directory, tmp_path / "crashed")
    os.truncate(copy / FIRST, log.end)
    log.close()
    return copy


def _flushed_bytes(directory: Path) -> int:
    covered = sums.load(sums.sums_path(directory / FIRST), 0).covered
    assert covered is not None
    return covered


def test_a_clean_end_and_a_kill_keep_everything(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 40)
    logs.append(log, 40)
    expected = logs.contents(log)
    logs.append(log, 41)  # only gathered: it goes with the process
    killed = logs.clone(log.directory, tmp_path / "killed")
    everything = logs.contents(log)
    log.close()
    for directory, kept in ((log.directory, everything), (killed, expected)):
        again = _open(directory)
        assert logs.contents(again) == kept
        assert again.flushed == again.end == len(kept)
        offset, data = logs.append(again, 42)
        again.close()
        third = _open(directory)
        assert third.read(offset, 1 << 20) == data
        third.close()


def test_a_torn_tail_is_cut_to_whole_records_at_every_byte(crashed: Path, tmp_path: Path) -> None:
    data = (crashed / FIRST).read_bytes()
    flushed = _flushed_bytes(crashed)
    log = _open(logs.clone(crashed, tmp_path / "whole"))
    ends = [at for at in logs.boundaries(log) if at >= flushed]
    log.close()
    assert len(ends) == 4
    for length in range(flushed, len(data)):
        (crashed / FIRST).write_bytes(data[:length])
        log = _open(logs.clone(crashed, tmp_path / f"at{length}"))
        assert log.end == max(end for end in ends if end <= length)
        assert logs.contents(log) == data[: log.end]
        log.close()


@pytest.mark.parametrize(
    "garbage", [b"\0" * 700, bytes(1 << 20), b"\xff" * 700, b"x", logs.record(3)]
)
def test_garbage_behind_the_end_is_cut(crashed: Path, garbage: bytes) -> None:
    data = (crashed / FIRST).read_bytes()
    (crashed / FIRST).write_bytes(data + garbage)
    log = _open(crashed)
    assert logs.contents(log) == data
    log.close()
    assert (crashed / FIRST).stat().st_size == len(data)


def test_a_flip_of_any_flushed_byte_is_refused_by_file_and_offset(crashed: Path) -> None:
    """Headers, bodies, topics, properties: the record's own CRC covers only the bodies."""
    flushed = _flushed_bytes(crashed)
    log = _open(logs.clone(crashed, crashed.parent / "sound"))
    starts = [at for at in logs.boundaries(log) if at < flushed]
    log.close()
    for position in range(flushed):
        logs.flip(crashed / FIRST, position, position % 8)
        error = _refused(crashed)
        assert error.file == crashed / FIRST
        assert error.offset <= position
        assert error.offset == 0 or error.offset in starts
        assert str(error).count(".") >= 1
        assert "\n" not in str(error)
        logs.flip(crashed / FIRST, position, position % 8)
    _open(crashed).close()


def test_a_flip_above_everything_flushed_cuts_there(crashed: Path, tmp_path: Path) -> None:
    flushed = _flushed_bytes(crashed)
    body = flushed + 100
    logs.flip(crashed / FIRST, body)
    log = _open(crashed)
    assert log.end == flushed
    log.close()


def test_flushed_bytes_that_are_gone_are_refused(crashed: Path) -> None:
    flushed = _flushed_bytes(crashed)
    (crashed / FIRST).write_bytes((crashed / FIRST).read_bytes()[: flushed - 1])
    error = _refused(crashed)
    assert (error.file, error.offset) == (crashed / FIRST, flushed - 1)
    assert "1 flushed bytes are missing" in str(error)


def test_the_callers_floor_counts_too(crashed: Path) -> None:
    size = (crashed / FIRST).stat().st_size
    with (crashed / FIRST).open("rb+") as file:
        file.truncate(size - 1)
    error = _refused(crashed, confirm_floor=Offset(size))
    assert error.file == crashed / FIRST
    log = _open(crashed)
    assert log.end < size
    log.close()


def test_damage_that_only_the_callers_floor_speaks_for_is_explained(crashed: Path) -> None:
    flushed, size = _flushed_bytes(crashed), (crashed / FIRST).stat().st_size
    logs.flip(crashed / FIRST, flushed + 100)
    error = _refused(crashed, confirm_floor=Offset(size))
    assert (error.file, error.offset) == (crashed / FIRST, flushed)
    assert "body's CRC" in str(error)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Several segments, all confirmed, cleanly closed."""
    log = logs.filled(tmp_path / "log", 0)
    for number in range(60):
        logs.append(log, number, 1 + number * 37 % 700)
        log.flush()
    log.raise_confirm_floor(log.end)
    log.close()
    assert len(list(log.directory.glob("0*"))) >= 8
    return log.directory


def _starts(directory: Path) -> list[Offset]:
    copy = logs.clone(
        directory, directory.parent / f"sound-{len(list(directory.parent.iterdir()))}"
    )
    log = _open(copy)
    *starts, _ = logs.boundaries(log)
    log.close()
    return starts


def _segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("0*") if path.suffix == "")


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_is_refused_by_name(closed: Path, which: int) -> None:
    missing = _segments(closed)[which]
    missing.unlink()
    assert _refused(closed).file == missing


@pytest.mark.parametrize("which", [0, 1, -1])
def test_missing_sums_of_confirmed_bytes_are_refused(closed: Path, which: int) -> None:
    path = sums.sums_path(_segments(closed)[which])
    path.unlink()
    assert _refused(closed).file == path


def test_a_flip_in_the_sums_of_confirmed_bytes_is_refused(closed: Path) -> None:
    path = sums.sums_path(_segments(closed)[0])
    for position in range(path.stat().st_size):
        logs.flip(path, position)
        error = _refused(closed)
        assert error.file == path
        assert error.offset <= position
        logs.flip(path, position)
    _open(closed).close()


def test_sums_lost_above_the_floor_are_made_again(crashed: Path) -> None:
    data = (crashed / FIRST).read_bytes()
    sums.sums_path(crashed / FIRST).unlink()
    log = _open(crashed)
    assert logs.contents(log) == data
    log.close()
    logs.flip(crashed / FIRST, 20)
    assert _refused(crashed).file == crashed / FIRST


def test_one_torn_checkpoint_slot_is_survived_two_are_refused(closed: Path) -> None:
    path = closed / "checkpoint"
    floor = checkpoint.load(path).confirm_floor
    logs.flip(path, 12)
    older = _open(closed)
    assert older.confirm_floor <= floor
    older.close()
    logs.flip(path, 12 + 4096)
    logs.flip(path, 12)
    logs.flip(path, 12)
    logs.flip(path, 20)
    assert _refused(closed).file == path


def test_a_missing_checkpoint_beside_a_log_is_refused(closed: Path) -> None:
    (closed / "checkpoint").unlink()
    assert _refused(closed).file == closed / "checkpoint"


def test_a_newer_checkpoint_format_is_refused_with_both_versions(closed: Path) -> None:
    path = closed / "checkpoint"
    data = bytearray(path.read_bytes())
    for at in (0, 4096):
        head = data[at : at + 4] + b"\0\0\0\x02" + data[at + 8 : at + 32]
        data[at : at + 32] = head
        data[at + 32 : at + 36] = checkpoint._CRC.pack(checkpoint.google_crc32c.value(bytes(head)))
    path.write_bytes(data)
    with pytest.raises(DataDirError, match=r"version 2, this program reads version 1"):
        _open(closed)


def test_foreign_files_are_refused_and_leftovers_go(closed: Path) -> None:
    (closed / ".checkpoint.tmp").write_bytes(b"half")
    (closed / f"{7:020d}.sums").write_bytes(b"")
    _open(closed).close()
    assert not (closed / f"{7:020d}.sums").exists()
    (closed / "notes.txt").write_bytes(b"")
    with pytest.raises(GantryError, match=r"notes\.txt does not belong"):
        _open(closed)


def test_old_segments_are_verified_in_the_background_only(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.log.recovery.VERIFY_AT_START_BYTES", 5000)
    oldest, newest = _segments(closed)[0], _segments(closed)[-1]
    entries = sums.load(sums.sums_path(oldest), 0).chain
    assert len(entries) > 1  # the last one is always looked at: does the segment end in a blank?
    logs.flip(oldest, 30)
    log = _open(closed)
    for everything in (True, False):
        with pytest.raises(CorruptionError) as caught:
            log.verify(everything=everything)
        assert caught.value.file == oldest
    log.close()
    logs.flip(oldest, 30)
    whole = CommitLog.open(logs.clone(closed, closed.parent / "again"), 1 << 20)
    logs.flip(whole.directory / newest.name, 30)
    whole.verify(everything=False)  # read at the start
    with pytest.raises(CorruptionError):
        whole.verify()
    whole.close()
    logs.flip(newest, 30)
    assert _refused(closed).file == newest


def test_verify_looks_at_confirmed_bytes_only(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 3, segment_bytes=1 << 20)
    log.raise_confirm_floor(log.end)
    for number in range(3, 5):
        logs.append(log, number)
        log.flush()
    logs.flip(log.directory / FIRST, log.end - 3)
    log.verify()
    logs.flip(log.directory / FIRST, 3)
    with pytest.raises(CorruptionError):
        log.verify()
    logs.flip(log.directory / FIRST, 3)
    log.close()


def test_another_segment_size_reads_the_same_log(closed: Path) -> None:
    log = CommitLog.open(closed, 1 << 20)
    before = logs.contents(log)
    for number in range(60, 80):
        logs.append(log, number, 200)
    log.close()
    smaller = CommitLog.open(closed, 600)
    assert logs.contents(smaller).startswith(before)
    logs.append(smaller, 80)
    end = smaller.end
    smaller.close()
    again = _open(closed)
    assert again.end == end
    again.close()


@pytest.fixture
def one_range(tmp_path: Path) -> Path:
    """Several segments, each with one sum for all of its records."""
    log = logs.filled(tmp_path / "log", 60)
    log.raise_confirm_floor(log.end)
    log.close()
    for segment in _segments(log.directory):
        assert len(sums.load(sums.sums_path(segment), int(segment.name)).chain) == 1
    return log.directory


def test_a_flip_of_any_byte_in_a_file_that_others_follow_is_noted(one_range: Path) -> None:
    """The file behind it says that it ends there."""
    *followed, _ = _segments(one_range)
    log = _open(one_range)
    end = log.end
    log.close()
    for file in followed:
        for position in range(0, file.stat().st_size, 61):
            logs.flip(file, position, position % 8)
            for _ in range(2):
                log = _open(one_range, keeps_damage=True)
                assert log.end == end
                (damage,) = log.checks.damage.values()
                assert damage.start <= int(file.name) + position < damage.end
                log.close()
            logs.flip(file, position, position % 8)


def test_a_flip_in_the_last_file_is_noted_where_units_behind_it_say_how_it_ends(
    one_range: Path,
) -> None:
    name = _segments(one_range)[-1].name
    last_unit = max(_starts(one_range)) - int(name)
    for position in range(0, (one_range / name).stat().st_size, 29):
        copy = logs.clone(one_range, one_range.parent / f"flipped-{position}")
        logs.flip(copy / name, position, position % 8)
        try:
            log = _open(copy, keeps_damage=True)
        except CorruptionError:
            assert position >= last_unit
            continue
        assert len(log.checks.damage) == 1
        assert log.end == int(name) + (one_range / name).stat().st_size
        offset, _ = logs.append(log, 60)
        log.flush()
        log.close()
        logs.flip(copy / name, position, position % 8)  # it is repaired
        log = _open(copy)  # what was appended stands where it is looked for
        assert log.end > offset
        log.close()


def test_a_page_of_the_last_file_that_cannot_be_read_does_not_end_the_log(
    one_range: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units behind it say how the file ends; the disk's own words are never what a caller gets."""
    path = _segments(one_range)[-1]
    last_unit, size = max(_starts(one_range)) - int(path.name), path.stat().st_size
    pread, bad = os.pread, 0

    def failing(descriptor: int, count: int, at: int) -> bytes:
        if os.fstat(descriptor).st_ino == path.stat().st_ino and at <= bad < at + count:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, count, at)

    monkeypatch.setattr(recovery, "_PAGE_BYTES", 16)
    monkeypatch.setattr(os, "pread", failing)
    opened = 0
    for bad in range(0, size, 29):
        try:
            log = _open(one_range, keeps_damage=True)
        except CorruptionError:
            assert bad >= last_unit - 16
            continue
        opened += 1
        assert log.end == int(path.name) + size
        log.close()
    assert opened


def test_a_record_that_cannot_be_read_and_has_no_sum_is_damage_up_to_the_floor(
    crashed: Path,
) -> None:
    """The confirm floor speaks for bytes whose sums went with the power."""
    flushed = _flushed_bytes(crashed)
    first, second, third = [at for at in _starts(crashed) if at >= flushed]
    size = (crashed / FIRST).stat().st_size
    for floor in (second, third, size):
        copy = logs.clone(crashed, crashed.parent / f"floor-{floor}")
        logs.flip(copy / FIRST, first + 1)  # of its size
        for options in ({"confirm_floor": Offset(floor)}, {}):
            log = _open(copy, keeps_damage=True, **options)
            assert log.end == size
            (damage,) = log.checks.damage.values()
            assert (damage.start, damage.end, damage.crc) == (first, floor, sums.UNKNOWN)
            log.close()


def test_the_last_record_is_refused_if_it_cannot_be_read(crashed: Path) -> None:
    """It may be a record or a blank, and what is appended next stands elsewhere then."""
    size, last = (crashed / FIRST).stat().st_size, max(_starts(crashed))
    logs.flip(crashed / FIRST, last + 1)
    error = _refused(crashed, confirm_floor=Offset(size), keeps_damage=True)
    assert error.offset == last


def test_what_is_no_record_behind_the_floor_is_cut_with_all_that_follows(crashed: Path) -> None:
    flushed = _flushed_bytes(crashed)
    first, second, _ = [at for at in _starts(crashed) if at >= flushed]
    logs.flip(crashed / FIRST, first + 1)
    logs.flip(crashed / FIRST, second + 1)
    log = _open(crashed, keeps_damage=True, confirm_floor=Offset(second))
    assert log.end == second
    assert [item.end for item in log.checks.damage.values()] == [second]
    log.close()
    log = _open(crashed, keeps_damage=True)
    assert log.end == second
    log.close()
