"""The event loop's side of flushing: what is written and not synced, and who waits for it.

While one sync is under way, further bytes and callbacks gather for the next, so the cost of a sync
is shared by everything that arrived during the one before. The running checksum of a range is
taken from the bytes that were appended, not from the file.
"""

import asyncio
from collections.abc import Callable, Iterable

import google_crc32c
from gantry_protocol.types import Offset

from gantry_broker.log.errors import LogFailedError
from gantry_broker.log.segments import Segment
from gantry_broker.log.sums import RangeSum
from gantry_broker.log.writer import FlushJob, FlushRange, Writer

OnFlushed = Callable[[Offset], None]

_MAX_RANGE_BYTES = 1024 * 1024  # a sum is begun anew beyond this, so that damage is placed well


class GroupCommit:
    """Flushing of one log.

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
