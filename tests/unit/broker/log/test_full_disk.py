"""A disk that is full under a log: what is refused, what waits, and what never fails for it."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, DiskFullError, sums
from gantry_broker.log.checked import DamagedError
from gantry_protocol.types import Offset
from support import logs
from support.small_disk import SmallDisk


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    return SmallDisk(directory, monkeypatch)


@pytest.fixture
def log(directory: Path, disk: SmallDisk) -> CommitLog:
    return logs.filled(directory, 3, segment_bytes=1 << 20)


def covered(log: CommitLog) -> int:
    """Up to where sums in the newest file vouch for the log."""
    (file,) = sorted(log.directory.glob("*[0-9]"))[-1:]
    return sums.load(sums.sums_path(file), int(file.name)).covered or 0


def test_what_has_its_room_already_is_durable_on_a_full_disk(
    log: CommitLog, disk: SmallDisk
) -> None:
    """Only its sums find no room, and they can wait: the process has no reason to end."""
    before = log.end
    disk.fill(sums.ENTRY_BYTES + 3)  # the second finds room for a part
    for number in range(3, 9):
        logs.append(log, number)
        log.flush()
        assert log.flushed == log.end
    assert disk.refused
    assert before < covered(log) < log.end
    disk.free()
    logs.append(log, 9)
    log.flush()
    assert covered(log) == log.end, "those that waited came first"
    log.verify()
    log.close()


def test_no_checkpoint_promises_what_has_no_sum(
    log: CommitLog, disk: SmallDisk, directory: Path, tmp_path: Path
) -> None:
    end = log.end
    log.raise_confirm_floor(end)
    disk.fill()
    logs.append(log, 3)
    log.flush()
    log.raise_confirm_floor(log.end)
    log._writer.begin_checkpoint()
    assert log._writer._promised == end
    whole = logs.contents(log)
    copy = shutil.copytree(directory, tmp_path / "copy")  # the process is killed
    disk.free()
    again = CommitLog.open(copy, 1 << 20)
    assert logs.contents(again) == whole
    assert covered(again) == again.end
    again.close()
    log.close()


def test_sums_that_wait_are_written_without_another_append(log: CommitLog, disk: SmallDisk) -> None:
    disk.fill()
    logs.append(log, 3)
    log.flush()
    disk.free()
    log.close()
    assert covered(log) == log.end


def test_what_is_flushed_is_read_by_the_sums_that_wait(log: CommitLog, disk: SmallDisk) -> None:
    """Once a trim has made the newest ones be forgotten they stand in no other place."""
    disk.fill(sums.ENTRY_BYTES)
    at = log.end
    for number in range(3, 9):
        logs.append(log, number)
        log.flush()
    log.checks.forget(0, log.log_start)
    places = logs.boundaries(log)
    for start, end in pairwise(places):
        log.compare(start, end)
    assert log.read(at, log.end - at)
    position = log.end - 1 - log.log_start
    (file,) = log.directory.glob("*[0-9]")
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedError):
        log.compare(places[-2], places[-1])
    log.close()


def test_a_file_that_cannot_be_begun_is_not_in_the_way_later(
    directory: Path, disk: SmallDisk
) -> None:
    log = logs.filled(directory, 3)
    disk.fill()  # there is room for the blank, and none for the sums of another file
    number = 3
    while log.fits(logs.RECORD_BYTES - 7 + 100):
        logs.append(log, number, 100)
        number += 1
    for _ in range(2):
        with pytest.raises(DiskFullError):
            logs.append(log, number, 100)
    disk.free()
    logs.append(log, 61, 100)
    log.flush()
    assert len(log.starts) == 2
    log.close()


def test_a_log_is_cut_in_the_room_that_it_kept_for_itself(log: CommitLog, disk: SmallDisk) -> None:
    """A master that was deposed for its full disk can follow the next one."""
    to = logs.boundaries(log)[2]
    disk.fill()
    log.truncate(Offset(to))
    assert log.end == to
    assert covered(log) == to
    log.close()


@pytest.mark.parametrize("room", [0, 3, 2 * sums.ENTRY_BYTES], ids=["none", "a part", "two"])
@pytest.mark.parametrize("inside", [False, True], ids=["between sums", "inside a sum"])
def test_sums_that_wait_go_on_waiting_after_a_cut(
    log: CommitLog, disk: SmallDisk, directory: Path, room: int, inside: bool
) -> None:
    before = len(logs.boundaries(log))
    disk.fill(room)
    for number in range(3, 15):
        logs.append(log, number)
        if number % 2:
            log.flush()
    places = logs.boundaries(log)
    log.truncate(places[before + 3 + inside])
    disk.free()
    logs.append(log, 20)
    log.flush()
    log.compare(log.log_start, log.end)
    assert covered(log) == log.end
    whole = logs.contents(log)
    log.close()
    again = CommitLog.open(directory, 1 << 20, confirm_floor=log.end)
    assert logs.contents(again) == whole
    again.close()


def test_a_log_is_thrown_away_in_the_room_that_it_kept(log: CommitLog, disk: SmallDisk) -> None:
    disk.fill()
    log.reset(Offset(10_000))
    assert (log.log_start, log.end) == (10_000, 10_000)
    log.close()
