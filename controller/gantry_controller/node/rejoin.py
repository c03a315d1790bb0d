"""The return of a node whose log or snapshot is damaged (ADR 0026).

It may not go on with what is left of its files, since it would vote and confirm on what it no
longer knows. So they are put aside, whole and under another name, and the node begins with an empty
log: without a vote, until a leader has filled and admitted it (``raft.admission``).

The rules protected here: only damage is put aside, never a log that could be used; nothing is
removed; and a node that has files aside never founds a quorum (``aside``), since what it put there
may be the last copy of something acknowledged. The directory beside the log is the mark of that: it
is there, durably, from the same rename on that takes the log away.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError, GantryError

from gantry_controller.wal.recovery import Recovered, recover
from gantry_controller.wal.segments import list_segments, read_segments, sync_directory
from gantry_controller.wal.snapshots import load_snapshot

_MARK = ".damaged-"

Assemble = Callable[[Iterable[bytes]], object]


class RejoinRefused(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """There is nothing damaged that a node could come back from."""


class PutAside(msgspec.Struct, frozen=True):
    """The damage, and the present place of all of the files."""

    damage: CorruptionError
    kept_in: Path


def aside(directory: Path) -> list[Path]:
    """The places of damaged files of the log in ``directory``, the oldest first.

    While there are any, this node is no founder: neither does it found a quorum, nor does it say
    that it is new to one that wants to.
    """
    if not directory.parent.is_dir():
        return []
    found = directory.parent.glob(f"{directory.name}{_MARK}*")
    numbers = sorted(int(path.name.rpartition("-")[2]) for path in found if _is_numbered(path))
    return [_aside_path(directory, number) for number in numbers]


def put_aside(directory: Path, assemble: Assemble) -> PutAside | None:
    """Rename ``directory`` if what it holds is damaged; blocks, and the caller holds the lock.

    Args:
        directory: of the log and its snapshot.
        assemble: makes a state of a snapshot's slices, or raises.

    Returns:
        None if that was done at an earlier start, after which this node has not been admitted yet.

    Raises:
        RejoinRefused: the files are sound, or there are none.
        DataDirError: they were written by a newer program, which is no damage.
    """
    try:
        found = _read(directory, assemble)
    except CorruptionError as damage:
        return PutAside(damage, _rename(directory))
    earlier = aside(directory)
    if earlier and (found.hard_state is None or not found.hard_state.voting):
        return None
    if found.head is None:
        raise RejoinRefused(
            f"There is no log in {directory} that could be damaged: start this node without "
            "--rejoin; a node with an empty directory waits for the others by itself."
        )
    since = f" since {earlier[-1].name} was put aside" if earlier else ""
    raise RejoinRefused(
        f"The log in {directory} is sound{since}, so there is nothing to come back from: start "
        "this node without --rejoin."
    )


def _read(directory: Path, assemble: Assemble) -> Recovered:
    """Everything that a start reads. Raises CorruptionError, and DataDirError."""
    if not directory.is_dir():
        return Recovered()
    _, paths = list_segments(directory)
    found = recover(read_segments(paths))
    if found.marker is not None:
        load_snapshot(directory, found.marker, assemble)
    return found


def _rename(directory: Path) -> Path:
    numbers = [int(path.name.rpartition("-")[2]) for path in aside(directory)]
    target = _aside_path(directory, max(numbers, default=0) + 1)
    directory.rename(target)
    sync_directory(directory.parent)
    return target


def _aside_path(directory: Path, number: int) -> Path:
    return directory.with_name(f"{directory.name}{_MARK}{number}")


def _is_numbered(path: Path) -> bool:
    number = path.name.rpartition("-")[2]
    return number.isascii() and number.isdigit()
