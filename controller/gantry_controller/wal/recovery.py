"""Bytes back to state, and the line between a torn write and damage.

Batches are read while the chain of checksums holds. Where it ends in the last segment there is

- nothing but zeros: the clean end;
- a batch that was being written when the power went: it was never confirmed, and is cut off. The
  segment was zero-filled, so an interrupted write shows as zeros: whole sectors that never arrived,
  or everything from some byte on (the test of etcd's wal.isTornEntry);
- anything else: bytes that were durable have changed. So does a later floor prove it, whatever the
  broken place looks like: it was written after everything before it had been synced.

Damage raises ``CorruptionError`` and nothing is cut, because cutting would drop entries this node
has confirmed; the way out is the rule for nodes that lost their disk (``raft.admission``), and a
person decides to take it (``node.rejoin``).
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError, DataDirError
from google_crc32c import extend

from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import Entry, HardState
from gantry_controller.raft.snapshot import Base, Marker
from gantry_controller.wal.format import (
    FLOOR_MARK,
    FLOOR_SIZE,
    HEADER_SIZE,
    RECORD,
    SECTOR,
    VERSION,
    WAY_OUT,
    Floor,
    Head,
    Header,
    parse_floor,
    parse_header,
)
from gantry_controller.wal.replay import Replay, SegmentUse


class Recovered(msgspec.Struct):
    """The contents of a log.

    Attributes:
        hard_state: None if nothing was ever written.
        entries: the log behind ``base``, in order.
        base: where it begins.
        marker: of the newest durable snapshot; None before the first.
        head: where to go on; None if there is no segment.
        newest: the bytes of the last batch, which end at ``head``. Every earlier one was durable
            before the next was written; for this one nobody vouches.
        torn_bytes: length of what an unfinished batch left at ``head``; it must be gone before
            anything is written there, so that no part of it is ever taken for something newer.
        segments: in order; the last is the one ``head`` is in.
    """

    hard_state: HardState | None = None
    entries: list[Entry] = []
    base: Base = Base()
    marker: Marker | None = None
    head: Head | None = None
    newest: bytes = b""
    torn_bytes: int = 0
    segments: list[SegmentUse] = []


def recover(segments: Iterable[tuple[Path, bytes]]) -> Recovered:
    """Read segments in order, the oldest that is needed first.

    Raises:
        CorruptionError: stored bytes changed or are missing; nothing was modified.
        DataDirError: a segment was written by a newer program.
    """
    replay: Replay | None = None
    head: Head | None = None
    last: tuple[Path, bytes] | None = None
    first, newest = "", b""
    for path, data in segments:
        header = _read_header(path, data)
        if replay is None:
            replay, first = Replay(whole=header.sequence == 1), path.name
        _check_link(last, head, path, header)
        head = Head(
            sequence=header.sequence,
            size=header.size,
            offset=HEADER_SIZE,
            chain=header.seed,
            batch=header.batch,
            last_index=replay.last_index,
        )
        replay.segments.append(SegmentUse(path, header.size))
        newest = data[read_batches(path, data, head, replay) : head.offset]
        last = (path, data)
    if replay is None or head is None or last is None:
        return Recovered()
    torn_bytes = _torn_bytes(*last, head)
    base = replay.base
    if base is None:
        raise _missing_beginning(last[0].parent, first, replay)
    return Recovered(
        hard_state=replay.hard_state,
        entries=replay.entries,
        base=base,
        marker=replay.marker,
        head=head,
        newest=newest,
        torn_bytes=torn_bytes,
        segments=replay.segments,
    )


def _missing_beginning(directory: Path, first: str, replay: Replay) -> CorruptionError:
    missing = directory / f"wal-{int(first.rpartition('-')[2]) - 1:010}"
    needed = 1 if replay.marker is None else replay.marker.base.index + 1
    return CorruptionError(
        missing, 0, f"the file is missing, and entry {needed} of the log with it; {WAY_OUT}"
    )


def _read_header(path: Path, data: bytes) -> Header:
    header = parse_header(data)
    if header is None:
        raise CorruptionError(path, 0, f"the segment header is not one; {WAY_OUT}")
    if isinstance(header, int):
        raise DataDirError(
            f"{path} has format {header}, this program knows {VERSION}: start a program at least "
            "as new as the one that wrote it."
        )
    if len(data) < header.size:
        raise CorruptionError(
            path, len(data), f"the file ends here but was made with {header.size} bytes; {WAY_OUT}"
        )
    return header


def _check_link(
    last: tuple[Path, bytes] | None, head: Head | None, path: Path, header: Header
) -> None:
    """A segment must continue the one before it."""
    if last is None or head is None:
        return
    if header.sequence != head.sequence + 1:
        raise CorruptionError(
            path,
            0,
            f"this is segment {header.sequence} but the one before is {head.sequence}; {WAY_OUT}",
        )
    if (header.chain, header.batch) != (head.chain, head.batch):
        raise CorruptionError(
            last[0],
            _damage_offset(last[1], head),
            f"batch {head.batch} cannot be read, but segment {header.sequence} goes on at batch "
            f"{header.batch}; {WAY_OUT}",
        )


def read_batches(path: Path, data: bytes, head: Head, replay: Replay) -> int:
    """Apply every whole batch of a segment and move ``head`` behind the last.

    Returns:
        Where the last one begins; ``head.offset`` if there is none.

    Raises:
        CorruptionError: the checksums hold, but a record cannot stand where it is.
    """
    newest = head.offset
    while (floor := parse_floor(data, head.offset)) is not None:
        records = _whole_batch(data, head.offset, floor.size, head.chain)
        if records is None:
            break
        newest = head.offset
        bodies, chain = records
        try:
            for body in bodies:
                replay.record(body)
        except MessageError as error:
            raise CorruptionError(path, head.offset, f"{error}; {WAY_OUT}") from error
        head.offset += FLOOR_SIZE + floor.size
        head.chain = chain
        head.batch += 1
        head.last_index = replay.last_index
    return newest


def _whole_batch(data: bytes, offset: int, size: int, chain: int) -> tuple[list[bytes], int] | None:
    """The bodies of a batch behind its floor, and the chain's new end; None if not whole."""
    end = offset + FLOOR_SIZE + size
    bodies: list[bytes] = []
    while offset < end:
        body = _record(data, offset, end, chain)
        if body is None:
            return None
        (chain,) = RECORD.unpack_from(data, offset)[1:]
        bodies.append(body)
        offset += RECORD.size + len(body)
    return bodies[1:], chain


def _record(data: bytes, offset: int, end: int, chain: int) -> bytes | None:
    """The body at ``offset`` if it continues ``chain`` and stays before ``end``."""
    if offset + RECORD.size > end or end > len(data):
        return None
    length, crc = RECORD.unpack_from(data, offset)
    start = offset + RECORD.size
    if length == 0 or start + length > end:
        return None
    body = data[start : start + length]
    return body if extend(chain, body) == crc else None


def _torn_bytes(path: Path, data: bytes, head: Head) -> int:
    """How far an unfinished batch reaches behind the last whole one; 0 if there is only zeros.

    Raises:
        CorruptionError: neither.
    """
    rest = data[head.offset :].rstrip(b"\x00")
    if not rest:
        return 0
    later = _later_floor(data, head.offset)
    if later is not None:
        raise CorruptionError(
            path,
            _damage_offset(data, head),
            f"batch {head.batch} cannot be read, but batch {later.batch} at byte {later.offset} "
            f"was written after it was durable; {WAY_OUT}",
        )
    if len(rest) <= FLOOR_SIZE:
        return len(rest)  # a floor is no batch: nothing was confirmed
    floor = parse_floor(data, head.offset)
    end = head.offset + FLOOR_SIZE + (floor.size if floor is not None else 0)
    if not _was_interrupted(data, head.offset, end):
        raise CorruptionError(
            path,
            _damage_offset(data, head),
            f"batch {head.batch} was written in full but its checksum is wrong; {WAY_OUT}",
        )
    return len(rest)


def _later_floor(data: bytes, offset: int) -> Floor | None:
    """A floor behind ``offset``."""
    position = data.find(FLOOR_MARK, offset + FLOOR_SIZE)
    while position >= 0:
        floor = parse_floor(data, position - RECORD.size - 1)
        if floor is not None:
            return floor
        position = data.find(FLOOR_MARK, position + 1)
    return None


def _was_interrupted(data: bytes, start: int, end: int) -> bool:
    """Whether a write of [start, end) left zeros: at its end, or a whole sector's part of it."""
    if end > len(data):
        return False
    if data[end - 1] == 0:  # every floor and every batch ends in 0xFF
        return True
    while start < end:
        sector_end = min(end, start - start % SECTOR + SECTOR)
        if not data[start:sector_end].strip(b"\x00"):
            return True
        start = sector_end
    return False


def _damage_offset(data: bytes, head: Head) -> int:
    """The first record of the unreadable batch that does not continue the chain."""
    offset, chain = head.offset, head.chain
    while (body := _record(data, offset, len(data), chain)) is not None:
        (chain,) = RECORD.unpack_from(data, offset)[1:]
        offset += RECORD.size + len(body)
    return offset
