"""Reading queues: by position with a tag filter, by time, and the statuses a pull can end with.

Everything that is read is checked against its queue entry, so a damaged queue can make a read
fail and never deliver a wrong record.
"""

import struct
from collections.abc import Callable
from itertools import takewhile
from typing import TypeAlias

from gantry_protocol.errors import CorruptionError, RecordError
from gantry_protocol.records import BLANK_HEADER_BYTES, MAX_RECORD_BYTES
from gantry_protocol.records.layout import BORN_HOST_OFFSET, BORN_HOST_V6, SYS_FLAG_OFFSET
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog
from gantry_broker.log.checked import Damage, DamagedError
from gantry_broker.log.units import parse_unit, unit_size
from gantry_broker.queues.consume_queue import ConsumeQueue
from gantry_broker.queues.lite_index import LiteQueue
from gantry_broker.queues.rows import ENTRY, ENTRY_BYTES
from gantry_broker.store.contract import GetResult, GetStatus, ReadLimits

# Upstream examines 16,000 bytes of consume queue per pull, or 20 entries per wanted message.
_SCAN_ENTRIES = 800
_SCAN_PER_MESSAGE = 20
_STEP_ENTRIES = 256  # looked at before more are fetched, where a filter may let few through
_HEAD = struct.Struct(">i16xqq")  # size, queue offset, physical offset
_PLACE = struct.Struct(">iiq")  # queue id, flag and queue offset, behind the body's sum
_PLACE_AT = 12
_HEAD_BYTES = BORN_HOST_OFFSET + 20 + 8  # up to the store timestamp, whatever the born host
_INT32 = struct.Struct(">i")
Wanted: TypeAlias = list[tuple[int, int, int]]  # queue offset, log offset and size of records
Fetch = Callable[[Offset, int], bytes | None]  # of log offset and size
_INT64 = struct.Struct(">q")


class ColdError(Exception):
    """Records are not in memory.

    Attributes:
        places: log offset and size of what has to be read; nothing of it goes over a file's end.
    """

    def __init__(self, places: list[tuple[Offset, int]]) -> None:
        super().__init__(f"{len(places)} stretches of the log are not in memory")
        self.places = places


def get(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    limits: ReadLimits,
    codes: frozenset[int] | None,
    *,
    tiered: bool = False,
    fetch: Fetch | None = None,
) -> GetResult:
    """Records of ``queue`` from ``offset`` on.

    Args:
        log: holds them.
        queue: None when no record ever came.
        offset: queue offset to begin at.
        limits: how much to return.
        codes: tag codes to deliver; None delivers everything.
        tiered: what is below the queue's minimum may be asked of the tier.
        fetch: gives bytes of the log, or None where somebody would have to wait for them; without
            it the caller waits.

    Raises:
        ColdError: ``fetch`` gave None.
        CorruptionError: the queue does not fit the log, or the next record is damaged.
    """
    if isinstance(queue, LiteQueue):
        return _get_lite(log, queue, offset, limits, fetch or log.read)
    low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
    first = queue.first if queue is not None and tiered else low
    refusal = _position(offset, first, low, high)
    if refusal is not None:
        return GetResult(*refusal, first, high)
    assert queue is not None
    scan_entries = max(_SCAN_ENTRIES, limits.max_count * _SCAN_PER_MESSAGE)
    stop = min(offset + scan_entries, high)
    wanted: Wanted = []
    total_bytes, at, is_full = 0, offset, False
    while at < stop and not is_full:
        step = limits.max_count if codes is None else _STEP_ENTRIES
        entries = _entries(queue, at, min(max(step, 1), stop - at))
        for physical, size, code in ENTRY.iter_unpack(entries):
            if codes is None or code in codes:
                is_full = len(wanted) >= limits.max_count or total_bytes + size > limits.max_bytes
                is_full = is_full and bool(wanted)
                if is_full:
                    break
                wanted.append((at, physical, size))
                total_bytes += size
            at += 1
        is_full = is_full or len(wanted) >= limits.max_count > 0
    status = GetStatus.FOUND if wanted else GetStatus.NO_MATCHED_MESSAGE
    try:
        body = _records(log, queue, wanted, fetch or log.read)
    except DamagedError as error:
        sound = _before(error.damage, wanted)
        if not sound:
            raise
        at, wanted = wanted[len(sound)][0], sound
        body = _records(log, queue, wanted, fetch or log.read)
    return GetResult(status, at, first, high, body, len(wanted))


def _get_lite(
    log: CommitLog, queue: LiteQueue, offset: int, limits: ReadLimits, fetch: Fetch
) -> GetResult:
    """Records of a lite topic from ``offset`` on, which may stand between two of them.

    They say queue 0 and their offset in the lite topic, whatever they say of the parent's queue.
    """
    low, high = queue.min_offset, queue.max_offset
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset >= high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    wanted: Wanted = []
    total_bytes, at = 0, offset
    entries = queue.entries(offset, max(1, limits.max_count))
    for physical, size, _ in ENTRY.iter_unpack(entries):
        if wanted and total_bytes + size > limits.max_bytes:
            break
        wanted.append((physical, physical, size))
        total_bytes += size
        at = physical + 1
    if not wanted:
        raise _lost(queue, offset)
    parts: list[bytes] = []
    cold: list[tuple[Offset, int]] = []
    for _, physical, size in wanted:
        start, length = _extent(log, queue, [(physical, physical, size)])
        data = fetch(start, length)
        if data is None:
            cold.append((start, length))
            continue
        if len(data) != length or _HEAD.unpack_from(data)[::2] != (size, physical):
            raise _damaged(queue, physical)
        parts.append(_with_place(data, physical))
    if cold:
        raise ColdError(cold)
    return GetResult(GetStatus.FOUND, at, low, high, b"".join(parts), len(wanted))


def _with_place(data: bytes, offset: int) -> bytes:
    """The record with another place: no checksum covers it."""
    made = bytearray(data)
    _, flag, _ = _PLACE.unpack_from(made, _PLACE_AT)
    _PLACE.pack_into(made, _PLACE_AT, 0, flag, offset)
    return bytes(made)


def _position(offset: int, first: int, low: int, high: int) -> tuple[GetStatus, int] | None:
    """Status and correction for an offset that has no record; the order is upstream's."""
    if high == 0:
        return GetStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < first:
        return GetStatus.OFFSET_TOO_SMALL, first
    if offset < low:
        return GetStatus.OFFSET_IN_TIER, offset
    if offset == high:
        return GetStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetStatus.OFFSET_OVERFLOW_BADLY, high
    return None


def offset_at_time(log: CommitLog, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> int:
    """The queue offset for a store time in ms.

    Args:
        log: holds the records.
        queue: the queue to search.
        timestamp: the time looked for.
        upper: the last record at or before it (before all: the first); otherwise the first at or
            after it (after all: the end).
    """
    low, high = queue.min_offset, queue.max_offset
    if isinstance(queue, LiteQueue):
        return low
    while low < high:
        middle = (low + high) // 2
        stored_at = store_time(log, queue, middle)
        if stored_at > timestamp or (stored_at == timestamp and not upper):
            high = middle
        else:
            low = middle + 1
    return max(low - 1, queue.min_offset) if upper else low


def first_kept(queue: ConsumeQueue, log_start: Offset) -> int:
    """The first queue offset from the minimum on whose record stands at or above ``log_start``.

    Raises:
        CorruptionError: entries are missing.
    """
    low, high = queue.min_offset, queue.max_offset
    if low == high or physical_offset(queue, low) >= log_start:
        return low
    while low < high:
        middle = (low + high) // 2
        if physical_offset(queue, middle) < log_start:
            low = middle + 1
        else:
            high = middle
    return low


def store_time(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """The store time of the record at ``offset``, ms."""
    if isinstance(queue, LiteQueue):
        return queue.stored_ms
    physical, size, _ = ENTRY.unpack(_entries(queue, offset, 1))
    head = _record(log, queue, offset, physical, size, max_bytes=_HEAD_BYTES)
    (sys_flag,) = _INT32.unpack_from(head, SYS_FLAG_OFFSET)
    at = BORN_HOST_OFFSET + (20 if sys_flag & BORN_HOST_V6 else 8)
    return int(_INT64.unpack_from(head, at)[0])


def physical_offset(queue: ConsumeQueue, offset: int) -> int:
    """The place in the log of the record at ``offset``."""
    return int(ENTRY.unpack(_entries(queue, offset, 1))[0])


def _entries(queue: ConsumeQueue, offset: int, count: int) -> bytes:
    data = queue.entries(offset, count)
    if len(data) != count * ENTRY_BYTES:
        raise _lost(queue, offset)
    return data


def _records(log: CommitLog, queue: ConsumeQueue, wanted: Wanted, fetch: Fetch) -> bytes:
    """The records of entries, each compared with its entry.

    What stands together in the log is read together.

    Raises:
        ColdError: some have to be waited for.
    """
    parts: list[bytes] = []
    cold: list[tuple[Offset, int]] = []
    begin = 0
    for index in range(1, len(wanted) + 1):
        _, physical, size = wanted[index - 1]
        if index == len(wanted) or wanted[index][1] != physical + size:
            run = wanted[begin:index]
            start, length = _extent(log, queue, run)
            data = fetch(start, length)
            if data is None:
                cold.append((start, length))
            else:
                parts.append(_compared(queue, run, data, length))
            begin = index
    if cold:
        raise ColdError(cold)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _before(damage: Damage, wanted: Wanted) -> Wanted:
    """Those before the first that stands in the damaged range."""
    return list(
        takewhile(lambda item: item[1] >= damage.end or item[1] + item[2] <= damage.start, wanted)
    )


def _extent(log: CommitLog, queue: ConsumeQueue, run: Wanted) -> tuple[Offset, int]:
    """Where records that stand one after the other begin, and how much they take."""
    offset, start, _ = run[0]
    length = sum(size for _, _, size in run)
    is_inside = log.log_start <= start and start + length <= log.end
    if not is_inside or any(size < _HEAD_BYTES for _, _, size in run):
        raise _lost(queue, offset)
    return Offset(start), length


def _compared(queue: ConsumeQueue, run: Wanted, data: bytes, length: int) -> bytes:
    """``data``, if it holds the records that the entries speak of."""
    first, start, _ = run[0]
    if len(data) != length:
        raise _damaged(queue, first)
    for offset, physical, size in run:
        if _HEAD.unpack_from(data, physical - start) != (size, offset, physical):
            raise _damaged(queue, offset)
    return data


def _record(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    physical: int,
    size: int,
    *,
    max_bytes: int | None = None,
) -> bytes:
    """The record an entry points to, or its first ``max_bytes``."""
    if not (log.log_start <= physical < log.end and size >= _HEAD_BYTES):
        raise _lost(queue, offset)
    length = size if max_bytes is None else min(size, max_bytes)
    data = log.read(Offset(physical), length)
    if len(data) != length or _HEAD.unpack_from(data) != (size, offset, physical):
        raise _damaged(queue, offset)
    return data


def _damaged(queue: ConsumeQueue, offset: int) -> CorruptionError:
    """The entry and the log differ, and either may be at fault: the next start finds out."""
    return CorruptionError(
        queue.condemn(),
        0,
        f"{_misfit(queue, offset)}; the next start makes the directory again from the log",
    )


def _lost(queue: ConsumeQueue, offset: int) -> CorruptionError:
    """The entry is missing, or points out of the log: it is wrong for certain."""
    reason = _misfit(queue, offset)
    return CorruptionError(queue.give_up(reason), 0, f"{reason}; it is made again from the log")


def _misfit(queue: ConsumeQueue, offset: int) -> str:
    topic, queue_id = queue.key
    return f"entry {offset} of queue {queue_id} of {topic} does not fit the commit log"


def record_at(log: CommitLog, offset: Offset) -> bytes | None:
    """The record at a log offset; None when none begins there."""
    try:
        size = unit_size(log.read(offset, BLANK_HEADER_BYTES), 0)
        data = log.read(offset, min(size, MAX_RECORD_BYTES))
        unit = parse_unit(data, 0, offset)
    except RecordError:
        return None
    return None if unit.is_blank else data[: unit.size]
