"""Where records go, what stands at a file's end, and what a refused append leaves behind."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from pathlib import Path

import pytest
from gantry_broker.log import CommitLog, DiskFullError, LogFailedError
from gantry_protocol.errors import RecordError
from gantry_protocol.records import BLANK_MAGIC, MessageRecord, decode_records, encode_record
from gantry_protocol.types import Offset
from support import logs


@pytest.fixture
def log(tmp_path: Path):
    opened = CommitLog.open(tmp_path / "log", 1024)
    yield opened
    opened.close()


def test_the_golden_record_lies_at_the_start_of_the_first_file(log: CommitLog) -> None:
    record = encode_record(
        MessageRecord(
            topic="TopicTest", queue_id=1, body=b"Hello RocketMQ", properties="KEYS\x01k1\x02"
        )
    )
    assert log.append(record) == len(record)
    file = log.directory / "00000000000000000000"
    assert log.read(Offset(0), 1 << 20) == record
    assert file.read_bytes() == record + bytes(1024 - len(record)), "room for what comes next"


def test_what_was_gathered_is_written_with_one_write(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.append(log, 0)
    file = log.directory / "00000000000000000000"
    writes: list[int] = []
    real = os.pwrite

    def counting(descriptor: int, data: bytes, at: int) -> int:
        writes.append(at)
        return real(descriptor, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", counting)
        offsets = [logs.append(log, number)[0] for number in range(1, 5)]
        assert not any(file.read_bytes()), "nothing but room yet"
        assert log.read_units(offsets[3], 1) == logs.record(offsets[3], 4, body=BODY_4)
    assert writes == [0]
    assert file.read_bytes()[: log.end] == logs.contents(log)


def test_a_closed_log_has_no_room_left(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 3)
    file = log.directory / "00000000000000000000"
    expected = logs.contents(log)
    assert file.stat().st_size == logs.SEGMENT_BYTES
    log.close()
    assert file.read_bytes() == expected


def test_room_is_asked_for_again_after_a_cut(tmp_path: Path) -> None:
    log = logs.filled(tmp_path / "log", 3)
    file = log.directory / "00000000000000000000"
    log.truncate(logs.boundaries(log)[2])
    assert file.stat().st_size == log.end
    logs.append(log, 7)
    assert file.stat().st_size == logs.SEGMENT_BYTES
    log.close()


def test_gathering_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry_broker.log.commit_log._MAX_GATHERED_BYTES", 300)
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    file = log.directory / "00000000000000000000"
    for number in range(30):
        logs.append(log, number)
        written = len(file.read_bytes().rstrip(b"\0"))
        assert log.end - written <= 300 + 2 * logs.RECORD_BYTES
    log.close()


def test_what_is_large_is_written_at_once_behind_what_was_gathered(tmp_path: Path) -> None:
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    logs.append(log, 0)
    logs.append(log, 1, 20_000)
    data = (log.directory / "00000000000000000000").read_bytes()
    assert data[: log.end] == logs.contents(log)
    log.close()


def test_the_room_of_a_raw_copy_ends_with_the_masters_file(tmp_path: Path) -> None:
    """The replica's files could be larger: behind a blank nothing may stand, zeros neither."""
    master = logs.filled(tmp_path / "master", 60, segment_bytes=1024)
    replica = CommitLog.open(tmp_path / "replica", 1 << 20)
    while replica.end < master.end:
        replica.append_raw(replica.end, master.read_units(replica.end, 500))
    for path in sorted(master.directory.glob("0*[0-9]"))[:-1]:
        assert (replica.directory / path.name).read_bytes() == path.read_bytes()
    replica.close()
    master.close()


@pytest.mark.parametrize(
    ("filled", "size", "starts"),
    [
        pytest.param(0, 1016, 0, id="exactly fits with its blank"),
        pytest.param(0, 1017, 0, id="too large for any file stands alone"),
        pytest.param(200, 816, 200, id="fits behind others"),
        pytest.param(200, 817, 1024, id="one byte too many goes to the next file"),
        pytest.param(1016, 91, 1024, id="only room for the blank"),
        pytest.param(1017, 91, 1025, id="less than a blank is left: the file grows by some bytes"),
    ],
)
def test_position_for(log: CommitLog, filled: int, size: int, starts: int) -> None:
    if filled:
        log.append(logs.record(0, body=bytes(filled - logs.RECORD_BYTES + 7)))
    assert log.end == filled
    assert log.position_for(size) == starts


def test_the_end_of_a_file_is_rocketmqs_blank(log: CommitLog) -> None:
    first = logs.record(0, body=bytes(600))
    log.append(first)
    second = logs.record(1024, body=bytes(600))
    log.append(second)
    log.flush()
    data = (log.directory / "00000000000000000000").read_bytes()
    left = 1024 - len(first)
    assert data[len(first) :] == struct.pack(">iI", left, BLANK_MAGIC) + bytes(left - 8)
    assert (log.directory / "00000000000000001024").read_bytes() == second + bytes(left)


def test_layout_says_where_a_batch_goes_and_append_agrees(log: CommitLog) -> None:
    sizes = [logs.RECORD_BYTES + extra for extra in (0, 400, 300, 300, 900, 0)]
    positions = log.layout(sizes)
    batch = [
        logs.record(offset, body=bytes(size - logs.RECORD_BYTES + 7))
        for offset, size in zip(positions, sizes, strict=True)
    ]
    log.append(batch)
    for offset, data in zip(positions, batch, strict=True):
        assert log.read_units(offset, 1) == data
    assert len(log._segments) > 2


def test_a_record_patched_for_another_place_is_a_programmers_error(log: CommitLog) -> None:
    with pytest.raises(AssertionError):
        log.append(logs.record(5))


def test_a_raw_copy_has_the_same_files_whatever_its_own_segment_size(tmp_path: Path) -> None:
    master = logs.filled(tmp_path / "master", 60, segment_bytes=2048)
    replica = CommitLog.open(tmp_path / "replica", 700)
    while replica.end < master.end:
        replica.append_raw(replica.end, master.read_units(replica.end, 500))
    replica.flush()
    assert logs.contents(replica) == logs.contents(master)
    names = [{p.name for p in each.directory.glob("0*")} for each in (master, replica)]
    assert names[0] == names[1]
    master.close()
    replica.close()


def _with(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


RECORD = logs.record(0)
BODY_4 = bytes((4 * 7 + i) % 251 + 1 for i in range(7))
BLANK = struct.pack(">iI", 100, BLANK_MAGIC)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(RECORD[:-1], id="cut short"),
        pytest.param(RECORD + b"\0\0\0", id="something behind"),
        pytest.param(_with(RECORD, 4, b"\1\2\3\4"), id="magic"),
        pytest.param(logs.record(1), id="another place"),
        pytest.param(_with(RECORD, 88, b"X"), id="body against its checksum"),
        pytest.param(_with(RECORD, len(RECORD) - 3, b"\0"), id="zero in the properties"),
        pytest.param(BLANK, id="blank cut short"),
        pytest.param(BLANK + bytes(92) + logs.record(100), id="something behind a blank"),
        pytest.param(struct.pack(">iI", 7, BLANK_MAGIC), id="blank smaller than itself"),
    ],
)
def test_raw_bytes_that_are_not_whole_sound_units_are_refused(log: CommitLog, data: bytes) -> None:
    with pytest.raises(RecordError):
        log.append_raw(Offset(0), data)
    assert log.end == 0
    log.append(RECORD)


def test_raw_bytes_for_another_offset_are_refused(log: CommitLog) -> None:
    with pytest.raises(RecordError, match="ends at 0"):
        log.append_raw(Offset(10), logs.record(10))


def test_read_never_crosses_a_file_and_knows_its_limits(log: CommitLog) -> None:
    for number in range(12):
        logs.append(log, number, 100)
    assert log.end > 1024
    assert len(log.read(Offset(0), 1 << 20)) == 1024
    assert log.read(log.end, 100) == b""
    for outside in (-1, log.end + 1):
        with pytest.raises(ValueError, match="outside the log"):
            log.read(Offset(outside), 1)


def test_read_units_returns_whole_records_up_to_a_limit(log: CommitLog) -> None:
    offsets = [logs.append(log, number, 100)[0] for number in range(4)]
    size = offsets[1]
    assert len(log.read_units(Offset(0), 1)) == size, "the first one always"
    assert len(log.read_units(Offset(0), 2 * size + 5)) == 2 * size
    assert len(log.read_units(Offset(0), 1 << 20, limit=offsets[3])) == 3 * size
    assert decode_records(log.read_units(Offset(0), 1 << 20))[3].queue_offset == 3


@pytest.mark.parametrize(
    ("first_bytes", "body_bytes"),
    [
        pytest.param(7, 7, id="small"),
        pytest.param(7, 20_000, id="large after small"),
        pytest.param(20_000, 20_000, id="large after large"),
        pytest.param(20_000, 7, id="small after large"),
    ],
)
def test_a_full_disk_refuses_the_record_and_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_bytes: int, body_bytes: int
) -> None:
    """Small ones are refused for want of room, long before they are written."""
    monkeypatch.setattr("gantry_broker.log.segments.AHEAD_BYTES", 10)
    log = CommitLog.open(tmp_path / "log", 1 << 20)
    logs.append(log, 0, first_bytes)
    before = logs.contents(log)
    file = log.directory / "00000000000000000000"
    size = len(file.read_bytes())
    real = os.pwrite
    tries: list[int] = []

    def half_then_full(descriptor: int, data: bytes, at: int) -> int:
        tries.append(at)
        if len(tries) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[:10], at)

    monkeypatch.setattr(os, "pwrite", half_then_full)
    with pytest.raises(DiskFullError, match="free some space"):
        logs.append(log, 1, body_bytes)
    monkeypatch.undo()
    assert len(tries) == 2
    left = file.read_bytes()
    assert left[: len(before)] == before
    assert not any(left[len(before) :])
    assert len(left) <= size
    logs.append(log, 1, body_bytes)
    log.flush()
    assert len(logs.boundaries(log)) == 3
    log.close()


async def test_what_was_gathered_and_cannot_be_written_ends_the_log(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room was there, so a full disk is a broken one now; nobody is told anything any more."""
    logs.append(log, 0)
    told: list[Offset] = []
    tries: list[int] = []

    def broken(descriptor: int, data: bytes, at: int) -> int:
        tries.append(at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(LogFailedError, match="No space left"):
        log.flush_soon(told.append)
    for again in (
        lambda: log.read(Offset(0), 10),
        lambda: log.flush_soon(told.append),
        lambda: logs.append(log, 1),
    ):
        with pytest.raises(LogFailedError, match="No space left"):
            again()
    await asyncio.sleep(0.01)
    assert told == []
    assert len(tries) == 1, "a write that failed is not tried again"


def test_another_write_error_ends_the_log(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(LogFailedError, match="Input/output error"):
        logs.append(log, 0)
    monkeypatch.undo()
    with pytest.raises(LogFailedError):
        logs.append(log, 0)


def test_many_sealed_files_do_not_hold_many_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantry_broker.log.segments._MAX_OPEN", 4)
    log = logs.filled(tmp_path / "log", 80, segment_bytes=512)
    for _ in range(2):
        assert logs.contents(log)
    held = [s for s in log._segments if s.is_open]
    assert len(list(log._segments)) > 20
    assert len(held) <= 6
    log.close()


def test_a_boundary_is_where_a_unit_begins_and_nowhere_else(log: CommitLog) -> None:
    """Blanks and the ends of files included; the last records are gathered and not written yet."""
    for number in range(20):
        logs.append(log, number)
    log.flush()
    begins = {log.end}
    logs.append(log, 20)
    logs.append(log, 21)
    at = Offset(0)
    while at < log.end:
        begins.add(at)
        at = Offset(at + len(log.read_units(at, 1)))
    begins.add(at)
    assert len(log.starts) > 2
    assert {at for at in range(log.end + 1) if log.is_boundary(Offset(at))} == begins
