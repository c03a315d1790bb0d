"""One consume queue: where the records of one topic and queue id stand in the log.

RocketMQ's format: 20-byte entries (log offset, record size, tags code), 300,000 in a file, the file
named by the byte offset of its first entry; entry number and queue offset are the same. Entries are
derived from confirmed records only, so they are never taken back; a queue that lost its end or is
damaged is made again from the log.

The newest entries wait in memory until a page is full, somebody wants a checkpoint, or the file
ends. Nothing else of a queue is held: readers go to the file, which the page cache keeps warm.
"""

import os
import struct
from pathlib import Path

import google_crc32c
import msgspec

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = ENTRY.size
FILE_ENTRIES = 300_000  # RocketMQ's mappedFileSizeConsumeQueue, as operators know it
_BUFFER_BYTES = 200 * ENTRY_BYTES  # about one page
_NAME_DIGITS = 20


class QueueState(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint says of one queue.

    Attributes:
        topic: the topic.
        queue_id: the queue.
        base: its first queue offset ever; entries before it never existed here.
        minimum: first offset that is served.
        maximum: one past its last entry.
        crcs: CRC-32C of each file's bytes up to ``maximum``, oldest file first.
        first: first offset that is served from anywhere, the tier included; -1 is ``minimum``.
    """

    topic: str
    queue_id: int
    base: int
    minimum: int
    maximum: int
    crcs: list[int]
    first: int = -1


class ConsumeQueue:
    """The entries of one queue.

    Attributes:
        min_offset: first queue offset that is served; ``base <= min_offset <= max_offset``.
        max_offset: one past the last; the queue offset of the next record.
        first: first queue offset that is served from anywhere, the tier included; below it are only
            records of a topic that was deleted. ``first <= min_offset``.
    """

    __slots__ = (
        "_base",
        "_buffer",
        "_crc",
        "_dirty",
        "_sealed_crcs",
        "_written",
        "directory",
        "first",
        "max_offset",
        "min_offset",
    )

    def __init__(self, directory: Path, base: int) -> None:
        """A queue without entries whose first will have the queue offset ``base``."""
        self.directory = directory
        self._base = base
        self.first = base
        self.min_offset = base
        self.max_offset = base
        self._written = base  # entries below are in files; the rest is in the buffer
        self._buffer = bytearray()
        self._sealed_crcs: list[int] = []
        self._crc = google_crc32c.value(bytes(base % FILE_ENTRIES * ENTRY_BYTES))
        self._dirty: set[Path] = set()  # files written since the last checkpoint

    @classmethod
    def restore(cls, directory: Path, state: QueueState) -> "ConsumeQueue":
        """The queue as a checkpoint has it; whatever its files hold beyond is written again."""
        queue = cls(directory, state.base)
        queue.min_offset = state.minimum
        queue.first = state.minimum if state.first < 0 else state.first
        queue.max_offset = queue._written = state.maximum
        *queue._sealed_crcs, queue._crc = state.crcs
        return queue

    def state(self, topic: str, queue_id: int) -> QueueState:
        """What a checkpoint must say; call ``write_out`` first."""
        assert not self._buffer, "entries in memory are no part of a checkpoint"
        crcs = [*self._sealed_crcs, self._crc]
        return QueueState(
            topic, queue_id, self._base, self.min_offset, self.max_offset, crcs, self.first
        )

    def append(self, physical: int, size: int, code: int) -> None:
        """Add the entry of the record with the queue offset ``max_offset``."""
        self._buffer += ENTRY.pack(physical, size, code)
        self.max_offset += 1
        if len(self._buffer) >= _BUFFER_BYTES or self.max_offset % FILE_ENTRIES == 0:
            self.write_out()

    def entries(self, start: int, count: int) -> bytes:
        """The encoded entries [start, start + count), as far as they exist.

        Fewer bytes come back only when a file is shorter than it was.
        """
        stop = min(start + count, self.max_offset)
        parts = []
        while start < min(stop, self._written):
            in_file = min(FILE_ENTRIES - start % FILE_ENTRIES, min(stop, self._written) - start)
            parts.append(self._read(start, in_file))
            start += in_file
        if start < stop:
            at = (start - self._written) * ENTRY_BYTES
            parts.append(bytes(self._buffer[at : at + (stop - start) * ENTRY_BYTES]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hide_below(self, offset: int) -> None:
        """Serve nothing below ``offset`` any more, from nowhere."""
        self.trim(offset)
        self.first = max(self.first, self.min_offset)

    def trim(self, offset: int) -> None:
        """Serve nothing below ``offset`` from the local log any more; the tier may have it."""
        self.min_offset = min(max(offset, self.min_offset), self.max_offset)

    def drop_files(self) -> list[Path]:
        """Give up the files that lie below ``min_offset``, and return them.

        Delete them once a checkpoint that does not name them is on the disk.
        """
        keep = self.min_offset - self.min_offset % FILE_ENTRIES
        first_file = self._base // FILE_ENTRIES
        count = keep // FILE_ENTRIES - first_file
        if count <= 0:
            return []
        del self._sealed_crcs[:count]
        self._base = keep
        return [self.file_of((first_file + index) * FILE_ENTRIES) for index in range(count)]

    def write_out(self) -> None:
        """Write the buffered entries into their file; not synced."""
        if not self._buffer:
            return
        data = bytes(self._buffer)
        path = self.file_of(self._written)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, data, self._written % FILE_ENTRIES * ENTRY_BYTES)
        finally:
            os.close(descriptor)
        self._dirty.add(path)
        self._crc = google_crc32c.extend(self._crc, data)
        self._written = self.max_offset
        self._buffer.clear()
        if self._written % FILE_ENTRIES == 0:
            self._sealed_crcs.append(self._crc)
            self._crc = 0

    def take_dirty(self) -> set[Path]:
        """The files to sync for a checkpoint of what was written out so far."""
        dirty, self._dirty = self._dirty, set()
        return dirty

    def file_of(self, offset: int) -> Path:
        """The file that holds an entry."""
        first = offset - offset % FILE_ENTRIES
        return self.directory / f"{first * ENTRY_BYTES:0{_NAME_DIGITS}d}"

    def _read(self, start: int, count: int) -> bytes:
        descriptor = os.open(self.file_of(start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            at = start % FILE_ENTRIES * ENTRY_BYTES
            return os.pread(descriptor, count * ENTRY_BYTES, at)
        finally:
            os.close(descriptor)


def find_damage(directory: Path, state: QueueState, *, newest_only: bool) -> Path | None:
    """The first file of a queue whose bytes are not those of the checkpoint."""
    if state.base == state.maximum:
        return None  # it has no entry, so it has no file
    queue = ConsumeQueue(directory, state.base)
    first_file = state.base // FILE_ENTRIES
    last_file = first_file + len(state.crcs) - 1
    if state.maximum // FILE_ENTRIES != last_file:
        return directory
    for number, crc in enumerate(state.crcs, start=first_file):
        if newest_only and number < last_file - 1:
            continue
        stop = min(state.maximum, (number + 1) * FILE_ENTRIES)
        length = (stop - number * FILE_ENTRIES) * ENTRY_BYTES
        path = queue.file_of(number * FILE_ENTRIES)
        if length and google_crc32c.value(_head(path, length)) != crc:
            return path
    return None


def _head(path: Path, length: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(length)
    except FileNotFoundError:
        return b""
    return data if len(data) == length else b""
