"""The disk of a machine: real files in memory, and what a power cut leaves of them.

The product reads and writes real files below ``Volume.directory`` (a directory in memory), so
every reader, ``pathlib`` too, works as it is. ``OsModule`` stands for ``os`` in the product's
modules: writes are noted with what they replaced, until a sync of that file; syncs take time, and
may fail. A power cut undoes what was not synced: of each file's unsynced writes none survives, or a
prefix torn at any byte, or any subset of 512-byte sectors. Names work alike: a directory that was
not synced after a file was made, renamed or removed may fall back to what it held when it was
synced last.

After EIO the kernel takes the pages for clean although the medium never got them: they are read
back as written, no later sync writes them, and a power cut loses them.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim.kernel.disk import SECTOR, DiskOptions
from sim.kernel.world import MS
from sim.product.kv import Stored
from sim.product.machines import current, running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.kernel.world import World
    from sim.product.machines import Machine, Process

BLOCK_BYTES = 4096
DISK_BYTES = 64 * 1024 * 1024
USED_US = 500 * MS
SYNC_MAX_US = 1_500 * MS


@dataclass(slots=True)
class _Write:
    """One unsynced write: what it put at ``offset``, and what was there before."""

    offset: int
    new: bytes
    old: bytes
    old_size: int
    size: int  # of the file after it
    number: int = 0  # of all writes to this volume
    is_lost: bool = False  # a sync of it failed


class _File:
    """What is known of one inode."""

    __slots__ = ("kept", "unsynced")

    def __init__(self, kept: Path | None) -> None:
        self.unsynced: list[_Write] = []
        self.kept = kept  # a hard link that outlives a removal which is not durable


@dataclass
class VolumeCopy:
    """A volume as it was: bytes of its files, rows of its stores."""

    files: dict[Path, bytes]
    rows: dict[str, dict[bytes, bytes]]


class Volume:
    """See the module.

    Attributes:
        directory: where the files are.
        options: how slow syncs are; may be changed while the world runs.
        is_full: no byte more finds room.
        failing_syncs: so many of the next syncs end in EIO.
        hangs_until_us: who syncs or writes before waits until then.
        syncs, writes: so far.
        lives: how often it was wiped, or put back from a copy.
        unreadable: bytes of files, by inode, that give EIO until something is written there.
    """

    machine: Machine

    def __init__(self, world: World, root: Path, name: str, options: DiskOptions) -> None:
        self.world = world
        self.directory = root / name
        self.options = options
        self.is_full = False
        self.failing_syncs = 0
        self.slowness = 1
        self.hangs_until_us = 0
        self.syncs = 0
        self.writes = 0
        self.lives = 0
        self.unreadable: dict[int, set[int]] = {}
        self.rng: Random = world.stream(f"volume/{name}")
        self._cold: Random = world.stream(f"cold/{name}")
        self.stores: dict[str, Any] = {}  # of ``sim.product.kv``, by directory
        self.locks: dict[int, Process] = {}  # inodes that are held (flock)
        self._kept = root / f".{name}"
        self._files: dict[int, _File] = {}
        # Of directories, by inode, since they can be renamed: what they held when they were synced.
        self._names: dict[int, dict[str, int]] = {}
        self._free_us = 0
        self._used = self._used_until_us = 0
        self.directory.mkdir(parents=True)
        self._kept.mkdir()
        self.sync_directory(str(self.directory))

    # ---- what the product does

    def opened(self, descriptor: int, *, truncates: bool) -> int:
        """Take note of a file; returns its inode."""
        inode = os.fstat(descriptor).st_ino
        if inode not in self._files:
            self._files[inode] = _File(None)
        assert not truncates or not os.fstat(descriptor).st_size
        return inode

    def write(self, descriptor: int, inode: int, data: bytes, offset: int) -> int:
        """Write in the page cache.

        Raises:
            OSError: ENOSPC.
        """
        size = os.fstat(descriptor).st_size
        end = offset + len(data)
        if self.is_full and end > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        old = os.pread(descriptor, len(data), offset) if offset < size else b""
        written = os.pwrite(descriptor, data, offset)
        if inode in self.unreadable:
            self.unreadable[inode].difference_update(range(offset, end))
        self._note(inode, _Write(offset, data, old, size, max(size, end)))
        return written

    def truncate(self, descriptor: int, inode: int, size: int) -> None:
        """Cut a file, or let it grow by zeros."""
        before = os.fstat(descriptor).st_size
        if self.is_full and size > before:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        old = os.pread(descriptor, before - size, size) if size < before else b""
        os.ftruncate(descriptor, size)
        if size != before:
            self._note(inode, _Write(size, b"", old, before, size))

    def check_readable(self, inode: int, start: int, end: int) -> None:
        """Raises OSError: EIO, a byte of [start, end) of a file cannot be read."""
        if any(start <= at < end for at in self.unreadable.get(inode, ())):
            self.world.count("disk.unreadable")
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _note(self, inode: int, write: _Write) -> None:
        file = self._files.get(inode)
        if file is None:
            file = self._files[inode] = _File(None)
        self.writes += 1
        write.number = self.writes
        file.unsynced.append(write)

    def sync(self, inode: int) -> None:
        """Make a file's writes durable; takes a while.

        Raises:
            OSError: EIO.
        """
        newest = self.writes
        self.take_time()
        self.settle(inode, newest)

    def settle(self, inode: int, newest: int) -> None:
        """A sync has ended that covers the volume's writes up to the ``newest``.

        Raises:
            OSError: EIO.
        """
        file = self._files.get(inode)
        covered = [one for one in file.unsynced if one.number <= newest] if file else []
        if self.failing_syncs and file is not None:
            self.failing_syncs -= 1
            self.world.count("disk.eio")
            for write in covered:
                write.is_lost = bool(write.new)  # what was cut stays cut
            file.unsynced = [one for one in file.unsynced if one.number > newest or one.is_lost]
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if file is not None:
            durable = [one for one in covered if not one.is_lost]
            lost = [one for one in covered if one.is_lost]
            for write in durable:  # written again, so it is on the medium now
                lost = [rest for one in lost for rest in _without(one, write)]
            file.unsynced = lost + [one for one in file.unsynced if one.number > newest]

    def is_durable(self, inode: int, start: int, end: int) -> bool:
        """Whether no byte of [start, end) would be lost with the power."""
        file = self._files.get(inode)
        return file is None or not any(
            one.offset < end and start < one.offset + len(one.new) for one in file.unsynced
        )

    def holds(self, path: Path) -> bool:
        """Whether a file would be there with its name and content after a power cut."""
        found = path.stat()
        named = self._names.get(path.parent.stat().st_ino, {}).get(path.name)
        return named == found.st_ino and self.is_durable(found.st_ino, 0, found.st_size)

    def sync_all(self) -> None:
        """``syncfs``: every file and every name."""
        newest = self.writes
        self.take_time()
        for inode in list(self._files):
            self.settle(inode, newest)
        self._remember_below(self.directory)

    def write_back(self, path: Path) -> bool:
        """The kernel writes a file and the names beside it, as it may at any time.

        Returns whether the file would be there as it is after a power cut.
        """
        failing, self.failing_syncs = self.failing_syncs, 0
        self.settle(path.stat().st_ino, self.writes)
        self.failing_syncs = failing
        self._remember(str(path.parent))
        return self.holds(path)

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory durable; takes a while."""
        if running() is not None:
            self.take_time()
        self._remember(directory)

    def _remember(self, directory: str) -> None:
        names = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                inode = entry.inode()
                names[entry.name] = inode
                if entry.is_file(follow_symlinks=False):
                    file = self._files.setdefault(inode, _File(None))
                    if file.kept is None:
                        file.kept = self._kept / str(inode)
                        with suppress(FileExistsError):
                            os.link(entry.path, file.kept)
        itself = Path(directory).stat().st_ino
        before = self._names.get(itself, {})
        self._names[itself] = names
        for inode in before.values():
            if inode not in names.values():
                self._forget(inode)

    def _forget(self, inode: int) -> None:
        """A removal is durable."""
        file = self._files.get(inode)
        if file is None or file.kept is None:
            return
        if file.kept.stat().st_nlink == 1:
            del self._files[inode]
        file.kept.unlink()
        file.kept = None

    def duration_us(self) -> int:
        """What the next sync takes."""
        low, high = self.options.sync_us
        if self.options.stall_rate and self.rng.random() < self.options.stall_rate:
            self.world.count("disk.stall")
            high = max(high, self.options.stall_us)
        return min((low + self.rng._randbelow(high - low + 1)) * self.slowness, SYNC_MAX_US)

    def is_cold(self) -> bool:
        """Whether what is read now is not in memory."""
        rate = self.options.cold_rate
        return bool(rate) and self._cold.random() < rate

    def due_us(self) -> int:
        """When a sync that begins now ends: one after the other."""
        now_us = self.world.now_us
        self._free_us = max(self._free_us, now_us, self.hangs_until_us) + self.duration_us()
        self.syncs += 1
        return self._free_us

    def take_time(self) -> None:
        """Let the running thread wait for the disk."""
        thread = running()
        assert thread is not None
        thread.sleep_us(self.due_us() - self.world.now_us)

    def used_bytes(self) -> int:
        """What the files take; looked at now and then."""
        if self.world.now_us >= self._used_until_us:
            self._used_until_us = self.world.now_us + USED_US
            self._used = _bytes_below(str(self.directory))
        return self._used

    # ---- what happens to it

    def mend(self) -> None:
        """A good disk again."""
        self.is_full = False
        self.failing_syncs = 0
        self.slowness = 1
        self.hangs_until_us = 0
        self.options.stall_rate = 0.0

    def hang(self, for_us: int) -> None:
        """Confirm nothing for so long, and no error."""
        self.hangs_until_us = max(self.hangs_until_us, self.world.now_us + for_us)

    def close_all(self, process: Process) -> None:
        """The process has ended: its descriptors and locks go."""
        for descriptor in process.files:
            os.close(descriptor)
        process.files.clear()
        self.locks = {inode: held for inode, held in self.locks.items() if held is not process}
        for store in self.stores.values():
            store.process_ended(process)

    def wipe(self) -> None:
        """An empty volume; no process runs."""
        self.lives += 1
        for entry in list(self.directory.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.rmtree(self._kept)
        self._kept.mkdir()
        self._files.clear()
        self._names.clear()
        self.stores.clear()
        self.unreadable.clear()
        self._remember(str(self.directory))

    def copied(self) -> VolumeCopy:
        """All that is on it; no process runs."""
        files = [entry for entry in self.directory.rglob("*") if entry.is_file()]
        return VolumeCopy(
            {entry.relative_to(self.directory): entry.read_bytes() for entry in files},
            {path: dict(store.durable) for path, store in self.stores.items()},
        )

    def put_back(self, copy: VolumeCopy) -> None:
        """Make it what it was, all of it durable; no process runs."""
        self.wipe()
        for name, content in copy.files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for path, rows in copy.rows.items():
            self.stores[path] = Stored(dict(rows))
        self._remember_below(self.directory)

    def lose_power(self) -> None:
        """See the module."""
        for store in self.stores.values():
            store.lose_power(self.rng)
        self._lose_names(str(self.directory))
        self._lose_writes()
        self._files = {inode: file for inode, file in self._files.items() if file.kept is not None}
        for file in self._files.values():
            file.unsynced.clear()
        self._free_us = 0
        below = [entry for entry in self.directory.rglob("*") if entry.is_dir()]
        there = {directory.stat().st_ino for directory in (self.directory, *below)}
        self._names = {inode: held for inode, held in self._names.items() if inode in there}
        self._remember_below(self.directory)

    def _remember_below(self, directory: Path) -> None:
        self._remember(str(directory))
        for entry in sorted(directory.iterdir()):
            if entry.is_dir() and str(entry) not in self.stores:
                self._remember_below(entry)

    def _lose_names(self, directory: str) -> None:
        durable = self._names.get(Path(directory).stat().st_ino)
        if durable is None:
            return  # never synced: its own name is lost, or it came with its parent
        present = {entry.name: entry.inode() for entry in os.scandir(directory)}
        if present != durable and self.rng.random() < 0.6:
            self.world.count("disk.names-lost")
            renamed: dict[int, Path] = {}  # directories that get their names back
            for name in sorted(present):
                inode, path = present[name], Path(directory, name)
                if durable.get(name) == inode:
                    continue
                if not path.is_dir():
                    path.unlink()
                elif inode in durable.values():
                    renamed[inode] = path.rename(Path(directory, f".{inode}"))
                else:
                    shutil.rmtree(path)
            for name in sorted(durable):
                inode = durable[name]
                file = self._files.get(inode)
                if inode in renamed:
                    renamed[inode].rename(Path(directory, name))
                elif present.get(name) != inode and file and file.kept is not None:
                    os.link(file.kept, Path(directory, name))
        for entry in sorted(Path(directory).iterdir()):
            if entry.is_dir() and str(entry) not in self.stores:
                self._lose_names(str(entry))

    def _lose_writes(self) -> None:
        paths = {
            entry.stat().st_ino: entry
            for entry in sorted(self.directory.rglob("*"))
            if entry.is_file()
        }
        for inode, file in self._files.items():
            path = paths.get(inode, file.kept)
            if file.unsynced and path is not None and path.exists():
                self._undo(path, file.unsynced)

    def _undo(self, path: Path, writes: list[_Write]) -> None:
        """Leave none of the writes, a prefix, or any of their sectors."""
        self.world.count("disk.writes-lost")
        descriptor = os.open(path, os.O_RDWR)
        try:
            for number in range(len(writes) - 1, -1, -1):
                write = writes[number]
                os.pwrite(descriptor, write.old, write.offset)
                if not write.is_lost:
                    os.ftruncate(descriptor, write.old_size)
                elif len(write.old) < len(write.new):  # beyond the end that it had then
                    gap = len(write.new) - len(write.old)
                    os.pwrite(descriptor, bytes(gap), write.offset + len(write.old))
            writes = [write for write in writes if not write.is_lost]
            mode = self.rng.choice(["none", "prefix", "sectors", "all"])
            if mode == "all":
                _redo(descriptor, writes)
            elif mode == "prefix" and writes:
                whole = self.rng.randrange(len(writes))
                _redo(descriptor, writes[:whole])
                torn = writes[whole]
                os.pwrite(descriptor, torn.new[: self.rng.randint(0, len(torn.new))], torn.offset)
            elif mode == "sectors":
                self._put_sectors(descriptor, writes)
        finally:
            os.close(descriptor)

    def _put_sectors(self, descriptor: int, writes: list[_Write]) -> None:
        for write in writes:
            if not write.new:
                if self.rng.random() < 0.5:
                    os.ftruncate(descriptor, write.size)
                continue
            position = 0
            while position < len(write.new):
                at = write.offset + position
                size = min(SECTOR - at % SECTOR, len(write.new) - position)
                if self.rng.random() < 0.5:
                    os.pwrite(descriptor, write.new[position : position + size], at)
                position += size


def _bytes_below(directory: str) -> int:
    with os.scandir(directory) as entries:
        return sum(
            _bytes_below(entry.path)
            if entry.is_dir(follow_symlinks=False)
            else entry.stat(follow_symlinks=False).st_size
            for entry in entries
        )


def _without(lost: _Write, later: _Write) -> list[_Write]:
    """What is left of a lost write where a later, durable one covers a part of it."""
    end, later_end = lost.offset + len(lost.new), later.offset + len(later.new)
    if later.size < later.old_size:  # it cut the file, and what was lost with it
        later_end = max(end, later_end)
    if later.number < lost.number or later_end <= lost.offset or end <= later.offset:
        return [lost]
    rest = []
    for begin, stop in ((lost.offset, later.offset), (later_end, end)):
        if begin < stop:
            low, high = begin - lost.offset, stop - lost.offset
            part = _Write(begin, lost.new[low:high], lost.old[low:high], lost.old_size, lost.size)
            part.number, part.is_lost = lost.number, True
            rest.append(part)
    return rest


def _redo(descriptor: int, writes: Sequence[_Write]) -> None:
    for write in writes:
        if write.new:
            os.pwrite(descriptor, write.new, write.offset)
        else:
            os.ftruncate(descriptor, write.size)


class OsModule:
    """``os`` for the product's modules; what it does not change is the real one."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        setattr(self, name, found)  # asked once
        return found

    # ---- descriptors

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        thread = running()
        if thread is None:
            return os.open(path, flags, mode, dir_fd=dir_fd)
        process = thread.process
        volume = process.machine.volume
        if volume.is_full and flags & os.O_CREAT and not Path(path).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        truncates = bool(flags & os.O_TRUNC)
        if flags & os.O_WRONLY:  # what is overwritten is read first
            flags = flags & ~os.O_WRONLY | os.O_RDWR
        descriptor = os.open(path, flags & ~os.O_TRUNC, mode, dir_fd=dir_fd)
        process.files[descriptor] = _Open(volume, descriptor)
        if truncates and os.fstat(descriptor).st_size:
            volume.truncate(descriptor, process.files[descriptor].inode, 0)
        return descriptor

    def memfd_create(self, name: str) -> int:
        descriptor = os.memfd_create(name)
        current().files[descriptor] = _MEMORY
        return descriptor

    def setpriority(self, which: int, who: int, priority: int) -> None:
        """The world is fair to all."""

    def close(self, descriptor: int) -> None:
        thread = running()
        if thread is not None:
            found = thread.process.files.pop(descriptor, None)
            if found is not None:
                held = thread.process.machine.volume.locks
                if held.get(found.inode) is thread.process and found.is_lock:
                    del held[found.inode]
        os.close(descriptor)

    def dup(self, descriptor: int) -> int:
        made = os.dup(descriptor)
        thread = running()
        if thread is not None:
            thread.process.files[made] = _Open(thread.process.machine.volume, made)
        return made

    def fdopen(self, descriptor: int, *arguments: Any, **named: Any) -> Any:
        thread = running()
        if thread is not None:
            thread.process.files.pop(descriptor, None)
        return os.fdopen(descriptor, *arguments, **named)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        file = _of(descriptor)
        if file is None:
            return os.pwrite(descriptor, data, offset)
        return file.volume.write(descriptor, file.inode, bytes(data), offset)

    def pwritev(self, descriptor: int, parts: Any, offset: int, flags: int = 0) -> int:
        file = _of(descriptor)
        assert file is not None
        written = file.volume.write(descriptor, file.inode, b"".join(parts), offset)
        if flags & os.RWF_DSYNC:
            file.volume.sync(file.inode)
        return written

    def write(self, descriptor: int, data: Any) -> int:
        file = _of(descriptor)
        if file is None:
            return os.write(descriptor, data)
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        written = file.volume.write(descriptor, file.inode, bytes(data), at)
        os.lseek(descriptor, written, os.SEEK_CUR)
        return written

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        thread = running()
        if thread is not None and thread.process.machine.volume.unreadable:
            file = _of(descriptor)
            if file is not None:
                file.volume.check_readable(file.inode, offset, offset + count)
        return os.pread(descriptor, count, offset)

    def preadv(self, descriptor: int, parts: Any, offset: int, flags: int = 0) -> int:
        file = _of(descriptor)
        if file is not None and flags & os.RWF_NOWAIT and file.volume.is_cold():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if file is not None and file.volume.unreadable:
            count = sum(map(len, parts))
            file.volume.check_readable(file.inode, offset, offset + count)
        return os.preadv(descriptor, parts, offset)

    def posix_fadvise(self, descriptor: int, *_: int) -> None:
        """Whoever says what it is about to read waits for the disk; in a thread."""
        file = _of(descriptor)
        assert file is not None
        file.volume.take_time()

    def ftruncate(self, descriptor: int, length: int) -> None:
        file = _of(descriptor)
        assert file is not None
        file.volume.truncate(descriptor, file.inode, length)

    def posix_fallocate(self, descriptor: int, offset: int, length: int) -> None:
        self.ftruncate(descriptor, max(offset + length, os.fstat(descriptor).st_size))

    def fsync(self, descriptor: int) -> None:
        file = _of(descriptor)
        assert file is not None or running() is None, "a descriptor that the world did not see"
        if file is None:
            return
        if file.is_directory:
            file.volume.sync_directory(file.path)
        else:
            file.volume.sync(file.inode)

    fdatasync = fsync

    # ---- the machine

    def statvfs(self, _: Any) -> Any:
        volume = current().machine.volume
        used = volume.used_bytes()
        total = DISK_BYTES
        free = 0 if volume.is_full else max(0, total - used)
        blocks, left = total // BLOCK_BYTES, free // BLOCK_BYTES
        return SimpleNamespace(
            f_bsize=BLOCK_BYTES,
            f_frsize=BLOCK_BYTES,
            f_blocks=blocks,
            f_bfree=left,
            f_bavail=left,
            f_files=1 << 20,
            f_favail=1 << 19,
            f_ffree=1 << 19,
        )

    def getpid(self) -> int:
        thread = running()
        return os.getpid() if thread is None else thread.process.pid


class _Open:
    """One open descriptor of a process."""

    __slots__ = ("inode", "is_directory", "is_lock", "path", "volume")

    def __init__(self, volume: Volume, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self.volume = volume
        self.inode = found.st_ino
        self.is_directory = stat.S_ISDIR(found.st_mode)
        self.is_lock = False
        self.path = ""
        if self.is_directory:
            self.path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        else:
            volume.opened(descriptor, truncates=False)


_MEMORY = SimpleNamespace(inode=0, is_lock=False)  # a descriptor without a disk


def _of(descriptor: int) -> _Open | None:
    thread = running()
    if thread is None:
        return None
    found: _Open | None = thread.process.files.get(descriptor)
    return found


class FcntlModule:
    """``fcntl`` as ``datadir`` uses it: a lock that belongs to a process."""

    LOCK_EX, LOCK_NB = 2, 4

    def flock(self, descriptor: int, _: int) -> None:
        process = current()
        file = process.files[descriptor]
        held = process.machine.volume.locks
        holder = held.get(file.inode)
        if holder is not None and holder is not process:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        held[file.inode] = process
        file.is_lock = True


def syncfs(descriptor: int) -> int:
    """The C library's ``syncfs``: 0, or -1 when anything on the device failed."""
    file = _of(descriptor)
    assert file is not None
    try:
        file.volume.sync_all()
    except OSError:
        return -1
    return 0
