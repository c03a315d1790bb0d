"""Small files that must be whole or absent after any crash.

A file is written beside its final name, synced, renamed over it, and the directory is synced: a
reader sees the old bytes or the new ones, never a mixture, and a returned call survives power loss.
"""

import os
from pathlib import Path

from gantry_protocol.errors import ConfigError

SECRET_FILE_BYTES_MAX = 4096
DATA_MODE = 0o664
"""Of files that hold data. The process's umask decides about the group: see `datadir`."""


def fsync_directory(directory: Path) -> None:
    """Make renames, creations and removals in ``directory`` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def atomic_write(path: Path, data: bytes, *, mode: int = DATA_MODE) -> None:
    """Replace ``path`` with ``data``, durably.

    There is one temporary name per path, so concurrent writers of one path must exclude each other;
    what a crash leaves under it is overwritten by the next call.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    fsync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Create ``path`` and its parents, each durable in its own parent; existing ones are fine."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    fsync_directory(path.parent)


def read_secret(file: Path) -> str:
    """The secret of a user in the first line of a file.

    Raises:
        ConfigError: the file holds none; says what to put there.
    """
    try:
        with file.open("rb") as opened:
            lines = opened.read(SECRET_FILE_BYTES_MAX).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"The secret file {file} cannot be read: {why}.") from error
    if not lines or not lines[0].strip():
        raise ConfigError(f"The secret file {file} is empty: put the secret into its first line.")
    return lines[0].strip()
