"""Packs: a range of the commit log, regrouped so that a queue's records lie together.

Rules protected: a pack holds every byte of its range once, untouched, so the log can be rebuilt
from it; what goes in is checked as strictly as what comes out (a record whose body does not match
its CRC never becomes an object that looks sound); any changed byte is found, with object and place.

What it refuses: log bytes that are no whole units, and packs that are not what their key says.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from mmap import mmap
from typing import NamedTuple

import google_crc32c

from gantry_protocol.errors import RecordError
from gantry_protocol.records import (
    BLANK_MAGIC,
    MAX_RECORD_BYTES,
    MessageRecord,
    RecordPeek,
    ScanKind,
    blank,
    decode_record,
    find_property,
    peek,
    scan,
    tags_code,
)
from gantry_protocol.records.layout import (
    FIXED,
    HOST_FAMILIES,
    MAGIC_V1,
    MAX_TOPIC_V1_BYTES,
    MIN_RECORD_BYTES,
)
from gantry_protocol.tier.damage import DamagedObject, NewerObject
from gantry_protocol.tier.footer import (
    MAGIC,
    MAX_BLANKS,
    MAX_FOOTER_BYTES,
    MAX_PACK_BYTES,
    MAX_RUNS,
    TRAILER,
    UNIT,
    Footer,
    Run,
    decode_footer,
    encode_footer,
)
from gantry_protocol.tier.keys import PackKey, Shard
from gantry_protocol.tier.manifests import PackEntry, Tail
from gantry_protocol.types import EpochEntry

SUM_BYTES = 256 * 1024  # summed at once; stays in a processor's cache
_HEAD = struct.Struct(">iI")
_TAGS = b"TAGS\x01"
# Of a record with IPv4 hosts: size, magic, CRC, queue id, (flag), queue offset, physical offset,
# system flag, (born time and host), store time, (store host, reconsume times, prepared offset),
# body size.
_COMMON = struct.Struct(">iIii4xqqi16xq20xi")
assert _COMMON.size == FIXED[0].size


class BuiltPack(NamedTuple):
    """A pack, ready to be stored and to be added to the manifest.

    Attributes:
        key: its name.
        data: the object; a mapping where another process made it.
        entry: what the manifest says of it.
        tail: the last record in it; None if it holds only blanks.
    """

    key: PackKey
    data: bytes | mmap
    entry: PackEntry
    tail: Tail | None


class _OpenRun:
    """A run that still grows."""

    __slots__ = ("first_qoff", "max_ts", "min_ts", "next_qoff", "order", "records", "size", "units")

    def __init__(self, first_qoff: int, store_ts: int, order: int) -> None:
        self.first_qoff = first_qoff
        self.next_qoff = first_qoff
        self.records: list[bytes] = []
        self.size = 0  # of the records together
        self.units: list[bytes] = []
        self.min_ts = self.max_ts = store_ts
        self.order = order  # physical offset of its first record


class _Grouped(NamedTuple):
    runs: list[tuple[bytes, int, _OpenRun]]  # topic, queue id, run
    blanks: list[tuple[int, int]]
    last: tuple[int, int] | None  # offset and size of the last record


def encode_pack(log: bytes, place: Shard, key: PackKey, lineage: Iterable[EpochEntry]) -> BuiltPack:
    """The pack of the log's bytes [key.lo, key.hi).

    Args:
        log: exactly those bytes; whole records, and blanks of which only the head need be right.
        place: whose log it is.
        key: the name it will have.
        lineage: the whole lineage of the log.

    Raises:
        RecordError: ``log`` holds something that is neither a sound record nor a blank; the offset
            is in the sentence. Nothing of it should be uploaded. Or it does not fit one pack.
    """
    assert len(log) == key.hi - key.lo
    found = _group(log, key.lo)
    topics = sorted({topic for topic, _, _ in found.runs})
    index = {topic: number for number, topic in enumerate(topics)}
    found.runs.sort(key=lambda run: (index[run[0]], run[1], run[2].order))
    parts, runs, at = [MAGIC], [], len(MAGIC)
    for topic, queue_id, run in found.runs:
        data = b"".join(run.records)
        run.records.clear()  # at most one copy more than the object itself
        parts.append(data)
        runs.append(
            Run(
                topic=index[topic],
                queue_id=queue_id,
                first_qoff=run.first_qoff,
                count=run.next_qoff - run.first_qoff,
                pos=at,
                length=len(data),
                min_ts=run.min_ts,
                max_ts=run.max_ts,
                crc32c=_sum(data),
                units=b"".join(run.units),
            )
        )
        at += len(data)
    covering = _covering(lineage, key.lo, key.hi)
    footer = Footer(
        shard=place.uid,
        epoch=key.pair.epoch,
        inc=key.pair.inc,
        nonce=key.nonce,
        cls=key.cls,
        lo=key.lo,
        hi=key.hi,
        lineage=covering,
        topics=[topic.decode() for topic in topics],
        blanks=found.blanks,
        runs=runs,
    )
    encoded = encode_footer(footer)
    if (
        at + len(encoded) > MAX_PACK_BYTES
        or len(encoded) - TRAILER.size > MAX_FOOTER_BYTES
        or len(runs) > MAX_RUNS
        or len(found.blanks) > MAX_BLANKS
    ):
        raise RecordError(
            f"The log from {key.lo} to {key.hi} does not fit one pack: {at + len(encoded)} bytes, "
            f"{len(encoded)} of them footer, {len(runs)} runs, {len(found.blanks)} blanks; take a "
            f"shorter range."
        )
    parts.append(encoded)
    data = b"".join(parts)
    tail = None
    if found.last is not None:
        offset, size = found.last
        record = log[offset - key.lo : offset - key.lo + size]
        tail = Tail(at=offset, size=size, crc=f"{google_crc32c.value(record):08x}")
    return BuiltPack(key, data, _entry(key, data, footer), tail)


def _entry(key: PackKey, data: bytes, footer: Footer) -> PackEntry:
    return PackEntry(
        key=str(key),
        lo=key.lo,
        hi=key.hi,
        cls=key.cls,
        epoch_first=footer.lineage[0][0],
        epoch_last=footer.lineage[-1][0],
        size=len(data),
        crc=f"{_sum(data):08x}",
        count=sum(run.count for run in footer.runs),
        min_ts=min((run.min_ts for run in footer.runs), default=0),
        max_ts=max((run.max_ts for run in footer.runs), default=0),
    )


def _sum(data: bytes) -> int:
    """CRC-32C in pieces: a whole pack at once would keep every other thread waiting for it."""
    extend, crc = google_crc32c.extend, 0
    for at in range(0, len(data), SUM_BYTES):
        crc = extend(crc, data[at : at + SUM_BYTES])
    return int(crc)


def _covering(lineage: Iterable[EpochEntry], lo: int, hi: int) -> list[tuple[int, int]]:
    """The entries under which [lo, hi) was written."""
    below: list[tuple[int, int]] = [
        (entry.epoch, entry.start_offset) for entry in lineage if entry.start_offset < hi
    ]
    while len(below) > 1 and below[1][1] <= lo:
        below.pop(0)
    assert below, "a log has a lineage before it has a record"
    assert below[0][1] <= lo, "a log has a lineage before it has a record"
    return below


def _group(log: bytes, lo: int) -> _Grouped:
    """The records of ``log`` by queue. One pass; a record is unpacked once and copied once."""
    runs: list[tuple[bytes, int, _OpenRun]] = []
    current: dict[tuple[bytes, int], _OpenRun] = {}
    blanks: list[tuple[int, int]] = []
    last, size = -1, 0
    pack_unit, hash_of = UNIT.pack, _tag_hash
    pos, end = 0, len(log)
    while pos < end:
        parts = _quick_parts(log, pos)
        if parts is None or parts[4] != lo + pos:
            if blank_size := _blank_size(log, pos):
                blanks.append((lo + pos, blank_size))
                pos += blank_size
                continue
            parts = _scanned_parts(log, pos, lo + pos)
        size, topic, queue_id, qoff, _, store_ts, properties = parts
        queue = (topic, queue_id)
        run = current.get(queue)
        if run is None or run.next_qoff != qoff:
            run = current[queue] = _OpenRun(qoff, store_ts, lo + pos)
            runs.append((topic, queue_id, run))
        run.units.append(pack_unit(run.size, size, hash_of(properties)))
        run.records.append(log[pos : pos + size])
        run.size += size
        run.next_qoff = qoff + 1
        if store_ts > run.max_ts:
            run.max_ts = store_ts
        elif store_ts < run.min_ts:
            run.min_ts = store_ts
        last = pos
        pos += size
    return _Grouped(runs, blanks, None if last < 0 else (lo + last, size))


def _blank_size(log: bytes, pos: int) -> int:
    """Bytes of the whole blank at ``pos``; 0 if there is none."""
    if len(log) - pos < _HEAD.size:
        return 0
    size, magic = _HEAD.unpack_from(log, pos)
    return size if magic == BLANK_MAGIC and _HEAD.size <= size <= len(log) - pos else 0


def _tag_hash(properties: bytes) -> int:
    at = properties.rfind(_TAGS)
    if at < 0:
        return 0
    if at == 0 or properties[at - 1] == 2:  # as mostly: the last that reads so is the property
        start = at + len(_TAGS)
        end = properties.find(b"\x02", start)
        if value := properties[start:] if end < 0 else properties[start:end]:
            return tags_code(value.decode("utf-8", "replace"))
    tags = find_property(properties, "TAGS")
    return 0 if tags is None else tags_code(tags)


class _Parts(NamedTuple):
    """What grouping and checking need of a record."""

    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_ts: int
    properties: bytes


def _quick_parts(data: bytes, pos: int) -> tuple[int, bytes, int, int, int, int, bytes] | None:
    """The parts of the record at ``pos``, if it is a common one (version 1, IPv4, ASCII) and sound.

    One unpacking where ``scan`` and ``peek`` need several: three times as fast. None says nothing;
    the judgement of those two counts then. The order is that of ``_Parts``.
    """
    left = len(data) - pos
    if left < MIN_RECORD_BYTES:
        return None
    size, magic, crc, queue_id, queue_offset, physical, sys_flag, store_ts, body_size = (
        _COMMON.unpack_from(data, pos)
    )
    if (
        magic != MAGIC_V1
        or sys_flag & HOST_FAMILIES
        or not _COMMON.size + body_size + 3 <= size <= left
        or size > MAX_RECORD_BYTES
        or body_size < 0
        or queue_id < 0
        or queue_offset < 0
        or store_ts < 0
    ):
        return None
    body = pos + _COMMON.size
    topic_at = body + body_size
    topic_size = data[topic_at]
    topic_end = topic_at + 1 + topic_size
    end = pos + size
    if not 0 < topic_size <= MAX_TOPIC_V1_BYTES or topic_end + 2 > end:
        return None
    topic = data[topic_at + 1 : topic_end]
    if (
        (data[topic_end] << 8 | data[topic_end + 1]) != end - topic_end - 2
        or zlib.crc32(data[body:topic_at]) & 0x7FFFFFFF != crc & 0xFFFFFFFF
        or not topic.isascii()
    ):
        return None
    return size, topic, queue_id, queue_offset, physical, store_ts, data[topic_end + 2 : end]


def _scanned_parts(log: bytes, pos: int, offset: int) -> _Parts:
    """The parts of the record at ``pos``, which stands in the log at ``offset``.

    Raises:
        RecordError: it is not sound, or stands elsewhere.
    """
    found = scan(log, pos, physical_offset=offset)
    if found.kind is not ScanKind.RECORD:
        raise RecordError(f"The log holds no sound record at {offset}: {found.reason}.")
    record = peek(log, pos)
    if not record.topic or "\ufffd" in record.topic:
        raise RecordError(f"The record at {offset} has no topic, or one that is not UTF-8.")
    if min(record.queue_id, record.queue_offset, record.store_timestamp) < 0:
        raise RecordError(f"The record at {offset} has a negative queue, offset or time.")
    return _peeked(record)


def _peeked(record: RecordPeek) -> _Parts:
    return _Parts(
        record.size,
        record.topic.encode(),
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.store_timestamp,
        record.properties,
    )


class RawRecord(NamedTuple):
    """A record of a run, not decoded.

    Attributes:
        data: its bytes, as in the log.
        queue_offset: its place in the queue.
        physical_offset: its place in the log.
        tag_hash: as in a consume queue.
    """

    data: memoryview
    queue_offset: int
    physical_offset: int
    tag_hash: int


def raw_records(data: bytes, footer: Footer, run: Run, place: Shard) -> Iterator[RawRecord]:
    """The records of a run, after its sum and then each one's place were checked.

    Args:
        data: the run's bytes, ``run.length`` of them from ``run.pos`` on.
        footer: of the pack.
        run: one of ``footer.runs``.
        place: whose pack it is.

    Raises:
        DamagedObject: names the pack and the first byte that is known to be wrong. Records that
            were yielded before are sound: the sum is compared first.
    """
    name = place.key(footer.key)
    if len(data) != run.length or google_crc32c.value(data) != run.crc32c:
        raise _blame(data, footer, run, name)
    topic = footer.topics[run.topic].encode()
    view = memoryview(data)
    for index, (position, size, tag_hash) in enumerate(UNIT.iter_unpack(run.units)):
        reason = _record_fault(data, footer, run, topic, index)
        if reason:
            raise DamagedObject(name, run.pos + position, reason)
        physical = int.from_bytes(view[position + 28 : position + 36], "big")
        yield RawRecord(
            view[position : position + size], run.first_qoff + index, physical, tag_hash
        )


def run_records(data: bytes, footer: Footer, run: Run, place: Shard) -> Iterator[MessageRecord]:
    """As :func:`raw_records`, decoded.

    Raises:
        DamagedObject: as there, or a record with text that is not UTF-8.
    """
    position = run.pos
    for raw in raw_records(data, footer, run, place):
        try:
            yield decode_record(raw.data, check_crc=False)
        except RecordError as error:
            raise DamagedObject(place.key(footer.key), position, str(error)) from error
        position += len(raw.data)


def _record_fault(data: bytes, footer: Footer, run: Run, topic: bytes, index: int) -> str | None:
    """Why the bytes are not the record that the unit stands for; None when they are."""
    position, size, tag_hash = UNIT.unpack_from(run.units, index * UNIT.size)
    parts = _quick_parts(data, position)
    if parts is None:
        found = scan(data, position)
        if found.kind is not ScanKind.RECORD:
            return found.reason
        parts = _peeked(peek(data, position))
    found_size, name, queue_id, queue_offset, physical, store_ts, properties = parts
    if found_size != size:
        return f"the unit says {size} bytes, the record has {found_size}"
    if name != topic or queue_id != run.queue_id:
        return f"the record is of {name.decode('utf-8', 'replace')} queue {queue_id}"
    if queue_offset != run.first_qoff + index:
        return f"queue offset {queue_offset} stands where {run.first_qoff + index} belongs"
    if not footer.lo <= physical <= footer.hi - size:
        return f"physical offset {physical} is outside of the pack"
    if not run.min_ts <= store_ts <= run.max_ts:
        return f"store time {store_ts} is outside of the run's"
    if _tag_hash(properties) != tag_hash:
        return f"the unit's tag hash {tag_hash} is not that of the record"
    return None


def _blame(data: bytes, footer: Footer, run: Run, name: str) -> DamagedObject:
    """The first record that is visibly wrong, else the run: its sum alone does not say where."""
    topic = footer.topics[run.topic].encode()
    for index, (position, _, _) in enumerate(UNIT.iter_unpack(run.units)):
        if reason := _record_fault(data, footer, run, topic, index):
            return DamagedObject(name, run.pos + position, reason)
    return DamagedObject(
        name,
        run.pos,
        f"the sum of the run of {footer.topics[run.topic]} queue {run.queue_id} "
        f"[{run.pos}, {run.end}) is {google_crc32c.value(bytes(data)):08x}, not {run.crc32c:08x}",
    )


def verify_pack(data: bytes, place: Shard, key: PackKey) -> Footer:
    """The footer of a whole pack in which every byte was checked.

    Raises:
        TierObjectError: the first thing that is wrong.
    """
    name = place.key(key)
    footer = decode_footer(data, len(data), place, key)
    if data[: len(MAGIC)] != MAGIC:
        if data[:3] == MAGIC[:3] and data[3:4].isdigit():
            raise NewerObject(name, 0, f"it begins with {data[:4].decode()!r}, not 'TPK1'")
        raise DamagedObject(name, 0, f"a pack begins with 'TPK1', this with {data[:4]!r}")
    spans = [(offset, length, 0) for offset, length in footer.blanks]
    for run in footer.runs:
        at = run.pos
        for raw in raw_records(data[run.pos : run.end], footer, run, place):
            spans.append((raw.physical_offset, len(raw.data), at))
            at += len(raw.data)
    spans.sort()
    end = footer.lo
    for offset, length, at in spans:
        if offset != end:
            raise DamagedObject(name, at, f"the log has [{offset}, …) after {end}: hole or overlap")
        end = offset + length
    return footer


def rebuild_log(data: bytes, place: Shard, key: PackKey) -> bytes:
    """The log's bytes [lo, hi) from a whole pack, after every byte of it was checked.

    Raises:
        TierObjectError: the first thing that is wrong.
    """
    footer = verify_pack(data, place, key)
    log = bytearray(footer.hi - footer.lo)
    for offset, length in footer.blanks:
        log[offset - footer.lo : offset - footer.lo + length] = blank(length)
    for run in footer.runs:
        for raw in raw_records(data[run.pos : run.end], footer, run, place):
            at = raw.physical_offset - footer.lo
            log[at : at + len(raw.data)] = raw.data
    return bytes(log)
