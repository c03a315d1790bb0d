"""Is what is read still what was flushed? Every read of the log is compared before it is used.

What a reader wants lies in one or more ranges that have a sum (``sums``); these are read whole and
compared, with those that follow them up to ``LOOK_BYTES``. The bytes that were compared last are
kept and given out again, since readers go on where they were; they are the compared ones, and a log
does not change. Only pulls, of which thousands a second read a record here and there, take what is
not kept any more from the file if it was compared within ``TRUST_S``; everybody else, replication
above all, gets the very bytes that were compared.

Rules protected: a byte that differs from what was flushed is not copied, and not served beyond
``TRUST_S`` after it was compared and forgotten; ranges beside a damaged one are served. Bytes that
are not flushed have no sum yet: this process wrote them a moment ago. What it refuses: a range that
differs from its sum, cannot be read, or has no sum.
"""

import errno
import os
import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import google_crc32c
from gantry_protocol.errors import CorruptionError, RecordError

from gantry_broker.log import sums
from gantry_broker.log.recovery import locate_damage
from gantry_broker.log.segments import Segment, segment_start
from gantry_broker.log.sums import RangeSum
from gantry_broker.log.units import parse_unit

NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)  # of Linux
LOOK_BYTES = 64 * 1024  # compared at once where ranges are small: the next pulls of a reader
KEPT_BYTES = 16 * 1024 * 1024  # of all logs of a process
TRUST_S = 10.0  # a hot GiB is compared again with 5 % of a processor
KNOWN_MAX = 16_384  # pieces of a log, kept or not: about a GiB
DAMAGE_MAX = 1024  # ranges that are named; what else there is, is found when it is read
_QUEUES_SHOWN = 8
_TAIL = 64  # newest sums kept in memory: readers at the end need no file
_STRETCHES = 32  # of sums kept from files, as many in each: one for every reader that goes on

_buffer = bytearray(1024 * 1024)  # of the event loop's thread: large pieces of memory cost time

Read = Callable[[Segment, int, int], bytes | None]  # of log offset and size; None: not in memory


class Damage(NamedTuple):
    """A range of a log that is not what was flushed.

    Attributes:
        path: the segment's file.
        position: of the record in it that is not whole, or of the range.
        start, length: of the range, in the log.
        crc: what the bytes must match; None where their sum is gone, ``sums.UNKNOWN`` where
            there never was one of what was flushed.
        reason: what is wrong.
    """

    path: Path
    position: int
    start: int
    length: int
    crc: int | None
    reason: str

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.start + self.length


class DamagedError(CorruptionError):
    """Somebody asked for bytes of a range that is not what was flushed."""

    def __init__(self, damage: Damage) -> None:
        reason = f"{damage.reason} (log offsets {damage.start} to {damage.end})"
        super().__init__(damage.path, damage.position, reason)
        self.damage = damage


class _Piece:
    """A stretch of a log up to ``end`` that was compared at ``at_s``; kept if it has data."""

    __slots__ = ("at_s", "data", "end")

    def __init__(self, data: bytes, end: int, at_s: float) -> None:
        self.data: bytes | None = data
        self.end = end
        self.at_s = at_s


class Kept:
    """The number of bytes that all logs of a process keep.

    Args:
        most: bytes; the newest piece is kept anyway.
    """

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._bytes = 0
        self._pieces: deque[tuple[_Piece, int]] = deque()

    def add(self, piece: _Piece, size: int) -> None:
        """Keep another piece; the oldest ones go."""
        self._pieces.append((piece, size))
        self._bytes += size
        while self._bytes > self._most and len(self._pieces) > 1:
            oldest, left = self._pieces.popleft()
            self._bytes -= left
            oldest.data = None


_KEPT = Kept()


class _Stretches:
    """The sums that were read of late, a few in a row for each place where somebody reads."""

    def __init__(self) -> None:
        self._starts: list[int] = []  # in order
        self._known: dict[int, list[RangeSum]] = {}  # the one read first is the first

    def around(self, start: int, end: int) -> list[RangeSum] | None:
        """Some in a row that [start, end) lies in."""
        index = bisect_right(self._starts, start) - 1
        found = self._known[self._starts[index]] if index >= 0 else None
        return found if found and end <= found[-1].end else None

    def keep(self, found: list[RangeSum]) -> None:
        """Know these, too; the oldest go."""
        if not found:
            return
        start = found[0].start
        if self._known.pop(start, None) is None:
            insort(self._starts, start)
        self._known[start] = found
        if len(self._starts) > _STRETCHES:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._starts.remove(oldest)

    def clear(self) -> None:
        """Know none."""
        self._starts.clear()
        self._known.clear()


class Checks:
    """Knowledge of the flushed bytes of one log; for the event loop's thread.

    Args:
        kept: bounds what is kept.
        clock: seconds.

    Attributes:
        damage: the damaged ranges that were found and not repaired, by where they start.
        found: how many, ever.
        on_damage: called with each when it is found.
    """

    def __init__(self, kept: Kept = _KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self.damage: dict[int, Damage] = {}
        self.found = 0
        self.on_damage: Callable[[Damage], None] = lambda _: None
        self._kept = kept
        self._clock = clock
        self._starts: list[int] = []  # of pieces, in order
        self._pieces: dict[int, _Piece] = {}
        self._sums = _Stretches()
        self._tail: deque[RangeSum] = deque(maxlen=_TAIL)

    def flushed(self, ranges: Iterable[RangeSum]) -> None:
        """These were flushed, in order, behind all others."""
        self._tail.extend(ranges)

    def forget(self, start: int, end: int) -> None:
        """The log's bytes there have changed, or are no part of it any more."""
        self._tail.clear()
        self._sums.clear()
        for at in [at for at in self._starts if at < end and start < self._pieces[at].end]:
            self._drop(at)
        for item in [
            item for item in self.damage.values() if start < item.end and item.start < end
        ]:
            del self.damage[item.start]

    def _drop(self, start: int) -> None:
        del self._pieces[start]
        del self._starts[bisect_left(self._starts, start)]

    def read(
        self, segment: Segment, start: int, end: int, flushed: int, read: Read | None = None
    ) -> bytes | None:
        """The bytes [start, end), which lie in ``segment`` and are flushed.

        Args:
            segment: holds them.
            start: log offset.
            end: log offset.
            flushed: end of what has sums.
            read: reads without waiting for the disk, for pulls; None waits, and trusts no file.

        Returns:
            None where ``read`` did not find in memory what has to be compared.

        Raises:
            DamagedError: they are not what was flushed.
        """
        parts: list[bytes] = []
        at = start
        while at < end:
            first, piece = self._piece_at(at)
            if piece is not None and piece.data is not None:
                part: bytes | None = piece.data[at - first : end - first]
            elif read and self._is_trusted(piece):
                assert piece is not None
                part = read(segment, at, min(end, piece.end) - at) or None
            else:
                part = self._look(segment, first, at, end, min(segment.end, flushed), read or _read)
            if part is None:
                return None
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def quick(self, start: int, end: int) -> bytes | bool:
        """[start, end) where it is kept; otherwise whether a pull may take it from the file."""
        starts = self._starts  # written out: this is what most pulls take
        index = bisect_right(starts, start) - 1
        if index < 0:
            return False
        first = starts[index]
        piece = self._pieces[first]
        if piece.end < end:
            return False
        data = piece.data
        if data is not None:
            return data[start - first : end - first]
        return self._clock() - piece.at_s <= TRUST_S

    def _piece_at(self, at: int) -> tuple[int, _Piece | None]:
        """The piece that ``at`` lies in, and where it begins."""
        index = bisect_right(self._starts, at) - 1
        if index >= 0:
            first = self._starts[index]
            piece = self._pieces[first]
            if at < piece.end:
                return first, piece
        return at, None

    def _is_trusted(self, piece: _Piece | None) -> bool:
        return piece is not None and self._clock() - piece.at_s <= TRUST_S

    def _look(
        self, segment: Segment, begin: int, start: int, end: int, limit: int, read: Read
    ) -> bytes | None:
        """Compare the range that ``begin`` lies in, and those that follow; [start, end) of them.

        Maybe not all of it. None where it is not in memory.

        Raises:
            DamagedError: the first of them is not what was flushed.
        """
        wanted = self._wanted(segment, begin, end, limit)
        is_bad = not wanted or wanted[0].start in self.damage
        if is_bad and begin < start:  # that is not what was asked for
            return self._look(segment, start, start, end, limit, read)
        if is_bad:
            self.compare(segment, begin, begin + 1)
            wanted = self._wanted(segment, begin, end, limit)
        first = sound = wanted[0].start
        data = _tried(read, segment, first, wanted[-1].end - first)
        if data is None:
            return None
        for item in wanted:
            if google_crc32c.value(data[item.start - first : item.end - first]) != item.crc:
                self._look_at(segment, item)
                break
            sound = item.end
        if sound > first:
            self._keep(first, data[: sound - first])
        if sound > start:
            return data[start - first : min(end, sound) - first]
        if begin < start:
            return self._look(segment, start, start, end, limit, read)
        self.compare(segment, start, start + 1)
        data = _read(segment, first, wanted[0].length)  # the first look was a read that failed
        return data[start - first : end - first]

    def _wanted(self, segment: Segment, start: int, end: int, limit: int) -> list[RangeSum]:
        """The ranges from ``start`` on that are compared together."""
        stop = min(max(end, start + LOOK_BYTES), limit)
        found: list[RangeSum] = []
        for entry in self._entries(segment, start, stop):
            is_more = found and entry.end - found[0].start > LOOK_BYTES
            if (is_more and entry.start >= end) or (entry.start in self.damage and found):
                break
            found.append(entry)
        return found

    def _keep(self, first: int, data: bytes) -> None:
        if first not in self._pieces:
            insort(self._starts, first)
        piece = _Piece(data, first + len(data), self._clock())
        self._pieces[first] = piece
        self._kept.add(piece, len(data))
        if len(self._starts) > KNOWN_MAX:
            self._drop(next(iter(self._pieces)))

    def _entries(self, segment: Segment, start: int, end: int) -> list[RangeSum]:
        """The ranges that [start, end) lies in, as far as they have sums."""
        known: Sequence[RangeSum] | None = self._tail
        if not (known and known[0].start <= start and end <= known[-1].end):
            known = self._sums.around(start, end)
        if known is None:
            late = segment.unwritten.copy()  # before the file is read: none is missed in between
            known = sums.covering(sums.sums_path(segment.path), start, end, _TAIL)
            _continue(known, start, late)
            self._sums.keep(known)
        begin = bisect_right(known, start, key=_start_of) - 1
        return [known[at] for at in range(max(begin, 0), bisect_left(known, end, key=_start_of))]

    def compare(self, segment: Segment, start: int, end: int) -> None:
        """Compare the ranges that [start, end) lies in, whatever was found before.

        Raises:
            DamagedError: one is not what was flushed.
        """
        found = list(find_damage(segment, start, end, self._entries(segment, start, end)))
        still = {item.start for item in found}
        for at in [at for at in self.damage if start <= at < end and at not in still]:
            del self.damage[at]
        for item in found:
            self._note(item)
        if found:
            raise DamagedError(found[0])

    def _look_at(self, segment: Segment, entry: RangeSum) -> None:
        for item in find_damage(segment, entry.start, entry.end, [entry]):
            self._note(item)

    def _note(self, damage: Damage) -> None:
        if damage.start not in self.damage and len(self.damage) < DAMAGE_MAX:
            self.damage[damage.start] = damage
            self.found += 1
            self.on_damage(damage)


def holds(damage: Damage) -> list[str]:
    """The queues and messages that a damaged range seems to hold, as far as it reads."""
    found: dict[tuple[str, int], list[int]] = {}
    with suppress(OSError, RecordError):
        with damage.path.open("rb") as file:
            file.seek(damage.start - segment_start(damage.path))
            data = file.read(damage.length)
        at = 0
        while at < len(data):
            unit = parse_unit(data, at, damage.start + at, check_body=False)
            if unit.record is not None:
                queue = (unit.record.topic, unit.record.queue_id)
                found.setdefault(queue, []).append(unit.record.queue_offset)
            at += unit.size
    return [
        f"{topic} queue {queue_id}: {min(numbers)} to {max(numbers)}"
        for (topic, queue_id), numbers in sorted(found.items())[:_QUEUES_SHOWN]
    ]


def find_damage(
    segment: Segment, start: int, end: int, entries: Iterable[RangeSum]
) -> Iterable[Damage]:
    """The ranges among ``entries`` that are not as flushed, and what of [start, end) has none."""
    covered = start
    for entry in entries:
        try:
            crc = sums.range_crc(segment.descriptor, entry.start - segment.start, entry.length)
            if crc != entry.crc:
                yield _damage(segment, entry, *locate_damage(segment, entry))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            reason = f"the {entry.length} bytes from here on cannot be read"
            yield _damage(segment, entry, entry.start, reason)
        covered = entry.end
    if covered < end:
        reason = f"the checksums of {end - covered} bytes from here on are gone"
        position = covered - segment.start
        yield Damage(segment.path, position, covered, end - covered, None, reason)


def _damage(segment: Segment, entry: RangeSum, offset: int, reason: str) -> Damage:
    start, length, crc = entry
    return Damage(segment.path, offset - segment.start, start, length, crc, reason)


def read_checked(path: str, parts: Iterable[tuple[int, int]]) -> list[bytes]:
    """Flushed parts of one segment (position and size), for other threads and processes.

    Raises:
        DamagedError: one is not what was flushed.
        OSError: the disk failed, or the file is gone.
    """
    segment = Segment(Path(path), segment_start(Path(path)), 0)
    try:
        return [_part(segment, segment.start + position, size) for position, size in parts]
    finally:
        segment.close()


def _part(segment: Segment, start: int, size: int) -> bytes:
    end = start + size
    entries = sums.covering(sums.sums_path(segment.path), start, end)
    if entries and entries[-1].end >= end:
        first = entries[0].start
        data = _tried(_read, segment, first, entries[-1].end - first)
        if data is not None and _is_match(data, first, entries):
            return data[start - first : end - first]
    for damage in find_damage(segment, start, end, entries):
        raise DamagedError(damage)
    return os.pread(segment.descriptor, size, start - segment.start)  # a look that failed once


def _continue(found: list[RangeSum], start: int, late: Iterable[RangeSum]) -> None:
    """Add the sums in ``late`` that follow those ``found`` from ``start`` on, without a gap."""
    for entry in late:
        reached = found[-1].end if found else start
        if entry.start <= reached < entry.end:
            found.append(entry)


def _start_of(entry: RangeSum) -> int:
    return entry.start


def _is_match(data: bytes, first: int, entries: Iterable[RangeSum]) -> bool:
    return all(
        google_crc32c.value(data[entry.start - first : entry.end - first]) == entry.crc
        for entry in entries
    )


def _tried(read: Read, segment: Segment, start: int, size: int) -> bytes | None:
    """What ``read`` finds; nothing where the disk cannot read it, which is looked at closer."""
    try:
        return read(segment, start, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


def _read(segment: Segment, start: int, size: int) -> bytes:
    return os.pread(segment.descriptor, size, start - segment.start)


def read_now(segment: Segment, start: int, size: int) -> bytes | None:
    """The bytes, if all are in memory, else None; where the system cannot tell, it waits."""
    assert NO_WAIT is not None
    if size > len(_buffer):
        _buffer.extend(bytes(size - len(_buffer)))
    position = start - segment.start
    with memoryview(_buffer) as whole, whole[:size] as data:
        try:
            count = os.preadv(segment.descriptor, (data,), position, NO_WAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EIO:
                return None  # whoever waits for it finds out
            if error.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(segment.descriptor, size, position)
        return bytes(data) if count == size else None
