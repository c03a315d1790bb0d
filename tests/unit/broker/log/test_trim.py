"""Trimming: whole files from the beginning, durable, and finished by the next opening."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, CutRefusedError
from gantry_broker.log.segments import list_segments
from gantry_protocol.types import Offset
from support import logs

SEGMENT_BYTES = 1500


def confirmed(directory: Path) -> CommitLog:
    log = logs.filled(directory, 40, segment_bytes=SEGMENT_BYTES)
    log.raise_confirm_floor(log.end)
    return log


def test_a_trimmed_log_begins_where_a_file_begins(tmp_path: Path) -> None:
    log = confirmed(tmp_path / "log")
    whole, to = logs.contents(log), log.starts[2]
    removed = log.trim(to)
    assert [segment.start for segment in removed] == [0, log.directory and removed[1].start]
    assert (log.log_start, log.starts[0]) == (to, to)
    assert logs.contents(log) == whole[to:]
    with pytest.raises(ValueError, match="outside the log"):
        log.read(Offset(to - 1), 1)
    for segment in removed:
        segment.remove()
    log.verify()
    offset, data = logs.append(log, 99, 500)
    log.close()
    again = CommitLog.open(tmp_path / "log", SEGMENT_BYTES)
    assert (again.log_start, again.confirm_floor) == (to, len(whole))
    assert logs.contents(again)[: len(whole) - to] == whole[to:]
    assert again.read_units(offset, 1) == data
    again.verify()
    again.close()


@pytest.mark.parametrize("deleted", range(5), ids=lambda count: f"{count} deletions")
def test_a_crash_between_the_deletions_ends_in_the_trim(tmp_path: Path, deleted: int) -> None:
    log = confirmed(tmp_path / "log")
    whole, to = logs.contents(log), log.starts[2]
    removed = log.trim(to)
    paths = [path for one in removed for path in (one.path, Path(f"{one.path}.sums"))]
    for path in paths[:deleted]:
        path.unlink()
    copy = logs.clone(tmp_path / "log", tmp_path / "crashed")
    log.close()
    again = CommitLog.open(copy, SEGMENT_BYTES)
    assert (again.log_start, logs.contents(again)) == (to, whole[to:])
    again.close()
    assert list_segments(copy)[0].start == to
    assert min(copy.glob("*.sums")).name.startswith(f"{to:020d}")


def test_a_crash_before_the_start_is_durable_trims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = confirmed(tmp_path / "log")
    whole = logs.contents(log)
    log.flush()

    class DiedError(BaseException):
        pass

    def die(*_args: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", die)
        with pytest.raises(DiedError):
            log.trim(log.starts[2])
    again = CommitLog.open(logs.clone(tmp_path / "log", tmp_path / "crashed"), SEGMENT_BYTES)
    assert (again.log_start, logs.contents(again)) == (0, whole)
    again.close()
    log.close()


def test_both_slots_know_the_new_start(tmp_path: Path) -> None:
    """One that rots must not ask for files that are gone."""
    for slot in range(2):
        log = confirmed(tmp_path / str(slot))
        to = log.starts[2]
        for segment in log.trim(to):
            segment.remove()
        copy = logs.clone(log.directory, tmp_path / f"copy{slot}")
        log.close()
        logs.flip(copy / "checkpoint", slot * 4096 + 20)
        again = CommitLog.open(copy, SEGMENT_BYTES)
        assert again.log_start == to
        again.close()


def test_what_is_refused(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 40, segment_bytes=SEGMENT_BYTES)
    log.raise_confirm_floor(log.starts[2])
    whole = logs.contents(log)
    for to in (log.starts[3], Offset(log.starts[1] + 1), log.end):
        with pytest.raises(CutRefusedError, match="is not trimmed to"):
            log.trim(to)
    assert (log.log_start, logs.contents(log)) == (0, whole)
    assert log.trim(log.starts[0]) == []
    log.close()


def test_a_background_check_passes_files_that_are_trimmed_meanwhile(tmp_path: Path) -> None:
    log = confirmed(tmp_path / "log")
    to = log.starts[3]
    trimmed = False

    def trim() -> None:
        nonlocal trimmed
        if not trimmed:
            trimmed = True
            for segment in log.trim(to):
                segment.remove()

    import gantry_broker.log.recovery as recovery

    before = recovery.PAUSE_BYTES
    recovery.PAUSE_BYTES = 1
    try:
        log.verify(pause=trim)
    finally:
        recovery.PAUSE_BYTES = before
    assert trimmed
    log.close()
