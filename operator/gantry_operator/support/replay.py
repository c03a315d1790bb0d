"""The decisions in a support bundle, made once more by this version; reads a file and nothing else.

A bundle comes from somebody else, so it is read within bounds, member by member, and nothing of it
is ever written to a disk.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from gantry_operator.decisions.codec import NotADecisionError
from gantry_operator.decisions.replay import recording_of, replayed
from gantry_operator.support.bundle import DECISIONS, FILES_MAX, RAFT, REPLICA

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from pathlib import Path

    from gantry_operator.decisions.replay import Outcome, Recording

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one file of decisions."""
DEPTH: Final = 3
"""Parts of a file's path: the bundle's root, the folder, the name."""
_KINDS: Final = {DECISIONS: ".json", RAFT: ".jsonl", REPLICA: ".jsonl"}
CHUNK_BYTES: Final = 64 * 1024
UNPACKED_MAX: Final = 1024 * 1024 * 1024
"""Of all files; `report --size` allows half of it."""


class _Bounded:
    """A file that ends with an error after so many bytes, whatever was packed into it."""

    def __init__(self, inner: io.BufferedIOBase) -> None:
        self._inner = inner
        self._left = UNPACKED_MAX

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise NotADecisionError(f"it unpacks to more than {UNPACKED_MAX} bytes")
        return data


class Recorded(NamedTuple):
    """A file of a bundle from which something can be made again.

    Attributes:
        folder: says what it is (``bundle.DECISIONS``, ``bundle.RAFT``, ``bundle.REPLICA``).
        place: the file, for people.
    """

    folder: str
    place: str
    data: bytes


def recorded(bundle: Path) -> list[Recorded]:
    """The files of a bundle that hold decisions and steps.

    Raises:
        NotADecisionError: it is no bundle, is damaged or too large, or holds neither.
    """
    try:
        found = _read(bundle)
    except NotADecisionError as error:
        raise NotADecisionError(f"{bundle}: {str(error).rstrip('.')}.") from None
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise NotADecisionError(
            f"{bundle} is no whole bundle of kubectl gantry report: {str(error).rstrip('.')}."
        ) from None
    except OSError as error:
        raise NotADecisionError(f"{bundle} cannot be read: {error.strerror or error}.") from None
    if not found:
        raise NotADecisionError(
            f"{bundle} holds no decisions: either no process had made any, or its manifest.json "
            "says why they could not be read."
        )
    return found


def recordings(bundle: Path, found: list[Recorded]) -> list[tuple[str, Recording]]:
    """The operators' decisions in a bundle, by the file that they are in.

    Raises:
        NotADecisionError: a file holds none that this version can read.
    """
    try:
        return [
            (one.place, recording_of(one.data, one.place))
            for one in found
            if one.folder == DECISIONS
        ]
    except NotADecisionError as error:
        raise NotADecisionError(f"{bundle}: {str(error).rstrip('.')}.") from None


def outcomes(found: list[tuple[str, Recording]]) -> Iterator[Outcome]:
    """Each recorded decision made once more, in the order of their times within a file.

    Raises:
        NotADecisionError: one cannot be read by this version.
    """
    for name, recording in found:
        for number, written in enumerate(recording.decisions):
            yield replayed(recording, written, f"{name}, decision {number}")


def _read(bundle: Path) -> list[Recorded]:
    with gzip.open(bundle, "rb") as unpacked:
        whole = _Bounded(unpacked)
        with tarfile.open(fileobj=whole, mode="r|") as archive:  # type: ignore[call-overload]
            found = _found(archive)
        while whole.read(CHUNK_BYTES):  # to its checksum: what was cut off at the end is noticed
            pass
    return found


def _found(archive: tarfile.TarFile) -> list[Recorded]:
    found: list[Recorded] = []
    for number, member in enumerate(archive):
        if number >= FILES_MAX:
            raise NotADecisionError(f"it has more than {FILES_MAX} files")
        path = PurePosixPath(member.name)
        folder = path.parent.name
        if not member.isreg() or _KINDS.get(folder) != path.suffix or len(path.parts) != DEPTH:
            continue
        if member.size > FILE_BYTES_MAX:
            raise NotADecisionError(f"{_plain(path.name)} has more than {FILE_BYTES_MAX} bytes")
        file = archive.extractfile(member)
        assert file is not None, "it is a regular file"
        found.append(Recorded(folder, f"{folder}/{_plain(path.name)}", file.read()))
    return found


def _plain(name: str) -> str:
    """A name from the bundle as it may be shown on a terminal."""
    return re.sub(r"[^\w.\-]", "?", name)[:80]
