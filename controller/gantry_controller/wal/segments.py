"""Segment files: create, list, read, cut.

A segment appears under its name only when it is complete: zero-filled, with its header, synced, and
then renamed, with the directory synced after that. So an unreadable header is damage, never a crash
during creation. What a crash leaves of the making (``*.new``) is removed at the next start.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gantry_protocol.process.files import DATA_MODE

from gantry_controller.wal.format import Header

_NAME = re.compile(r"wal-(\d{10})")
_UNFINISHED = ".new"


def segment_path(directory: Path, sequence: int) -> Path:
    """The file of segment ``sequence``."""
    return directory / f"wal-{sequence:010}"


def segment_number(path: Path) -> int:
    """The sequence number in a segment's name."""
    return int(path.name.rpartition("-")[2])


def list_segments(directory: Path) -> tuple[list[Path], list[Path]]:
    """Segment files in order: what stands before the last gap, and the rest, which has no gap.

    Segments are removed oldest first, but a crash may let the removal of a younger one survive and
    not that of an older one. So what stands before a gap was on its way out, or the gap is a loss;
    ``recovery`` tells which, from what the rest holds. Unfinished files are removed.
    """
    found: list[Path] = []
    for path in sorted(directory.iterdir()):
        if path.name.endswith(_UNFINISHED):
            path.unlink()
        elif _NAME.fullmatch(path.name):
            found.append(path)
    for place in range(len(found) - 1, 0, -1):
        if segment_number(found[place]) != segment_number(found[place - 1]) + 1:
            return found[:place], found[place:]
    return [], found


def read_segments(paths: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """Each file and its content, one at a time."""
    for path in paths:
        yield path, path.read_bytes()


def remove_segments(paths: list[Path]) -> None:
    """Remove files, oldest first, durably."""
    for path in paths:
        path.unlink()
    if paths:
        sync_directory(paths[0].parent)


def create_segment(directory: Path, header: Header) -> int:
    """Make a segment, durably; returns its open file descriptor."""
    path = segment_path(directory, header.sequence)
    unfinished = path.with_name(path.name + _UNFINISHED)
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, DATA_MODE)
    try:
        os.posix_fallocate(fd, 0, header.size)  # a full disk shows now, and syncs stay small
        os.pwrite(fd, header.encode(), 0)
        os.fsync(fd)
        unfinished.rename(path)
        sync_directory(directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_segment(path: Path) -> int:
    """Open a segment to write on."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def zero(fd: int, offset: int, length: int) -> None:
    """Overwrite with zeros, durably."""
    if os.pwrite(fd, bytes(length), offset) != length:
        raise OSError(errno.EIO, "could not overwrite an unfinished batch")
    os.fsync(fd)


def sync_directory(directory: Path) -> None:
    """Make names in ``directory`` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
