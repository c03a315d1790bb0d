"""Flushing of one log: who waits for it, on the event loop; the syncs, for its device (``disk``).

Group commit (``GroupCommit``): while one sync is under way, further bytes and callbacks gather for
the next, so the cost of a sync is shared by everything that arrived during the one before. The
running checksum of a range is taken from the bytes that were appended, not from the file.

The device's side (``Writer``): jobs, range sums, checkpoint. A sync that the kernel carries out by
itself ends on the event loop, maybe while the thread of the device writes a checkpoint. So a
checkpoint first takes over, at one stroke, the sums it rests on and the floor that it may promise
with them; what is flushed from then on is for the next one.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import google_crc32c
from gantry_protocol.errors import NO_ROOM
from gantry_protocol.process.files import fsync_directory
from gantry_protocol.types import Offset

from gantry_broker.log import sums
from gantry_broker.log.checkpoint import CheckpointFile
from gantry_broker.log.disk import DiskWriter
from gantry_broker.log.errors import LogFailedError
from gantry_broker.log.segments import Segment
from gantry_broker.log.sums import RangeSum

OnFlushed = Callable[[Offset], None]

_MAX_RANGE_BYTES = 1024 * 1024  # a sum is begun anew beyond this, so that damage is placed well


class FlushRange(NamedTuple):
    """Bytes of one segment that are written and not flushed."""

    segment: Segment
    sum: RangeSum


class FlushJob:
    """One group commit.

    Attributes:
        ranges: what to sync, in log order.
        target: the log's end when the job was made; what callbacks are told.
        callbacks: to be called, in order, when the job is done.
        loop: where ``settled`` is to be called; None when somebody blocks until it is done.
        settled: takes notice of the end.
        error: why the disk refused; set before ``settled`` is called.
        is_settled: the event loop's side has taken notice.
    """

    __slots__ = ("callbacks", "error", "is_settled", "loop", "ranges", "settled", "target")

    def __init__(
        self,
        ranges: list[FlushRange],
        target: Offset,
        callbacks: list[OnFlushed],
        loop: asyncio.AbstractEventLoop | None,
        settled: Callable[["FlushJob"], None],
    ) -> None:
        self.ranges = ranges
        self.target = target
        self.callbacks = callbacks
        self.loop = loop
        self.settled = settled
        self.error: OSError | None = None
        self.is_settled = False


class Writer:
    """Syncs, range sums and checkpoints of one log.

    Args:
        directory: of the log.
        checkpoint: its checkpoint.
        disk: the thread of its device; None gives this log one of its own.

    Attributes:
        has_left: the last checkpoint is written; guarded by the disk's condition.
        is_staged: a checkpoint waits to be synced; the thread's own, while files are held.
    """

    def __init__(
        self, directory: Path, checkpoint: CheckpointFile, disk: DiskWriter | None = None
    ) -> None:
        self.has_left = False
        self.is_staged = False
        self._directory = directory
        self._checkpoint = checkpoint
        self._own_disk = DiskWriter(directory) if disk is None else None
        self._disk = disk or self._own_disk
        self._job: FlushJob | None = None  # under way; guarded by the disk's condition
        self._floor = checkpoint.current.confirm_floor
        self._is_noted = False  # the disk's thread looks at the floor before long
        self._failure: OSError | None = None  # the first of anybody's; final
        # Guards what follows, and the descriptors of sums; nobody waits for the disk with it.
        self._sums = threading.Lock()
        self._unsynced: dict[int, Segment] = {}  # segments whose sums files are dirty
        # Held while the thread writes or syncs files; a cut holds it to keep the thread from them.
        self._files = threading.Lock()
        # The checkpoint's own, while files are held.
        self._syncing: dict[int, Segment] = {}
        self._promised = self._floor

    def submit(self, job: FlushJob) -> None:
        """Start a job; the one before has been settled."""
        assert self._disk is not None
        assert self._job is None, "one flush at a time"
        assert not self.has_left, "the writer was closed"
        self._job = job
        self._disk.submit(self)

    def raise_floor(self, floor: Offset) -> None:
        """Let the next checkpoint promise ``floor``, which is flushed."""
        assert self._disk is not None
        self._floor = floor  # one reference: atomic, and the thread only needs some recent value
        if not self._is_noted:
            self._is_noted = True
            self._disk.note_dirty(self)

    def wait_idle(self) -> None:
        """Block until no job is under way."""
        assert self._disk is not None
        self._disk.wait_for(self, lambda: self._job is None)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the thread away from the files; nothing may be submitted meanwhile."""
        with self._files:
            yield

    def forget(self, segment: Segment) -> None:
        """The sums of ``segment`` are no part of the log any more; only while paused."""
        with self._sums:
            self._unsynced.pop(segment.start, None)
            segment.close_sums()

    def restate(self, segment: Segment, entries: Iterable[RangeSum]) -> None:
        """Give ranges that have a sum these, durably; only while paused, and seldom: blocks.

        Raises:
            OSError: the old ones stand.
        """
        with self._sums:
            path = sums.sums_path(segment.path)
            segment.sums_bytes = sums.restate(path, segment.start, entries)
            segment.close_sums()  # the file was replaced

    def write_start(self, start: Offset) -> None:
        """Make a later start of the log durable, with the newest floor; only while paused."""
        self.begin_checkpoint()
        try:
            self.sync_sums()
            for _ in range(2):  # both slots: no older one may ask for files that are deleted now
                floor = max(self._promised, self._checkpoint.current.confirm_floor)
                self._checkpoint.write(start, Offset(floor))
        except OSError as error:
            self.fail(error)
            raise

    def close(self) -> None:
        """Finish the job at hand and write a last checkpoint; blocks."""
        assert self._disk is not None
        self._disk.leave(self)
        if self._own_disk is not None:
            self._own_disk.close()

    # ---- for the disk

    @property
    def ranges(self) -> list[FlushRange]:
        """The ranges of the job under way."""
        return [] if self._job is None else self._job.ranges

    @property
    def is_dirty(self) -> bool:
        """Whether a checkpoint has something to say."""
        return self._failure is None and (
            bool(self._unsynced) or self._floor > self._checkpoint.current.confirm_floor
        )

    def guarded(self, action: Callable[[], None]) -> None:
        """Run ``action`` unless the disk has failed before; a failure is final."""
        if self._failure is not None:
            return
        try:
            action()
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """The disk refused a write or a sync: nothing after it is believed, whoever asks."""
        if self._failure is None:
            self._failure = error

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that waits for the job under way; None when somebody blocks."""
        return None if self._job is None else self._job.loop

    @property
    def only_file(self) -> int | None:
        """The descriptor whose sync alone makes the job durable; None where it takes more."""
        segment = self.ranges[0].segment
        if self._failure is not None or segment.is_new or self.ranges[-1].segment is not segment:
            return None
        return segment.descriptor

    def sync_ranges(self) -> None:
        """Make the job's bytes durable."""
        ranges = self.ranges
        for segment in {segment.start: segment for segment, _ in ranges}.values():
            os.fdatasync(segment.descriptor)
        if any(segment.is_new for segment, _ in ranges):
            fsync_directory(self._directory)

    def note_flushed(self) -> None:
        """The job's bytes are durable."""
        with self._sums:
            for segment, entry in self.ranges:
                segment.is_new = False
                segment.append_sum(entry)
                self._unsynced[segment.start] = (
                    segment  # after it is written: a checkpoint syncs it
                )

    def take_done(self) -> FlushJob:
        """The job is done; its callers may be told."""
        job, self._job = self._job, None
        assert job is not None
        job.error = self._failure
        return job

    def begin_checkpoint(self) -> int:
        """A checkpoint is about to be written; returns how many files of sums it rests on."""
        self.is_staged = False
        with self._sums:
            self._is_noted = False  # from here on a risen floor is for the next one
            self._promised = self._floor
            self._syncing, self._unsynced = self._unsynced, {}
            for segment in self._syncing.values():
                if segment.unwritten:
                    self._catch_up_sums(segment)
        return len(self._syncing)

    def _catch_up_sums(self, segment: Segment) -> None:
        """Write sums that found no room before; a checkpoint promises nothing without them."""
        self.guarded(segment.write_sums)
        if segment.unwritten:
            self._promised = min(self._promised, Offset(segment.unwritten[0].start))
            self._unsynced[segment.start] = segment  # the next checkpoint tries again

    def sync_sums(self) -> None:
        """Make the range sums durable."""
        for segment in self._syncing.values():
            with self._sums:
                descriptor = segment.share_sums()
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def stage_checkpoint(self) -> None:
        """The range sums are durable: write what follows from them, not yet synced."""
        self._syncing.clear()
        floor = self._promised
        if floor > self._checkpoint.current.confirm_floor:
            try:
                self._checkpoint.stage_floor(floor)
                self.is_staged = True
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise  # otherwise the older promise holds, and the next checkpoint tries again

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable."""
        self._checkpoint.sync()


class GroupCommit:
    """The event loop's side of flushing one log.

    Args:
        writer: has the ranges synced.
        flushed: everything below is on the disk already.
        write: writes what was only gathered yet, and tells of it by ``wrote``; before each sync.
        failed: notes that the disk failed and makes the error that ends the process.
        covered: told of ranges that are flushed now.

    Attributes:
        flushed: everything below is on the disk; falls only in a cut.
        written: everything below stands in the files.
    """

    def __init__(
        self,
        writer: Writer,
        flushed: Offset,
        write: Callable[[], None],
        failed: Callable[[OSError], LogFailedError],
        covered: Callable[[Iterable[RangeSum]], None] = lambda _: None,
    ) -> None:
        self.flushed = self.written = flushed
        self._writer = writer
        self._write = write
        self._failed = failed
        self._covered = covered
        self._ranges: list[FlushRange] = []  # adjacent, behind what the job under way covers
        self._job: FlushJob | None = None
        self._waiting: list[OnFlushed] = []
        self._loop: asyncio.AbstractEventLoop  # set by the first flush_soon

    def wrote(self, segment: Segment, start: Offset, data: bytes) -> None:
        """``data`` now stands in ``segment`` at log offset ``start``, the end so far."""
        self.written = Offset(start + len(data))
        if self._ranges:
            owner, (begin, length, crc) = self._ranges[-1]
            if owner is segment and length < _MAX_RANGE_BYTES:
                joined = RangeSum(begin, length + len(data), google_crc32c.extend(crc, data))
                self._ranges[-1] = FlushRange(segment, joined)
                return
        covered = RangeSum(start, len(data), google_crc32c.value(data))
        self._ranges.append(FlushRange(segment, covered))

    def flush_soon(self, on_flushed: OnFlushed) -> None:
        """See ``CommitLog.flush_soon``."""
        self._loop = asyncio.get_running_loop()
        self._waiting.append(on_flushed)
        if self._job is None:
            self._start_job()

    def flush(self) -> None:
        """Sync everything, blocking.

        Raises:
            LogFailedError: the disk failed.
        """
        self.settle()
        self._write()
        if self._ranges:
            self._job = self._next_job(None)
            self._writer.submit(self._job)
            self.settle()

    def settle(self) -> None:
        """Wait for the sync under way; its callbacks run on the loop later, not inside this call.

        Raises:
            LogFailedError: the disk failed.
        """
        job = self._job
        if job is None:
            return
        self._writer.wait_idle()
        self._take_notice(job)
        if job.callbacks:  # a log is closed by a thread
            self._loop.call_soon_threadsafe(self._run, job.callbacks)

    def cut(self, end: Offset) -> None:
        """The log ends at ``end`` now, and all of it is on the disk."""
        assert self._job is None
        self._ranges.clear()
        self.flushed = self.written = end
        if self._waiting:
            callbacks, self._waiting = self._waiting, []
            self._loop.call_soon(self._run, callbacks)

    def _next_job(self, loop: asyncio.AbstractEventLoop | None) -> FlushJob:
        ranges, self._ranges = self._ranges, []
        callbacks, self._waiting = self._waiting, []
        return FlushJob(ranges, self.written, callbacks, loop, self._settled)

    def _start_job(self) -> None:
        self._write()
        job = self._job = self._next_job(self._loop)
        if job.ranges:
            self._writer.submit(job)
        else:
            self._loop.call_soon(self._settled, job)

    def _settled(self, job: FlushJob) -> None:
        if job.is_settled:
            return
        self._take_notice(job)
        self._run(job.callbacks)
        if self._waiting and self._job is None:
            self._start_job()

    def _take_notice(self, job: FlushJob) -> None:
        job.is_settled = True
        if self._job is job:
            self._job = None
        if job.error is not None:
            raise self._failed(job.error) from job.error
        self._covered(covered for _, covered in job.ranges)
        self.flushed = max(self.flushed, job.target)

    def _run(self, callbacks: list[OnFlushed]) -> None:
        for callback in callbacks:
            callback(self.flushed)
