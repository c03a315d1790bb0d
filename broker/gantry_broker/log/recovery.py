"""Opening a log after any end of the process, and telling damage from a torn tail.

Three pieces of evidence say how far the log was on the disk: the confirm floor of the checkpoint,
the floor the caller knows, and every valid range sum. Their highest is the *durable* offset.

* Below it, every byte must be there and match its sum. If not, that is damage: one sentence names
  file and offset, nothing is changed, and the process ends. Cutting would turn one bad sector into
  the silent loss of records that were acknowledged. Who can have bytes of others is told instead of
  ranges that differ, and of a stretch without sums in which a record cannot be read: it is there,
  nobody knows what it was, and it counts as one range up to the durable offset.
* Above it, the units are judged one by one (``units``) and the log ends before the first that is
  not whole. It was never acknowledged, since an acknowledgement follows the sync; unless it rotted
  and the power took its sum, which nothing here can tell: the volume is an older copy then.

Everything is judged before anything is changed. Segments that end below the newest
``VERIFY_AT_START_BYTES`` are not read at start; ``CommitLog.verify`` reads them, in the background.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.process.files import fsync_directory
from gantry_protocol.records import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, MAX_RECORD_BYTES
from gantry_protocol.types import Offset

from gantry_broker.log import sums
from gantry_broker.log.segments import Segment, list_orphans, segment_path
from gantry_broker.log.units import HEAD_BYTES, check_units, parse_unit, stands_at

VERIFY_AT_START_BYTES = 1024 * 1024 * 1024  # under a second from a warm cache, five from a disk
_PAGE_BYTES = 4096  # of a file; a disk that cannot read some bytes can read other pages
_WINDOW_BYTES = MAX_RECORD_BYTES + 4 * 1024 * 1024
PAUSE_BYTES = 8 * 1024 * 1024
_MAX_COVER_BYTES = 4 * 1024 * 1024
UNREADABLE_MAX_BYTES = 64 * 1024 * 1024  # sums are synced twice a second: a fast disk's half second
_MAGIC = re.compile(
    b"|".join(re.escape(magic.to_bytes(4)) for magic in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC))
)
_MAGIC_AT = 4
Damaged = Callable[[sums.RangeSum], None]
_ADVICE = "nothing was changed, restore the file from a copy or give this broker an empty volume"


class Floors:
    """Offsets below which the log must be whole.

    Attributes:
        synced: the checkpoint's floor; the sums were on the disk before it was written.
        durable: below this every byte of the log was on the disk.
    """

    __slots__ = ("durable", "synced")

    def __init__(self, synced: Offset, durable: Offset) -> None:
        self.synced = synced
        self.durable = durable


class _Piece(NamedTuple):
    """A unit that has no sum, or a stretch that cannot be read."""

    start: int
    size: int
    is_blank: bool = False
    is_readable: bool = True


class _Found:
    """What recovery will make of one segment; ``entries`` with CRC -1 are still to be computed."""

    __slots__ = ("entries", "is_sealed", "loaded", "segment", "valid_end")

    def __init__(self, segment: Segment, loaded: sums.LoadedSums) -> None:
        self.segment = segment
        self.loaded = loaded
        self.entries = list(loaded.chain)
        self.valid_end = loaded.covered or segment.start
        self.is_sealed = False


def recover(
    directory: Path,
    segments: list[Segment],
    log_start: Offset,
    floors: Floors,
    damaged: Damaged | None = None,
) -> tuple[list[Segment], Offset, list[sums.RangeSum]]:
    """Judge ``segments``, repair them, and return those that make up the log.

    On return all of it is flushed, covered by sums, and each segment knows whether it is sealed.

    Returns:
        The segments, the offset from which on they were compared with their sums, and the ranges
        that had none and were given one: whole records, by their own checks only.

    Args:
        directory: where the segments stand.
        segments: what the directory holds, oldest first.
        log_start: where the log must begin.
        floors: how far it must be whole; evidence found in the sums raises ``durable``.
        damaged: told of ranges that do not match their sums, where the log may be opened with them.

    Raises:
        CorruptionError: damage below the durable offset.
    """
    loaded = [sums.load(sums.sums_path(segment.path), segment.start) for segment in segments]
    orphans = list_orphans(directory)  # as evidence for their segment, not yet as leftovers
    evidence = [*loaded, *(sums.load(path, start) for start, path in orphans)]
    floors.durable = Offset(max([floors.durable, *(found.durable for found in evidence)]))
    kept: list[_Found] = []
    end, starts = log_start, {segment.start for segment in segments}
    for segment, found in zip(segments, loaded, strict=True):
        if segment.start != end or (kept and not kept[-1].is_sealed):
            break
        is_followed = segment.end in starts
        kept.append(
            _judge(segment, found, floors, is_followed=is_followed, keeps=damaged is not None)
        )
        end = Offset(kept[-1].valid_end)
    if end < floors.durable:
        raise _missing(directory, kept, end, floors.durable)
    verified_from = _verify_newest([judged.segment for judged in kept], log_start, damaged)
    for segment in reversed(segments[len(kept) :]):
        segment.remove()
    for _, path in orphans:
        path.unlink()
    for judged in kept:
        _repair(judged, floors.synced)
    unproved = [entry for judged in kept for entry in judged.entries[len(judged.loaded.chain) :]]
    if damaged is not None:
        for entry in unproved:
            if entry.crc == sums.UNKNOWN:
                damaged(entry)
    return [judged.segment for judged in kept], verified_from, unproved


def _missing(directory: Path, kept: list[_Found], end: Offset, durable: Offset) -> CorruptionError:
    """Name the place where flushed bytes ought to be."""
    if kept and not kept[-1].is_sealed:
        path, position = kept[-1].segment.path, end - kept[-1].segment.start
    else:
        path, position = segment_path(directory, end), 0
    return CorruptionError(
        path, position, f"the log ends at {end} and was flushed up to {durable}; {_ADVICE}"
    )


def _judge(
    segment: Segment, loaded: sums.LoadedSums, floors: Floors, *, is_followed: bool, keeps: bool
) -> _Found:
    """Find the valid end of one segment without changing anything."""
    found = _Found(segment, loaded)
    covered = found.valid_end
    if covered > segment.end:
        raise CorruptionError(
            segment.path,
            segment.size,
            f"{covered - segment.end} flushed bytes are missing behind this one; {_ADVICE}",
        )
    must_cover = min(floors.synced, segment.end)
    if covered < must_cover:
        raise CorruptionError(
            sums.sums_path(segment.path),
            loaded.chain_bytes,
            f"these checksums must reach log offset {must_cover}, the usable ones end at"
            f" {covered}; {_ADVICE}",
        )
    if covered > segment.start:
        found.is_sealed = _ends_in_blank(
            segment, loaded.chain[-1], is_followed=is_followed, keeps=keeps
        )
    for piece in _tail(segment, Offset(covered), floors.durable, keeps=keeps):
        found.valid_end = piece.start + piece.size
        found.is_sealed = piece.is_blank
        _extend_cover(found.entries, piece)
    return found


def _extend_cover(entries: list[sums.RangeSum], piece: _Piece) -> None:
    """Plan an entry for a unit, joined to the planned one before it while that stays small."""
    start, end = piece.start, piece.start + piece.size
    if not piece.is_readable:
        entries.append(sums.RangeSum(start, end - start, sums.UNKNOWN))
        return
    if entries and entries[-1].crc < 0 and end - entries[-1].start <= _MAX_COVER_BYTES:
        start = entries.pop().start
    entries.append(sums.RangeSum(start, end - start, -1))


def _repair(found: _Found, synced: Offset) -> None:
    """Cut the torn tail, make what is kept durable, and make the sums say exactly that.

    What the process before us could not sync is still read as it was written: after EIO the kernel
    takes the pages for clean, and a sync of ours would succeed without a byte reaching the disk.
    So whatever no checkpoint below ``synced`` vouches for is written again: bytes without a sum
    (a sum follows a sync that succeeded), and the sums.
    """
    segment, entries, covered_count = found.segment, found.entries, len(found.loaded.chain)
    segment.is_sealed = found.is_sealed
    segment.sums_bytes = found.loaded.chain_bytes
    if found.valid_end < segment.end:
        segment.cut(found.valid_end - segment.start)
    is_vouched_for = len(entries) == covered_count and segment.end <= synced
    if entries and found.loaded.is_clean and is_vouched_for:
        return  # not where nothing is kept: of an empty file not even the name may be durable
    for start, length, _ in entries[covered_count:]:
        segment.write_again(start - segment.start, length)
    os.fsync(segment.descriptor)
    fsync_directory(segment.path.parent)  # the file may be new; its sums must not outlive it
    for index in range(covered_count, len(entries)):
        start, length, crc = entries[index]
        if crc < 0:
            crc = sums.range_crc(segment.descriptor, start - segment.start, length)
            entries[index] = sums.RangeSum(start, length, crc)
    segment.sums_bytes = sums.write_all(sums.sums_path(segment.path), segment.start, entries)


def _tail(segment: Segment, covered: Offset, durable: Offset, *, keeps: bool) -> Iterator[_Piece]:
    """Pieces behind the covered part, up to the first unit that was never flushed.

    Raises:
        CorruptionError: a unit that begins below the durable offset is not whole, and does not
            count as unreadable up to there.
    """
    position = covered - segment.start
    window, window_at = b"", 0
    while position < segment.size:
        rest = window_at + len(window) - position
        if rest < MAX_RECORD_BYTES and window_at + len(window) < segment.size:
            window = _readable(segment, position, _WINDOW_BYTES)
            window_at = position
        offset = segment.start + position
        try:
            unit = parse_unit(window, position - window_at, offset)
            if position + unit.size > segment.size:
                raise RecordError("the blank that ends the file is cut short")
            piece = _Piece(offset, unit.size, is_blank=unit.is_blank)
        except RecordError as error:
            if offset >= durable:
                return
            size = durable - offset
            damage = CorruptionError(
                segment.path, position, f"{error} (log offset {offset}); {_ADVICE}"
            )
            if not keeps or size > UNREADABLE_MAX_BYTES or durable > segment.end:
                raise damage from error
            ending: bool | None = False
            if durable == segment.end:
                data = _readable(segment, position, size)
                ending = _ending_behind_damage(data, offset)
            if ending is None:
                raise damage from error
            piece = _Piece(offset, size, is_blank=ending, is_readable=False)
        yield piece
        position += piece.size


def _ends_in_blank(
    segment: Segment, last: sums.RangeSum, *, is_followed: bool, keeps: bool
) -> bool:
    """Whether the covered part ends in a blank; entries begin and end where units do.

    Where the range cannot be read, the file behind it says so, or the units that end it.

    Raises:
        CorruptionError: nothing says it, or damage is not borne.
    """
    data = _readable(segment, last.start - segment.start, last.length)
    at = 0
    is_blank = False
    try:
        while at < len(data):
            unit = parse_unit(data, at, last.start + at, check_body=False)
            is_blank = unit.is_blank
            at += unit.size
        if at == last.length:
            return is_blank
        raise RecordError("the last unit is longer than its range")
    except RecordError as error:
        if keeps and is_followed:
            return True
        ending = _ending_behind_damage(data, last.start) if keeps else None
        if ending is not None:
            return ending
        if keeps and last.crc == sums.UNKNOWN:  # other bytes followed it when it was noted
            return False
        raise damage_in(segment, last) from error


def _readable(segment: Segment, position: int, size: int) -> bytes:
    """The bytes there; zeros for pages that the disk cannot read, which are no unit.

    Raises:
        OSError: the disk fails otherwise.
    """
    try:
        return os.pread(segment.descriptor, size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        if size <= _PAGE_BYTES:
            return bytes(max(0, min(size, segment.size - position)))
    pages = range(position, position + size, _PAGE_BYTES)
    return b"".join(_readable(segment, at, min(_PAGE_BYTES, position + size - at)) for at in pages)


def _ending_behind_damage(data: bytes, start: int) -> bool | None:
    """Whether ``data`` ends in a blank, by whole units that reach up to its end.

    None where there are none. Each unit but a blank names its own place, and a blank its end, so
    others are not taken for them.
    """
    for magic in _MAGIC.finditer(data, 1 + _MAGIC_AT):
        at = magic.start() - _MAGIC_AT
        if stands_at(data[at : at + HEAD_BYTES], start + at, len(data) - at):
            with suppress(RecordError):
                return check_units(data[at:], start + at)
    return None


def _verify_newest(segments: list[Segment], log_start: Offset, damaged: Damaged | None) -> Offset:
    """Verify as much as may be read at start; returns the start of what was."""
    seen_bytes = 0
    for segment in reversed(segments):
        if seen_bytes >= VERIFY_AT_START_BYTES:
            return segment.end
        verify_segment(segment, damaged=damaged)
        seen_bytes += segment.size
    return log_start


def verify_below(
    segments: list[Segment],
    limit: Offset,
    pause: Callable[[], None] | None,
    is_trimmed: Callable[[Offset], bool],
    damaged: Damaged | None = None,
) -> None:
    """Verify what lies below ``limit``, beside others who use, add and trim the same segments."""
    for segment in segments:
        if segment.start >= limit:
            return
        copy = Segment(segment.path, segment.start, segment.size)  # descriptors of its own
        try:
            verify_segment(copy, limit=limit, pause=pause, damaged=damaged)
        except FileNotFoundError:
            if not is_trimmed(segment.start):
                raise
        finally:
            copy.close()


def verify_segment(
    segment: Segment,
    *,
    limit: Offset | None = None,
    pause: Callable[[], None] | None = None,
    damaged: Damaged | None = None,
) -> None:
    """Compare the covered bytes of ``segment`` with their sums.

    Args:
        segment: what to read.
        limit: look at ranges that end below it only; None looks at all.
        pause: called after every few MiB, to go easy on the disk; what it raises ends the work.
        damaged: told of each range that does not match; without it the first one raises.

    Raises:
        CorruptionError: naming the damaged record, or the range when every record looks whole.
    """
    loaded = sums.load(sums.sums_path(segment.path), segment.start)
    entries = [entry for entry in loaded.chain if limit is None or entry.end <= limit]
    for bad in sums.mismatches(segment.descriptor, segment.start, _paced(entries, pause)):
        if damaged is None:
            raise damage_in(segment, bad)
        damaged(bad)


def _paced(
    entries: list[sums.RangeSum], pause: Callable[[], None] | None
) -> Iterator[sums.RangeSum]:
    seen_bytes = 0
    for entry in entries:
        yield entry
        seen_bytes += entry.length
        if pause is not None and seen_bytes >= PAUSE_BYTES:
            seen_bytes = 0
            pause()


def damage_in(segment: Segment, entry: sums.RangeSum) -> CorruptionError:
    """The damage in a range that does not match its sum, placed as exactly as it can be."""
    try:
        offset, reason = locate_damage(segment, entry)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        offset, reason = entry.start, f"the {entry.length} bytes from here on cannot be read"
    return CorruptionError(
        segment.path, offset - segment.start, f"{reason} (log offset {offset}); {_ADVICE}"
    )


def locate_damage(segment: Segment, entry: sums.RangeSum) -> tuple[int, str]:
    """Log offset of the first record that is not whole, or of the range, and what is wrong."""
    data = os.pread(segment.descriptor, entry.length, entry.start - segment.start)
    at = 0
    try:
        while at < len(data):
            at += parse_unit(data, at, entry.start + at).size
    except RecordError as error:
        return entry.start + at, str(error)
    if entry.crc == sums.UNKNOWN:
        return entry.start, f"nobody knows here what the {entry.length} bytes from here on were"
    return entry.start, f"the {entry.length} bytes from here on do not match their checksum"
