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

from gantry_protocol.errors import CorruptionError

from gantry_controller.wal.format import Header

_NAME = re.compile(r"wal-(\d{10})")
_UNFINISHED = ".new"


def segment_path(directory: Path, sequence: int) -> Path:
    """The file of segment ``sequence``."""
    return directory / f"wal-{sequence:010}"


def list_segments(directory: Path) -> list[Path]:
    """Segment files in order; removes unfinished ones."""
    found: list[Path] = []
    for path in sorted(directory.iterdir()):
        if path.name.endswith(_UNFINISHED):
            path.unlink()
        elif _NAME.fullmatch(path.name):
            found.append(path)
    return found


def read_segments(paths: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """Each file and its content, one at a time; the name must fit the place.

    Raises:
        CorruptionError: a file of the sequence is missing.
    """
    for place, path in enumerate(paths, start=1):
        if path.name != segment_path(path.parent, place).name:
            missing = segment_path(path.parent, place)
            raise CorruptionError(missing, 0, f"the file is missing, but {path.name} is there")
        yield path, path.read_bytes()


def create_segment(directory: Path, header: Header) -> int:
    """Make a segment, durably; returns its open file descriptor."""
    path = segment_path(directory, header.sequence)
    unfinished = path.with_name(path.name + _UNFINISHED)
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
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
    """Overwrite with zeros, durably. A crash half-way leaves what still looks interrupted."""
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
