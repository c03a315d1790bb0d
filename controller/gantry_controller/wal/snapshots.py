"""Snapshot files: write, receive, verify, keep one.

A snapshot appears under its name only when it is complete: written aside, synced, verified if it
came from a peer, then renamed, with the directory synced after that. Only then may the log's marker
name it (``wal``), and only when that marker is durable may an older one go: so at every moment the
newest durable marker has its file. What a crash leaves of the making (``*.new``) is removed at the
next start, with every file that no marker names.

Blocks; for a thread of its own. Nothing is retried: a sync that failed says nothing about what is
on the disk.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.files import DATA_MODE
from gantry_protocol.types import Index

from gantry_controller.raft.snapshot import Marker, SnapshotMeta
from gantry_controller.wal.format import WAY_OUT
from gantry_controller.wal.segments import sync_directory
from gantry_controller.wal.snapshot_file import (
    Encoder,
    checksum_of,
    parse_meta,
    parse_slices,
)

SYNC_EVERY_BYTES = 1024 * 1024  # little is dirty at a time, so the log's own syncs wait for little

_NAME = re.compile(r"snapshot-(\d{20})")
_UNFINISHED = ".new"


class SnapshotInfo(msgspec.Struct, frozen=True):
    """A complete file: ``size`` in bytes, and the checksum that names its content."""

    meta: SnapshotMeta
    size: int
    checksum: int


def snapshot_path(directory: Path, index: Index) -> Path:
    """The file of the snapshot that ends at ``index``."""
    return directory / f"snapshot-{index:020}"


class SnapshotFile:
    """A file on its way to being a snapshot: append bytes, then publish it or drop it.

    Attributes:
        size: bytes so far.
    """

    def __init__(self, directory: Path, index: Index, kind: str) -> None:
        """``kind`` keeps one that is written and one that is received apart.

        Raises:
            OSError: the disk is full or broken.
        """
        self.size = 0
        self._path = snapshot_path(directory, index)
        self._unfinished = self._path.with_name(f"{self._path.name}.{kind}{_UNFINISHED}")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(self._unfinished, flags, DATA_MODE)
        self._synced = 0

    def append(self, data: bytes) -> None:
        """Write at the end.

        Raises:
            OSError: the disk is full or broken.
        """
        if os.pwrite(self._fd, data, self.size) != len(data):
            raise OSError(errno.EIO, f"wrote less than {len(data)} bytes of a snapshot")
        self.size += len(data)
        if self.size - self._synced >= SYNC_EVERY_BYTES:
            os.fdatasync(self._fd)
            self._synced = self.size

    def content(self) -> bytes:
        """Everything so far, read back."""
        return os.pread(self._fd, self.size, 0)

    def publish(self) -> None:
        """Make it durable under its name.

        Raises:
            OSError: the disk is broken.
        """
        os.fsync(self._fd)
        self._unfinished.rename(self._path)
        sync_directory(self._path.parent)
        self._close()

    def drop(self) -> None:
        """Give it up; harmless when called again or after ``publish``."""
        if self._fd >= 0:
            self._close()
            self._unfinished.unlink(missing_ok=True)

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1


class SnapshotWriter:
    """Writes a snapshot of this node: slices in, a complete file out."""

    def __init__(self, directory: Path, meta: SnapshotMeta) -> None:
        """Raises OSError, as all its methods do."""
        self._meta = meta
        self._encoder = Encoder(meta)
        self._file = SnapshotFile(directory, meta.index, "taken")
        self._file.append(self._encoder.header())

    def add(self, data: bytes) -> None:
        """One more slice."""
        self._file.append(self._encoder.slice(data))

    def finish(self) -> SnapshotInfo:
        """The file is complete: make it durable under its name."""
        self._file.append(self._encoder.end())
        self._file.publish()
        return SnapshotInfo(self._meta, self._file.size, self._encoder.checksum)

    def drop(self) -> None:
        """Give it up."""
        self._file.drop()


def read_snapshot(directory: Path, index: Index) -> tuple[SnapshotInfo, Iterator[bytes]]:
    """The snapshot that a marker names, and its slices, verified one by one as they are read.

    Raises:
        CorruptionError: it is missing or not what was written.
        DataDirError: a newer program wrote it.
    """
    path = snapshot_path(directory, index)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptionError(
            path, 0, f"the file is missing, but the log begins behind it; {WAY_OUT}"
        ) from None
    return parse_snapshot(path, data)


def load_snapshot(
    directory: Path, marker: Marker, assemble: Callable[[Iterator[bytes]], object]
) -> tuple[SnapshotInfo, object]:
    """The snapshot that ``marker`` names, and the state that ``assemble`` makes of its slices.

    Raises:
        CorruptionError: it is missing, or not what was written, or another than the log names.
        DataDirError: a newer program wrote it.
    """
    info, slices = read_snapshot(directory, marker.index)
    if (info.meta.index, info.meta.term) != (marker.index, marker.term):
        path = snapshot_path(directory, marker.index)
        raise CorruptionError(path, 0, f"the log names term {marker.term} for it; {WAY_OUT}")
    return info, assemble(slices)


def parse_snapshot(path: Path, data: bytes) -> tuple[SnapshotInfo, Iterator[bytes]]:
    """The same for bytes that were read already; ``path`` is where to say they are."""
    meta, offset, checksum = parse_meta(path, data)
    return (
        SnapshotInfo(meta, len(data), checksum_of(data)),
        parse_slices(path, data, offset, checksum),
    )


def keep_only(directory: Path, index: Index | None) -> None:
    """Remove every snapshot but that of ``index``, durably: before anything is written anew."""
    _remove(directory, lambda other: other != index)


def remove_older(directory: Path, index: Index) -> None:
    """Remove the snapshots before that of ``index``, durably; younger ones may be on their way."""
    _remove(directory, lambda other: other < index)


def _remove(directory: Path, condemned: Callable[[int], bool]) -> None:
    removed = False
    for path in sorted(directory.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is not None and condemned(int(match.group(1))):
            path.unlink()
            removed = True
    if removed:
        sync_directory(directory)
