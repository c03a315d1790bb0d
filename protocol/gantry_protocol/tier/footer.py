"""The footer of a pack: what the object holds and where, found from its last bytes.

Rule protected: every byte of a pack is covered by something that is checked (a magic, a run's sum,
the footer's sum), and every position, count and length in a footer is checked against the object
and against the others before anything is read through it.

What it refuses: a footer that another object could have, by shard and every part of the key. The
bytes are specified in ``docs/tier-format.md``.
"""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, NamedTuple

import google_crc32c
import msgspec

from gantry_protocol.records import BLANK_HEADER_BYTES, MAX_TOPIC_BYTES
from gantry_protocol.tier.damage import (
    DamagedObject,
    ForeignObject,
    NewerObject,
    TruncatedObject,
)
from gantry_protocol.tier.keys import MAX_EPOCH, MAX_INC, MAX_OFFSET, PackKey, Pair, Shard

FORMAT = 1
MAGIC = b"TPK1"
TRAILER = struct.Struct(">II4s")  # footer length, its CRC-32C, magic
UNIT = struct.Struct(">qiq")  # position within the run, record size, tag hash
TAIL_BYTES = 64 * 1024  # what a reader asks for first
MAX_PACK_BYTES = 256 * 1024 * 1024
MAX_FOOTER_BYTES = 64 * 1024 * 1024  # units are at most 20/91 of the runs
MAX_RUNS = 1_000_000
MAX_TOPICS = 1_000_000
MAX_LINEAGE = 65_536
MAX_BLANKS = 65_536

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
_Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOPIC_BYTES)]


class Run(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Consecutive records of one queue.

    Attributes:
        topic: index into the footer's topics.
        queue_id: the queue.
        first_qoff: queue offset of its first record.
        count: records.
        pos: byte of the pack where it begins.
        length: its bytes.
        min_ts, max_ts: store timestamps, ms.
        crc32c: of its bytes.
        units: one per record: position within the run, size, tag hash.
    """

    topic: _Int32
    queue_id: _Int32
    first_qoff: _Number
    count: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    pos: _Int32
    length: Annotated[int, msgspec.Meta(ge=1, le=MAX_PACK_BYTES)]
    min_ts: _Number
    max_ts: _Number
    crc32c: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    units: bytes

    @property
    def end(self) -> int:
        """One past its last byte in the pack."""
        return self.pos + self.length


class Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of a pack, by its own word; the fields of the specification, in its order."""

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    shard: str
    epoch: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)]
    inc: Annotated[int, msgspec.Meta(ge=0, le=MAX_INC)]
    nonce: str
    cls: int
    lo: _Number
    hi: _Number
    lineage: Annotated[
        list[tuple[_Number, _Number]], msgspec.Meta(min_length=1, max_length=MAX_LINEAGE)
    ]
    topics: Annotated[list[_Topic], msgspec.Meta(max_length=MAX_TOPICS)]
    blanks: Annotated[list[tuple[_Number, _Number]], msgspec.Meta(max_length=MAX_BLANKS)]
    runs: Annotated[list[Run], msgspec.Meta(max_length=MAX_RUNS)]

    @property
    def key(self) -> PackKey:
        """The name that belongs to it."""
        return PackKey(Pair(self.epoch, self.inc), self.lo, self.hi, self.cls, self.nonce)


class _Probe(msgspec.Struct):
    format: int


class Trailer(NamedTuple):
    """The place of the footer in the object, and its sum."""

    start: int
    end: int
    crc: int


_DECODER = msgspec.msgpack.Decoder(Footer)
_PROBE = msgspec.msgpack.Decoder(_Probe)
_ENCODER = msgspec.msgpack.Encoder()


def encode_footer(footer: Footer) -> bytes:
    """The footer with its trailer: everything that follows the runs."""
    body = _ENCODER.encode(footer)
    return body + TRAILER.pack(len(body), google_crc32c.value(body), MAGIC)


def read_trailer(tail: bytes, size: int, name: str) -> Trailer:
    """The place of the footer, from the last bytes of the object.

    If ``start`` lies below ``size - len(tail)``, read from ``start`` on and call again.

    Args:
        tail: the last bytes, at least the whole object or ``TAIL_BYTES``.
        size: of the object.
        name: of the object, for the sentence.

    Raises:
        TierObjectError: the object cannot be a whole pack.
    """
    if size > MAX_PACK_BYTES:
        raise DamagedObject(
            name, MAX_PACK_BYTES, f"it has {size} bytes, at most {MAX_PACK_BYTES} may be"
        )
    at = size - TRAILER.size
    if at < len(MAGIC) or len(tail) < TRAILER.size:
        raise TruncatedObject(name, size, f"a pack has more than {TRAILER.size} bytes")
    length, crc, magic = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    if magic != MAGIC:
        if magic[:3] == MAGIC[:3] and magic[3:4].isdigit():
            raise NewerObject(name, size - 4, f"it ends with {magic.decode()!r}, not 'TPK1'")
        raise TruncatedObject(
            name, size, f"a pack ends with 'TPK1', this ends with {magic!r}, or it was changed"
        )
    if not 0 < length <= min(MAX_FOOTER_BYTES, at - len(MAGIC)):
        raise DamagedObject(
            name, at, f"the footer claims {length} bytes where {at - len(MAGIC)} are"
        )
    return Trailer(at - length, at, crc)


def decode_footer(tail: bytes, size: int, place: Shard, key: PackKey) -> Footer:
    """The footer in the last bytes of the pack ``key`` of ``place``.

    Args:
        tail: the last bytes of the object; they reach down to the footer.
        size: of the object.
        place: whose pack it should be.
        key: the name it was read under.

    Raises:
        TierObjectError: which one says what is wrong with the object.
    """
    name = place.key(key)
    trailer = read_trailer(tail, size, name)
    base = size - len(tail)
    assert base <= trailer.start, "read on from the trailer's start first"
    body = bytes(memoryview(tail)[trailer.start - base : trailer.end - base])
    crc = google_crc32c.value(body)
    if crc != trailer.crc:
        raise DamagedObject(
            name,
            trailer.start,
            f"the footer's sum is {crc:08x}, its trailer says {trailer.crc:08x}",
        )
    try:
        probe = _PROBE.decode(body)
        if probe.format > FORMAT:
            raise NewerObject(
                name,
                trailer.start,
                f"it has format {probe.format}, this version reads format {FORMAT}",
            )
        footer = _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DamagedObject(name, trailer.start, f"the footer does not read ({error})") from error
    _check_identity(footer, place, key, name, trailer.start)
    if reason := _fault(footer, trailer.start):
        raise DamagedObject(name, trailer.start, reason)
    return footer


def _check_identity(footer: Footer, place: Shard, key: PackKey, name: str, at: int) -> None:
    if footer.shard != place.uid:
        raise ForeignObject(name, at, f"it is of shard {footer.shard[:80]}, not {place.uid}")
    if footer.key != key:
        raise ForeignObject(name, at, f"its footer belongs to {str(footer.key)[:200]}")


def _fault(footer: Footer, runs_end: int) -> str | None:
    """Why the parts cannot belong together; None when they do."""
    return (
        _lineage_fault(footer)
        or _blanks_fault(footer)
        or _topics_fault(footer)
        or _runs_fault(footer, runs_end)
        or _total_fault(footer)
    )


def _lineage_fault(footer: Footer) -> str | None:
    lineage = footer.lineage
    if lineage[0][1] > footer.lo or lineage[-1][1] >= footer.hi:
        return f"the lineage spans [{lineage[0][1]}, {lineage[-1][1]}], the pack [{footer.lo}, …)"
    for index, (before, after) in enumerate(pairwise(lineage)):
        if after[0] <= before[0] or after[1] <= max(before[1], footer.lo):
            return f"lineage entry {index + 1} does not rise"
    return None if lineage[-1][0] <= footer.epoch else "its lineage is ahead of its epoch"


def _blanks_fault(footer: Footer) -> str | None:
    end = footer.lo
    for index, (at, length) in enumerate(footer.blanks):
        if at < end or length < BLANK_HEADER_BYTES or at + length > footer.hi:
            return f"blank {index} is said to be [{at}, {at + length})"
        end = at + length
    return None


def _topics_fault(footer: Footer) -> str | None:
    names = [topic.encode() for topic in footer.topics]
    if any(after <= before for before, after in pairwise(names)):
        return "the topics are not sorted, or one comes twice"
    if any(len(name) > MAX_TOPIC_BYTES for name in names):
        return f"a topic has more than {MAX_TOPIC_BYTES} bytes"
    used = {run.topic for run in footer.runs}
    return None if used == set(range(len(names))) else "its runs and topics do not match"


def _runs_fault(footer: Footer, runs_end: int) -> str | None:
    at = len(MAGIC)
    queue = (-1, -1)
    for index, run in enumerate(footer.runs):
        if run.pos != at or run.end > runs_end:
            return f"run {index} is said to be [{run.pos}, {run.end}), the one before ends at {at}"
        if (run.topic, run.queue_id) < queue:
            return f"run {index} is out of order"
        if run.min_ts > run.max_ts or run.first_qoff + run.count > MAX_OFFSET:
            return f"run {index} has times or queue offsets that cannot be"
        if len(run.units) != run.count * UNIT.size:
            return f"run {index} has {run.count} records and {len(run.units)} bytes of units"
        if not _units_tile(UNIT.iter_unpack(run.units), run.length):
            return f"the units of run {index} do not cover it"
        at, queue = run.end, (run.topic, run.queue_id)
    return None if at == runs_end else f"the runs end at {at}, the footer begins at {runs_end}"


def _units_tile(units: Iterable[tuple[int, ...]], length: int) -> bool:
    end = 0
    for position, size, _tag in units:
        if position != end or size <= 0:
            return False
        end = position + size
    return end == length


def _total_fault(footer: Footer) -> str | None:
    total = sum(run.length for run in footer.runs) + sum(length for _, length in footer.blanks)
    if total != footer.hi - footer.lo:
        return f"runs and blanks have {total} bytes, [{footer.lo}, {footer.hi}) has another number"
    return None
