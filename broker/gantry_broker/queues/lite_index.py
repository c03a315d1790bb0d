"""Lite topics of a store: where their messages stand, derived from the log.

A message of a lite topic is stored once, in a queue of its parent. Here it has one row more, under
the name of the lite topic's queue and its place in the log. That place is its offset in the lite
topic, too: it rises, no two messages share it, and it follows from the log alone. So no number has
to be carried on over a trimmed log or to a member whose log begins later, a lite topic that ended
and comes again never repeats an offset, and a whole state says nothing of lite topics.

=============================== ================================================================
key                             value
=============================== ================================================================
``l`` queue's name, 0, offset   the record's size
``m`` queue's name              ``LiteHead``: first offset, last one, and the last one's store time
=============================== ================================================================

What waits for the next batch is kept beside the rows. Heads of a bounded number are kept, too.
Whoever goes through all lite topics does it by pages of rows.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gantry_protocol.lite import lite_queue, parent_and_lite

from gantry_broker.queues.consume_queue import ConsumeQueue
from gantry_broker.queues.kv import KeyValue, KvBatch
from gantry_broker.queues.rows import ENTRY
from gantry_broker.store.tables.expired import End

HEADS_MAX = 16_384  # kept in memory, about 250 bytes each
PAGE = 512  # rows read at once where all are gone through

_HEAD = struct.Struct(">qqq")
_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">Q")
_ENTRIES, _HEADS = b"l", b"m"
_BEHIND = b"%"  # the byte that follows the dollar
_ALL_ENTRIES, _ALL_HEADS = (b"l", b"m"), (b"m", b"n")


class LiteHead(NamedTuple):
    """One lite topic: offsets of its first and last message here, and when the last was stored."""

    first: int
    last: int
    stored_ms: int


class LiteIndex:
    """See the module.

    Attributes:
        counts: lite topics by parent, of those that have some.
        fresh: changes that are in no batch yet, about.
    """

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._heads: dict[str, LiteHead | None] = {}  # as they are, of some
        self._changed: dict[str, LiteHead | None] = {}  # since the last batch
        self._added: dict[str, list[tuple[int, int]]] = {}  # offset and size, since then
        self._dropped: list[bytes] = []  # keys of rows
        self.fresh = 0
        self.counts: dict[str, int] = {}
        for key, _ in kv.pairs(*_ALL_HEADS):
            self._count(_name(key), 1)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def head(self, name: str) -> LiteHead | None:
        """The lite topic whose queue has this name; None when it has no message."""
        if name in self._changed:
            return self._changed[name]
        if name in self._heads:
            return self._heads[name]
        value = self._kv.get(_head_key(name))
        head = None if value is None else LiteHead(*_HEAD.unpack(value))
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[name] = head
        return head

    def add(self, name: str, offset: int, size: int, stored_ms: int) -> None:
        """A message came, behind all others."""
        before = self.head(name)
        if before is None:
            self._count(name, 1)
        self._changed[name] = LiteHead(
            offset if before is None else before.first, offset, stored_ms
        )
        self._added.setdefault(name, []).append((offset, size))
        self.fresh += 1

    def entries(self, name: str, start: int, count: int) -> list[tuple[int, int]]:
        """Offset and size of at most ``count`` messages from ``start`` on."""
        head = self.head(name)
        if head is None:
            return []
        start = max(start, head.first)
        stop = _entry_key(name, 2**63 - 1)
        found = [
            (_OFFSET.unpack(key[-_OFFSET.size :])[0], _SIZE.unpack(value)[0])
            for key, value in islice(self._kv.pairs(_entry_key(name, start), stop), count)
        ]
        if len(found) < count:
            found += [item for item in self._added.get(name, ()) if item[0] >= start]
        return found[:count]

    def queue(self, key: tuple[str, int]) -> "LiteQueue | None":
        """A handle of a lite topic; None when it has no message."""
        head = self.head(key[0]) if key[1] == 0 else None
        return None if head is None else LiteQueue(self._kv, self, key[0], head)

    def end(self, ends: list[End]) -> list[str]:
        """End lite topics whose last message is still this one; returns those that ended."""
        found = []
        for name, last in ends:
            head = self.head(name)
            if head is not None and head.last == last:
                self._drop(name, head)
                found.append(name)
        return found

    def hide_parent(self, parent: str) -> None:
        """A topic is gone, and all its lite topics with it."""
        prefix = lite_queue(parent, "")
        names = {name for name in self._changed if name.startswith(prefix)}
        start = _head_key(prefix)
        for key, _ in self._kv.pairs(start, start[:-1] + _BEHIND):
            names.add(_name(key))
        for name in sorted(names):
            head = self.head(name)
            if head is not None:
                self._drop(name, head)

    def trim(self, start: int) -> Iterator[None]:
        """Serve nothing below a log offset any more; yields after each page.

        What is not in a batch yet when this begins stands higher.
        """
        at, stop = _ALL_HEADS
        while page := list(islice(self._kv.pairs(at, stop), PAGE)):
            for key, value in page:
                name = _name(key)
                head = self.head(name) if name in self._changed else LiteHead(*_HEAD.unpack(value))
                if head is not None and head.first < start:
                    self._trim_one(name, head, start)
            at = page[-1][0] + b"\0"
            yield

    def page(self, prefix: str, after: str, count: int) -> list[tuple[str, LiteHead]]:
        """At most ``count`` names behind ``after`` that begin so; ``prefix`` ends with a dollar.

        What is in no batch yet is among them: after a start that may be all there is.
        """
        stop = _head_key(prefix)[:-1] + _BEHIND
        while True:
            rows = list(islice(self._kv.pairs(_head_key(after) + b"\0", stop), count))
            found: dict[str, LiteHead | None] = {
                _name(key): LiteHead(*_HEAD.unpack(value)) for key, value in rows
            }
            last = _name(rows[-1][0]) if len(rows) == count else None
            for name, head in self._changed.items():
                is_behind = name > after and (last is None or name <= last)
                if is_behind and name.startswith(prefix):
                    found[name] = head
            page = sorted((name, head) for name, head in found.items() if head is not None)
            if page or last is None:
                return page[:count]
            after = last

    def store(self, batch: KvBatch) -> None:
        """Put everything that changed into ``batch``, which is written before anything is read."""
        for key in self._dropped:
            batch.delete(key)
        for name, added in self._added.items():
            for offset, size in added:
                batch.put(_entry_key(name, offset), _SIZE.pack(size))
        for name, head in self._changed.items():
            if head is None:
                batch.delete(_head_key(name))
            else:
                batch.put(_head_key(name), _HEAD.pack(*head))
        if len(self._heads) + len(self._changed) > HEADS_MAX:
            self._heads.clear()
        self._heads.update(islice(self._changed.items(), HEADS_MAX))
        self._changed, self._added, self._dropped, self.fresh = {}, {}, [], 0

    def _trim_one(self, name: str, head: LiteHead, start: int) -> None:
        if head.last < start:
            self._drop(name, head)
            return
        for key, _ in self._kv.pairs(_entry_key(name, head.first), _entry_key(name, start)):
            self._dropped.append(key)
        kept = self.entries(name, start, 1)
        self._changed[name] = head._replace(first=kept[0][0] if kept else head.last)
        self.fresh += 1

    def _drop(self, name: str, head: LiteHead) -> None:
        bounds = _entry_key(name, head.first), _entry_key(name, head.last + 1)
        self._dropped += [key for key, _ in self._kv.pairs(*bounds)]
        self._added.pop(name, None)
        self._changed[name] = None
        self._count(name, -1)
        self.fresh += 1

    def _count(self, name: str, change: int) -> None:
        parent, _ = parent_and_lite(name)
        count = self.counts.get(parent, 0) + change
        if count:
            self.counts[parent] = count
        else:
            self.counts.pop(parent, None)


class LiteQueue(ConsumeQueue):
    """A lite topic, as a queue whose offsets are places in the log."""

    __slots__ = ("_index", "_name", "stored_ms")

    def __init__(self, kv: KeyValue, index: LiteIndex, name: str, head: LiteHead) -> None:
        super().__init__(kv, (name, 0), head.first, head.first, head.last + 1)
        self._index = index
        self._name = name
        self.stored_ms = head.stored_ms

    def entries(self, start: int, count: int) -> bytes:
        """The encoded entries of the records from ``start`` on, without tags."""
        return b"".join(
            ENTRY.pack(offset, size, 0)
            for offset, size in self._index.entries(self._name, start, count)
        )


def _head_key(name: str) -> bytes:
    return _HEADS + name.encode()


def _entry_key(name: str, offset: int) -> bytes:
    return _ENTRIES + name.encode() + b"\0" + _OFFSET.pack(offset)


def _name(key: bytes) -> str:
    return key[1:].decode()
