"""Cutting the end off a log so that a crash at any point ends in the cut, never beside it.

A file ``cut`` holding the target is written first, durably; then newer segments go, newest first,
then the sums and the bytes of the segment that holds the target. Only when all of that is durable
does the marker go. Every step can be done twice, so opening a log with a marker simply does them
again. Without the marker a crash could leave a whole newer segment behind a shortened older one.

A *reset* throws everything away and lets the log begin at the target; it goes the same way.
"""

import os
import struct
from pathlib import Path

import google_crc32c
import msgspec
from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.files import atomic_write, fsync_directory
from gantry_protocol.types import Offset

from gantry_broker.log import checkpoint, sums
from gantry_broker.log.segments import Segment, list_orphans, list_segments

_MARKER = struct.Struct(">4sIQI")  # magic, version, target, whether it is a reset
_CRC = struct.Struct(">I")
_MAGIC = b"GCUT"
_VERSION = 1
MARKER_NAME = "cut"
CHECKPOINT_NAME = "checkpoint"


class Cut(msgspec.Struct, frozen=True):
    """A cut to be done: keep what is below ``target``, or nothing at all."""

    target: Offset
    is_reset: bool = False


def write_marker(directory: Path, cut: Cut) -> None:
    """Decide the cut, durably."""
    head = _MARKER.pack(_MAGIC, _VERSION, cut.target, cut.is_reset)
    atomic_write(directory / MARKER_NAME, head + _CRC.pack(google_crc32c.value(head)))


def read_marker(directory: Path) -> Cut | None:
    """The cut that was decided and not finished.

    Raises:
        CorruptionError: the marker is not what was written.
    """
    path = directory / MARKER_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    head = data[: _MARKER.size]
    if len(head) != _MARKER.size or data != head + _CRC.pack(google_crc32c.value(head)):
        raise CorruptionError(path, 0, "the record of an unfinished cut fails its checksum")
    magic, version, target, is_reset = _MARKER.unpack(head)
    if (magic, version) != (_MAGIC, _VERSION):
        raise CorruptionError(path, 0, f"unknown kind {magic!r} version {version} of a cut")
    return Cut(Offset(target), bool(is_reset))


def still_due(segment: Segment, target: Offset) -> list[sums.RangeSum]:
    """The sums of what a cut will keep that wait for room; while all bytes are still there."""
    if not segment.unwritten:
        return []
    found = sums.load(sums.sums_path(segment.path), segment.start)
    below = _sums_below(segment, target, [*found.chain, *segment.unwritten])
    return [entry for entry in below if entry.start >= (found.covered or segment.start)]


def carry_out(directory: Path, cut: Cut) -> None:
    """Decide and finish a cut; durable on return."""
    write_marker(directory, cut)
    finish(directory, cut)


def finish(directory: Path, cut: Cut) -> None:
    """Carry out the cut that the marker decided; blocks until it is durable.

    Raises:
        CorruptionError: bytes below the target are missing; nothing more is cut.
    """
    kept = None
    for segment in reversed(list_segments(directory)):
        if not cut.is_reset and segment.start < cut.target:
            kept = segment
            break
        segment.remove()
    for start, path in list_orphans(directory):
        if cut.is_reset or start >= cut.target:
            path.unlink()
    if kept is not None:
        try:
            _shorten(kept, cut.target)
        finally:
            kept.close()
    if cut.is_reset:
        _restart_checkpoint(directory / CHECKPOINT_NAME, cut.target)
    fsync_directory(directory)
    (directory / MARKER_NAME).unlink()
    fsync_directory(directory)


def without_trimmed(directory: Path, saved: checkpoint.Checkpoint) -> list[Segment]:
    """The segments of the log, after those that a trim left behind were deleted.

    A trim makes the new start durable first, so whatever ends at or below it is no part of the log.
    Its sync may have failed, though, and the start be in the page cache only (docs/adr/0034): so it
    is written again, in both slots, before a file goes that an older start would ask for.
    """
    kept: list[Segment] = []
    trimmed: list[Segment] = []
    for segment in list_segments(directory):
        (trimmed if segment.start < saved.log_start >= segment.end else kept).append(segment)
    leftovers = [path for start, path in list_orphans(directory) if start < saved.log_start]
    if trimmed or leftovers:
        checkpoint.create(directory / CHECKPOINT_NAME, saved)
    for segment in trimmed:
        segment.remove()
    for path in leftovers:
        path.unlink()
    return kept


def _restart_checkpoint(path: Path, log_start: Offset) -> None:
    generation = checkpoint.load(path).generation + 1
    checkpoint.create(path, checkpoint.Checkpoint(generation, log_start, log_start))


def _shorten(segment: Segment, target: Offset) -> None:
    """Drop the segment's bytes from ``target`` on, and first the sums that cover them."""
    if segment.end < target:
        raise CorruptionError(
            segment.path,
            segment.size,
            f"the log ends at offset {segment.end} and was to be cut at {target}; restore the"
            " missing bytes from a copy or give this broker an empty volume",
        )
    path = sums.sums_path(segment.path)
    loaded = sums.load(path, segment.start)
    if not loaded.is_clean or loaded.durable > target:
        sums.write_all(path, segment.start, _sums_below(segment, target, loaded.chain))
    if segment.end > target:
        segment.cut(target - segment.start)


def _sums_below(
    segment: Segment, target: Offset, chain: list[sums.RangeSum]
) -> list[sums.RangeSum]:
    """The entries that cover the segment up to ``target``; a straddling one is made anew.

    Where its bytes are not what was flushed, what is kept of them gets no sum of its own.
    """
    kept = [entry for entry in chain if entry.end <= target]
    start = kept[-1].end if kept else segment.start
    if start < target:
        whole = next((entry for entry in chain if entry.start == start), None)
        if whole is not None and not sums.is_match(segment.descriptor, segment.start, whole):
            crc = sums.UNKNOWN
        else:
            crc = sums.range_crc(segment.descriptor, start - segment.start, target - start)
        os.fdatasync(segment.descriptor)
        kept.append(sums.RangeSum(start, target - start, crc))
    return kept
