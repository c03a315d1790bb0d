"""Cutting: durable, whole or not at all, never below what is confirmed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, CutRefusedError, cutting, sums
from gantry_broker.log.checked import DamagedError
from gantry_protocol.errors import CorruptionError
from gantry_protocol.types import Offset
from support import logs


class DiedError(BaseException):
    """The process ended here."""


def _die_at(call_number: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the process die before its n-th change to the disk; returns the changes so far."""
    calls: list[str] = []

    def dying(name: str):
        real = getattr(os, name)

        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) == call_number:
                raise DiedError
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "fdatasync", "ftruncate", "unlink", "replace", "pwrite", "write"):
        dying(name)
    return calls


def test_cut_at_every_boundary_keeps_exactly_what_is_below(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 30, segment_bytes=1500)
    whole = logs.contents(log)
    starts = logs.boundaries(log)
    log.close()
    for to in starts:
        copy = logs.clone(log.directory, tmp_path / f"cut{to}")
        cut = CommitLog.open(copy, 1500)
        cut.truncate(to)
        assert cut.end == cut.flushed == to
        offset, data = logs.append(cut, 99, 500)
        cut.close()
        again = CommitLog.open(copy, 1500)
        assert logs.contents(again)[:to] == whole[:to]
        assert again.read_units(offset, 1) == data
        again.verify()
        again.close()


def test_a_crash_at_any_change_ends_in_the_cut_or_leaves_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.filled(tmp_path / "log", 30, segment_bytes=1500)
    whole = logs.contents(log)
    starts = logs.boundaries(log)
    to = starts[len(starts) // 3]
    assert any(path for path in log.directory.glob("0*") if int(path.stem) > to)
    log.close()
    seen = set()
    for number in range(1, 200):
        copy = logs.clone(log.directory, tmp_path / f"died{number}")
        cut = CommitLog.open(copy, 1500)
        with monkeypatch.context() as patch:
            calls = _die_at(number, patch)
            try:
                cut.truncate(to)
                finished = True
            except DiedError:
                finished = False
        left = logs.clone(copy, tmp_path / f"left{number}")
        cut._segments.close()
        again = CommitLog.open(left, 1500)
        seen.add(again.end)
        assert again.end in (to, len(whole))
        assert logs.contents(again) == whole[: again.end]
        again.verify()
        again.close()
        assert not (left / cutting.MARKER_NAME).exists()
        if finished:
            assert again.end == to
            assert len(calls) < number
            break
    assert seen == {to, len(whole)}
    assert number > 10


def test_the_range_that_straddles_a_cut_gets_a_sum_of_its_kept_half(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    ends = [Offset(logs.append(log, number)[0]) for number in range(6)]
    log.flush()
    log.truncate(ends[3])
    entries = sums.load(sums.sums_path(log.directory / f"{0:020d}"), 0)
    assert entries.is_clean
    assert entries.covered == ends[3]
    log.verify()
    log.close()


@pytest.mark.parametrize("delta", [-1, 1, 30])
def test_a_cut_inside_a_record_is_refused(tmp_path: Path, delta: int) -> None:
    log = logs.filled(tmp_path / "log", 5, segment_bytes=1 << 20)
    before = logs.contents(log)
    with pytest.raises(CutRefusedError):
        log.truncate(Offset(logs.boundaries(log)[3] + delta))
    assert logs.contents(log) == before
    log.close()


def test_a_cut_below_the_confirm_floor_or_beyond_the_end_is_refused(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 5, segment_bytes=1 << 20)
    starts = logs.boundaries(log)
    log.raise_confirm_floor(starts[3])
    for to in (starts[2], Offset(log.end + 1)):
        with pytest.raises(CutRefusedError, match=f"confirmed up to {starts[3]}"):
            log.truncate(to)
    log.truncate(starts[3])
    assert log.end == starts[3]
    log.close()


def test_the_floor_is_kept_over_a_restart_and_still_guards(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 5, segment_bytes=1 << 20)
    starts = logs.boundaries(log)
    log.raise_confirm_floor(starts[3])
    log.close()
    again = CommitLog.open(log.directory, 1 << 20)
    assert again.confirm_floor == starts[3]
    with pytest.raises(CutRefusedError):
        again.truncate(starts[2])
    again.close()


@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_what_a_cut_keeps_of_a_damaged_range_gets_no_sum_of_its_own(
    tmp_path: Path, was_read: bool, crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    sound = logs.append(log, 0)[0]
    log.flush()
    starts = [logs.append(log, number)[0] for number in range(1, 7)]
    log.flush()
    if was_read:
        logs.contents(log)  # is kept in memory, and given out again
    path = log.directory / f"{0:020d}"
    logs.flip(path, starts[1] + 13)
    if crash:
        monkeypatch.setattr(cutting, "finish", _die)
        with pytest.raises(DiedError):
            log.truncate(starts[3])
        monkeypatch.undo()
    else:
        log.truncate(starts[3])
        log.checks.forget(0, log.end)
        with pytest.raises(DamagedError, match="nobody knows here what the") as caught:
            log.read(starts[1], 10)
        assert (caught.value.damage.start, caught.value.damage.end) == (starts[0], starts[3])
        after = logs.append(log, 9)[0]
        log.flush()
        assert log.read(after, 10)
    again = CommitLog.open(
        logs.clone(log.directory, tmp_path / "again"), 1 << 20, keeps_damage=True
    )
    (damage,) = again.checks.damage.values()
    assert (damage.start, damage.end, damage.crc) == (starts[0], starts[3], sums.UNKNOWN)
    assert again.read(sound, 10)
    again.close()
    log.close()


def _die(*_: object) -> None:
    raise DiedError


def test_unflushed_records_below_the_cut_stay(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    starts = [logs.append(log, number)[0] for number in range(4)]
    log.truncate(starts[2])
    assert log.flushed == log.end == starts[2]
    assert len(logs.boundaries(log)) == 3
    log.close()


def test_reset_begins_an_empty_log_elsewhere_whatever_was_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.filled(tmp_path / "log", 30, segment_bytes=1500)
    log.raise_confirm_floor(log.end)
    end = log.end
    log.close()
    to = Offset(123_456)
    for number in range(1, 200):
        copy = logs.clone(log.directory, tmp_path / f"died{number}")
        reset = CommitLog.open(copy, 1500)
        with monkeypatch.context() as patch:
            _die_at(number, patch)
            try:
                reset.reset(to)
                finished = True
            except DiedError:
                finished = False
        left = logs.clone(copy, tmp_path / f"left{number}")
        again = CommitLog.open(left, 1500)
        assert (again.log_start, again.end) in ((0, end), (to, to))
        again.close()
        if finished:
            break
    assert (reset.log_start, reset.end, reset.flushed, reset.confirm_floor) == (to, to, to, to)
    offset, data = logs.append(reset, 0)
    assert offset == to
    reset.close()
    again = CommitLog.open(copy, 1500)
    assert (again.log_start, again.read_units(to, 1)) == (to, data)
    again.close()


def test_a_reset_forgets_what_was_not_flushed(tmp_path: Path) -> None:
    """Else its sums would be written behind those of the new log, to files that are gone."""
    log = logs.filled(tmp_path / "log", 4, segment_bytes=1 << 20)
    logs.append(log, 9, 20_000)  # so large that it is written at once, and synced later
    to = Offset(123_456)
    log.reset(to)
    _, data = logs.append(log, 0)
    log.flush()
    first = log.directory / f"{to:020d}"
    assert sums.load(sums.sums_path(first), to).covered == log.end
    log.close()
    again = CommitLog.open(log.directory, 1 << 20)
    assert (again.log_start, logs.contents(again)) == (to, data)
    again.verify()
    again.close()


def test_a_damaged_marker_is_refused(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 3)
    log.close()
    cutting.write_marker(log.directory, cutting.Cut(Offset(0)))
    logs.flip(log.directory / cutting.MARKER_NAME, 9)
    before = logs.directory_bytes(log.directory)
    with pytest.raises(CorruptionError, match="unfinished cut"):
        CommitLog.open(log.directory, logs.SEGMENT_BYTES)
    assert logs.directory_bytes(log.directory) == before


def test_a_marker_for_bytes_that_are_gone_is_refused(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 3, segment_bytes=1 << 20)
    log.close()
    cutting.write_marker(log.directory, cutting.Cut(Offset(log.end + 10)))
    with pytest.raises(CorruptionError, match="was to be cut at"):
        CommitLog.open(log.directory, 1 << 20)


def test_sums_of_what_follows_a_cut_go_to_the_file_that_replaced_theirs(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 4)
    log.truncate(logs.boundaries(log)[2])  # in the middle of a range: the sums are written anew
    logs.append(log, 9)
    log.flush()
    first = log.directory / "00000000000000000000"
    assert sums.load(sums.sums_path(first), 0).covered == log.end
    log.close()
