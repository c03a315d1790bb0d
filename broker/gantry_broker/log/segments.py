"""Segment files: named by the 20-digit log offset of their first byte, like RocketMQ's.

A segment grows by appends and is never written below its size. Every segment but the newest is
sealed: its last unit is a blank. Which file a byte stands in follows from the blanks alone, so a
replica whose segment size is configured differently still has its master's files.

Small appends are gathered in memory and written together, before anybody syncs or reads them. So
that none of them can meet a full disk by then, zeros stand in the file where they will go: space is
refused when it is asked for. The zeros also spare most syncs the wait for the file system's
journal. They are no part of the log: a sealed file has none, and recovery cuts them off.
"""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gantry_protocol.errors import NO_ROOM, DataDirError
from gantry_protocol.process.files import DATA_MODE
from gantry_protocol.types import Offset

from gantry_broker.log import sums

_NAME_DIGITS = 20
_OTHER_FILES = ("checkpoint", "cut")
_COPY_BYTES = 1024 * 1024
_MAX_OPEN = 64  # sealed segments whose descriptors stay open for readers
_MAX_UNWRITTEN = 65_536  # sums; a full disk takes another mebibyte, of 12,000 records at most
AHEAD_BYTES = 1024 * 1024  # zeros written at once behind what is appended
_ZEROS = memoryview(bytes(AHEAD_BYTES))


class Stretch(NamedTuple):
    """A part of the log in its file: ``size`` bytes from ``position`` on in ``path``."""

    path: str
    position: int
    size: int


class Segment:
    """One file of the log and its sums file.

    Attributes:
        start: log offset of its first byte.
        size: bytes appended, gathered ones included.
        reserved: length of the file; zeros stand behind what is written.
        sums_bytes: length of the valid part of its sums file.
        unwritten: sums that are due in that file and wait for room on the disk, in their order.
        is_sealed: its last unit is a blank; nothing more is appended.
        is_new: its directory entry may not be durable yet.
    """

    __slots__ = (
        "_descriptor",
        "_gathered",
        "_sums_descriptor",
        "is_new",
        "is_sealed",
        "path",
        "reserved",
        "size",
        "start",
        "sums_bytes",
        "unwritten",
    )

    def __init__(self, path: Path, start: Offset, size: int) -> None:
        self.path = path
        self.start = start
        self.size = self.reserved = size
        self.sums_bytes = 0
        self.unwritten: list[sums.RangeSum] = []
        self.is_sealed = False
        self.is_new = False
        self._gathered: list[bytes] = []
        self._descriptor = -1
        self._sums_descriptor = -1

    @classmethod
    def create(cls, directory: Path, start: Offset) -> "Segment":
        """A new empty segment; durable after ``fsync_directory``, which the next flush does."""
        segment = cls(segment_path(directory, start), start, 0)
        segment._descriptor = os.open(
            segment.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, DATA_MODE
        )
        header = sums.encode_header(start)
        try:
            sums.sums_path(segment.path).write_bytes(header)
        except OSError:
            segment.remove()  # it would be in the way when there is room again
            raise
        segment.sums_bytes = len(header)
        segment.is_new = True
        return segment

    @property
    def end(self) -> Offset:
        """Log offset one past its last byte."""
        return Offset(self.start + self.size)

    @property
    def descriptor(self) -> int:
        """An open descriptor; opened on first use."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._descriptor

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self._descriptor >= 0

    def write(self, data: bytes) -> None:
        """Append ``data`` at once; nothing is gathered. On an error the file ends at ``size``.

        Raises:
            OSError: nothing of ``data`` stays.
        """
        assert not self._gathered, "what was gathered goes first"
        try:
            _write_at(self.descriptor, data, self.size)
        except OSError:
            os.ftruncate(self.descriptor, self.size)
            self.reserved = self.size
            raise
        self.size += len(data)
        self.reserved = max(self.reserved, self.size)

    def gather(self, data: bytes, limit: int) -> None:
        """Append ``data`` in memory, to be written by ``write_gathered``, and reserve its room.

        Args:
            data: the bytes.
            limit: size of the file up to which zeros are written for later appends, too.

        Raises:
            OSError: there is no room; nothing was appended.
        """
        end = self.size + len(data)
        if end > self.reserved:
            self._reserve(max(end, min(end + AHEAD_BYTES, limit)))
        self._gathered.append(data)
        self.size = end

    def _reserve(self, size: int) -> None:
        try:
            for position in range(self.reserved, size, len(_ZEROS)):
                _write_at(self.descriptor, _ZEROS[: size - position], position)
        except OSError:
            os.ftruncate(self.descriptor, self.reserved)
            raise
        self.reserved = size

    def write_gathered(self) -> bytes:
        """Write what was gathered, in one go; returns it.

        Raises:
            OSError: which of it the file holds is not known.
        """
        data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
        _write_at(self.descriptor, data, self.size - len(data))
        self._gathered.clear()
        return data

    def drop_ahead(self) -> None:
        """Let the file end where the log does, now that nothing is gathered."""
        if self.reserved > self.size:
            os.ftruncate(self.descriptor, self.size)
            self.reserved = self.size

    def write_again(self, position: int, length: int) -> None:
        """Write bytes as they are, so that the next sync takes them to the disk for certain.

        Raises:
            OSError: the file is as it was; which of its bytes are on the disk is not known.
        """
        end = position + length
        while position < end:
            data = os.pread(self.descriptor, min(_COPY_BYTES, end - position), position)
            assert data, "the caller has read these bytes before"
            position += os.pwrite(self.descriptor, data, position)

    def overwrite(self, position: int, data: bytes) -> None:
        """Write ``data`` over what is damaged there; durable on return.

        By a descriptor of its own: the kernel reports a lost write once to each.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _write_at(descriptor, data, position)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def extend_with_zeros(self, count: int) -> None:
        """Append ``count`` zero bytes without writing them, and let the file end there."""
        os.ftruncate(self.descriptor, self.size + count)
        self.size += count
        self.reserved = self.size

    def cut(self, size: int) -> None:
        """Drop everything from ``size`` on; durable on return."""
        os.ftruncate(self.descriptor, size)
        os.fsync(self.descriptor)
        self.size = self.reserved = size

    def append_sum(self, entry: sums.RangeSum) -> None:
        """Record that a range is flushed; itself not yet synced.

        The sums file stays open for as long as the segment grows.
        """
        self.unwritten.append(entry)
        self.write_sums()

    def write_sums(self) -> None:
        """Write the sums that are due; on a full disk they wait for the next call.

        Until then the bytes that they cover are like those whose sums a power cut took away: the
        next start makes them again from whole records.

        Raises:
            OSError: the disk failed, or more wait than are kept.
        """
        if self._sums_descriptor < 0:
            self._sums_descriptor = self._open_sums()
        entries = self.unwritten
        data = (
            sums.encode_entry(entries[0])
            if len(entries) == 1
            else b"".join(sums.encode_entry(entry) for entry in entries)
        )
        try:
            written = os.pwrite(self._sums_descriptor, data, self.sums_bytes)
        except OSError as error:
            if error.errno not in NO_ROOM or len(entries) > _MAX_UNWRITTEN:
                raise
            return
        finally:
            if self.is_sealed:
                self.close_sums()
        whole = written // sums.ENTRY_BYTES  # a part of one is written over by the next call
        del entries[:whole]
        self.sums_bytes += whole * sums.ENTRY_BYTES

    def share_sums(self) -> int:
        """A descriptor of the sums file for the caller to sync, however long it takes, and close.

        It is the one that wrote, where that is open: to it the kernel reports a lost write.
        """
        if self._sums_descriptor >= 0:
            return os.dup(self._sums_descriptor)
        return self._open_sums()

    def _open_sums(self) -> int:
        return os.open(sums.sums_path(self.path), os.O_WRONLY | os.O_CLOEXEC)

    def close_sums(self) -> None:
        """Give the sums file back, while nobody writes it; the next use opens it again."""
        if self._sums_descriptor >= 0:
            os.close(self._sums_descriptor)
            self._sums_descriptor = -1

    def remove(self) -> None:
        """Delete both files; durable after ``fsync_directory``."""
        self.close()
        self.close_sums()
        self.path.unlink(missing_ok=True)
        sums.sums_path(self.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Give the descriptor of the data back; the next use opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_at(descriptor: int, data: bytes | memoryview, position: int) -> None:
    written = os.pwrite(descriptor, data, position)
    if written < len(data):  # seldom, so nobody pays for a view otherwise
        _write_at(descriptor, memoryview(data)[written:], position + written)


def segment_path(directory: Path, start: Offset) -> Path:
    """The path of the segment that begins at ``start``."""
    return directory / f"{start:0{_NAME_DIGITS}d}"


def segment_start(path: Path) -> Offset:
    """The beginning of the segment in this file; the inverse of ``segment_path``."""
    return Offset(int(path.name))


def list_segments(directory: Path) -> list[Segment]:
    """All segments in ``directory``, oldest first.

    Raises:
        DataDirError: something there is no part of a log.
    """
    found: list[Segment] = []
    for path in sorted(directory.iterdir()):
        name = path.name
        if name.isdecimal() and len(name) == _NAME_DIGITS:
            found.append(Segment(path, Offset(int(name)), path.stat().st_size))
        elif _sums_start(path) is None and not name.startswith(".") and name not in _OTHER_FILES:
            raise DataDirError(
                f"{path} does not belong to a commit log: move it out of {directory}."
            )
    return found


def list_orphans(directory: Path) -> list[tuple[Offset, Path]]:
    """Sums files without their segment, with the start of that segment, oldest first."""
    return [
        (start, path)
        for path in sorted(directory.iterdir())
        if (start := _sums_start(path)) is not None and not path.with_suffix("").exists()
    ]


def _sums_start(path: Path) -> Offset | None:
    """The segment start in the name of a sums file; None for other names."""
    stem = path.name.removesuffix(sums.SUFFIX)
    is_sums = stem != path.name and stem.isdecimal() and len(stem) == _NAME_DIGITS
    return Offset(int(stem)) if is_sums else None


class Segments:
    """The segments of one log in order, with a bound on open descriptors."""

    def __init__(self, directory: Path, segments: list[Segment]) -> None:
        self.directory = directory
        self._segments = segments
        self._starts: list[int] = [segment.start for segment in segments]
        self._recent: OrderedDict[int, Segment] = OrderedDict()  # open, sealed; newest use last

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def last(self) -> Segment | None:
        """The newest segment; None when the log is empty."""
        return self._segments[-1] if self._segments else None

    def add(self, start: Offset) -> Segment:
        """Begin a new segment."""
        segment = Segment.create(self.directory, start)
        self._segments.append(segment)
        self._starts.append(start)
        return segment

    def drop_ahead(self) -> None:
        """Give back the room behind the newest segment; nothing is gathered, or it is cut soon."""
        if self._segments:
            self._segments[-1].drop_ahead()

    def pop(self) -> Segment:
        """Forget the newest segment."""
        self._starts.pop()
        segment = self._segments.pop()
        self._recent.pop(segment.start, None)
        return segment

    def drop_below(self, start: Offset) -> list[Segment]:
        """Forget the segments that begin below ``start``, where one begins; returns them."""
        count = bisect_right(self._starts, start) - 1
        dropped = self._segments[:count]
        del self._segments[:count], self._starts[:count]
        for segment in dropped:
            self._recent.pop(segment.start, None)
        return dropped

    def at(self, offset: int, *, flushed: int) -> Segment:
        """The segment that holds ``offset``, which lies inside the log.

        What was not read for longest is closed when many are open, unless it ends above
        ``flushed``: it may be in a sync.
        """
        segment = self._segments[bisect_right(self._starts, offset) - 1]
        if segment.is_sealed and segment.end <= flushed:
            recent = self._recent
            recent[segment.start] = segment
            recent.move_to_end(segment.start)
            if len(recent) > _MAX_OPEN:
                recent.popitem(last=False)[1].close()
        return segment

    def stretches(self, start: int, end: int) -> list[Stretch]:
        """The places of the log's bytes [start, end), in order."""
        found = []
        for segment in self._segments[max(0, bisect_right(self._starts, start) - 1) :]:
            first, last = max(start, segment.start), min(end, segment.end)
            if first >= last:
                break
            found.append(Stretch(str(segment.path), first - segment.start, last - first))
        return found

    def close(self) -> None:
        """Give all descriptors back."""
        for segment in self._segments:
            segment.close()
            segment.close_sums()
