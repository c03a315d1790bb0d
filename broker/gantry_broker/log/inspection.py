"""Reading a log's files without opening the log: to show what stands in them, or to judge them.

Nothing is written, locked or repaired, so a broker may be running on the same directory: what it
appends meanwhile is not looked at, and a file that it trims is passed over. The judgement is that
of ``recovery`` with one difference: it does not stop at the first damage, because who looks wants
to know how much there is. Damage is what was on the disk once (the floor of the checkpoint and the
sums say so) and is not there any more; a torn end, an unfinished cut and files that a trim left
behind are notes, and a start mends them.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from gantry_protocol.errors import DataDirError, RecordError
from gantry_protocol.records import MAX_RECORD_BYTES

from gantry_broker.log import checkpoint, cutting, sums
from gantry_broker.log.checked import Damage, holds
from gantry_broker.log.recovery import locate_damage
from gantry_broker.log.segments import Segment, list_orphans, list_segments
from gantry_broker.log.units import Unit, parse_unit

_WINDOW_BYTES = MAX_RECORD_BYTES + 4 * 1024 * 1024
_READ_BYTES = 1024 * 1024

Advance = Callable[[int], None]


class Finding(msgspec.Struct, frozen=True):
    """Something to know about a log.

    Attributes:
        file: where it stands.
        position: byte in the file.
        offset: byte in the log.
        text: what it is, without a full stop.
    """

    file: str
    position: int
    offset: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}: byte {self.position} (log offset {self.offset}): {self.text}."


class LogVerdict(msgspec.Struct):
    """The findings in a log.

    Attributes:
        start, end: the log holds [start, end), as far as it is sound.
        confirm_floor: everything below was acknowledged once.
        covered: everything below has checksums that were compared.
        files, records: how many, up to ``end``.
        damage: what is lost or changed; none when the log is sound.
        notes: what the next start puts right.
    """

    start: int
    end: int
    confirm_floor: int
    covered: int
    files: int = 0
    records: int = 0
    damage: list[Finding] = []
    notes: list[Finding] = []


class LogFiles:
    """The files of one log as they were when this was made.

    Args:
        directory: a broker's data directory, its ``store`` directory, or the log itself.

    Raises:
        DataDirError: there is no log.
        CorruptionError: its checkpoint is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = _find(directory)
        self.saved = checkpoint.load(self.directory / cutting.CHECKPOINT_NAME)
        # Sums before sizes: an entry is written when its bytes are there, so none points beyond.
        self.sums = {
            segment.start: sums.load(sums.sums_path(segment.path), segment.start)
            for segment in list_segments(self.directory)
        }
        self.segments: list[Segment] = []
        self.trimmed: list[Segment] = []
        for segment in list_segments(self.directory):
            if segment.start in self.sums:
                is_below = segment.start < self.saved.log_start
                (self.trimmed if is_below else self.segments).append(segment)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that are part of the log."""
        return sum(segment.size for segment in self.segments)

    def units(self, start: int, end: int) -> Iterator[tuple[Segment, int, Unit, bytes]]:
        """Segment, log offset, unit and bytes of all that begins in [start, end).

        Raises:
            RecordError: something is no whole record; the sentence names file and byte.
        """
        for segment in self.segments:
            if segment.end <= start or segment.start >= end:
                continue
            try:
                for offset, unit, data in _walk(segment, self._boundary(segment, start)):
                    if offset >= end:
                        return
                    if offset >= start:
                        yield segment, offset, unit, data
            except _NotWholeError as error:
                raise RecordError(str(_finding(segment, error.offset, error.reason))) from error
            finally:
                segment.close()

    def _boundary(self, segment: Segment, offset: int) -> int:
        """A place at or before ``offset`` where a record begins; checked ranges begin so."""
        starts = [item.start for item in self.sums[segment.start].chain if item.start <= offset]
        return starts[-1] if starts else segment.start

    def verify(self, advance: Advance = lambda _: None) -> LogVerdict:
        """Compare every byte with its checksum, and every record with itself.

        Args:
            advance: told now and then how many more bytes of the files were looked at.
        """
        found = LogVerdict(self.saved.log_start, self.saved.log_start, self.saved.confirm_floor, 0)
        for item in self.trimmed:
            found.notes.append(_finding(item, item.start, "lies below the log's start"))
        self._note_unfinished(found)
        orphans = [sums.load(path, start) for start, path in list_orphans(self.directory)]
        evidence = [*self.sums.values(), *orphans]
        durable = max([found.confirm_floor, *(item.durable for item in evidence)])
        is_connected = True
        for segment in self.segments:
            if is_connected and segment.start != found.end:
                is_connected = False
                self._judge_end(found, durable, f"the next file begins at {segment.start}")
            try:
                self._verify_segment(segment, durable, found, is_part=is_connected)
            except FileNotFoundError:
                found.notes.append(_finding(segment, segment.start, "was removed meanwhile"))
                found.end = segment.end
            is_connected = is_connected and found.end == segment.end
            advance(segment.size)
            segment.close()
        if is_connected:
            self._judge_end(found, durable, "the log ends here")
        return found

    def _note_unfinished(self, found: LogVerdict) -> None:
        cut = cutting.read_marker(self.directory)
        if cut is not None:
            path = self.directory / cutting.MARKER_NAME
            text = f"a cut to {cut.target} was decided and is not finished"
            found.notes.append(Finding(str(path), 0, cut.target, text))

    def _judge_end(self, found: LogVerdict, durable: int, what: str) -> None:
        if found.end < durable:
            path = next((str(s.path) for s in self.segments if s.end == found.end), self.directory)
            text = f"{what}, and it was flushed up to {durable}"
            found.damage.append(Finding(str(path), 0, found.end, text))

    def _verify_segment(
        self, segment: Segment, durable: int, found: LogVerdict, *, is_part: bool
    ) -> None:
        known = self.sums[segment.start]
        covered = known.covered or segment.start
        must_cover = min(found.confirm_floor, segment.end)
        if covered < must_cover:
            path = sums.sums_path(segment.path)
            text = f"these checksums must reach {must_cover}, the usable ones end at {covered}"
            found.damage.append(Finding(str(path), known.chain_bytes, covered, text))
        for entry in known.chain:
            position = entry.start - segment.start
            if sums.range_crc(segment.descriptor, position, entry.length) != entry.crc:
                found.damage.append(_damage(segment, entry))
            else:
                found.records += sum(
                    unit.record is not None for _, unit, _ in _walk(segment, entry.start, entry.end)
                )
        if not is_part:
            found.notes.append(_finding(segment, segment.start, "is not connected with the log"))
            return
        found.files += 1
        found.covered = found.end = covered
        self._verify_tail(segment, durable, found)

    def _verify_tail(self, segment: Segment, durable: int, found: LogVerdict) -> None:
        """What has no checksum yet, or none any more: the records have to speak for themselves."""
        try:
            for offset, unit, _ in _walk(segment, found.end):
                found.records += unit.record is not None
                found.end = offset + unit.size
        except _NotWholeError as error:
            if error.offset < durable:
                found.damage.append(_finding(segment, error.offset, error.reason))
            else:
                text = f"{error.reason}; nothing from here on was ever acknowledged"
                found.notes.append(_finding(segment, error.offset, text))


class _NotWholeError(Exception):
    """What begins at ``offset`` is no whole unit."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


def _walk(
    segment: Segment, start: int, end: int | None = None
) -> Iterator[tuple[int, Unit, bytes]]:
    """Log offset, unit and bytes from ``start`` on, up to ``end`` or the size the file had.

    Without ``end``, zeros up to that size end it: they are room for what was going to be appended.

    Raises:
        _NotWholeError: something there is none.
    """
    position = start - segment.start
    stop = segment.size if end is None else min(end - segment.start, segment.size)
    window, window_at = b"", 0
    while position < stop:
        rest = window_at + len(window) - position
        if rest < MAX_RECORD_BYTES and window_at + len(window) < stop:
            length = min(_WINDOW_BYTES, stop - position)
            window, window_at = os.pread(segment.descriptor, length, position), position
        at = position - window_at
        offset = segment.start + position
        try:
            unit = parse_unit(window, at, offset)
            if position + unit.size > stop:
                raise RecordError("the blank that ends the file is cut short")
        except RecordError as error:
            if end is None and _is_room(segment, position):
                return
            raise _NotWholeError(offset, str(error)) from error
        yield offset, unit, window[at : at + unit.size]
        position += unit.size


def _is_room(segment: Segment, position: int) -> bool:
    """Whether only zeros stand from ``position`` to the size the file had."""
    while position < segment.size:
        data = os.pread(segment.descriptor, min(_READ_BYTES, segment.size - position), position)
        if not data or data.count(0) < len(data):
            return not data
        position += len(data)
    return True


def _find(directory: Path) -> Path:
    for path in (directory, directory / "commitlog", directory / "store" / "commitlog"):
        if (path / cutting.CHECKPOINT_NAME).is_file():
            return path
    raise DataDirError(
        f"{directory} holds no commit log: name a broker's data directory (it has store/commitlog)"
        " or the commitlog directory itself."
    )


def _damage(segment: Segment, entry: sums.RangeSum) -> Finding:
    """The record that is not whole, or the range and what it seems to hold."""
    offset, text = locate_damage(segment, entry)
    position = entry.start - segment.start
    held = holds(Damage(segment.path, position, *entry, text))
    return _finding(segment, offset, f"{text}; the range holds {', '.join(held) or 'no record'}")


def _finding(segment: Segment, offset: int, text: str) -> Finding:
    return Finding(str(segment.path), offset - segment.start, offset, text)
