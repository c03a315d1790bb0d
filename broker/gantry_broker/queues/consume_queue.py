"""One consume queue: where the records of one topic and queue id stand in the log.

The entries are RocketMQ's: 20 bytes each (log offset, record size, tags code), numbered by queue
offset. They are derived from confirmed records only, so they are never taken back.

A queue is two things in the key-value store: a row with its offsets, and runs of entries, each in
the row of its first. The newest entries wait in memory for the next batch. An object of this class
is a handle that ``QueueTable`` makes when somebody asks and forgets again; nobody keeps one.
"""

from pathlib import Path

from gantry_broker.queues import rows
from gantry_broker.queues.kv import KeyValue, KvBatch
from gantry_broker.queues.rows import ENTRY, ENTRY_BYTES, RUN_ENTRIES
from gantry_broker.store.contract import QueueKey

_FEW = 16  # runs to delete one by one; a range that is deleted costs every later reader a little


class ConsumeQueue:
    """The entries of one queue.

    Attributes:
        key: topic and queue id.
        first: first queue offset that is served from anywhere, the tier included; below it are only
            records of a topic that was deleted. ``first <= min_offset``.
        min_offset: first queue offset that is served from here; ``min_offset <= max_offset``.
        max_offset: one past the last; the queue offset of the next record.
        fresh: the encoded entries that are in no row yet, up to ``max_offset``.
    """

    __slots__ = ("_kv", "_trimmed", "first", "fresh", "key", "max_offset", "min_offset")

    def __init__(self, kv: KeyValue, key: QueueKey, first: int, minimum: int, maximum: int) -> None:
        self._kv = kv
        self.key = key
        self.first = first
        self.min_offset = minimum
        self.max_offset = maximum
        self.fresh = bytearray()
        self._trimmed = False  # since it was stored last

    def condemn(self) -> Path:
        """Have all queues made again at the next start; returns what to name to people."""
        self._kv.condemn()
        return self._kv.directory

    def give_up(self, reason: str) -> Path:
        """Have all queues made again soon, whatever the log holds; returns the same."""
        self._kv.give_up(reason)
        return self._kv.directory

    @property
    def _stored(self) -> int:
        """Entries below are in rows."""
        return self.max_offset - len(self.fresh) // ENTRY_BYTES

    def append(self, physical: int, size: int, code: int) -> None:
        """Add the entry of the record with the queue offset ``max_offset``."""
        self.fresh += ENTRY.pack(physical, size, code)
        self.max_offset += 1

    def entries(self, start: int, count: int) -> bytes:
        """The encoded entries [start, start + count), as far as they exist.

        Fewer bytes come back only when rows are missing.
        """
        stop = min(start + count, self.max_offset)
        stored = self._stored
        parts = []
        if start < min(stop, stored):
            parts.append(self._read(start, min(stop, stored)))
        if stop > stored:
            at = (max(start, stored) - stored) * ENTRY_BYTES
            parts.append(bytes(self.fresh[at : (stop - stored) * ENTRY_BYTES]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hide_below(self, offset: int) -> None:
        """Serve nothing below ``offset`` any more, from nowhere."""
        self.trim(offset)
        self.first = max(self.first, self.min_offset)

    def trim(self, offset: int) -> None:
        """Serve nothing below ``offset`` from the local log any more; the tier may have it."""
        offset = min(offset, self.max_offset)
        if offset > self.min_offset:
            self.min_offset = offset
            self._trimmed = True

    def store(self, batch: KvBatch) -> None:
        """Put what changed into ``batch``; the entries in memory are in rows then."""
        prefix = rows.run_prefix(self.key)
        if self._trimmed:
            self._delete_trimmed(batch, prefix)
        if self.fresh:
            start = self._stored
            for at in range(0, len(self.fresh), RUN_ENTRIES * ENTRY_BYTES):
                run = bytes(self.fresh[at : at + RUN_ENTRIES * ENTRY_BYTES])
                batch.put(rows.run_key(prefix, start + at // ENTRY_BYTES), run)
            self.fresh = bytearray()
        value = rows.encode_queue(self.first, self.min_offset, self.max_offset)
        batch.put(rows.queue_key(self.key), value)

    def _read(self, start: int, stop: int) -> bytes:
        """The entries [start, stop), which are in rows."""
        prefix = rows.run_prefix(self.key)
        data = bytearray()
        at = skipped = -1
        wanted, end = rows.run_key(prefix, start), rows.run_key(prefix, stop)
        for key, run in self._kv.pairs(wanted, end, back_to=prefix):
            if at < 0:
                at = skipped = rows.run_start(key)
            elif rows.run_start(key) != at:
                break  # a row is missing
            data += run
            at += len(run) // ENTRY_BYTES
        return bytes(data[(start - skipped) * ENTRY_BYTES : (stop - skipped) * ENTRY_BYTES])

    def _delete_trimmed(self, batch: KvBatch, prefix: bytes) -> None:
        """Delete the runs of which nothing is served any more."""
        self._trimmed = False
        begin, stop = rows.run_key(prefix, 0), rows.run_key(prefix, self.min_offset)
        if self.min_offset < self._stored:
            for key, _ in self._kv.pairs(stop, stop + b"\0", back_to=prefix):
                stop = key  # the run that ``min_offset`` stands in is kept
                break
        some = [key for _, (key, _) in zip(range(_FEW), self._kv.pairs(begin, stop), strict=False)]
        if len(some) == _FEW:
            batch.delete_range(begin, stop)
            return
        for key in some:
            batch.delete(key)
