"""One log's part of the work of its device (``disk``): jobs, range sums, checkpoint.

Group commit: while a sync is under way, appends and their callbacks gather; the next sync covers
them all. A sync that the kernel carries out by itself ends on the event loop, maybe while the
thread of the device writes a checkpoint. So a checkpoint first takes over, at one stroke, the sums
it rests on and the floor that it may promise with them; what is flushed from then on is for the
next one.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gantry_protocol.errors import NO_ROOM
from gantry_protocol.process.files import fsync_directory
from gantry_protocol.types import Offset

from gantry_broker.log.checkpoint import Checkpoint, CheckpointFile
from gantry_broker.log.disk import DiskWriter
from gantry_broker.log.segments import Segment
from gantry_broker.log.sums import RangeSum


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
        callbacks: list[Callable[[Offset], None]],
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
    """

    def __init__(
        self, directory: Path, checkpoint: CheckpointFile, disk: DiskWriter | None = None
    ) -> None:
        self.has_left = False
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
        self._staged: Checkpoint | None = None

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
                self._staged = self._checkpoint.stage_floor(floor)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise  # otherwise the older promise holds, and the next checkpoint tries again

    @property
    def is_staged(self) -> bool:
        """Whether a checkpoint waits to be synced."""
        return self._staged is not None

    def sync_checkpoint(self) -> None:
        """Make the checkpoint durable."""
        self._checkpoint.sync()

    def settle_checkpoint(self) -> None:
        """It is durable."""
        assert self._staged is not None
        self._checkpoint.settle(self._staged)
        self._staged = None
