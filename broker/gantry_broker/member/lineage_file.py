"""The file beside the log that says which epoch wrote which part of it.

Replaced as a whole, durably, before anything relies on it: records carry no epoch, so a line that
is lost would let one master's records pass for another's. What it refuses: a damaged file, a newer
format, entries that no history can have. It never starts afresh over a file it cannot read.
"""

from pathlib import Path

import google_crc32c
import msgspec
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.process.files import atomic_write
from gantry_protocol.types import Epoch, EpochEntry, Offset

from gantry_broker.replica import Lineage, LineageError, StoredState

FILE = "lineage.json"
FORMAT = 1


class _State(msgspec.Struct, forbid_unknown_fields=True):
    epoch: int
    confirm: int
    lineage: list[tuple[Epoch, Offset]]


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    crc32c: int
    state: _State


# Made here, by one thread: msgspec crashes where two are the first to decode a class.
_decoder = msgspec.json.Decoder(_Sealed)


def load(directory: Path) -> StoredState:
    """The stored state; the empty one on a new volume.

    Raises:
        CorruptionError: the file is damaged.
        DataDirError: a newer version wrote it.
    """
    path = directory / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return StoredState(Epoch(0), Lineage(), Offset(0))
    try:
        _check_format(path, msgspec.json.decode(data))
        sealed = _decoder.decode(data)
        state = sealed.state
        if sealed.crc32c != _checksum(state):
            raise CorruptionError(path, 0, "its checksum does not match")
        entries = [EpochEntry(epoch, start) for epoch, start in state.lineage]
        return StoredState(Epoch(state.epoch), Lineage(entries), Offset(state.confirm))
    except (msgspec.MsgspecError, LineageError) as error:
        raise CorruptionError(path, 0, f"it does not read ({error})") from error


def save(directory: Path, stored: StoredState) -> None:
    """Replace the file; durable on return."""
    pairs = [(entry.epoch, entry.start_offset) for entry in stored.lineage.entries]
    state = _State(stored.epoch, stored.confirm, pairs)
    atomic_write(
        directory / FILE, msgspec.json.encode(_Sealed(FORMAT, _checksum(state), state)) + b"\n"
    )


def _check_format(path: Path, found: object) -> None:
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise DataDirError(
            f"{path} has format {version}, this version reads format {FORMAT}; "
            f"start the version that wrote it."
        )


def _checksum(state: _State) -> int:
    return int(google_crc32c.value(msgspec.json.encode(state)))
