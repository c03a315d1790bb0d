"""A store in a directory: files that appear whole, once, and survive power loss.

Rules protected: an object is written under a temporary name, synced, linked to its key (``link``
fails if the name is taken, which makes it the create-if-absent of POSIX, also over NFS), and the
folder is synced before "created" is said. Folders are opened part by part without following links,
so no link inside can lead outside.

What it refuses: a key whose path leads through a link or a file.
"""

import contextlib
import errno
import itertools
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path

from gantry_broker.tier.stores.calls import DeadlineCalls
from gantry_broker.tier.stores.contract import (
    CREATED,
    Creation,
    Found,
    Maybe,
    StoreRefused,
    StoreUnavailable,
)
from gantry_broker.tier.stores.pooled import PooledStore

TEMPORARY = ".tmp"  # no key begins with a dot
SYNC_BYTES = 1024 * 1024  # a few milliseconds of a disk
LEFTOVER_AGE_S = 24 * 3600  # no upload takes that long
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG})


class PosixStore(PooledStore):
    """The contract over a directory, which must exist."""

    def __init__(self, root: Path, calls: DeadlineCalls | None = None) -> None:
        """Use ``root``. Nothing is written before the first create.

        That one removes what crashed writers left there a day ago.

        Raises:
            StoreRefused: it is no directory.
        """
        super().__init__(root.as_uri(), calls)
        self._root = root
        self._durable: set[str] = set()  # folders that this process knows to be on the disk
        if not root.is_dir():
            raise StoreRefused(f"{root} is no directory: make it, or mount it.")
        self._swept = False

    def _sweep(self) -> None:
        if self._swept:
            return
        if not (self._root / TEMPORARY).is_dir():
            (self._root / TEMPORARY).mkdir(exist_ok=True)
        eldest = time.time() - LEFTOVER_AGE_S
        for entry in os.scandir(self._root / TEMPORARY):
            if entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < eldest:
                        Path(entry.path).unlink()
        self._swept = True

    def _create(self, key: str, data: bytes | mmap) -> Creation:
        with self._told(key):
            self._sweep()
            temporary = self._root / TEMPORARY / secrets.token_hex(16)
            try:
                _write(temporary, data)
                with self._folder(key, make=True) as (folder, name):
                    try:
                        os.link(temporary, name, dst_dir_fd=folder, follow_symlinks=False)
                    except FileExistsError:
                        return Maybe(f"{key} exists in {self.url}.")
                    os.fsync(folder)
                    return CREATED
            finally:
                temporary.unlink(missing_ok=True)

    def _get(self, key: str, max_bytes: int) -> bytes | None:
        with self._opened(key) as descriptor:
            if descriptor is None:
                return None
            size = os.fstat(descriptor).st_size
            if size > max_bytes:
                raise StoreRefused(
                    f"{key} in {self.url} has {size} bytes, at most {max_bytes} are read."
                )
            return _read(descriptor, 0, size)

    def _get_range(self, key: str, start: int, length: int) -> bytes | None:
        with self._opened(key) as descriptor:
            return None if descriptor is None else _read(descriptor, start, length)

    def _list(self, prefix: str, after: str | None, limit: int) -> list[Found]:
        found: list[Found] = []
        with self._told(prefix):
            try:
                with self._folder(prefix + "x", make=False) as (folder, _):
                    walk = _walk(folder, prefix, after or "")
                    with contextlib.closing(walk):
                        found.extend(itertools.islice(walk, limit))
            except FileNotFoundError:
                return []
        return found

    def _delete(self, key: str) -> None:
        with (
            self._told(key),
            contextlib.suppress(FileNotFoundError),
            self._folder(key, make=False) as (folder, name),
        ):
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    @contextmanager
    def _opened(self, key: str) -> Iterator[int | None]:
        """The object's descriptor; None if there is none."""
        with self._told(key), contextlib.ExitStack() as stack:
            try:
                folder, name = stack.enter_context(self._folder(key, make=False))
                descriptor = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
                )
            except FileNotFoundError:
                yield None
                return
            stack.callback(os.close, descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StoreRefused(f"{key} in {self.url} is no file.")
            yield descriptor

    @contextmanager
    def _folder(self, key: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder of ``key``, and the name in it."""
        *folders, name = key.split("/")
        try:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreRefused(f"{self._root} is no directory: make it, or mount it.") from None
        path = ""
        try:
            for part in folders:
                path += part + "/"
                if make and path not in self._durable:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                    os.fsync(descriptor)
                    self._durable.add(path)
                try:
                    below = os.open(part, _FOLDER, dir_fd=descriptor)
                except FileNotFoundError:
                    self._durable.discard(path)
                    raise
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        """Errors of the file system as errors of the store; "not found" stays what it is."""
        try:
            yield
        except NotADirectoryError as error:
            raise StoreRefused(f"{key} in {self.url} leads through a file or a link.") from error
        except OSError as error:
            sentence = f"{key} in {self.url}: {error.strerror or error}."
            if error.errno in _REFUSED:
                raise StoreRefused(sentence) from error
            raise StoreUnavailable(sentence) from error


def _write(path: Path, data: bytes | mmap) -> None:
    """Write and sync piece by piece.

    A file system that syncs 64 MiB at once lets every other sync of the disk wait for it, those of
    the log included, and so every producer.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        with memoryview(data) as rest:
            for at in range(0, len(rest), SYNC_BYTES):
                _write_all(descriptor, rest[at : at + SYNC_BYTES])
                os.fdatasync(descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def _read(descriptor: int, start: int, length: int) -> bytes:
    """``pread`` until ``length`` or the end: one call may return less."""
    parts: list[bytes] = []
    while length > 0:
        part = os.pread(descriptor, length, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _walk(folder: int, prefix: str, after: str) -> Generator[Found]:
    """Objects below an open folder in byte order: a folder sorts as its name with a slash.

    Folders that end at or below ``after`` are not opened, so a listing that goes on is cheap.
    """
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                entries.append((entry.name + "/", -1))
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    entries.append((entry.name, entry.stat(follow_symlinks=False).st_size))
    for name, size in sorted(entries):
        key = prefix + name
        if size >= 0:
            if key > after:
                yield Found(key, size)
        elif key > after or after.startswith(key):
            try:
                below = os.open(name[:-1], _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                continue
            try:
                yield from _walk(below, key, after)
            finally:
                os.close(below)
