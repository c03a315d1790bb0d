"""The simulated disk: what is written is not what is durable.

A file has two contents: ``data``, which the running process reads back (the page cache), and
``durable``, which is what the medium holds. ``sync`` makes the writes before it durable after a
while and then calls back; callbacks of one disk come in order. A killed process (SIGKILL) keeps the
page cache. A power cut keeps what is durable and, of each file's unsynced writes, none, a prefix
torn at any byte, or any subset of 512-byte sectors; which one is drawn.

A disk may also be slow, full, or refuse a sync with EIO. After EIO the kernel takes the pages for
clean although the medium never got them: they are read back as written, and no later sync writes
them, unless somebody writes them again.

Files are bytes, so that the real encoders and the real recovery code run on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.kernel.world import MS, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SECTOR = 512


@dataclass
class DiskOptions:
    """How slow and how unkind the disk is.

    Attributes:
        sync_us: least and greatest ordinary duration of a sync.
        stall_rate: share of syncs that take up to ``stall_us``.
        stall_us: the greatest duration of a slow sync.
        cold_rate: share of reads that find nothing in memory.
    """

    sync_us: tuple[int, int] = (100, 2_000)
    stall_rate: float = 0.0
    stall_us: int = 500 * MS
    cold_rate: float = 0.0

    @classmethod
    def swarm(cls, rng: Random) -> DiskOptions:
        """A disk of drawn speed."""
        low = rng.choice([50, 500, 5_000])
        return cls(
            sync_us=(low, low * rng.choice([1, 4, 20])),
            stall_rate=rng.choice([0.0, 0.0, 0.01, 0.1]),
            stall_us=rng.choice([50, 1_000]) * MS,
        )


class File:
    """One file. Reads see every write at once; see the module for what survives."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.name = name
        self.data = bytearray()
        self.durable = bytearray()
        self._disk = disk
        self._unsynced: list[tuple[int, bytes | None]] = []  # None cuts the file at the offset
        self._written = 0  # writes ever; _written - len(_unsynced) of them are durable

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset``; a gap before it reads as zeros."""
        _put(self.data, offset, data)
        self._unsynced.append((offset, data))
        self._written += 1

    def append(self, data: bytes) -> int:
        """Write at the end; returns the offset where ``data`` went."""
        offset = len(self.data)
        self.write(offset, data)
        return offset

    def cut(self, size: int) -> None:
        """Cut the file; durable with the next sync, as a write is."""
        del self.data[size:]
        self._unsynced.append((size, None))
        self._written += 1

    def truncate(self, size: int) -> None:
        """Cut the file, and write what is left anew, durably and at once (a recovery step)."""
        del self.data[size:]
        self.durable[:] = self.data
        self._unsynced.clear()

    def sync(self, done: Callable[[], None]) -> None:
        """Make every write so far durable, then call ``done`` unless the machine went down."""
        self._disk.sync(self, self._written, done)

    def settle(self, count: int) -> None:
        """Move the writes up to the ``count``-th to the medium (called by the disk)."""
        surplus = count - (self._written - len(self._unsynced))
        for offset, data in self._unsynced[: max(surplus, 0)]:
            _apply(self.durable, offset, data)
        del self._unsynced[: max(surplus, 0)]

    def forget_unsynced(self) -> None:
        """After EIO: still read back, taken for clean, and not on the medium."""
        self._unsynced.clear()

    def lose_power(self, rng: Random) -> None:
        """Fall back to what the medium holds, plus what it may hold of the unsynced writes."""
        mode = rng.choice(["none", "prefix", "sectors"])
        if mode == "prefix" and self._unsynced:
            whole = rng.randint(0, len(self._unsynced) - 1)
            for offset, data in self._unsynced[:whole]:
                _apply(self.durable, offset, data)
            offset, data = self._unsynced[whole]
            if data is not None:
                _put(self.durable, offset, data[: rng.randint(0, len(data))])
        elif mode == "sectors":
            for offset, data in self._unsynced:
                if data is not None:
                    _put_sectors(self.durable, offset, data, rng)
                elif rng.random() < 0.5:
                    del self.durable[offset:]
        self._unsynced.clear()
        self.data[:] = self.durable


class Disk:
    """The files of one machine; they outlive its processes.

    Attributes:
        options: may be changed while the world runs.
        files: by name, in order of creation.
        slowness: a sync takes so many times as long.
        is_full: whoever respects it writes nothing more.
        is_failing: the next sync ends in EIO.
        on_error: called then, instead of whoever waits for the sync.
    """

    def __init__(self, world: World, name: str, options: DiskOptions) -> None:
        self.options = options
        self.files: dict[str, File] = {}
        self.on_error: Callable[[], None] = lambda: None
        self._world = world
        self._rng = world.stream(f"disk/{name}")
        self._life = 0  # syncs begun in an earlier life of the machine never call back
        self._free_us = 0
        self.mend()

    def mend(self) -> None:
        """A good disk again: of ordinary speed, with room, without errors."""
        self.slowness = 1
        self.is_full = False
        self.is_failing = False

    def hang(self, for_us: int) -> None:
        """Answer nobody who asks from now on, for so long; and no error."""
        self._free_us = max(self._free_us, self._world.now_us) + for_us

    @property
    def busy_us(self) -> int:
        """How long what was asked for until now takes yet."""
        return max(0, self._free_us - self._world.now_us)

    def file(self, name: str) -> File:
        """The file ``name``, made empty if it is not there."""
        if name not in self.files:
            self.files[name] = File(self, name)
        return self.files[name]

    def sync(self, file: File, count: int, done: Callable[[], None]) -> None:
        """Queue one sync; see ``File.sync``."""
        low, high = self.options.sync_us
        if self._rng.random() < self.options.stall_rate:
            self._world.count("disk.stall")
            high = max(high, self.options.stall_us)
        duration_us = self._rng.randint(low, high) * self.slowness
        self._free_us = max(self._free_us, self._world.now_us) + duration_us
        self._world.at(self._free_us, self._synced, self._life, file, count, done)

    def kill(self) -> None:
        """The process died: nothing calls back any more, the page cache stays."""
        self._life += 1
        self._free_us = self._world.now_us

    def power_cut(self) -> None:
        """The machine died: unsynced writes are lost, wholly or in part."""
        self.kill()
        for file in self.files.values():
            file.lose_power(self._rng)

    def wipe(self) -> None:
        """Lose everything: a new, empty volume."""
        self.kill()
        self.files.clear()

    def _synced(self, life: int, file: File, count: int, done: Callable[[], None]) -> None:
        if life != self._life:
            return
        if self.is_failing:
            self.is_failing = False
            file.forget_unsynced()
            self.on_error()
            return
        file.settle(count)
        done()


def _apply(target: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del target[offset:]
    else:
        _put(target, offset, data)


def _put(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def _put_sectors(target: bytearray, offset: int, data: bytes, rng: Random) -> None:
    """Write each sector of ``data``, or not; a sector is all or nothing."""
    position = 0
    while position < len(data):
        size = min(SECTOR - (offset + position) % SECTOR, len(data) - position)
        if rng.random() < 0.5:
            _put(target, offset + position, data[position : position + size])
        position += size
