"""Bytes of segments, batches and records.

A segment file is zero-filled to its full size before it is used, and begins with a header:

    magic 8 | version u32 | sequence u64 | size u64 | chain u32 | batch u64 | crc32c u32

(kept by every later version, so that a newer file can be told from a damaged one).
``chain`` is the checksum of the last record of the segment before, ``batch`` the number of the
first batch in this one. Then batches follow without gaps. Every record is

    length u32 | crc32c u32 | body              body = type u8, fields

and its checksum continues the one before it (the first continues the header's), so a record is
valid only behind exactly the records it was written behind: neither the rest of an older batch nor
a record of another file can pass. Types:

    1, 2  entry        as encoded by the leader that made it (``raft.messages``)
    16    hard state   term u64, vote u32 (0: nobody), commit u64, voting u8, 0xFF
    17    truncate     index u64: the entries from there on are replaced; 0xFF
    18    floor        begins a batch: mark 8, batch u64, own offset u64, size of the rest u32,
                       crc32c u32 of all that, 0xFF
    19    marker       a snapshot is durable, and the log begins behind a base (``raft.snapshot``):
                       index u64, term u64, base index u64, base term u64, end of the log u64,
                       restart u8, 0xFF

One batch is one write and one sync, and counts only as a whole. The floor says that everything
before it is durable, as the next batch is written only after the sync of the one before. It has a
checksum of its own, so that it can be found behind damaged bytes. Every batch ends in a hard state,
hence in 0xFF: a write that was cut short is seen by its zeros.
"""

import struct

import msgspec
from gantry_protocol.types import Index, NodeId, Term
from google_crc32c import extend, value

from gantry_controller.raft.messages import Entry, HardState
from gantry_controller.raft.snapshot import Base, Marker

VERSION = 1
MAGIC = b"GANTRWAL"

_HEADER = struct.Struct(">8sIQQIQ")
_CRC = struct.Struct(">I")
HEADER_SIZE = _HEADER.size + _CRC.size

RECORD = struct.Struct(">II")  # length, crc
_HARD_STATE = struct.Struct(">BQIQ?B")
_TRUNCATE = struct.Struct(">BQB")
_MARKER = struct.Struct(">BQQQQQ?B")
_FLOOR = struct.Struct(">B8sQQI")
FLOOR_MARK = b"\x9fFLOOR\xe7\x1d"
FLOOR_SIZE = RECORD.size + _FLOOR.size + _CRC.size + 1
_END = 0xFF

TYPE_HARD_STATE = 16
TYPE_TRUNCATE = 17
TYPE_FLOOR = 18
TYPE_MARKER = 19

SECTOR = 512  # what a disk writes wholly or not at all

WAY_OUT = (
    "this node must not vote with it: restore the file, or, if the other voters are healthy, start "
    "this node once with --rejoin, and they will fill it again"
)
"""Ends every sentence about damage; docs/controllers.md says more."""


class Header(msgspec.Struct, frozen=True):
    """A segment's header; see the module."""

    sequence: int
    size: int
    chain: int
    batch: int

    def encode(self) -> bytes:
        """The header's bytes with their checksum."""
        fixed = _HEADER.pack(MAGIC, VERSION, self.sequence, self.size, self.chain, self.batch)
        return fixed + _CRC.pack(value(fixed))

    @property
    def seed(self) -> int:
        """The checksum that the first record continues."""
        return _CRC.unpack(self.encode()[_HEADER.size :])[0]  # type: ignore[no-any-return]  # struct


class Floor(msgspec.Struct, frozen=True):
    """The record that begins a batch; ``size`` counts the bytes of the records behind it."""

    batch: int
    offset: int
    size: int


class Write(msgspec.Struct, frozen=True):
    """The writes of one ``Ready``: markers, then entries, then the hard state of all that."""

    entries: list[Entry]
    hard_state: HardState
    markers: list[Marker] = []


class Head(msgspec.Struct):
    """The end of the log, and what the next batch continues.

    Attributes:
        sequence: of the last segment.
        size: of that segment, bytes.
        offset: where the next batch goes.
        chain: checksum of the last record.
        batch: number of the next batch.
        last_index: of the last entry written; an entry at or below it replaces from there on.
    """

    sequence: int
    size: int
    offset: int
    chain: int
    batch: int
    last_index: int


def parse_header(data: bytes) -> Header | int | None:
    """The header of a segment; the version if it is another one; None if it is none."""
    if len(data) < HEADER_SIZE or data[: len(MAGIC)] != MAGIC:
        return None
    fixed, crc = data[: _HEADER.size], data[_HEADER.size : HEADER_SIZE]
    if _CRC.pack(value(fixed)) != crc:
        return None
    _, version, sequence, size, chain, batch = _HEADER.unpack(fixed)
    return Header(sequence, size, chain, batch) if version == VERSION else int(version)


def encode_batch(head: Head, writes: list[Write]) -> bytes:
    """One batch for the place ``head`` names; moves ``head`` behind it."""
    bodies: list[bytes] = []
    last_index = head.last_index
    for write in writes:
        for marker in write.markers:
            bodies.append(_marker_body(marker, last_index))
            last_index = marker.base.index if marker.restart else last_index
        if write.entries:
            if write.entries[0].index <= last_index:
                bodies.append(_TRUNCATE.pack(TYPE_TRUNCATE, write.entries[0].index, _END))
            bodies.extend(entry.encoded for entry in write.entries)
            last_index = write.entries[-1].index
    bodies.append(_hard_state_body(writes[-1].hard_state))
    size = sum(map(len, bodies)) + RECORD.size * len(bodies)
    chain = head.chain
    parts: list[bytes] = []
    for body in (_floor_body(Floor(head.batch, head.offset, size)), *bodies):
        chain = extend(chain, body)
        parts.append(RECORD.pack(len(body), chain))
        parts.append(body)
    head.offset += FLOOR_SIZE + size
    head.chain = chain
    head.batch += 1
    head.last_index = last_index
    return b"".join(parts)


def batch_size(writes: list[Write]) -> int:
    """An upper bound of the size of a batch with ``writes``."""
    size = FLOOR_SIZE + RECORD.size + _HARD_STATE.size
    for write in writes:
        size += RECORD.size + _TRUNCATE.size
        size += (RECORD.size + _MARKER.size) * len(write.markers)
        size += sum(RECORD.size + len(entry.encoded) for entry in write.entries)
    return size


def parse_floor(data: bytes, offset: int) -> Floor | None:
    """The floor at ``offset``, by its own checksum; None if there is none."""
    body = data[offset + RECORD.size : offset + FLOOR_SIZE]
    if len(body) != FLOOR_SIZE - RECORD.size or body[0] != TYPE_FLOOR:
        return None
    _, mark, batch, own_offset, size = _FLOOR.unpack_from(body)
    floor = Floor(batch, own_offset, size)
    good = mark == FLOOR_MARK and own_offset == offset and _floor_body(floor) == body
    return floor if good else None


def _floor_body(floor: Floor) -> bytes:
    fixed = _FLOOR.pack(TYPE_FLOOR, FLOOR_MARK, floor.batch, floor.offset, floor.size)
    return fixed + _CRC.pack(value(fixed)) + bytes([_END])


def _hard_state_body(hard: HardState) -> bytes:
    return _HARD_STATE.pack(
        TYPE_HARD_STATE, hard.term, hard.vote or 0, hard.commit, hard.voting, _END
    )


def _marker_body(marker: Marker, last_index: int) -> bytes:
    base = marker.base
    return _MARKER.pack(
        TYPE_MARKER,
        marker.index,
        marker.term,
        base.index,
        base.term,
        last_index,
        marker.restart,
        _END,
    )


def parse_marker(body: bytes) -> tuple[Marker, int]:
    """A marker record's content and the end of the log it was written behind."""
    _, index, term, base_index, base_term, last_index, restart, _ = _MARKER.unpack(body)
    base = Base(Index(base_index), Term(base_term))
    return Marker(Index(index), Term(term), base, restart), last_index


def parse_hard_state(body: bytes) -> HardState:
    """A hard state record's content; its checksum has been verified."""
    _, term, vote, commit, voting, _ = _HARD_STATE.unpack(body)
    return HardState(Term(term), NodeId(vote) if vote else None, Index(commit), voting)


def parse_truncate(body: bytes) -> int:
    """A truncate record's index; its checksum has been verified."""
    return int(_TRUNCATE.unpack(body)[1])
