"""One write-ahead log on disk: recover it, then append batches durably.

Not thread-safe: ``writer`` calls ``append`` from its one thread. An error while writing or syncing
leaves the page cache in an unknown state (a later fsync may succeed without having written: LWN,
"PostgreSQL's fsync() surprise", 2018), so the log refuses everything after it. The process that
starts next reads the same pages, so it writes the last batch again before it counts: nobody vouches
for that one, and the later one for each before it (docs/adr/0034).
"""

import errno
import os
from pathlib import Path

from gantry_controller.raft.snapshot import Marker
from gantry_controller.wal.format import (
    FLOOR_SIZE,
    HEADER_SIZE,
    Head,
    Header,
    Write,
    batch_size,
    encode_batch,
)
from gantry_controller.wal.recovery import Recovered, recover
from gantry_controller.wal.replay import SegmentUse, note_marker
from gantry_controller.wal.segments import (
    create_segment,
    list_segments,
    open_segment,
    read_segments,
    remove_segments,
    segment_path,
    sync_directory,
    zero,
)

SEGMENT_SIZE_BYTES = 16 * 1024 * 1024  # metadata is small; recovery reads one segment at a time

AHEAD_BYTES = 1024 * 1024
"""Zeros written behind a batch that reaches blocks never written before. The file system notes in
its journal that such blocks hold data now, and a sync waits for that: ten times as long as for
blocks that do (ext4). So one sync per megabyte of log waits, for all that follow it there."""
_ZEROS = bytes(AHEAD_BYTES)


class Wal:
    """An open log; see the module."""

    def __init__(self, directory: Path, segment_size_bytes: int, head: Head, fd: int) -> None:
        """Use ``open``."""
        self._directory = directory
        self._segment_size_bytes = segment_size_bytes
        self._head = head
        self._fd = fd
        self._written_to = 0  # blocks before this offset hold data
        self._failed: OSError | None = None
        self._segments: list[SegmentUse] = []

    @property
    def size_bytes(self) -> int:
        """Of the files, written or not."""
        return sum(segment.size_bytes for segment in self._segments)

    @classmethod
    def open(
        cls, directory: Path, *, segment_size_bytes: int = SEGMENT_SIZE_BYTES
    ) -> "tuple[Wal, Recovered]":
        """Recover the log in ``directory``, which is made if it is not there.

        Raises:
            CorruptionError: stored bytes changed or are missing; nothing was modified.
            DataDirError: a segment was written by a newer program.
        """
        if not directory.is_dir():
            directory.mkdir(parents=True)
            sync_directory(directory.parent)
        leftovers, paths = list_segments(directory)
        found = recover(read_segments(paths))
        remove_segments(leftovers)
        if found.head is None:
            full = Head(sequence=0, size=0, offset=0, chain=0, batch=1, last_index=0)
            return cls(directory, segment_size_bytes, full, -1), found
        fd = open_segment(segment_path(directory, found.head.sequence))
        _settle(fd, found, found.head)
        sync_directory(directory)
        wal = cls(directory, segment_size_bytes, found.head, fd)
        wal._segments = found.segments
        if found.marker is not None:
            wal._release(found.marker)
        return wal, found

    def append(self, writes: list[Write]) -> None:
        """Make ``writes`` durable, as one batch: all of it survives a crash, or nothing.

        Raises:
            OSError: the disk failed, now or before. What is durable is unknown: end the process.
        """
        if self._failed is not None:
            raise self._failed
        try:
            self._append(writes)
        except OSError as error:
            self._failed = error
            raise

    def close(self) -> None:
        """Close the file; everything appended is durable already."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, writes: list[Write]) -> None:
        needed = batch_size(writes)
        if self._head.offset + needed > self._head.size:
            self._roll(needed)
        offset = self._head.offset
        batch = encode_batch(self._head, writes)
        end = offset + len(batch)
        ahead = 0
        if end > self._written_to:
            ahead = min(AHEAD_BYTES, self._head.size - end)
            self._written_to = end + ahead
        write_durably(self._fd, batch, offset, ahead)
        self._note(writes)

    def _note(self, writes: list[Write]) -> None:
        """``writes`` are durable: note what the segment holds, and release what nobody needs."""
        current = self._segments[-1]
        marker: Marker | None = None
        for write in writes:
            for marker in write.markers:
                note_marker(self._segments, marker)
            for entry in write.entries[-1:]:
                current.highest = max(current.highest, entry.index)
        if marker is not None:
            self._release(marker)

    def _release(self, marker: Marker) -> None:
        """Remove the segments before the one that is being written, as far as ``marker`` allows.

        The marker's batch is durable, and the segment it is in stays; so whatever a crash leaves
        of this, the newest marker and every entry behind its base are found again.
        """
        gone: list[Path] = []
        while not (oldest := self._segments[0]).marked and oldest.highest <= marker.base.index:
            gone.append(self._segments.pop(0).path)
        remove_segments(gone)

    def _roll(self, needed: int) -> None:
        """Go on in a new segment; the old one is durable as far as it is used."""
        header = Header(
            sequence=self._head.sequence + 1,
            size=max(self._segment_size_bytes, HEADER_SIZE + needed),
            chain=self._head.chain,
            batch=self._head.batch,
        )
        fd = create_segment(self._directory, header)
        self.close()
        self._fd = fd
        self._written_to = 0
        self._segments.append(
            SegmentUse(segment_path(self._directory, header.sequence), header.size)
        )
        self._head.sequence = header.sequence
        self._head.size = header.size
        self._head.offset = HEADER_SIZE
        self._head.chain = header.seed


def _settle(fd: int, found: Recovered, head: Head) -> None:
    """Make what was read durable, although a sync of it may have failed.

    A torn end is overwritten from behind: a crash amid the zeros leaves its floor, which says how
    far it should reach, or a piece of a floor and nothing behind it. Both look interrupted; a whole
    batch behind half a floor would not.
    """
    behind = found.torn_bytes - FLOOR_SIZE
    if behind > 0:
        zero(fd, head.offset + FLOOR_SIZE, behind)
    if found.torn_bytes:
        zero(fd, head.offset, min(found.torn_bytes, FLOOR_SIZE))
    start = head.offset - len(found.newest)
    if os.pwrite(fd, found.newest, start) != len(found.newest):
        raise OSError(errno.EIO, "could not write the last batch again")
    os.fsync(fd)


def write_durably(fd: int, data: bytes, offset: int, ahead: int = 0) -> None:
    """Write ``data`` and ``ahead`` zeros behind it, and sync.

    One system call where Linux offers it, so the thread waits for the GIL once.

    Raises:
        OSError: the write failed or fell short.
    """
    parts = [data, _ZEROS[:ahead]] if ahead else [data]
    if hasattr(os, "RWF_DSYNC"):
        written = os.pwritev(fd, parts, offset, os.RWF_DSYNC)
    else:  # pragma: no cover - not Linux
        written = os.pwritev(fd, parts, offset)
        os.fsync(fd)
    if written != len(data) + ahead:
        raise OSError(errno.EIO, f"wrote {written} of {len(data) + ahead} bytes")
