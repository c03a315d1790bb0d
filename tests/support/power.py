"""A power cut: what a disk may hold when the machine dies at any sync.

While active, `os.fsync`, `os.fdatasync` and a synced `os.pwritev` do not sync; they note what a
real sync would have made durable. At any moment `freeze()` keeps what is durable and what is only
written. `restore` then builds one of the directories that may be found afterwards: every 512-byte
sector of a file is the durable or the newer one, files grow or do not, names that were not synced
appear or do not.

The rules are those of POSIX on ext4 and xfs, read strictly: nothing survives but what was synced,
anything may; bytes that never reached the disk read as zeros. `fail_next` lets one sync end in EIO.
The kernel then takes the file's pages for clean: they are read as written, and only what is written
again reaches the disk with a later sync.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

SECTOR = 512


class FileBytes(NamedTuple):
    durable: bytes
    written: bytes


class Frozen(NamedTuple):
    """One moment.

    `names` is, per directory, the durable and the written names; `note` is what the test knew.
    """

    names: dict[Path, tuple[dict[str, int], dict[str, int]]]
    files: dict[int, FileBytes]
    note: Any


class Power:
    """Watches all syncs below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.moments: list[Frozen] = []
        self.note: Callable[[], Any] = lambda: None
        self.keep_moments = False
        self._durable: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._held: dict[int, int] = {}  # inode to a descriptor, so that no number is reused
        self._failing: str | None = None
        self._spared = 0  # syncs that succeed before it
        self._dirty: dict[int, list[tuple[int, int]]] = {}  # written since a sync of theirs failed

    def fail_next(self, suffix: str = "", after: int = 0) -> None:
        """The next sync of a file whose name ends so ends in EIO, or the one after so many."""
        self._failing, self._spared = suffix, after

    def wrote(self, descriptor: int, position: int, size: int) -> None:
        """Bytes were written."""
        dirty = self._dirty.get(os.fstat(descriptor).st_ino)
        if dirty is not None:
            dirty.append((position, size))

    def sync(self, descriptor: int) -> None:
        """A sync of whatever `descriptor` is."""
        self._maybe_keep()
        info = os.fstat(descriptor)
        if stat.S_ISDIR(info.st_mode):
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            self._names[path] = self._scan(path)
        else:
            self._hold(info.st_ino, lambda: os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))
            self._sync_file(info.st_ino, Path(f"/proc/self/fd/{descriptor}").readlink().name)
        self._maybe_keep()

    def _sync_file(self, inode: int, name: str) -> None:
        written = _content(self._held[inode])
        is_meant = self._failing is not None and name.endswith(self._failing)
        if is_meant and self._spared:
            self._spared -= 1
        elif is_meant:
            self._failing = None
            self._dirty[inode] = []
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if inode in self._dirty:
            durable = bytearray(self._durable.get(inode, b"")[: len(written)])
            durable += bytes(len(written) - len(durable))
            for position, size in self._dirty[inode]:
                durable[position : position + size] = written[position : position + size]
            written = bytes(durable)
        self._durable[inode] = written

    def freeze(self) -> Frozen:
        """Keep this moment."""
        names = {}
        for path in [self.root, *(p for p in self.root.rglob("*") if p.is_dir())]:
            names[path.relative_to(self.root)] = (self._names.get(path, {}), self._scan(path))
        inodes = {
            inode
            for durable, written in names.values()
            for inode in (*durable.values(), *written.values())
        }
        files = {
            inode: FileBytes(self._durable.get(inode, b""), _content(self._held[inode]))
            for inode in inodes
            if inode in self._held
        }
        return Frozen(names, files, self.note())

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def _maybe_keep(self) -> None:
        if self.keep_moments:
            self.moments.append(self.freeze())

    def _scan(self, path: Path) -> dict[str, int]:
        found = {}
        for entry in os.scandir(path):
            inode = entry.stat(follow_symlinks=False).st_ino
            found[entry.name] = inode
            if entry.is_file():
                self._hold(inode, lambda name=entry.path: os.open(name, os.O_RDONLY))
        return found

    def _hold(self, inode: int, make: Callable[[], int]) -> None:
        if inode not in self._held:
            self._held[inode] = make()


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


@contextmanager
def power_watch(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    """Syncs below `root` are noted instead of done."""
    power = Power(root)
    write, pwrite, pwritev = os.write, os.pwrite, os.pwritev

    def noted_here(descriptor: int, data: Any) -> int:
        size = write(descriptor, data)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            power.wrote(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR) - size, size)
        return size

    def noted(descriptor: int, data: Any, position: int) -> int:
        size = pwrite(descriptor, data, position)
        power.wrote(descriptor, position, size)
        return size

    def noted_parts(descriptor: int, parts: Any, position: int, flags: int = 0) -> int:
        size = pwritev(descriptor, parts, position)
        power.wrote(descriptor, position, size)
        if flags & os.RWF_DSYNC:
            power.sync(descriptor)
        return size

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", noted_here)
        patch.setattr(os, "pwrite", noted)
        patch.setattr(os, "pwritev", noted_parts)
        patch.setattr(os, "fsync", power.sync)
        patch.setattr(os, "fdatasync", power.sync)
        try:
            yield power
        finally:
            power.close()


def restore(moment: Frozen, target: Path, random: Random) -> Path:
    """One of the directories that may be found after a power cut at `moment`."""
    _restore_directory(moment, Path(), target, random)
    return target


def _restore_directory(moment: Frozen, relative: Path, target: Path, random: Random) -> None:
    target.mkdir(parents=True)
    durable, written = moment.names.get(relative, ({}, {}))
    for name in sorted({*durable, *written}):
        choices = [durable.get(name), written.get(name)]
        inode = choices[0] if choices[0] == choices[1] else random.choice(choices)
        if inode is None:
            continue
        if inode in moment.files:
            (target / name).write_bytes(_survivor(moment.files[inode], random))
        else:
            _restore_directory(moment, relative / name, target / name, random)


def _survivor(file: FileBytes, random: Random) -> bytes:
    durable, written = file
    if durable == written:
        return durable
    style = random.random()
    if style < 0.2:
        return durable
    if style < 0.4:
        return written
    length = random.choice([len(durable), len(written), random.randint(0, len(written))])
    length = max(length, min(len(durable), len(written)))
    out = bytearray()
    for at in range(0, length, SECTOR):
        newer = random.random() < 0.5
        source = written if newer else durable
        out += source[at : at + SECTOR].ljust(SECTOR, b"\0")
    return bytes(out[:length])
