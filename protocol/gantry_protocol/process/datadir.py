"""The data directory: who owns it, and that only one process uses it.

``gantry.json`` says once and for all whose data this is (format, kind, identity); it is
checksummed, written before anything else and never overwritten. ``LOCK`` is locked for as long as
the process lives. The rule protected: data is never mixed with another cluster's, never read by
code that is too old for it, and never written by two processes. Nothing is ever repaired or removed
here.
"""

import asyncio
import fcntl
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any, Literal, Self

import google_crc32c

from gantry_protocol.errors import CorruptionError, DataDirError, LockHeldError
from gantry_protocol.process.files import DATA_MODE, atomic_write, make_directory

FORMAT = 1
IDENTITY_FILE = "gantry.json"
LOCK_FILE = "LOCK"

_RETRY_S = 0.1
_SHARED = stat.S_ISGID | stat.S_IWGRP
_FOREIGN_BUT_HARMLESS = frozenset({LOCK_FILE, "lost+found", f".{IDENTITY_FILE}.tmp"})

Kind = Literal["controller", "broker"]


class DataDir:
    """A locked data directory that belongs to this process's cluster, kind and identity.

    Attributes:
        path: the directory.
        created: ``gantry.json`` was written by this call, so the directory was empty before.
        identity: the identity stored in it.
    """

    def __init__(self, path: Path, lock: int, *, created: bool, identity: dict[str, str]) -> None:
        self.path = path
        self.created = created
        self.identity = identity
        self._lock: int | None = lock

    @classmethod
    def open(
        cls, path: Path | str, kind: Kind, identity: dict[str, str], wait_s: float = 0.0
    ) -> Self:
        """Lock ``path``, create or check its identity; blocks for at most ``wait_s``.

        Raises:
            LockHeldError: another process still holds the directory.
            DataDirError: it belongs to something else, or cannot be used at all.
            CorruptionError: ``gantry.json`` is damaged.
        """
        lock = _LockFile(Path(path))
        deadline = time.monotonic() + wait_s
        while not lock.try_acquire():
            if time.monotonic() >= deadline:
                raise lock.held_error(wait_s)
            lock.announce(wait_s)
            time.sleep(_RETRY_S)
        return cls._adopt(lock, kind, identity)

    @classmethod
    async def open_async(
        cls, path: Path | str, kind: Kind, identity: dict[str, str], wait_s: float = 0.0
    ) -> Self:
        """As :meth:`open`, without blocking the event loop while it waits; cancellable."""
        lock = _LockFile(Path(path))
        deadline = time.monotonic() + wait_s
        try:
            while not lock.try_acquire():
                if time.monotonic() >= deadline:
                    raise lock.held_error(wait_s)
                lock.announce(wait_s)
                await asyncio.sleep(_RETRY_S)
        except asyncio.CancelledError:
            lock.close()
            raise
        return cls._adopt(lock, kind, identity)

    @classmethod
    def _adopt(cls, lock: "_LockFile", kind: Kind, identity: dict[str, str]) -> Self:
        try:
            created = _create_or_check(lock.directory, kind, identity)
        except BaseException:
            lock.close()
            raise
        return cls(lock.directory, lock.descriptor, created=created, identity=dict(identity))

    def close(self) -> None:
        """Give the lock back; closing twice is harmless."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def share_with_group(directory: Path) -> None:
    """Let the group write what this process creates, where ``directory`` is the group's to write.

    So the kubelet leaves a volume with the pod's fsGroup: group-writable, with the set-group-ID
    bit. The next process there may have another user of the same group, as on platforms that give
    a user to each pod. The umask is the process's, which has one data directory.
    """
    if directory.stat().st_mode & _SHARED == _SHARED:
        before = os.umask(0o077)  # there is no way to ask; nothing else runs yet
        os.umask(before & ~stat.S_IWGRP)


class _LockFile:
    """The lock on one directory, tried until it is had."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._announced = False
        try:
            make_directory(directory)
            share_with_group(directory)
            self.descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, DATA_MODE)
        except OSError as error:
            raise DataDirError(
                f"The data directory {directory} cannot be used: {error.strerror or error}."
            ) from error

    def try_acquire(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def announce(self, wait_s: float) -> None:
        if not self._announced:
            self._announced = True
            print(  # noqa: T201 - the person at the terminal must know why nothing happens
                f"Another process uses {self.directory}; waiting up to {wait_s:g} s for it to end.",
                file=sys.stderr,
            )

    def held_error(self, wait_s: float) -> LockHeldError:
        self.close()
        return LockHeldError(
            f"Another process still uses the data directory {self.directory} after {wait_s:g} s; "
            f"stop it, or give this one a directory of its own."
        )

    def close(self) -> None:
        os.close(self.descriptor)


def _create_or_check(directory: Path, kind: Kind, identity: dict[str, str]) -> bool:
    """Whether ``gantry.json`` had to be created; raises when the directory is somebody else's."""
    file = directory / IDENTITY_FILE
    try:
        stored = _read(file)
    except FileNotFoundError:
        _refuse_foreign_content(directory)
        document = {"format": FORMAT, "kind": kind, "identity": identity}
        atomic_write(file, _seal(document))
        return True
    except OSError as error:
        raise DataDirError(f"{file} cannot be read: {error.strerror or error}.") from error
    _check(file, stored, kind, identity)
    return False


def _refuse_foreign_content(directory: Path) -> None:
    found = sorted({entry.name for entry in directory.iterdir()} - _FOREIGN_BUT_HARMLESS)
    if found:
        raise DataDirError(
            f"The data directory {directory} has no {IDENTITY_FILE} but holds {found[0]!r}; "
            f"give an empty directory, or put the missing file back."
        )


def _check(file: Path, stored: dict[str, Any], kind: Kind, identity: dict[str, str]) -> None:
    if stored.get("format") != FORMAT:
        raise DataDirError(
            f"{file} has format {stored.get('format')!r}, this version reads format {FORMAT}; "
            f"start the version that wrote it."
        )
    expected = {"kind": kind, **identity}
    got = {"kind": stored.get("kind"), **stored.get("identity", {})}
    for key in sorted(expected.keys() | got.keys(), key=lambda name: (name != "kind", name)):
        if expected.get(key) != got.get(key):
            raise DataDirError(
                f"{file} says {key} is {got.get(key)!r}, but this process has "
                f"{expected.get(key)!r}; start it with the data directory that belongs to it."
            )


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _seal(document: dict[str, Any]) -> bytes:
    sealed = {**document, "crc32c": google_crc32c.value(_canonical(document))}
    return json.dumps(sealed, indent=1, sort_keys=True).encode() + b"\n"


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise CorruptionError(file, 0, f"it is not JSON ({error})") from error
    if not isinstance(document, dict) or not isinstance(document.get("identity", {}), dict):
        raise CorruptionError(file, 0, "it is not the JSON object that was written")
    expected = document.pop("crc32c", None)
    got = google_crc32c.value(_canonical(document))
    if got != expected:
        raise CorruptionError(file, 0, f"its checksum is {got}, expected {expected}")
    return document
