"""Snapshots of one node, as the event loop sees them: taken, loaded, received, old ones removed.

Files are written and verified by a thread of their own, so that the log's thread never waits for a
snapshot; the loop encodes one slice per turn and hands it over before it encodes the next. One
snapshot is made at a time, taken or received.

The rules protected here: the log learns of a snapshot only when its file is durable (``compact``,
``install``), and an older file goes only when a newer one's marker is durable too (``durable``).

A full disk costs the snapshot and nothing else; it is tried again after as many bytes of log. Any
other error of the disk ends the node, since what is durable is unknown.
"""

import asyncio
import errno
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec
from gantry_protocol.errors import CorruptionError, GantryError
from gantry_protocol.process import log
from gantry_protocol.types import Index

from gantry_controller.node.disk import DiskError
from gantry_controller.node.machine import StateMachine
from gantry_controller.node.options import NodeOptions
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.messages import Entry
from gantry_controller.raft.snapshot import Marker, SnapshotMeta
from gantry_controller.wal.snapshots import (
    SnapshotFile,
    SnapshotInfo,
    SnapshotWriter,
    keep_only,
    load_snapshot,
    parse_snapshot,
    remove_older,
    snapshot_path,
)

PAUSE_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
FREE_AT_ONCE = 5_000  # entries of a dropped log, about half a millisecond

P = ParamSpec("P")
T = TypeVar("T")

_log = log.get("snapshot")


def due_at(least_bytes: int, snapshot_bytes: int) -> int:
    """Bytes of log after which the next snapshot is taken, for one of ``snapshot_bytes`` now.

    A snapshot writes the whole state, so its cost is shared by a log of twice its size: with much
    state it adds half to the bytes written, however small ``least_bytes`` is.
    """
    return max(least_bytes, 2 * snapshot_bytes)


class SnapshotBusy(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """A snapshot is being made already, or there is nothing new to be in one."""


class SnapshotStats(msgspec.Struct):
    """Plain figures since the start.

    Attributes:
        taken, installed, failed: how many were completed here, came from a peer, were given up.
        last_s: how long the newest took, from the view to the durable file.
        last_bytes: size of its file.
        longest_slice_s: the longest time the loop stood still for any, the view included.
        pauses: how often it did for up to each of ``PAUSE_BOUNDS_S``, and for longer.
        paused_s: for how long altogether.
        log_bytes: entries behind the newest one, encoded: those applied since the start, and all
            that recovery found.
    """

    taken: int = 0
    installed: int = 0
    failed: int = 0
    last_s: float = 0.0
    last_bytes: int = 0
    longest_slice_s: float = 0.0
    pauses: list[int] = msgspec.field(default_factory=lambda: [0] * (len(PAUSE_BOUNDS_S) + 1))
    paused_s: float = 0.0
    log_bytes: int = 0


class Snapshots:
    """See the module.

    Args:
        options: where the files are, when to take one, what to keep of the log.
        machine: what is encoded and restored.
        news: called on the loop when the core has something to write.
        failed: called on the loop when the disk fails.

    Attributes:
        info: the newest complete one; what a peer is sent.
        stats: plain figures.
    """

    def __init__(
        self,
        options: NodeOptions,
        machine: StateMachine,
        *,
        news: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.info: SnapshotInfo | None = None
        self.stats = SnapshotStats()
        self._options = options
        self._machine = machine
        self._news = news
        self._tell_failed = failed
        self._core: RaftCore
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking = False
        self._recovered_to = Index(0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")

    @property
    def index(self) -> Index:
        """The index that the newest one covers; 0 before the first."""
        return Index(0) if self.info is None else self.info.meta.index

    # ---- life ------------------------------------------------------------------------------------

    async def load(self, marker: Marker | None) -> SnapshotMeta | None:
        """Restore the state machine from the snapshot that the log begins behind.

        Raises:
            CorruptionError: it is missing or damaged.
            DataDirError: it was written by a newer program.
        """
        index = None if marker is None else marker.index
        await self.run(keep_only, self._options.directory, index)
        if marker is None:
            return None
        directory, assemble = self._options.directory, self._machine.assemble
        info, assembled = await self.run(load_snapshot, directory, marker, assemble)
        self._machine.restore(assembled)
        self.info = info
        return info.meta

    def begin(self, core: RaftCore, entries: list[Entry]) -> None:
        """``core`` runs; ``entries`` are its log, of which those behind the snapshot count."""
        self._core = core
        covered = 0 if core.snapshot is None else core.snapshot.index
        behind = (len(entry.encoded) for entry in entries if entry.index > covered)
        self.stats.log_bytes = sum(behind)
        self._recovered_to = entries[-1].index if entries else Index(0)

    async def stop(self) -> None:
        """Give up what is under way; its file is removed at the next start."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do ``work`` in the snapshots' thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(work, *arguments, **named))

    # ---- taking ----------------------------------------------------------------------------------

    def applied(self, entries: list[Entry]) -> None:
        """These were applied; take a snapshot when there are enough.

        What recovery found was counted at the start, and a snapshot amid it would only delay it.
        """
        if entries[-1].index <= self._recovered_to:
            return
        new = (len(entry.encoded) for entry in entries if entry.index > self._recovered_to)
        self.stats.log_bytes += sum(new)
        size = 0 if self.info is None else self.info.size
        due = self.stats.log_bytes >= due_at(self._options.snapshot_log_bytes, size)
        if due and not self._taking:
            self._spawn(self._take_when_due())

    async def take(self) -> SnapshotMeta:
        """Take one now.

        Raises:
            SnapshotBusy: one is being taken, or nothing was applied since the last.
            DiskError: it could not be written.
        """
        if self._taking:
            raise SnapshotBusy("A snapshot is being taken already; look again in a few seconds.")
        before = self._core.snapshot
        if self._core.applied_index <= (0 if before is None else before.index):
            raise SnapshotBusy("Nothing was applied since the last snapshot.")
        self._taking = True
        try:
            info, dropped = await self._write()
        except OSError as error:
            self.stats.failed += 1
            raise self._judge(error) from error
        finally:
            self._taking = False
        self._spawn(self._free(dropped))
        return info.meta

    async def _take_when_due(self) -> None:
        try:
            await self.take()
        except (SnapshotBusy, DiskError) as error:
            _log.warning("snapshot not taken", node_id=self._options.node_id, reason=error)
            self.stats.log_bytes = 0  # not again before as much was applied again

    async def _write(self) -> tuple[SnapshotInfo, list[Entry]]:
        """From the view to the durable file, which the core then knows of."""
        began = time.perf_counter()
        log_bytes = self.stats.log_bytes
        meta = self._core.snapshot_meta()
        slices = self._machine.snapshot()
        self._stood_still(began)
        writer = await self.run(SnapshotWriter, self._options.directory, meta)
        try:
            while True:
                turn = time.perf_counter()
                data = next(slices, None)
                self._stood_still(turn)
                if data is None:
                    break
                await self.run(writer.add, data)
            info = await self.run(writer.finish)
        except BaseException:
            await asyncio.shield(self.run(writer.drop))
            raise
        turn = time.perf_counter()
        dropped = self._core.compact(meta, self._options.snapshot_margin_entries)
        if self._core.snapshot is meta:
            self.info = info
        self._stood_still(turn)
        self._count(info, time.perf_counter() - began, log_bytes)
        self._news()
        return info, dropped

    def _stood_still(self, since: float) -> None:
        spent_s = time.perf_counter() - since
        self.stats.longest_slice_s = max(self.stats.longest_slice_s, spent_s)
        self.stats.pauses[bisect_left(PAUSE_BOUNDS_S, spent_s)] += 1
        self.stats.paused_s += spent_s

    def _count(self, info: SnapshotInfo, spent_s: float, log_bytes: int) -> None:
        self.stats.taken += 1
        self.stats.last_s = spent_s
        self.stats.last_bytes = info.size
        self.stats.log_bytes -= log_bytes
        _log.info(
            "snapshot taken",
            node_id=self._options.node_id,
            index=info.meta.index,
            size_bytes=info.size,
            ms=round(spent_s * 1000),
        )

    # ---- receiving -------------------------------------------------------------------------------

    async def install(self, file: SnapshotFile, index: Index, checksum: int) -> bool:
        """A peer's snapshot was received in full: verify it, make it durable, begin behind it.

        False if its bytes are not what was announced, or it cannot be read: it was dropped.

        Raises:
            OSError: the disk is full or broken.
        """
        try:
            info, assembled = await self.run(self._verify, file, index, checksum)
        except GantryError as error:
            self.stats.failed += 1
            _log.error("snapshot refused", node_id=self._options.node_id, reason=error)
            await self.run(file.drop)
            return False
        void = self._core.install(info.meta)
        if void is not None:
            self._machine.restore(assembled)
            self.info = info
            self.stats.installed += 1
            self.stats.log_bytes = 0
            _log.info("snapshot installed", node_id=self._options.node_id, index=index)
            self._news()
            self._spawn(self._free(void))
        return True

    def _verify(
        self, file: SnapshotFile, index: Index, checksum: int
    ) -> tuple[SnapshotInfo, object]:
        path = snapshot_path(self._options.directory, index)
        info, slices = parse_snapshot(path, file.content())
        if (info.meta.index, info.checksum) != (index, checksum):
            raise CorruptionError(path, 0, "it is not the snapshot that was announced")
        assembled = self._machine.assemble(slices)
        file.publish()
        return info, assembled

    # ---- files -----------------------------------------------------------------------------------

    def durable(self, index: Index) -> None:
        """The marker of the snapshot ``index`` has become durable: older files may go.

        Not those before the newest snapshot: if a crash takes that one's marker, this one counts.
        """
        self._spawn(self.run(remove_older, self._options.directory, index))

    def _judge(self, error: OSError) -> DiskError:
        """A full disk is borne; with anything else nobody knows what is durable."""
        failure = DiskError(
            f"Writing a snapshot in {self._options.directory} failed ({error.strerror or error})."
        )
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            self._tell_failed(failure)
        return failure

    # ---- details ---------------------------------------------------------------------------------

    async def _free(self, entries: list[Entry]) -> None:
        """Let go of entries, few at a time."""
        while entries:
            del entries[-FREE_AT_ONCE:]
            await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="snapshot")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._tell_failed(error)
