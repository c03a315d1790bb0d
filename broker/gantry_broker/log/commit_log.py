"""The commit log of one replication group: an append-only run of bytes made of whole units.

Rules: a reader sees an append at once, since small ones that are still gathered in memory
(``segments``) are written before anybody reads or syncs them; nothing is told to anybody, replicas
included, that the death of this process could take; nothing is reported flushed before its sync
returned; nothing below the confirm floor is ever cut; what was
flushed is covered by checksums, and damage to it is refused, not repaired (``recovery``).

Everything here runs on the event loop's thread and copies into the page cache only. The kernel
or the thread of the device waits for the disk (``disk``), except in ``open``, ``truncate``,
``reset`` and ``close``, which block.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from gantry_protocol.errors import NO_ROOM, CorruptionError, RecordError
from gantry_protocol.process.files import make_directory
from gantry_protocol.records import BLANK_HEADER_BYTES, MAX_RECORD_BYTES
from gantry_protocol.types import Offset

from gantry_broker.log import checkpoint, cutting, recovery, sums
from gantry_broker.log.checked import NO_WAIT, Checks, DamagedError, read_now
from gantry_broker.log.disk import Disks, DiskWriter
from gantry_broker.log.errors import CutRefusedError, DiskFullError, LogFailedError
from gantry_broker.log.mending import Mending
from gantry_broker.log.segments import Segment, Segments, Stretch, list_segments
from gantry_broker.log.units import (
    HEAD_BYTES,
    Tail,
    blank_head,
    check_patched,
    check_units,
    parse_unit,
    stands_at,
    unit_size,
    whole_units,
)
from gantry_broker.log.writer import GroupCommit, OnFlushed, Writer

P = ParamSpec("P")
T = TypeVar("T")

_ZERO = Offset(0)
_DIRECT_BYTES = 16 * 1024  # appends from here on are written at once: gathering saves little then
_MAX_GATHERED_BYTES = 256 * 1024  # in memory; what is more is written before the next sync begins
_MAX_SEGMENT_BYTES = 2**31  # RocketMQ's own files are mapped with 32-bit lengths


class CommitLog:
    """See the module. Open one with ``CommitLog.open``."""

    def __init__(
        self,
        segments: Segments,
        saved: checkpoint.CheckpointFile,
        segment_size_bytes: int,
        disk: DiskWriter | None,
    ) -> None:
        self._segments = segments
        self._saved = saved
        self._segment_size_bytes = segment_size_bytes
        self._writer = Writer(segments.directory, saved, disk)
        self._log_start = saved.current.log_start
        last = segments.last
        self._end = self._log_start if last is None else last.end
        self.checks = Checks()
        self._commit = GroupCommit(
            self._writer, self._end, self._write_gathered, self._failed, self.checks.flushed
        )
        self.mending = Mending(
            self._writer, self.checks, self._flushed_at, self.compare, self._failed
        )
        self._floor = saved.current.confirm_floor
        self._verified_from = self._end
        self._failure: OSError | None = None

    @classmethod
    def open(
        cls,
        directory: Path,
        segment_size_bytes: int,
        *,
        confirm_floor: Offset = _ZERO,
        disks: Disks | None = None,
        keeps_damage: bool = False,
    ) -> "CommitLog":
        """Open or create the log in ``directory``; blocks while it reads and repairs.

        Args:
            directory: holds nothing else; created when missing.
            segment_size_bytes: when the next file begins. May differ from earlier runs and between
                replicas.
            confirm_floor: an offset the caller knows to have been confirmed here; the log's own
                checkpoint may know a higher one.
            disks: who syncs it; None: one of this log's own.
            keeps_damage: ranges that do not match their sums are noted in ``checks`` and never
                given out, instead of an error.

        Raises:
            CorruptionError: bytes that were on the disk are gone or different.
            DataDirError: the directory holds something else.
        """
        assert 0 < segment_size_bytes <= _MAX_SEGMENT_BYTES
        make_directory(directory)
        path = directory / cutting.CHECKPOINT_NAME
        if not path.exists():
            if list_segments(directory):
                raise CorruptionError(path, 0, "the log beside it is there and this file is not")
            checkpoint.create(path, checkpoint.Checkpoint(0, _ZERO, _ZERO))
        unfinished = cutting.read_marker(directory)
        if unfinished is not None:
            cutting.finish(directory, unfinished)
        current = checkpoint.load(path)
        floors = recovery.Floors(
            synced=current.confirm_floor, durable=max(current.confirm_floor, confirm_floor)
        )
        found = cutting.without_trimmed(directory, current)
        damaged: list[sums.RangeSum] = []
        kept, verified_from, unproved = recovery.recover(
            directory, found, current.log_start, floors, damaged.append if keeps_damage else None
        )
        saved = checkpoint.CheckpointFile(path, current)
        disk = None if disks is None else disks.writer_for(directory)
        log = cls(Segments(directory, kept), saved, segment_size_bytes, disk)
        log._verified_from, log.mending.unproved = verified_from, unproved
        log.mending.look_again((item.start, item.end) for item in damaged)
        return log

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return self._segments.directory

    @property
    def log_start(self) -> Offset:
        """Offset of the oldest byte."""
        return self._log_start

    @property
    def end(self) -> Offset:
        """Offset one past the newest byte; where the next append goes, unless it begins a file."""
        return self._end

    @property
    def flushed(self) -> Offset:
        """Everything below is on the disk. ``log_start <= confirm_floor <= flushed <= end``."""
        return self._commit.flushed

    @property
    def confirm_floor(self) -> Offset:
        """Everything below was confirmed by the group and is here; never cut, never falls."""
        return self._floor

    @property
    def _tail(self) -> Tail:
        last = self._segments.last
        start = self._end if last is None or last.is_sealed else last.start
        return Tail(start, self._end, self._segment_size_bytes)

    def fits(self, size: int) -> bool:
        """Whether records of ``size`` bytes certainly stand in one file, from ``end`` on."""
        return self._tail.fits(size)

    def layout(self, sizes: Sequence[int]) -> list[Offset]:
        """The places of records of these sizes when they are appended next, in this order."""
        return self._tail.positions(sizes)

    def position_for(self, size: int) -> Offset:
        """The place of a record of ``size`` bytes when it is appended next."""
        return self.layout((size,))[0]

    def append(self, encoded: bytes | Sequence[bytes]) -> Offset:
        """Append whole records, each patched for the position that ``layout`` gave it.

        Returns:
            The new end.

        Raises:
            DiskFullError: no record was appended; the log stays usable. Its end may have moved: a
                blank that ends the file stays where the next file finds no room.
            LogFailedError: the disk failed; the process has to end.
        """
        records = [encoded] if isinstance(encoded, bytes) else encoded
        self._check_usable()
        data = records[0] if len(records) == 1 else b"".join(records)
        if not self.fits(len(data)):
            return self._append_over_files(records)
        check_patched(records, self._end)
        self._write(data, is_first=True)
        return self._end

    def _append_over_files(self, records: Sequence[bytes]) -> Offset:
        """The same where a file may end in between."""
        run: list[bytes] = []  # what goes into one file with one write
        run_end, is_first_run = self._end, True
        for record, position in zip(records, self.layout([len(r) for r in records]), strict=True):
            check_patched((record,), position)
            if position != run_end:
                self._write(b"".join(run), is_first=is_first_run)
                is_first_run = is_first_run and not run
                run = []
                self._seal(position, is_first=is_first_run)
            run.append(record)
            run_end = Offset(position + len(record))
        self._write(b"".join(run), is_first=is_first_run)
        return self._end

    def append_raw(self, offset: Offset, data: bytes) -> Offset:
        """Append whole units as another log has them; a blank in them ends a file here too.

        Args:
            offset: where ``data`` stands there; must be the end of this log.
            data: whole units, as ``read_units`` returns them.

        Returns:
            The new end.

        Raises:
            RecordError: ``data`` is not what belongs at ``offset``; nothing was appended.
            DiskFullError: not all of it was appended; the log ends behind a whole unit.
            LogFailedError: the disk failed; the process has to end.
        """
        self._check_usable()
        if offset != self._end:
            raise RecordError(f"bytes for log offset {offset}, and the log ends at {self._end}")
        ends_a_file = check_units(data, offset)
        self._write(data, is_first=True)
        last = self._segments.last
        if last is not None and ends_a_file:
            self._write_gathered()
            self._guard_disk(last.drop_ahead)
            last.is_sealed = True
        return self._end

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Bytes from ``offset`` on: never across a file, maybe fewer than asked, none at the end.

        Raises:
            ValueError: ``offset`` is not inside the log.
            DamagedError: they differ from what was flushed.
        """
        if not self._log_start <= offset <= self._end:
            raise ValueError(f"offset {offset} is outside the log [{self._log_start}, {self._end}]")
        if offset == self._end:
            return b""
        segment = self._segments.at(offset, flushed=self.flushed)
        count = min(max_bytes, segment.end - offset)
        if offset + count > self._commit.written:
            self._write_gathered()
        begin = min(max(offset, self.flushed), offset + count)  # of what has no sums yet
        fresh = os.pread(segment.descriptor, offset + count - begin, begin - segment.start)
        if begin == offset:
            return fresh
        sound = self.checks.read(segment, offset, begin, self.flushed)
        return (sound or b"") + fresh

    def read_cached(self, offset: Offset, max_bytes: int) -> bytes | None:
        """Like ``read``, without waiting for the disk; None where not all of it is in memory.

        What is not flushed is always in memory. Where the system cannot tell, it waits.

        Raises:
            ValueError: ``offset`` is not inside the log.
            DamagedError: they are not what was flushed.
        """
        quick = self.checks.quick(offset, offset + max_bytes)
        if quick and quick is not True:
            return quick
        flushed = self._commit.flushed
        if NO_WAIT is None or offset + max_bytes > flushed or offset < self._log_start:
            return self.read(offset, max_bytes)
        segment = self._segments.at(offset, flushed=flushed)
        if quick:
            return read_now(segment, offset, max_bytes)
        end = min(offset + max_bytes, segment.end)
        return self.checks.read(segment, offset, end, flushed, read_now)

    def _flushed_at(self, offset: int) -> Segment:
        return self._segments.at(Offset(offset), flushed=self.flushed)

    def compare(self, start: int, end: int) -> None:
        """Look again at a range of one file that was found damaged, or repaired.

        Raises:
            DamagedError: it is; ``checks`` has it now.
        """
        if self._log_start <= start < end <= self.flushed:
            segment = self._segments.at(start, flushed=self.flushed)
            self.checks.compare(segment, start, min(end, segment.end))

    def read_units(self, offset: Offset, max_bytes: int, *, limit: Offset | None = None) -> bytes:
        """Whole units from ``offset`` on, which is where one begins.

        Args:
            offset: where to begin.
            max_bytes: kept unless the first unit alone is larger.
            limit: a boundary of units not to read beyond; None is the end.

        Raises:
            CorruptionError: what stands there is no unit, or not what was flushed.
        """
        stop = self._end if limit is None else min(limit, self._end)
        size = min(max(max_bytes, BLANK_HEADER_BYTES), stop - offset)
        try:
            data = self.read(offset, size)
        except DamagedError as error:
            if error.damage.start <= offset:
                raise
            data = self.read(offset, error.damage.start - offset)
        try:
            whole = whole_units(data)
            if whole == 0 and data:
                return self.read(offset, unit_size(data, 0))
        except RecordError as error:
            segment = self._segments.at(offset, flushed=self.flushed)
            raise CorruptionError(segment.path, offset - segment.start, str(error)) from error
        return data[:whole]

    def is_boundary(self, offset: Offset) -> bool:
        """Whether a unit begins at ``offset``, which is inside the log, or the log ends there.

        Raises:
            ValueError: ``offset`` is not inside the log.
        """
        if offset in (self._end, self._commit.written):
            return True  # the usual places: what is gathered need not be written for them
        head = self.read(offset, HEAD_BYTES)
        left = self._segments.at(offset, flushed=self.flushed).end - offset
        return stands_at(head, offset, left)

    def stretches(self, start: Offset, end: Offset) -> list[Stretch]:
        """Files and positions of [start, end), for another thread or process that reads them.

        What is flushed does not change there until it is trimmed or cut; to keep the log from that
        meanwhile is up to the caller.

        Raises:
            ValueError: not all of it is flushed, or it is not in the log any more.
        """
        if not self._log_start <= start <= end <= self.flushed:
            raise ValueError(
                f"[{start}, {end}) is not inside the flushed log "
                f"[{self._log_start}, {self.flushed}]"
            )
        return self._segments.stretches(start, end)

    def locate(self, offset: Offset) -> tuple[Path, int]:
        """File and position of a log offset, for messages to people."""
        segment = self._segments.at(offset, flushed=self.flushed)
        return segment.path, offset - segment.start

    def flush_soon(self, on_flushed: OnFlushed) -> None:
        """Call ``on_flushed(offset)`` on the running loop once everything below ``end`` is synced.

        ``offset`` is at least the present end, unless the log is cut meanwhile: then it is the cut.
        Callbacks run in the order they were given. If the disk fails none runs any more, and the
        loop's exception handler gets a ``LogFailedError``.
        """
        self._check_usable()
        self._commit.flush_soon(on_flushed)

    def flush(self) -> None:
        """Sync everything now, blocking; callbacks that wait run on the loop afterwards."""
        self._check_usable()
        self._commit.flush()

    def raise_confirm_floor(self, offset: Offset) -> None:
        """Remember that everything below ``offset`` is confirmed; made durable within a second.

        What is not flushed here cannot be promised, so the floor stops at ``flushed``.
        """
        reached = min(offset, self.flushed)
        if reached > self._floor:
            self._floor = reached
            self._writer.raise_floor(reached)

    def truncate(self, to: Offset) -> None:
        """Drop everything from ``to`` on; durable on return, and whole or not at all after a crash.

        Raises:
            CutRefusedError: ``to`` lies below the confirm floor, beyond the end, or in a record.
        """
        self._check_usable()
        self._check_cut(to)
        if to == self._end:
            return
        self.flush()
        split = [item.start for item in self.checks.damage.values() if item.start < to < item.end]
        due = self._guard_disk(cutting.still_due, self._flushed_at(to), to)
        with self._writer.paused():
            self._guard_disk(self._segments.drop_ahead)  # room for the cut, on a full disk
            self._guard_disk(cutting.carry_out, self.directory, cutting.Cut(to))
            self._forget_from(to, due)
        self._end = to
        self._commit.cut(to)
        self.mending.look_again((start, to) for start in split)

    def reset(self, to: Offset) -> None:
        """Throw the whole log away and begin a new one at ``to``; durable on return.

        Only for a replica that has confirmed nothing it could lose: the caller vouches for that.
        """
        self._check_usable()
        self._commit.settle()
        with self._writer.paused():
            self._guard_disk(self._segments.drop_ahead)
            self._guard_disk(cutting.carry_out, self.directory, cutting.Cut(to, is_reset=True))
            self._forget_from(_ZERO, [])
            self._saved.reload()
            self._writer.raise_floor(to)
        self._log_start = self._end = self._floor = to
        self._commit.cut(to)

    @property
    def starts(self) -> list[Offset]:
        """The beginning of each file, oldest first; the log may be trimmed to one of them."""
        return [segment.start for segment in self._segments]

    def trim(self, to: Offset) -> list[Segment]:
        """Let the log begin at ``to``, where one of its files begins; durable on return.

        Returns:
            The files that are no part of it any more, for the caller to ``remove``; the next
            opening does it where nobody did.

        Raises:
            CutRefusedError: no file begins there, or not everything below is confirmed.
        """
        self._check_usable()
        if to not in self.starts or to > self._floor:
            raise CutRefusedError(
                f"The commit log in {self.directory} is not trimmed to {to}: it is confirmed up to"
                f" {self._floor}, and its files begin at {self.starts}."
            )
        with self._writer.paused():
            self.checks.forget(0, to)
            removed = self._segments.drop_below(to)
            for segment in removed:
                self._writer.forget(segment)
            self._guard_disk(self._writer.write_start, to)
        self._log_start = to
        return removed

    def verify(
        self,
        *,
        everything: bool = True,
        pause: Callable[[], None] | None = None,
        damaged: recovery.Damaged | None = None,
    ) -> None:
        """Compare what is below the confirm floor with its sums; for a thread.

        Args:
            everything: otherwise only what was not read when the log was opened.
            pause: called after every few MiB; what it raises ends the work.
            damaged: told of each range that differs, which may have been cut meanwhile.

        Raises:
            CorruptionError: naming file and offset of the first damage, without ``damaged``.
        """
        limit = self._floor if everything else min(self._floor, self._verified_from)
        recovery.verify_below(
            list(self._segments), Offset(limit), pause, lambda at: at < self._log_start, damaged
        )

    def close(self) -> None:
        """Flush, write the checkpoint and give everything back; blocks."""
        try:
            if self._failure is None:
                self.flush()
                if self._segments.last is not None:
                    self._guard_disk(self._segments.last.drop_ahead)
        finally:
            self._writer.close()
            self._saved.close()
            self._segments.close()

    # Appending

    def _seal(self, next_start: Offset, *, is_first: bool) -> None:
        """End the current file with a blank up to ``next_start``."""
        size = next_start - self._end
        self._write(blank_head(size), is_first=is_first)
        self._write_gathered()
        segment = self._segments.last
        assert segment is not None
        zeros = size - BLANK_HEADER_BYTES
        self._guard_disk(segment.extend_with_zeros, zeros)
        segment.is_sealed = True
        self._commit.wrote(segment, self._end, bytes(zeros))
        self._end = segment.end

    def _write(self, data: bytes, *, is_first: bool) -> None:
        """Append ``data`` to the current file, or to a new one when that is sealed."""
        if not data:
            return
        is_direct = len(data) >= _DIRECT_BYTES
        if is_direct or self._end - self._commit.written >= _MAX_GATHERED_BYTES:
            self._write_gathered()
        try:
            segment = self._segments.last
            if segment is None or segment.is_sealed:
                segment = self._segments.add(self._end)
            if is_direct:
                segment.write(data)
            else:
                segment.gather(data, self._segment_size_bytes)
        except OSError as error:
            if error.errno in NO_ROOM and is_first:
                raise DiskFullError(
                    f"No room for {len(data)} bytes in {self.directory}: free some space there."
                ) from error
            raise self._failed(error) from error
        if is_direct:
            self._commit.wrote(segment, self._end, data)
        self._end = segment.end

    def _write_gathered(self) -> None:
        """Write what was appended and only gathered yet.

        Raises:
            LogFailedError: the disk failed, now or before.
        """
        start, segment = self._commit.written, self._segments.last
        if start == self._end:
            return
        self._check_usable()
        assert segment is not None, "only the newest file has something gathered"
        try:
            data = segment.write_gathered()
        except OSError as error:
            raise self._failed(error) from error
        self._commit.wrote(segment, start, data)

    # Cutting

    def _check_cut(self, to: Offset) -> None:
        if not self._floor <= to <= self._end:
            raise CutRefusedError(
                f"The commit log in {self.directory} is not cut at {to}: it is confirmed up to"
                f" {self._floor} and ends at {self._end}."
            )
        if to == self._end:
            return
        try:
            size = unit_size(self.read(to, BLANK_HEADER_BYTES), 0)
            parse_unit(self.read(to, min(size, MAX_RECORD_BYTES)), 0, to)
        except DamagedError:
            pass  # it goes, and what is kept of its range has no sum then
        except RecordError as error:
            raise CutRefusedError(
                f"The commit log in {self.directory} is not cut at {to}: {error}."
            ) from error

    def _forget_from(self, to: Offset, due: list[sums.RangeSum]) -> None:
        """Make memory agree with what a cut left on the disk; ``due`` sums may wait for room."""
        self.checks.forget(to, self._end)
        while (last := self._segments.last) is not None and last.start >= to:
            self._writer.forget(self._segments.pop())
            last.close()
        if last is not None and last.end > to:
            last.size = to - last.start
            last.is_sealed = False
        if last is not None:
            last.reserved = last.size
            last.close_sums()  # the file may have been replaced
            found = sums.load(sums.sums_path(last.path), last.start)
            last.unwritten = [entry for entry in due if entry.start >= (found.covered or 0)]
            last.sums_bytes = found.chain_bytes

    # Failing

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failed(self._failure)

    def _guard_disk(self, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return action(*args, **kwargs)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> LogFailedError:
        self._failure = error
        return LogFailedError(
            f"The disk under {self.directory} failed ({error.strerror}): what is flushed is kept,"
            " check the volume and start again."
        )
