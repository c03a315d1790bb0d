"""A disk that a test can fill: what is written to a directory meets ENOSPC beyond a bound.

It needs no privileges and no file system of its own: what is refused is refused where the product
meets the disk (``os.pwrite``, ``os.write``, files written as a whole). Writing over bytes that are
there costs no room, as on a real disk.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class SmallDisk:
    """See the module.

    Attributes:
        room_bytes: what may still be added; None for as much as anybody wants.
        refused: writes that found no room.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.room_bytes: int | None = None
        self.refused = 0
        self._directory = directory
        self._full_at = 0
        self._pwrite, self._write, self._write_bytes = os.pwrite, os.write, Path.write_bytes
        patch.setattr(os, "pwrite", self._pwrite_in_room)
        patch.setattr(os, "write", self._write_in_room)

        def write_bytes(path: Path, data: bytes) -> int:
            return self._write_bytes_in_room(path, data)

        patch.setattr(Path, "write_bytes", write_bytes)

    def fill(self, room_bytes: int = 0) -> None:
        """From now on there is only so much room."""
        self.room_bytes, self._full_at = room_bytes, self._used

    def free(self) -> None:
        """There is room again."""
        self.room_bytes = None

    @property
    def _used(self) -> int:
        return sum(path.stat().st_size for path in self._directory.rglob("*") if path.is_file())

    def _fitting(self, path: Path, at: int, size: int) -> int:
        """How many of ``size`` bytes at ``at`` find room; none that does is an error."""
        if self.room_bytes is None or not path.is_relative_to(self._directory):
            return size
        length = path.stat().st_size
        lacking = self._used + max(0, at + size - length) - self._full_at - self.room_bytes
        if at + size <= length or lacking <= 0:
            return size
        self.refused += 1
        if lacking >= size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size - lacking

    def _pwrite_in_room(self, descriptor: int, data: bytes, at: int) -> int:
        fits = self._fitting(_path_of(descriptor), at, len(data))
        return self._pwrite(descriptor, memoryview(data)[:fits], at)

    def _write_in_room(self, descriptor: int, data: bytes) -> int:
        path, fits = _path_of(descriptor), len(data)
        if path.is_file():
            fits = self._fitting(path, os.lseek(descriptor, 0, os.SEEK_CUR), len(data))
        return self._write(descriptor, memoryview(data)[:fits])

    def _write_bytes_in_room(self, path: Path, data: bytes) -> int:
        path.touch()
        if self._fitting(path, 0, len(data)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write_bytes(path, data)


def _path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()
