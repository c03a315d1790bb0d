"""Commit logs as their files have them, for watches that read them at every acknowledgement.

The folder is listed, and its files are opened, when it has changed since the last look; as in Git's
index a folder that changed just now, by the real clock, may change again under the same time stamp.
"""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_broker.log import sums
from gantry_broker.log.inspection import LogFiles
from gantry_protocol.errors import RecordError
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from random import Random

    from gantry_broker.log.segments import Segment
    from sim.product.cluster import Cluster, Node
    from sim.product.files import Volume

RACY_NS = 20_000_000
INSPECTED_BYTES = 4_096  # of a log that is inspected, at least


class Logs:
    """The logs of a cluster's brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folders: dict[tuple[Volume, str], _Folder] = {}

    def _folder(self, node: Node, group: str) -> _Folder:
        found = self._folders.get((node.machine.volume, group))
        if found is None:
            path = f"{self._cluster.store_of(node, group)}/commitlog"
            found = self._folders[node.machine.volume, group] = _Folder(path)
        event = self._cluster.world.events_run
        if found.event != event:  # a broker's files change in events of its own only
            found.event = event
            found.look()
        return found

    def read(self, node: Node, group: str, start: int, end: int) -> bytes:
        """Bytes [start, end) of a member's log; maybe fewer."""
        folder = self._folder(node, group)
        begins = folder.begins
        data = b""
        for number in range(max(0, bisect_right(begins, start) - 1), len(begins)):
            begin = begins[number]
            if begin >= end:
                break
            stop = begins[number + 1] if number + 1 < len(begins) else end
            at = max(begin, start)
            part = os.pread(folder.opened(begin)[0], min(end, stop) - at, at - begin)
            data += part
            if len(part) < min(end, stop) - at:
                break
        return data

    def is_durable(self, node: Node, group: str, offset: int) -> bool:
        """Whether the record at ``offset``, which was just read, would survive a power cut."""
        folder = self._folders[node.machine.volume, group]
        begin = folder.begins[bisect_right(folder.begins, offset) - 1]
        inode = folder.opened(begin)[1]
        return node.machine.volume.is_durable(inode, offset - begin, offset - begin + 1)

    def keep_sum(self, node: Node, group: str, offset: int) -> bool:
        """Have the sum of a byte on the disk; whether that comes to be, and there is one."""
        begins = self._folder(node, group).begins
        begin = begins[bisect_right(begins, offset) - 1]
        segment = self._cluster.store_of(node, group) / "commitlog" / f"{begin:020d}"
        path = sums.sums_path(segment)
        covered = sums.load(path, begin).covered
        return covered is not None and offset < covered and node.machine.volume.write_back(path)

    def close(self) -> None:
        """Close what is open."""
        for folder in self._folders.values():
            folder.forget()


def verify(cluster: Cluster) -> None:
    """What `gantry log verify` says of each log, beside the broker that runs on it.

    Raises:
        Violation: of damage, where nothing rotted.
    """
    for node in cluster.brokers:
        for group in cluster.groups if node.name not in cluster.flipped else ():
            found = LogFiles(cluster.store_of(node, group)).verify()
            cluster.world.count("verified")
            if found.damage:
                raise Violation(f"the log of {node.name} is said to be damaged: {found.damage}")


def inspect_damage(cluster: Cluster) -> None:
    """What `gantry log verify` says of copies of logs that are spoiled in one place each.

    Raises:
        Violation: it finds nothing, or something elsewhere.
    """
    rng = cluster.world.stream("inspected")
    for number, spoil in enumerate((_flip, _shorten, _remove, _forget_sums)):
        node = rng.choice([node for node in cluster.brokers if node.name not in cluster.flipped])
        copy = cluster.root / f"inspected-{number}"
        shutil.copytree(cluster.store_of(node, cluster.groups[0]) / "commitlog", copy)
        sound = LogFiles(copy)
        before = sound.verify()
        files = [segment for segment in sound.segments if segment.start < before.covered]
        if before.covered - before.start < INSPECTED_BYTES:
            continue
        where = spoil(rng, files, before.covered)
        damage = LogFiles(copy).verify().damage
        cluster.world.count(f"inspected: {spoil.__name__}")
        if not any(found.offset <= where and str(copy) in str(found) for found in damage):
            raise Violation(f"{spoil.__name__} at {where} of {node.name} is said to be {damage}")
        shown = [before.start - 1]  # what `gantry log dump` shows of it
        with suppress(RecordError):
            for _, offset, _, _ in LogFiles(copy).units(before.start, before.covered):
                shown.append(offset)
        if shown != sorted(set(shown)) or shown[-1] >= before.covered:
            raise Violation(f"{spoil.__name__} of {node.name}: it is shown as {shown}")


def _flip(rng: Random, files: list[Segment], covered: int) -> int:
    """A bit of the log has rotted."""
    segment = rng.choice(files)
    where = rng.randrange(segment.start, min(segment.end, covered))
    data = bytearray(segment.path.read_bytes())
    data[where - segment.start] ^= 16
    segment.path.write_bytes(data)
    return where


def _shorten(rng: Random, files: list[Segment], covered: int) -> int:
    """The end of the last file is gone."""
    where = rng.randrange(files[-1].start, covered)
    os.truncate(files[-1].path, where - files[-1].start)
    return where


def _remove(rng: Random, files: list[Segment], _: int) -> int:
    """One file is gone."""
    segment = rng.choice(files)
    segment.path.unlink()
    return segment.end


def _forget_sums(rng: Random, files: list[Segment], _: int) -> int:
    """The checksums of a file are gone, and a byte of it has rotted meanwhile."""
    sums.sums_path(files[0].path).unlink()
    return _flip(rng, files[:1], files[0].end)


class _Folder:
    """A folder of log files.

    Attributes:
        begins: offsets of its files, rising.
        event: of the world, in which it was looked at last.
    """

    def __init__(self, path: str) -> None:
        self.begins: list[int] = []
        self.event = -1
        self._path = path
        self._changed_ns = 0  # when it had changed last at the last look; 0: look again
        self._opened: dict[int, tuple[int, int]] = {}

    def look(self) -> None:
        """See what files there are."""
        try:
            changed_ns = os.stat(self._path).st_mtime_ns  # noqa: PTH116 - often
        except FileNotFoundError:
            changed_ns, self.begins = 0, []
            self.forget()
            return
        if changed_ns == self._changed_ns:
            return
        self._changed_ns = changed_ns if time.time_ns() - changed_ns > RACY_NS else 0
        with os.scandir(self._path) as entries:
            inodes = {int(one.name): one.inode() for one in entries if one.name.isdigit()}
        self.begins = sorted(inodes)
        for begin, (descriptor, inode) in list(self._opened.items()):
            if inodes.get(begin) != inode:
                del self._opened[begin]
                os.close(descriptor)

    def opened(self, begin: int) -> tuple[int, int]:
        """A file: its descriptor and its inode."""
        found = self._opened.get(begin)
        if found is None:
            descriptor = os.open(f"{self._path}/{begin:020d}", os.O_RDONLY)
            found = self._opened[begin] = (descriptor, os.fstat(descriptor).st_ino)
        return found

    def forget(self) -> None:
        """Close the files, and list them anew at the next look."""
        for descriptor, _ in self._opened.values():
            os.close(descriptor)
        self._opened.clear()
        self._changed_ns = 0
