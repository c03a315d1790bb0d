"""RocksDB's place: sorted rows in memory, of which a crash leaves a state after some whole batch.

Without a write-ahead log, as the product uses it: a kill loses every batch since the last flush,
except those that RocksDB happened to write out by itself. A power cut leaves what was flushed; the
directory may also come back damaged, as ``Volume`` decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.product.machines import current, running

if TYPE_CHECKING:
    from random import Random

    from sim.product.machines import Process

Rows = dict[bytes, bytes]


class Stored:
    """What one directory holds.

    Attributes:
        is_rotten: nothing of it can be read any more.
    """

    def __init__(self, rows: Rows | None = None) -> None:
        self.durable: Rows = {} if rows is None else rows
        self.batches: list[list[tuple[Any, ...]]] = []  # since then
        self.opened_by: Process | None = None
        self.is_rotten = False

    def process_ended(self, process: Process) -> None:
        if self.opened_by is process:
            self.opened_by = None
            self._keep(process.rng.choice([0, 0, len(self.batches) // 2, len(self.batches)]))

    def lose_power(self, rng: Random) -> None:
        self._keep(rng.choice([0, len(self.batches)]))

    def _keep(self, count: int) -> None:
        for batch in self.batches[:count]:
            apply(self.durable, batch)
        self.batches = []

    def flush(self, count: int) -> None:
        for batch in self.batches[:count]:
            apply(self.durable, batch)
        del self.batches[:count]


def apply(rows: Rows, batch: list[tuple[Any, ...]]) -> None:
    """Carry a batch out."""
    for change in batch:
        if change[0] == "put":
            rows[change[1]] = change[2]
        elif change[0] == "delete":
            rows.pop(change[1], None)
        else:
            for key in [key for key in rows if change[1] <= key < change[2]]:
                del rows[key]


class WriteBatch:
    """As rocksdict's, in raw mode."""

    def __init__(self, raw_mode: bool = True) -> None:
        self.changes: list[tuple[Any, ...]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append(("put", key, value))

    def delete(self, key: bytes) -> None:
        self.changes.append(("delete", key))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.changes.append(("range", begin, end))

    def len(self) -> int:
        return len(self.changes)


class Rdict:
    """As rocksdict's ``Rdict``, as far as ``gantry_broker.queues.kv`` uses it."""

    def __init__(self, path: str, options: Any = None) -> None:
        process = current()
        stores = process.machine.volume.stores
        mark = Path(path) / "CURRENT"
        if path in stores and not mark.exists():
            del stores[path]  # the directory was thrown away
        self._stored: Stored = stores.setdefault(path, Stored())
        if self._stored.opened_by is not None:
            raise Exception("IO error: lock hold by current process")
        self._stored.opened_by = process
        self._path = path
        self._process = process
        mark.touch()
        self._rows: Rows = dict(self._stored.durable)
        self._keys = sorted(self._rows)

    def set_write_options(self, _: Any) -> None:
        """There is no write-ahead log anyway."""

    def _check(self) -> None:
        if self._stored.is_rotten:
            raise Exception(f"Corruption: block checksum mismatch in {self._path}/000012.sst")

    def get(self, key: bytes) -> bytes | None:
        self._check()
        return self._rows.get(key)

    def write(self, batch: WriteBatch) -> None:
        self._stored.batches.append(batch.changes)
        rows, keys = self._rows, self._keys
        for change in batch.changes:
            if change[0] == "put":
                if change[1] not in rows:
                    insort(keys, change[1])
                rows[change[1]] = change[2]
            elif change[0] == "delete":
                if rows.pop(change[1], None) is not None:
                    del keys[bisect_left(keys, change[1])]
            else:
                low, high = bisect_left(keys, change[1]), bisect_left(keys, change[2])
                for key in keys[low:high]:
                    del rows[key]
                del keys[low:high]

    def iter(self) -> _Iterator:
        self._check()
        return _Iterator(list(self._keys), dict(self._rows) if len(self._rows) < 64 else self._rows)

    def flush(self, wait: bool = True) -> None:
        volume = self._process.machine.volume
        count = len(self._stored.batches)
        if running() is not None:
            volume.take_time()
        if volume.is_full:
            raise Exception("IO error: No space left on device")
        self._stored.flush(count)

    def live_files(self) -> list[dict[str, int]]:
        return [{"size": sum(len(k) + len(v) for k, v in self._stored.durable.items())}]

    def property_int_value(self, _: str) -> int:
        return sum(len(batch) * 64 for batch in self._stored.batches)

    def close(self) -> None:
        if self._stored.opened_by is self._process:
            self._stored.opened_by = None
            self._stored.batches.clear()


class _Iterator:
    """A snapshot of the rows, as RocksDB's iterator is."""

    def __init__(self, keys: list[bytes], rows: Rows) -> None:
        self._keys = keys
        self._rows = rows
        self._at = len(keys)

    def seek(self, key: bytes) -> None:
        self._at = bisect_left(self._keys, key)

    def seek_for_prev(self, key: bytes) -> None:
        self._at = bisect_right(self._keys, key) - 1
        if self._at < 0:
            self._at = len(self._keys)

    def valid(self) -> bool:
        return self._at < len(self._keys)

    def key(self) -> bytes:
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._rows[self._keys[self._at]]

    def next(self) -> None:
        self._at += 1

    def status(self) -> None:
        """Sound."""


def options(*_: Any, **__: Any) -> None:
    """RocksDB's options: nothing here has any."""
