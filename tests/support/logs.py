"""Commit logs for tests: records, whole directories as bytes, and one flipped bit."""

from __future__ import annotations

import shutil
from pathlib import Path

from gantry_broker.log import CommitLog
from gantry_protocol.records import MessageRecord, encode_record
from gantry_protocol.types import Offset

SEGMENT_BYTES = 4096


def record(offset: int, number: int = 0, *, body: bytes = b"payload", topic: str = "T") -> bytes:
    """An encoded record for log offset `offset`."""
    return encode_record(
        MessageRecord(
            topic=topic,
            body=body,
            properties="TAGS\x01TagA\x02KEYS\x01k\x02",
            queue_offset=number,
            physical_offset=offset,
            store_timestamp=1000 + number,
            born_host=("10.0.0.1", 4000),
            store_host=("10.0.0.2", 10911),
        )
    )


RECORD_BYTES = len(record(0))


def append(log: CommitLog, number: int = 0, body_bytes: int = 7) -> tuple[Offset, bytes]:
    """Append one record; returns where it stands, and it."""
    body = bytes((number * 7 + i) % 251 + 1 for i in range(body_bytes))
    size = RECORD_BYTES - 7 + body_bytes
    offset = log.position_for(size)
    data = record(offset, number, body=body)
    log.append(data)
    return offset, data


def filled(directory: Path, count: int, *, segment_bytes: int = SEGMENT_BYTES) -> CommitLog:
    """A flushed log with `count` records of different sizes."""
    log = CommitLog.open(directory, segment_bytes)
    for number in range(count):
        append(log, number, 1 + number * 37 % 300)
    log.flush()
    return log


def contents(log: CommitLog) -> bytes:
    """All bytes of the log."""
    parts = []
    at = log.log_start
    while at < log.end:
        part = log.read(at, 1 << 20)
        parts.append(part)
        at = Offset(at + len(part))
    return b"".join(parts)


def boundaries(log: CommitLog) -> list[Offset]:
    """Where the units begin, and the end."""
    found = []
    at = log.log_start
    while at < log.end:
        found.append(at)
        at = Offset(at + len(log.read_units(at, 8)))
    return [*found, at]


def directory_bytes(directory: Path) -> dict[str, bytes]:
    """Every file below `directory`."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def clone(directory: Path, target: Path) -> Path:
    """What a killed process leaves: everything that was written.

    A key-value store may tidy up while it is copied; a copy that missed a file is taken again.
    """
    for _ in range(20):
        try:
            shutil.copytree(directory, target)
        except shutil.Error:
            shutil.rmtree(target)
        else:
            return target
    raise AssertionError(f"{directory} never stands still")


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Flip one bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
