"""Judging a log from its files: the same words as a start, all of the damage, nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, cutting, sums
from gantry_broker.log.inspection import LogFiles, LogVerdict
from gantry_protocol.errors import CorruptionError, DataDirError, RecordError
from gantry_protocol.types import Offset
from support import logs

COUNT = 40


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = logs.filled(tmp_path / "commitlog", COUNT)
    log.raise_confirm_floor(log.flushed)
    log.close()
    return log.directory


def _verified(directory: Path) -> LogVerdict:
    before = logs.directory_bytes(directory)
    verdict = LogFiles(directory).verify()
    assert logs.directory_bytes(directory) == before
    return verdict


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_sound_log_is_sound_and_every_record_is_counted(directory: Path) -> None:
    verdict = _verified(directory)
    assert (verdict.damage, verdict.notes, verdict.records) == ([], [], COUNT)
    assert verdict.end == verdict.covered == verdict.confirm_floor > 0
    assert verdict.files == len(list(directory.glob("*.sums"))) > 1


def test_every_flipped_byte_of_every_file_is_named(directory: Path) -> None:
    files = LogFiles(directory)
    for segment in files.segments:
        for position in range(0, segment.size, 41):
            _flip(segment.path, position)
            found = _verified(directory).damage
            _flip(segment.path, position)
            assert found, f"{segment.path.name} at {position}"
            assert found[0].file == str(segment.path)
            assert found[0].position <= position
            assert str(found[0].offset) in str(found[0])
    assert _verified(directory).damage == []


def test_two_damaged_files_are_both_named(directory: Path) -> None:
    first, *_, last = LogFiles(directory).segments
    _flip(first.path, 60)
    _flip(last.path, 60)
    assert {one.file for one in _verified(directory).damage} == {str(first.path), str(last.path)}


def test_the_room_behind_the_end_of_an_open_log_is_nothing(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "commitlog", 10, segment_bytes=1 << 20)
    files = LogFiles(log.directory)
    (path,) = (one.path for one in files.segments)
    assert path.stat().st_size > log.end
    verdict = _verified(log.directory)
    assert (verdict.damage, verdict.notes, verdict.end) == ([], [], log.end)
    assert sum(unit.size for _, _, unit, _ in files.units(0, 1 << 40)) == log.end

    end = log.end
    log.close()
    path.write_bytes(path.read_bytes()[: end - 100] + bytes(5000))
    assert _verified(log.directory).damage, "zeros where something was flushed are damage"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(RecordError):
        list(LogFiles(log.directory).units(0, 1 << 40))


def test_a_missing_end_below_the_floor_is_damage_and_above_it_a_note(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "commitlog", 10, segment_bytes=1 << 20)
    flushed = log.flushed
    logs.append(log, 10, 40)
    end = len(logs.contents(log))
    copy = logs.clone(log.directory, tmp_path / "crashed")
    log.close()
    (path,) = (one.path for one in LogFiles(copy).segments)
    whole = path.read_bytes()[:end]

    path.write_bytes(whole[:-3])
    verdict = _verified(copy)
    assert verdict.damage == []
    assert [one.offset for one in verdict.notes] == [flushed] == [verdict.end]
    CommitLog.open(logs.clone(copy, tmp_path / "opened"), 1 << 20).close()

    path.write_bytes(whole[: flushed - 3])
    assert _verified(copy).damage
    with pytest.raises(CorruptionError):
        CommitLog.open(copy, 1 << 20)


def test_a_file_that_is_gone_and_sums_that_are_gone_are_damage(
    directory: Path, tmp_path: Path
) -> None:
    segments = LogFiles(directory).segments
    without_file = logs.clone(directory, tmp_path / "without-file")
    (without_file / segments[1].path.name).unlink()
    verdict = _verified(without_file)
    assert verdict.end == segments[0].end
    assert [one.offset for one in verdict.damage] == [segments[0].end]

    without_sums = logs.clone(directory, tmp_path / "without-sums")
    sums.sums_path(without_sums / segments[1].path.name).unlink()
    assert [Path(one.file).name for one in _verified(without_sums).damage] == [
        f"{segments[1].path.name}.sums"
    ]


def test_an_unfinished_cut_and_trimmed_files_are_notes(directory: Path, tmp_path: Path) -> None:
    log = CommitLog.open(directory, logs.SEGMENT_BYTES)
    removed = log.trim(log.starts[1])
    log.close()
    cutting.write_marker(directory, cutting.Cut(Offset(log.end)))
    verdict = _verified(directory)
    assert verdict.damage == []
    assert [one.offset for one in verdict.notes] == [removed[0].start, log.end]
    assert verdict.start == log.log_start > 0


def test_records_are_walked_from_any_offset(directory: Path) -> None:
    files = LogFiles(directory)
    everything = [(at, data) for _, at, _, data in files.units(0, 1 << 40)]
    assert b"".join(data for _, data in everything) == b"".join(
        one.path.read_bytes() for one in files.segments
    )
    for start in range(0, files.size_bytes, 97):
        expected = [at for at, _ in everything if start <= at < start + 500]
        assert [at for _, at, _, _ in files.units(start, start + 500)] == expected


def test_a_damaged_record_ends_the_walk_with_its_place(directory: Path) -> None:
    files = LogFiles(directory)
    _flip(files.segments[0].path, 5)
    with pytest.raises(RecordError, match=rf"{files.segments[0].path}: byte 0 "):
        list(LogFiles(directory).units(0, 1 << 40))


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataDirError, match="holds no commit log"):
        LogFiles(tmp_path)
