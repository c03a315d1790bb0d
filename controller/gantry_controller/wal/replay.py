"""The records of a log, applied one after the other: what a reader knows so far.

The beginning may be missing: segments before the newest marker's base are released. Then where the
log begins is not known before the first record that tells it, and what stands before the base does
not matter. The rule protected here: a log whose records do not reach back to the newest marker's
base is not taken for a shorter one (``Replay.base``).
"""

import struct
from pathlib import Path

import msgspec

from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import Entry, HardState, parse_entry
from gantry_controller.raft.snapshot import Base, Marker
from gantry_controller.wal.format import (
    TYPE_HARD_STATE,
    TYPE_MARKER,
    TYPE_TRUNCATE,
    parse_hard_state,
    parse_marker,
    parse_truncate,
)


class SegmentUse(msgspec.Struct):
    """The part of the log that a segment still holds.

    Attributes:
        size_bytes: of the file.
        highest: the greatest index of an entry in it, replaced ones included; 0 once all are void.
        marked: the newest marker is in it.
    """

    path: Path
    size_bytes: int
    highest: int = 0
    marked: bool = False


def note_marker(segments: list[SegmentUse], marker: Marker) -> None:
    """The last of ``segments`` has got ``marker``."""
    for segment in segments:
        segment.marked = False
        if marker.restart:
            segment.highest = 0
    segments[-1].marked = True


class Replay:
    """A log as far as it was read; see the module.

    Attributes:
        entries: from the known beginning to the end.
        hard_state: the newest; None before the first.
        marker: the newest; None before the first.
        segments: read so far; the last one is being read.
    """

    def __init__(self, *, whole: bool) -> None:
        """``whole``: the first segment of all is the first to be read."""
        self.entries: list[Entry] = []
        self.hard_state: HardState | None = None
        self.marker: Marker | None = None
        self.segments: list[SegmentUse] = []
        self._begin: int | None = 0 if whole else None  # the entry before entries[0]

    @property
    def last_index(self) -> int:
        """The log's end; 0 while that is unknown."""
        return (self._begin or 0) + len(self.entries)

    @property
    def base(self) -> Base | None:
        """The beginning of the log; None if what is there does not reach back to it."""
        if self.marker is None:
            return Base() if self._begin == 0 else None
        return self.marker.base if self._begin == self.marker.base.index else None

    def record(self, body: bytes) -> None:
        """Apply one record.

        Raises:
            MessageError: it cannot stand here, or is of no known kind.
        """
        kind = body[0]
        try:
            if kind == TYPE_HARD_STATE:
                self.hard_state = parse_hard_state(body)
            elif kind == TYPE_TRUNCATE:
                self._truncate(parse_truncate(body))
            elif kind == TYPE_MARKER:
                self._mark(*parse_marker(body))
            else:
                self._append(parse_entry(body))
        except struct.error as error:
            raise MessageError(f"a record of kind {kind} with {len(body)} bytes: {error}") from None

    def _append(self, entry: Entry) -> None:
        if self._begin is None:
            self._begin = entry.index - 1
        if entry.index != self.last_index + 1:
            raise MessageError(
                f"entry {entry.index} stands where entry {self.last_index + 1} is due"
            )
        self.entries.append(entry)
        self.segments[-1].highest = max(self.segments[-1].highest, entry.index)

    def _truncate(self, index: int) -> None:
        if self.marker is not None and index <= self.marker.index:
            raise MessageError(f"entry {index} is replaced behind a snapshot that covers it")
        if self._begin is None or index <= self._begin:
            self._begin = index - 1
        del self.entries[index - self._begin - 1 :]

    def _mark(self, marker: Marker, last_index: int) -> None:
        if marker.restart:
            self.entries.clear()
            self._begin = marker.base.index
        elif self._begin is None:
            self._begin = last_index
        if not marker.restart and self.last_index != last_index:
            raise MessageError(
                f"a snapshot is noted behind entry {last_index}, but the log ends at "
                f"{self.last_index}"
            )
        self._drop_up_to(marker.base)
        self.marker = marker
        note_marker(self.segments, marker)

    def _drop_up_to(self, base: Base) -> None:
        """Let the log begin behind ``base``, unless less than that is known of it."""
        assert self._begin is not None
        count = base.index - self._begin
        if count > len(self.entries):
            raise MessageError(f"a snapshot lets the log begin at {base.index}, behind its end")
        if count > 0:
            if self.entries[count - 1].term != base.term:
                raise MessageError(f"entry {base.index} is not the one that a snapshot covers")
            del self.entries[:count]
            self._begin = base.index
