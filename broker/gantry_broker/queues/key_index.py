"""The index of records by key: for queries by key and by unique key.

Indexed are the unique key and each word of the keys of every record, with its topic. An entry is a
checksum of topic and key, and the log offset; whoever asks compares the record itself. Entries come
in blocks of about 65,000 keys, each cut into 256 buckets by the checksum's first byte: so a key
costs no row of its own, and a query reads one small row per block, newest first. The newest block
is in memory, and in pieces in the rows until it is full. What was added last waits as numbers, and
is packed and put into its buckets together.
"""

import struct
from collections.abc import Iterator
from itertools import islice

import google_crc32c

from gantry_broker.queues.kv import KeyValue, KvBatch

BLOCK_KEYS = 65_536
BLOCKS = (b"s", b"t")  # the range of the rows that say what a full block covers
_PIECES = (b"k", b"l")
_BUCKETS = 256
_ENTRY = struct.Struct(">IQ")  # checksum, log offset
_HASH = struct.Struct(">I")
_FROM = struct.Struct(">Q")
_PIECE = struct.Struct(">qq")  # store times of the first and last record in it; entries follow
_COVERS = struct.Struct(">Qqq")  # log offset of the last record; store times of the first and last
_UNIQUE = b"UNIQ_KEY\x01"
_NEXT_UNIQUE = b"\x02\0" + _UNIQUE  # behind the properties of another record
_KEYS = b"KEYS\x01"
_checksum, _extended = google_crc32c.value, google_crc32c.extend
_UNSETTLED_MAX = 4096  # keys that wait for their buckets


def keys_of(properties: bytes, *, only_unique: bool = False) -> list[bytes]:
    """The unique key of a record, then each word of its keys."""
    unique = unique_key(properties)
    found = [unique] if unique else []
    if not only_unique and (words := _value(properties, _KEYS)):
        found += words.split()
    return found


def unique_key(properties: bytes) -> bytes:
    """The unique key of a record; empty without one."""
    return _value(properties, _UNIQUE)


def keys_in_run(properties: bytes, count: int) -> list[bytes]:
    """The unique key of each of ``count`` records; empty for one without.

    Args:
        properties: of each, with a zero byte between two.
        count: of records.
    """
    keys = _only_unique_keys(properties, count)
    return [unique_key(item) for item in properties.split(b"\0")] if keys is None else keys


def _value(properties: bytes, needle: bytes) -> bytes:
    """The last value of a property, as ``find_property`` finds it; empty without one."""
    return _value_at(properties, needle, properties.rfind(needle))


def _value_at(properties: bytes, needle: bytes, at: int) -> bytes:
    """The same, where ``at`` is the last place of the needle, inside a value maybe."""
    while at > 0 and properties[at - 1] != 2:
        at = properties.rfind(needle, 0, at)
    if at < 0:
        return b""
    start = at + len(needle)
    stop = properties.find(b"\x02", start)
    return properties[start:] if stop < 0 else properties[start:stop]


def _only_unique_keys(properties: bytes, count: int) -> list[bytes] | None:
    """The unique keys of ``count`` records; None where one is not the first of the properties.

    Args:
        properties: of each, with a zero byte between two.
        count: of records.
    """
    found = properties.split(_UNIQUE)
    is_first = properties.count(_NEXT_UNIQUE) == count - 1 and not found[0]
    if not is_first or len(found) != count + 1:
        return None
    return [item.partition(b"\x02")[0] for item in islice(found, 1, None)]


class KeyIndex:
    """The keys of one store's records.

    Attributes:
        last_offset: log offset of the newest record with a key; -1 without any.
        last_stored_ms: its store time; 0 without any.
    """

    def __init__(self, kv: KeyValue) -> None:
        """Take up what the rows in ``kv`` hold.

        Raises:
            CorruptionError: they are damaged.
        """
        self._kv = kv
        self.last_offset, self.last_stored_ms = -1, 0
        self._gone_below = b""  # names of blocks to delete
        self._topic, self._start = b"", 0  # of the last record; the checksum its keys go on from
        for _, value in kv.pairs(*BLOCKS):
            self.last_offset, _, self.last_stored_ms = _COVERS.unpack(value)
        self._begin_block()
        for _, value in kv.pairs(*_PIECES):
            first_ms, last_ms = _PIECE.unpack_from(value)
            for checksum, offset in _ENTRY.iter_unpack(value[_PIECE.size :]):
                self._checksums.append(checksum)
                self._offsets.append(offset)
            if self._offsets:
                self._begin(self._offsets[0], first_ms)
                self.last_offset, self.last_stored_ms = self._offsets[-1], last_ms
            self._settle()
        self._fresh.clear()

    def _begin_block(self) -> None:
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self._fresh = bytearray()  # entries that are in no row yet
        self._fresh_ms = 0  # store time of the first of them
        self._checksums: list[int] = []  # not settled: in no bucket and not in ``_fresh``
        self._offsets: list[int] = []  # of each of them
        self._count = 0  # keys that are settled
        self._first_offset = -1
        self._first_ms = 0

    def add(self, topic: bytes, properties: bytes, offset: int, stored_ms: int) -> bytes:
        """Take in the keys of the record at ``offset``; records come in their order.

        Returns:
            Its unique key, empty without one.
        """
        checksums = self._checksums
        before = len(checksums)
        if topic != self._topic:
            self._topic, self._start = topic, _checksum(topic + b"#")
        at, unique = properties.rfind(_UNIQUE), b""
        if at >= 0 and (unique := _value_at(properties, _UNIQUE, at)):
            checksums.append(_extended(self._start, unique))
            self._offsets.append(offset)
        at = properties.rfind(_KEYS)
        if at >= 0:
            for word in _value_at(properties, _KEYS, at).split():
                checksums.append(_extended(self._start, word))
                self._offsets.append(offset)
        if len(checksums) == before:
            return unique
        if not before:
            self._begin(offset, stored_ms)
        self.last_offset, self.last_stored_ms = offset, stored_ms
        if len(checksums) >= _UNSETTLED_MAX:
            self._settle()
        return unique

    def add_run(self, topic: bytes, properties: bytes, offsets: list[int], stored_ms: int) -> None:
        """The same for records that follow each other.

        Args:
            topic: of all.
            properties: of each, with a zero byte between two.
            offsets: of each; there may be more of them.
            stored_ms: of all.
        """
        if _KEYS in properties:
            for item, offset in zip(properties.split(b"\0"), offsets, strict=False):
                self.add(topic, item, offset, stored_ms)
            return
        if topic != self._topic:
            self._topic, self._start = topic, _checksum(topic + b"#")
        checksums, places, start = self._checksums, self._offsets, self._start
        before, count = len(checksums), properties.count(b"\0") + 1
        keys = keys_in_run(properties, count)
        if all(keys):
            checksums += [_extended(start, key) for key in keys]
            places += offsets[:count]
        else:
            for key, offset in zip(keys, offsets, strict=False):
                if key:
                    checksums.append(_extended(start, key))
                    places.append(offset)
        if len(checksums) == before:
            return
        if not before:
            self._begin(places[0], stored_ms)
        self.last_offset, self.last_stored_ms = places[-1], stored_ms
        if len(checksums) >= _UNSETTLED_MAX:
            self._settle()

    def _begin(self, offset: int, stored_ms: int) -> None:
        """Note where what is added now begins, where it is the first of its kind."""
        if not self._fresh:
            self._fresh_ms = stored_ms
        if not self._count:
            self._first_offset, self._first_ms = offset, stored_ms

    def _settle(self) -> None:
        """Put the keys that wait into their buckets."""
        if not self._checksums:
            return
        entries = list(map(_ENTRY.pack, self._checksums, self._offsets))
        parts: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
        for entry in entries:
            parts[entry[0]].append(entry)
        for number, part in enumerate(parts):
            if part:
                self._buckets[number] += b"".join(part)
        self._fresh += b"".join(entries)
        self._count += len(entries)
        self._checksums.clear()
        self._offsets.clear()

    def store(self, batch: KvBatch) -> None:
        """Put what is new into ``batch``; a block that is full gets its rows."""
        if self._gone_below:
            batch.delete_range(b"b", b"b" + self._gone_below)
            batch.delete_range(BLOCKS[0], BLOCKS[0] + self._gone_below)
            self._gone_below = b""
        self._settle()
        if not self._fresh:
            return
        if self._count < BLOCK_KEYS:
            (_, first) = _ENTRY.unpack_from(self._fresh)
            value = _PIECE.pack(self._fresh_ms, self.last_stored_ms) + self._fresh
            batch.put(_PIECES[0] + _FROM.pack(first) + _FROM.pack(self._count), value)
            self._fresh = bytearray()
            return
        name = _FROM.pack(self._first_offset)
        for number, bucket in enumerate(self._buckets):
            if bucket:
                batch.put(b"b" + name + bytes((number,)), bytes(bucket))
        covers = _COVERS.pack(self.last_offset, self._first_ms, self.last_stored_ms)
        batch.put(BLOCKS[0] + name, covers)
        batch.delete_range(*_PIECES)
        self._begin_block()

    def find(self, topic: bytes, key: bytes, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets of records that may have ``key``, newest first.

        Args:
            topic: of the records.
            key: a unique key, or one word of the keys.
            begin_ms: store times wanted, roughly; the record says exactly.
            end_ms: the last one.

        Raises:
            CorruptionError: the index is damaged.
        """
        checksum = _checksum(topic + b"#" + key)
        self._settle()
        if self._count and self._first_ms <= end_ms and self.last_stored_ms >= begin_ms:
            yield from _matches(self._buckets[checksum >> 24], checksum)
        for name, value in reversed(list(self._kv.pairs(*BLOCKS))):
            _, first_ms, last_ms = _COVERS.unpack(value)
            if first_ms <= end_ms and last_ms >= begin_ms:
                bucket = self._kv.get(b"b" + name[1:] + bytes((checksum >> 24,)))
                yield from _matches(bucket or b"", checksum)

    def first_from(self, offset: int) -> int | None:
        """The log offset of one of the first records with a key at ``offset`` or behind it.

        Records of one bucket are looked at, so some hundred may come before it. None: there is
        none.

        Raises:
            CorruptionError: the index is damaged.
        """
        self._settle()
        for name, value in self._kv.pairs(*BLOCKS):
            if _COVERS.unpack(value)[0] < offset:
                continue
            (first,) = _FROM.unpack(name[1:])
            if first >= offset:
                return int(first)
            rows = (self._kv.get(b"b" + name[1:] + bytes((number,))) for number in range(_BUCKETS))
            if (found := _first_in(rows, offset)) is not None:
                return found
        if self._count and self._first_offset >= offset:
            return self._first_offset
        return _first_in(iter(self._buckets), offset)

    def trim(self, log_start: int) -> None:
        """Forget the blocks that lie below ``log_start`` as a whole; ``store`` deletes them."""
        kept = None
        gone = False
        for name, value in self._kv.pairs(*BLOCKS):
            last_offset, _, _ = _COVERS.unpack(value)
            if last_offset >= log_start:
                kept = name[1:]
                break
            gone = True
        if gone:
            self._gone_below = kept or b"\xff"


def _first_in(buckets: Iterator[bytes | bytearray | None], offset: int) -> int | None:
    """The smallest log offset from ``offset`` on, in the first bucket that has one."""
    for bucket in buckets:
        found = (at for _, at in _ENTRY.iter_unpack(bucket or b"") if at >= offset)
        if (first := next(found, None)) is not None:
            return int(first)
    return None


def _matches(bucket: bytes | bytearray, checksum: int) -> Iterator[int]:
    """The log offsets of a checksum's entries, newest first."""
    wanted = _HASH.pack(checksum)
    at = bucket.rfind(wanted)
    while at >= 0:
        if at % _ENTRY.size == 0:
            yield _ENTRY.unpack_from(bucket, at)[1]
        at = bucket.rfind(wanted, 0, at + len(wanted) - 1)
