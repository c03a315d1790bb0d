"""Range sums: a CRC-32C over every byte that was flushed, headers included.

RocketMQ's record has a CRC of its body only: in the middle of a log one flipped bit of a size or
queue number would pass for a shorter log or another queue. So beside each segment stands a file
``<segment>.sums``: a header and 20-byte entries (start, length, CRC-32C of the data, CRC-32C of the
entry). An entry is written *after* the sync of the range it covers. Therefore an entry is also
evidence: everything below its end was on the disk, and if it is not there now, that is damage and
not a torn tail.

The file itself is synced before a checkpoint is written, not with every flush: entries that a power
cut takes away are made again from the records, whose own checks apply there. Where these turn out
not to go on from each other, or a cut keeps a part of a damaged range, ``UNKNOWN`` stands instead.
"""

import errno
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
from gantry_protocol.process.files import atomic_write

_HEADER = struct.Struct(">4sIQ")  # magic, version, start of the segment
_ENTRY = struct.Struct(">QII")  # start, length, CRC-32C of the data
_CRC = struct.Struct(">I")
_MAGIC = b"GSUM"
_VERSION = 1
_READ_BYTES = 4 * 1024 * 1024
_STEP_ENTRIES = 64  # of a search, read at once

UNKNOWN = 0  # instead of a CRC: nobody knows here what the bytes were; they count as damaged
HEADER_BYTES = _HEADER.size + _CRC.size
ENTRY_BYTES = _ENTRY.size + _CRC.size
_STEP_BYTES = _STEP_ENTRIES * ENTRY_BYTES
SUFFIX = ".sums"


class RangeSum(NamedTuple):
    """One covered range: log offsets [start, start + length) and their CRC-32C."""

    start: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        """One past the last covered byte."""
        return self.start + self.length


class LoadedSums(NamedTuple):
    """The contents of a sums file.

    Attributes:
        chain: the entries that follow each other without a gap from the segment's start.
        chain_bytes: length of the file up to the end of the chain; 0 when the header is unusable.
        durable: the highest end that any valid entry vouches for; 0 without any entry.
        is_clean: nothing stands behind the chain.
    """

    chain: list[RangeSum]
    chain_bytes: int
    durable: int
    is_clean: bool

    @property
    def covered(self) -> int | None:
        """The end of the chain; None when nothing is covered."""
        return self.chain[-1].end if self.chain else None


def sums_path(segment: Path) -> Path:
    """The sums file of a segment."""
    return segment.with_name(segment.name + SUFFIX)


def encode_header(start: int) -> bytes:
    """The header of the sums of the segment that begins at ``start``."""
    head = _HEADER.pack(_MAGIC, _VERSION, start)
    return head + _CRC.pack(google_crc32c.value(head))


def encode_entry(entry: RangeSum) -> bytes:
    """One entry."""
    head = _ENTRY.pack(*entry)
    return head + _CRC.pack(google_crc32c.value(head))


def load(path: Path, start: int) -> LoadedSums:
    """The sums of the segment that begins at ``start``; a missing file covers nothing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return LoadedSums([], 0, 0, is_clean=False)
    if data[:HEADER_BYTES] != encode_header(start):
        return LoadedSums([], 0, 0, is_clean=False)
    chain: list[RangeSum] = []
    durable, covered = 0, start
    is_chain = True
    for at in range(HEADER_BYTES, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        entry = _decode_entry(data, at)
        if entry is None:
            is_chain = False
            continue
        durable = max(durable, entry.end)
        is_chain = is_chain and entry.start == covered
        if is_chain:
            chain.append(entry)
            covered = entry.end
    chain_bytes = HEADER_BYTES + len(chain) * ENTRY_BYTES
    return LoadedSums(chain, chain_bytes, durable, is_clean=chain_bytes == len(data))


def covering(path: Path, start: int, end: int, count: int = 0) -> list[RangeSum]:
    """The ranges that [start, end) lies in, in order, without reading the whole file.

    With ``count``, so many are returned if there are. They end early, or there is none, where a sum
    is missing or damaged.
    """
    found: list[RangeSum] = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return found
    try:
        index = _index_of(descriptor, start)
        while data := os.pread(descriptor, _STEP_BYTES, HEADER_BYTES + index * ENTRY_BYTES):
            for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
                entry = _decode_entry(data, at)
                if entry is None or entry.start > (found[-1].end if found else start):
                    return found
                if entry.end > start:
                    found.append(entry)
                if entry.end >= end and len(found) >= count:
                    return found
            index += _STEP_ENTRIES
    finally:
        os.close(descriptor)
    return found


def _index_of(descriptor: int, start: int) -> int:
    """The last entry that begins at or before ``start``; most that is read is near the end."""

    def start_of(index: int) -> int:
        at = HEADER_BYTES + index * ENTRY_BYTES
        return int.from_bytes(os.pread(descriptor, 8, at), "big")

    count = max(0, os.fstat(descriptor).st_size - HEADER_BYTES) // ENTRY_BYTES
    low = max(0, count - _STEP_ENTRIES)
    if low and start_of(low) > start:
        low = 0
    return max(0, bisect_right(range(count), start, low, count, key=start_of) - 1)


def _decode_entry(data: bytes, at: int) -> RangeSum | None:
    head = data[at : at + _ENTRY.size]
    if _CRC.unpack_from(data, at + _ENTRY.size)[0] != google_crc32c.value(head):
        return None
    entry = RangeSum(*_ENTRY.unpack(head))
    return entry if entry.length > 0 else None


def write_all(path: Path, start: int, entries: Iterable[RangeSum]) -> int:
    """Replace the whole file, durably; returns its length."""
    data = encode_header(start) + b"".join(encode_entry(entry) for entry in entries)
    atomic_write(path, data)
    return len(data)


def restate(path: Path, start: int, entries: Iterable[RangeSum]) -> int:
    """Give ranges that have a sum these, durably; returns the length of the file."""
    stated = {entry.start: entry for entry in entries}
    chain = load(path, start).chain
    return write_all(path, start, [stated.get(entry.start, entry) for entry in chain])


def range_crc(descriptor: int, position: int, length: int) -> int:
    """CRC-32C of ``length`` bytes of a file; zeros are not assumed for missing bytes."""
    crc = 0
    end = position + length
    while position < end:
        chunk = os.pread(descriptor, min(_READ_BYTES, end - position), position)
        if not chunk:
            return -1  # equal to no CRC: the file is shorter than it was
        crc = google_crc32c.extend(crc, chunk)
        position += len(chunk)
    return int(crc)


def mismatches(
    descriptor: int, segment_start: int, entries: Iterable[RangeSum]
) -> Iterator[RangeSum]:
    """The entries that do not match the file, which is read in large pieces."""
    window = b""
    window_at = 0  # position in the file
    for entry in entries:
        position = entry.start - segment_start
        if entry.length > _READ_BYTES:
            if not is_match(descriptor, segment_start, entry):
                yield entry
            continue
        begin = position - window_at
        if begin < 0 or begin + entry.length > len(window):
            try:
                window, window_at, begin = os.pread(descriptor, _READ_BYTES, position), position, 0
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                window, window_at, begin = b"", position, 0
        piece = window[begin : begin + entry.length]
        is_read = len(piece) == entry.length and google_crc32c.value(piece) == entry.crc
        if not is_read and not is_match(descriptor, segment_start, entry):
            yield entry


def is_match(descriptor: int, segment_start: int, entry: RangeSum) -> bool:
    """Whether the file has what ``entry`` says; False where it cannot be read."""
    try:
        return range_crc(descriptor, entry.start - segment_start, entry.length) == entry.crc
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
