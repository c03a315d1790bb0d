"""Opening a log after any end of the process, and telling damage from a torn tail.

Three pieces of evidence say how far the log was on the disk: the confirm floor of the checkpoint,
the floor the caller knows, and every valid range sum. Their highest is the *durable* offset.

* Below it, every byte must be there and match its sum. If not, that is damage: one sentence names
  file and offset, nothing is changed, and the process ends. Cutting would turn one bad sector into
  the silent loss of records that were acknowledged.
* Above it, the units are judged one by one (``units``) and the log ends before the first that is
  not whole. It was never acknowledged, since an acknowledgement follows the sync; unless it rotted
  and the power took its sum, which nothing here can tell: the volume is an older copy then.

Everything is judged before anything is changed. Segments that end below the newest
``VERIFY_AT_START_BYTES`` are not read at start; ``CommitLog.verify`` reads them, in the background.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.process.files import fsync_directory
from gantry_protocol.records import MAX_RECORD_BYTES
from gantry_protocol.types import Offset

from gantry_broker.log import sums
from gantry_broker.log.segments import Segment, list_orphans, segment_path
from gantry_broker.log.units import Unit, parse_unit

VERIFY_AT_START_BYTES = 1024 * 1024 * 1024  # under a second from a warm cache, five from a disk
_WINDOW_BYTES = MAX_RECORD_BYTES + 4 * 1024 * 1024
PAUSE_BYTES = 8 * 1024 * 1024
_MAX_COVER_BYTES = 4 * 1024 * 1024
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
    end = log_start
    for segment, found in zip(segments, loaded, strict=True):
        if segment.start != end or (kept and not kept[-1].is_sealed):
            break
        kept.append(_judge(segment, found, floors))
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


def _judge(segment: Segment, loaded: sums.LoadedSums, floors: Floors) -> _Found:
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
        found.is_sealed = _ends_in_blank(segment, loaded.chain[-1])
    for start, unit in _tail_units(segment, Offset(covered), floors.durable):
        found.valid_end = start + unit.size
        found.is_sealed = unit.is_blank
        _extend_cover(found.entries, start, found.valid_end)
    return found


def _extend_cover(entries: list[sums.RangeSum], start: int, end: int) -> None:
    """Plan an entry for a unit, joined to the planned one before it while that stays small."""
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
        start, length, _ = entries[index]
        crc = sums.range_crc(segment.descriptor, start - segment.start, length)
        entries[index] = sums.RangeSum(start, length, crc)
    segment.sums_bytes = sums.write_all(sums.sums_path(segment.path), segment.start, entries)


def _tail_units(segment: Segment, covered: Offset, durable: Offset) -> Iterator[tuple[int, Unit]]:
    """Log offset and unit of the whole units behind the covered part.

    Raises:
        CorruptionError: one that begins below the durable offset is not whole.
    """
    position = covered - segment.start
    window, window_at = b"", 0
    while position < segment.size:
        rest = window_at + len(window) - position
        if rest < MAX_RECORD_BYTES and window_at + len(window) < segment.size:
            window = os.pread(segment.descriptor, _WINDOW_BYTES, position)
            window_at = position
        offset = segment.start + position
        try:
            unit = parse_unit(window, position - window_at, offset)
            if position + unit.size > segment.size:
                raise RecordError("the blank that ends the file is cut short")
        except RecordError as error:
            if offset < durable:
                raise CorruptionError(
                    segment.path, position, f"{error} (log offset {offset}); {_ADVICE}"
                ) from error
            return
        yield offset, unit
        position += unit.size


def _ends_in_blank(segment: Segment, last: sums.RangeSum) -> bool:
    """Whether the covered part ends in a blank; entries begin and end where units do."""
    position = last.start - segment.start
    data = os.pread(segment.descriptor, last.length, position)
    at = 0
    is_blank = False
    try:
        while at < len(data):
            unit = parse_unit(data, at, last.start + at, check_body=False)
            is_blank = unit.is_blank
            at += unit.size
    except RecordError as error:
        raise damage_in(segment, last) from error
    if at != last.length:
        raise damage_in(segment, last)
    return is_blank


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
    offset, reason = locate_damage(segment, entry)
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
