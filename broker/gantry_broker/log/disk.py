"""The syncs of one device, on behalf of all logs that lie there.

While few logs have a job, each in one file, the kernel syncs it and tells the event loop
(``kernel_syncs``). All else is for the one thread of the device: many logs at once, new files,
checkpoints, those who block, and everything where the kernel does not do it by itself. Per
wake-up the thread takes the jobs of every log that has one and makes all of them durable together:
file by file while they are few, with one ``syncfs`` from ``SYNCFS_FROM`` on (a sync of 300 files
costs 39 ms one by one and 2 ms at once, see ``docs/adr/0029``). While a sync is under way further
jobs gather for the next. Checkpoints are written the same way, of all logs that need one, at most
every ``CHECKPOINT_INTERVAL_S``: between two checkpoints the range sums in the page cache already
survive the death of the process.

Rules protected: nothing is told to be flushed before the sync that covers it returned; and an error
is blamed on the log it hit. ``syncfs`` says only that *something* on the device failed, maybe a
stranger's file, and says it once; so from its first error on each log's files are synced by
themselves, now and ever after: to each open file the kernel reports its own lost write.
"""

import ctypes
import os
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_protocol.process.sync_times import BOUNDS_S, SyncTimes

from gantry_broker.log.kernel_syncs import KernelSyncer, KernelSyncs, Syncer, settle

if TYPE_CHECKING:
    import asyncio

    from gantry_broker.log.writer import FlushJob, Writer

CHECKPOINT_INTERVAL_S = 0.5
SYNCFS_FROM = 8  # files; fewer cost no more one by one, and a stranger's writes are left alone
_SYNCFS_REPORTS_SINCE = (5, 8)  # earlier Linux kernels answer 0 whatever was lost


class DiskWriter:
    """Syncs and checkpoints of all logs on one device.

    Args:
        directory: any directory on the device.
        syncer: makes what syncs without a thread, and fails where there is none.

    Attributes:
        thread_syncs: wake-ups of the thread that made something durable.
        thread_times: how long these took.
        jobs: group commits of single logs that all syncs covered.
        kernel: the syncs without the thread.
    """

    def __init__(self, directory: Path, syncer: Callable[[], Syncer] = KernelSyncer) -> None:
        """Starts the thread."""
        self.thread_syncs = 0
        self.thread_times = SyncTimes()
        self.jobs = 0
        self.kernel = KernelSyncs(syncer, self._finish, _post)
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._condition = threading.Condition()
        # Guarded by the condition.
        self._waiting: list[Writer] = []  # each with a job
        self._leaving: list[Writer] = []
        self._dirty: dict[Writer, None] = {}  # which a checkpoint has something to say of
        self._is_stopping = False
        self._is_timed = False  # the thread wakes by itself soon, so nobody needs to wake it
        self._is_flushing = False  # the thread syncs jobs
        # The thread's own.
        self._is_trusted = True  # until ``syncfs`` has failed once
        self._checkpoint_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def syncs(self) -> int:
        """All of them that made log bytes durable."""
        return self.thread_syncs + self.kernel.syncs

    def submit(self, writer: "Writer") -> None:
        """``writer`` has a job."""
        if self._handed_to_kernel(writer):
            return
        with self._condition:
            assert not self._is_stopping, "the disk writer was closed"
            self._waiting.append(writer)
            self._condition.notify_all()

    def note_dirty(self, writer: "Writer") -> None:
        """The next checkpoint of ``writer`` has something to say."""
        with self._condition:
            self._dirty[writer] = None
            if not self._is_timed:
                self._condition.notify_all()

    def _handed_to_kernel(self, writer: "Writer") -> bool:
        """Whether the kernel does it; who comes while the thread has jobs shares its next sync."""
        if self._is_flushing or self._waiting or self.kernel.under_way + 1 >= SYNCFS_FROM:
            return False
        loop = writer.loop
        if loop is None:
            return False
        file = writer.only_file
        return file is not None and self.kernel.take(writer, loop, file)

    def _finish(self, writer: "Writer", error: OSError | None) -> "FlushJob":
        """The kernel's sync of ``writer`` has ended; on the loop, or with who blocks for it."""
        self.jobs += 1
        if error is not None:
            writer.fail(error)
        writer.guarded(writer.note_flushed)
        with self._condition:
            job = writer.take_done()
        if writer.is_dirty:
            self.note_dirty(writer)
        return job

    def wait_for(self, writer: "Writer", holds: Callable[[], bool]) -> None:
        """Block until ``holds()``, which only the end of the job of ``writer`` brings about."""
        self.kernel.wait_for(writer)
        with self._condition:
            self._condition.wait_for(holds)

    def leave(self, writer: "Writer") -> None:
        """Finish the job of ``writer``, write its last checkpoint and forget it; blocks."""
        self.kernel.wait_for(writer)
        with self._condition:
            self._leaving.append(writer)
            self._condition.notify_all()
            self._condition.wait_for(lambda: writer.has_left)

    def close(self) -> None:
        """End the thread; every log has left."""
        self.kernel.close()
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self._thread.join()
        os.close(self._root)

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._condition:
                self._wait_for_work()
                batch, self._waiting = self._waiting, []
                self._is_flushing = bool(batch)
                leaving, self._leaving = self._leaving, []
                dirty: dict[Writer, None] = {}
                if self._is_checkpoint_due():
                    dirty, self._dirty = self._dirty, dirty
                if self._is_stopping and not (batch or leaving):
                    return
            if batch:
                self._flush(batch)
            if dirty:
                self._checkpoint(list(dirty))
                self._checkpoint_at = time.monotonic()
            if leaving:
                self._checkpoint(leaving)
                with self._condition:
                    for writer in leaving:
                        self._dirty.pop(writer, None)
                        writer.has_left = True
                    self._condition.notify_all()

    def _wait_for_work(self) -> None:
        """Return when there is a job, an end, or a checkpoint to write."""
        while not (
            self._waiting or self._leaving or self._is_stopping or self._is_checkpoint_due()
        ):
            wait_s = None
            if self._dirty:
                wait_s = self._checkpoint_at + CHECKPOINT_INTERVAL_S - time.monotonic()
            self._is_timed = wait_s is not None
            self._condition.wait(wait_s)
        self._is_timed = True

    def _is_checkpoint_due(self) -> bool:
        due_at = self._checkpoint_at + CHECKPOINT_INTERVAL_S
        return bool(self._dirty) and time.monotonic() >= due_at

    def _flush(self, batch: list["Writer"]) -> None:
        """One group commit of every log in ``batch``."""
        self.thread_syncs += 1
        self.jobs += len(batch)
        with _paused(batch):
            files = sum(len(writer.ranges) for writer in batch)
            begun_s = time.monotonic()
            self._sync(batch, files, lambda writer: writer.sync_ranges())
            took_s = time.monotonic() - begun_s
            # As `SyncTimes.note`, without the call: every send comes by here.
            self.thread_times.counts[bisect_left(BOUNDS_S, took_s)] += 1
            self.thread_times.total_s += took_s
            for writer in batch:
                writer.guarded(writer.note_flushed)
        with self._condition:
            self._is_flushing = False
            jobs = [writer.take_done() for writer in batch]
            self._dirty.update((writer, None) for writer in batch if writer.is_dirty)
            self._condition.notify_all()
        _post(jobs)

    def _checkpoint(self, writers: list["Writer"]) -> None:
        """What a checkpoint promises is on the disk before the checkpoint is."""
        with _paused(writers):
            files = sum(writer.begin_checkpoint() for writer in writers)
            self._sync(writers, files, lambda writer: writer.sync_sums())
            for writer in writers:
                writer.guarded(writer.stage_checkpoint)
            staged = [writer for writer in writers if writer.is_staged]
            self._sync(staged, len(staged), lambda writer: writer.sync_checkpoint())

    def _sync(
        self, writers: Sequence["Writer"], files: int, one: Callable[["Writer"], None]
    ) -> None:
        """Make durable what ``one`` makes durable of a single log, of all of them."""
        if files >= SYNCFS_FROM and self._is_trusted:
            self._is_trusted = syncfs(self._root)
            if self._is_trusted:
                return
        for writer in writers:
            writer.guarded(partial(one, writer))


class Disks:
    """The disk writers of one process, one for each device.

    Args:
        syncer: see ``DiskWriter``.
    """

    def __init__(self, syncer: Callable[[], Syncer] = KernelSyncer) -> None:
        """No thread yet."""
        self._syncer = syncer
        self._lock = threading.Lock()  # volumes are opened in threads
        self._writers: dict[int, DiskWriter] = {}

    def writer_for(self, directory: Path) -> DiskWriter:
        """The writer of the device that ``directory`` lies on."""
        device = directory.stat().st_dev
        with self._lock:
            writer = self._writers.get(device)
            if writer is None:
                writer = self._writers[device] = DiskWriter(directory, self._syncer)
            return writer

    @property
    def writers(self) -> list[DiskWriter]:
        """All of them."""
        return list(self._writers.values())

    def close(self) -> None:
        """End their threads; every log has been closed."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def syncfs(descriptor: int) -> bool:
    """Make everything on the device of ``descriptor`` durable; False if that cannot be relied on.

    False also after an error anywhere on the device: the caller asks file by file then.
    """
    return _SYNCFS is not None and _SYNCFS(descriptor) == 0


def _find_syncfs() -> Callable[[int], int] | None:
    """The C library's function, where the kernel says truly how it went."""
    if not sys.platform.startswith("linux"):
        return None
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    release = tuple(int(number) for number in numbers if number.isdecimal())
    if release < _SYNCFS_REPORTS_SINCE:
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


_SYNCFS = _find_syncfs()


def _paused(writers: list["Writer"]) -> ExitStack:
    """Hold the files of all of them; nobody else ever holds those of two logs."""
    stack = ExitStack()
    for writer in writers:
        stack.enter_context(writer.paused())
    return stack


def _post(jobs: list["FlushJob"]) -> None:
    """Let each event loop take notice of its jobs, with one wake-up."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[FlushJob]] = defaultdict(list)
    for job in jobs:
        if job.loop is not None:
            by_loop[job.loop].append(job)
    for loop, done in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
            loop.call_soon_threadsafe(settle, loop, done)
