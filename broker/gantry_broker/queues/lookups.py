"""Queries by key: the index says where to look, the record says whether it is one.

Upstream: ``QueryMessageProcessor``, ``DefaultMessageStore.queryMessage``. Answers are bounded in
records, bytes and candidates, so that a key that every message has costs no more than another.
"""

from collections.abc import Callable

from gantry_protocol.records import peek
from gantry_protocol.types import Offset

from gantry_broker.log import CommitLog
from gantry_broker.log.checked import DamagedError
from gantry_broker.queues import reads
from gantry_broker.queues.key_index import KeyIndex, keys_of
from gantry_broker.store.contract import GetResult, GetStatus, KeyRead

MAX_RECORDS = 64  # upstream's maxMsgsNumBatch
MAX_BYTES = 4 * 1024 * 1024  # the first record always goes out
_MAX_CANDIDATES = 4096  # records that are read for one query


def find(index: KeyIndex, view: Callable[[int], bytes | None], wanted: KeyRead) -> GetResult:
    """Confirmed records with a key, newest first.

    Args:
        index: says where they may be.
        view: the confirmed record at a log offset; None when it is not in the log any more.
        wanted: what to find.

    Raises:
        CorruptionError: the index or the log is damaged.
    """
    topic, key = wanted.topic.encode(), wanted.key.encode()
    limit = min(max(wanted.max_count, 1), MAX_RECORDS)
    found: list[bytes] = []
    total_bytes, before = 0, -1
    candidates = index.find(topic, key, wanted.begin_ms, wanted.end_ms)
    for _, offset in zip(range(_MAX_CANDIDATES), candidates, strict=False):
        if offset == before:
            continue  # a record that has the key twice
        before = offset
        data = view(offset)
        if data is None or not _is_wanted(data, key, wanted):
            continue
        if found and total_bytes + len(data) > MAX_BYTES:
            break
        found.append(data)
        total_bytes += len(data)
        if len(found) == limit:
            break
    status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
    known = index.last_offset
    return GetResult(
        status, known, 0, 0, b"".join(found), len(found), known_ms=index.last_stored_ms
    )


def record_at(log: CommitLog, offset: int) -> bytes | None:
    """The record at a log offset, confirmed or not; None where none can be read."""
    if not log.log_start <= offset < log.end:
        return None
    try:
        return reads.record_at(log, Offset(offset))
    except DamagedError:
        return None


def _is_wanted(data: bytes, key: bytes, wanted: KeyRead) -> bool:
    """Whether a record is what a query means; the index knows checksums only."""
    record = peek(data)
    is_in_time = wanted.begin_ms <= record.store_timestamp <= wanted.end_ms
    keys = keys_of(record.properties, only_unique=wanted.is_unique)
    return record.topic == wanted.topic and is_in_time and key in keys
