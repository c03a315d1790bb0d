"""The embedded key-value store that holds what is derived from the log: a thin shell over RocksDB.

One directory, one RocksDB, one key space, no write-ahead log: the commit log is one already. What
is written goes to a table in memory; RocksDB writes full tables to sorted, checksummed files in the
order in which they filled. So whatever a crash leaves is the state after some whole batch, and a
batch that says how far the log is dispatched makes that state one with a place in the log.

Nothing here is the only copy of anything. Damage ends in a ``CorruptionError`` that names the file;
the directory is marked, and whoever opens it next throws it away and begins again. After damage, or
a full disk, RocksDB takes nothing any more until it is opened again; ``on_lost`` is told at once,
whoever met it and whatever becomes of the error.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.files import fsync_directory, make_directory
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

# All stores of a process share these two, however many groups it has.
_CACHE_BYTES = 64 * 1024 * 1024  # of blocks that were read
_UNWRITTEN_BYTES = 128 * 1024 * 1024  # of tables in memory; the largest is written out beyond it
_TABLE_BYTES = 16 * 1024 * 1024  # one table in memory; a checkpoint writes it earlier
_ARENA_BYTES = 128 * 1024  # what an idle store takes
_BLOCK_BYTES = 8 * 1024
_BLOOM_BITS = 10  # one look-up in a hundred reads a file for nothing
_OPEN_FILES = 64  # per store, whatever it holds
_KEEP_LOGS = 2
_SPARE_BYTES = 1024 * 1024  # beside what is to be written: its index, the manifest
_MARK = "DAMAGED"
_LOCK = "LOCK"
_UNREADABLE = "Input/output error"  # of the block that holds it; another file stands elsewhere
_FILE_IN_MESSAGE = re.compile(r"(/[^\s:]+/(?:\d+\.sst|MANIFEST-\d+|CURRENT|OPTIONS-\d+))")


class KvBatch:
    """Changes that take effect together; see ``KeyValue.write``.

    Attributes:
        changes: as RocksDB has them.
    """

    def __init__(self) -> None:
        self.changes = WriteBatch(raw_mode=True)
        self.put = self.changes.put
        self.delete = self.changes.delete
        self.delete_range = self.changes.delete_range

    def __len__(self) -> int:
        return self.changes.len()


class KeyValue:
    """Bytes by bytes, in the order of the keys.

    Attributes:
        directory: holds the store and nothing else.
        on_lost: called with the reason, in any thread, when it has to be opened again.
    """

    def __init__(self, directory: Path) -> None:
        """Open or create the store in ``directory``.

        Raises:
            CorruptionError: it is damaged, or was found damaged earlier.
            OSError: the disk failed.
        """
        self.directory = directory
        self.on_lost: Callable[[str], None] = lambda _: None
        if (directory / _MARK).exists():
            raise CorruptionError(directory, 0, "it was found damaged when it was read last")
        make_directory(directory)
        _replace_lock_of_another_user(directory / _LOCK)
        try:
            self._store = Rdict(str(directory), _options())
        except Exception as error:
            raise self._translated(error, opening=True) from error
        options = WriteOptions()
        options.disable_wal = True  # type: ignore[assignment,method-assign]  # its stub says method
        self._store.set_write_options(options)

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        return sum(file["size"] for file in self._store.live_files())

    @property
    def has_room(self) -> bool:
        """Whether a flush will find room on the disk: RocksDB gives up for good where it does not.

        Raises:
            OSError: the disk does not say.
        """
        found = os.statvfs(self.directory)
        unwritten: int = self._store.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        return found.f_bavail * found.f_frsize > unwritten + _SPARE_BYTES

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``; None without one.

        Raises:
            CorruptionError: the file that holds it is damaged.
        """
        try:
            found: bytes | None = self._store.get(key)
        except Exception as error:
            raise self._translated(error) from error
        return found

    def write(self, batch: KvBatch) -> None:
        """Carry a batch out, in memory for now: all of it is there after a crash, or none.

        Raises:
            OSError: the disk failed.
        """
        try:
            self._store.write(batch.changes)
        except Exception as error:
            raise self._translated(error) from error

    def pairs(
        self, start: bytes, stop: bytes, *, back_to: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys in [start, stop) in order, with their values; as they are when it begins.

        Args:
            start: where to begin.
            stop: the first key not wanted.
            back_to: begin at the greatest key in [back_to, start]; without one there is none.

        Raises:
            CorruptionError: a file is damaged.
        """
        try:
            found = self._store.iter()
            if back_to is None:
                found.seek(start)
            else:
                found.seek_for_prev(start)
                if found.valid() and found.key() < back_to:
                    return
            while found.valid() and (key := found.key()) < stop:
                yield key, found.value()
                found.next()
            found.status()
        except Exception as error:
            raise self._translated(error) from error

    def flush(self) -> None:
        """Make durable what was written before; for a thread, blocks for as long as a sync.

        Raises:
            OSError: the disk failed.
        """
        try:
            self._store.flush(True)
        except Exception as error:
            raise self._translated(error) from error

    def condemn(self) -> None:
        """Have the directory refused when it is opened next: what it says is wrong."""
        with suppress(OSError):  # without a mark, the damage is found again
            (self.directory / _MARK).touch()

    def give_up(self, reason: str) -> None:
        """Have it refused, and opened again soon: it is damaged beyond doubt."""
        self.condemn()
        self.on_lost(reason)

    def close(self) -> None:
        """Let go of the directory; what is not flushed is lost."""
        with suppress(Exception):  # it says once more what ended it
            self._store.close()

    def _translated(self, error: Exception, *, opening: bool = False) -> Exception:
        """What ``error`` means here; the directory is marked when it is damaged.

        RocksDB's exceptions carry a text only: its status, then what it was about.
        """
        text = str(error)
        if "No space left" in text or "quota exceeded" in text:
            if not opening:
                self.on_lost(text)
            return OSError(errno.ENOSPC, text)
        missing = opening and ("No such file" in text or "does not exist" in text)
        damaged = text.startswith(("Corruption", "Invalid argument")) or _UNREADABLE in text
        if not damaged and not missing:
            return OSError(errno.EIO, text)
        named = _FILE_IN_MESSAGE.search(text)
        file = self.directory if named is None else Path(named[1])
        if not opening:
            self.give_up(text)
        return CorruptionError(file, 0, text)


def _replace_lock_of_another_user(lock: Path) -> None:
    """RocksDB makes its lock for one user only, whatever the umask, and opens it to write.

    Nobody else holds it: this process has the lock of the data directory around it. All other files
    that stand RocksDB only reads.
    """
    if lock.exists() and not os.access(lock, os.W_OK):
        lock.unlink()


def remove(directory: Path) -> None:
    """Throw a store away that nobody has open; durable on return."""
    if directory.exists():
        shutil.rmtree(directory)
        fsync_directory(directory.parent)


@cache
def _shared() -> tuple[Cache, WriteBufferManager]:
    return Cache(_CACHE_BYTES), WriteBufferManager(_UNWRITTEN_BYTES, False)


def _options() -> Options:
    block_cache, unwritten = _shared()
    blocks = BlockBasedOptions()
    blocks.set_block_cache(block_cache)
    blocks.set_cache_index_and_filter_blocks(True)  # else their memory has no bound
    # In parts: a filter of a million keys is larger than a shard of the cache, so it was read anew
    # for every look-up.
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    blocks.set_pin_top_level_index_and_filter(True)
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_manager(unwritten)
    options.set_write_buffer_size(_TABLE_BYTES)
    options.set_arena_block_size(_ARENA_BYTES)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(_KEEP_LOGS)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
