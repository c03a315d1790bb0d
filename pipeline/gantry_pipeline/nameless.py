"""A name for a user that has none, in the processes that Spark starts.

A platform may give a pod a user of no account. Hadoop, which Spark brings along, asks the C library
for the user's name and refuses to go on without one, whatever it is told. ``nss_wrapper`` answers
in the C library's place, from files; it is loaded into Spark's processes only. Where the container
runtime names the user, as CRI-O does, there is nothing to do.
"""

from __future__ import annotations

import os
import pwd
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError
from gantry_protocol.process.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LIBRARY = "libnss_wrapper.so"
NAME = "gantry"
_PRELOAD, _PASSWD, _GROUP = "LD_PRELOAD", "NSS_WRAPPER_PASSWD", "NSS_WRAPPER_GROUP"
_VARIABLES = {_PRELOAD, _PASSWD, _GROUP}


class NamelessUserError(GantryError):
    """Spark cannot run as this user; the sentence says what to install."""


@contextmanager
def named(folder: Path, *, libraries: Iterable[str] = LIBRARIES) -> Iterator[None]:
    """Processes that are started meanwhile find a name for this user; see ``variables``."""
    before = dict(os.environ)
    os.environ.update(variables(folder, libraries=libraries))
    try:
        yield
    finally:
        for name in _VARIABLES & os.environ.keys():
            del os.environ[name]
        os.environ.update({name: before[name] for name in _VARIABLES & before.keys()})


def variables(folder: Path, *, libraries: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Environment in which this user has a name; empty where it has one.

    Args:
        folder: where the two files are written that say so; the caller's, and its to remove.
        libraries: folders, themselves and one below, in which the library may be.

    Raises:
        NamelessUserError: the library is not installed.
    """
    user, group = os.getuid(), os.getgid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        pass
    else:
        return {}
    library = _library(libraries)
    if library is None:
        raise NamelessUserError(
            f"Spark needs a name for its user, and there is none for {user}: install {LIBRARY} "
            "(Debian: apt install libnss-wrapper), or run it as a user of /etc/passwd."
        )
    passwd, groups = folder / "passwd", folder / "group"
    atomic_write(passwd, f"{NAME}:x:{user}:{group}::{folder}:/bin/false\n".encode())
    atomic_write(groups, f"{NAME}:x:{group}:\n".encode())
    loaded = [str(library), *os.environ.get(_PRELOAD, "").split()]
    return {
        _PRELOAD: " ".join(loaded),
        _PASSWD: str(passwd),
        _GROUP: str(groups),
    }


def _library(folders: Iterable[str]) -> Path | None:
    for folder in folders:
        for path in (Path(folder, LIBRARY), *sorted(Path(folder).glob(f"*/{LIBRARY}"))):
            if path.is_file():
                return path
    return None
