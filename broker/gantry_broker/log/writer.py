"""The one thread of a log that waits for the disk.

Group commit: while a sync is under way, appends and their callbacks gather; the next sync covers
them all. The thread also writes the checkpoint, lazily: at most every ``CHECKPOINT_INTERVAL_S``,
since between two checkpoints the range sums in the page cache already survive the death of the
process. Nothing here runs on the event loop except what it posts there.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gantry_protocol.process.files import fsync_directory
from gantry_protocol.types import Offset

from gantry_broker.log.checkpoint import CheckpointFile
from gantry_broker.log.segments import Segment
from gantry_broker.log.sums import RangeSum

CHECKPOINT_INTERVAL_S = 0.5


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
        posted: called by the writer thread when the job is done; hands over to the event loop.
        error: why the disk refused; set before ``posted`` is called.
        is_settled: the event loop's side has taken notice.
    """

    __slots__ = ("callbacks", "error", "is_settled", "posted", "ranges", "target")

    def __init__(
        self,
        ranges: list[FlushRange],
        target: Offset,
        callbacks: list[Callable[[Offset], None]],
        posted: Callable[["FlushJob"], None],
    ) -> None:
        self.ranges = ranges
        self.target = target
        self.callbacks = callbacks
        self.posted = posted
        self.error: OSError | None = None
        self.is_settled = False


class Writer:
    """Syncs, range sums and checkpoints of one log, in one thread."""

    def __init__(self, directory: Path, checkpoint: CheckpointFile) -> None:
        self._directory = directory
        self._checkpoint = checkpoint
        self._condition = threading.Condition()
        # Guarded by the condition.
        self._job: FlushJob | None = None
        self._is_busy = False
        self._is_stopping = False
        self._floor = checkpoint.current.confirm_floor
        self._is_timed = False  # the thread wakes by itself soon, so nobody needs to wake it
        # The thread's own.
        self._unsynced: dict[int, Segment] = {}  # segments whose sums files are dirty
        self._checkpoint_at = time.monotonic()
        self._failure: OSError | None = None
        # Held while files are written or synced; a cut holds it to keep the thread away from them.
        self._files = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def submit(self, job: FlushJob) -> None:
        """Start a job; the one before has been posted."""
        with self._condition:
            assert self._job is None, "one flush at a time"
            assert not self._is_stopping, "the writer was closed"
            self._job = job
            self._is_busy = True
            self._condition.notify_all()

    def raise_floor(self, floor: Offset) -> None:
        """Let the next checkpoint promise ``floor``, which is flushed."""
        self._floor = floor  # one reference: atomic, and the thread only needs some recent value
        if not self._is_timed:
            with self._condition:
                self._condition.notify_all()

    def wait_idle(self) -> None:
        """Block until no job is under way."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_busy)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the thread away from the files; nothing may be submitted meanwhile."""
        with self._files:
            yield

    def forget(self, segment: Segment) -> None:
        """A cut removed or rewrote the sums of ``segment``; only while paused."""
        self._unsynced.pop(segment.start, None)

    def write_start(self, start: Offset) -> None:
        """Make a later start of the log durable, with the newest floor; only while paused."""
        for segment in self._unsynced.values():
            segment.sync_sums()
        self._unsynced.clear()
        for _ in range(2):  # both slots: no older one may ask for files that are deleted now
            floor = max(self._floor, self._checkpoint.current.confirm_floor)
            self._checkpoint.write(start, Offset(floor))

    def close(self) -> None:
        """Finish the job at hand, write a last checkpoint and end the thread."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._wait_for_work()
                job, self._job = self._job, None
                stopping = self._is_stopping
            if job is not None:
                self._do(job)
                with self._condition:
                    self._is_busy = self._job is not None
                    self._condition.notify_all()
                job.posted(job)
            elif stopping or self._is_checkpoint_due():
                self._guarded(self._write_checkpoint)
                if stopping:
                    return

    def _wait_for_work(self) -> None:
        """Return when there is a job, an end, or a checkpoint to write."""
        while self._job is None and not self._is_stopping and not self._is_checkpoint_due():
            wait_s = None
            if self._is_dirty():
                wait_s = self._checkpoint_at + CHECKPOINT_INTERVAL_S - time.monotonic()
            self._is_timed = wait_s is not None
            self._condition.wait(wait_s)
        self._is_timed = True

    def _is_dirty(self) -> bool:
        return self._failure is None and (
            bool(self._unsynced) or self._floor > self._checkpoint.current.confirm_floor
        )

    def _is_checkpoint_due(self) -> bool:
        return self._is_dirty() and time.monotonic() >= self._checkpoint_at + CHECKPOINT_INTERVAL_S

    def _do(self, job: FlushJob) -> None:
        self._guarded(lambda: self._flush(job.ranges))
        job.error = self._failure

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run ``action`` unless the disk has failed before; a failure is final."""
        with self._files:
            if self._failure is not None:
                return
            try:
                action()
            except OSError as error:
                self._failure = error

    def _flush(self, ranges: list[FlushRange]) -> None:
        for segment in {segment.start: segment for segment, _ in ranges}.values():
            os.fdatasync(segment.descriptor)
        if any(segment.is_new for segment, _ in ranges):
            fsync_directory(self._directory)
        for segment, entry in ranges:
            segment.is_new = False
            segment.append_sum(entry)
            self._unsynced[segment.start] = segment

    def _write_checkpoint(self) -> None:
        floor = self._floor
        for segment in self._unsynced.values():
            segment.sync_sums()
        self._unsynced.clear()
        if floor > self._checkpoint.current.confirm_floor:
            self._checkpoint.write_floor(floor)
        self._checkpoint_at = time.monotonic()
