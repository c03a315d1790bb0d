"""The log's checkpoint: where it begins, and below which offset nothing may ever be missing.

One small file with two slots that are written in turn, so that a torn write leaves the other slot.
A slot is only written after everything it promises is on the disk. The promise is a lower bound:
losing the newest slot weakens it and falsifies nothing.
"""

import os
import struct
from pathlib import Path

import google_crc32c
import msgspec
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.process.files import atomic_write
from gantry_protocol.types import Offset

_SLOT = struct.Struct(">4sIQQQ")  # magic, version, generation, log start, confirm floor
_CRC = struct.Struct(">I")
_MAGIC = b"GCKP"
_VERSION = 1
_STRIDE_BYTES = 4096  # one slot per page: a torn page cannot hit both


class Checkpoint(msgspec.Struct, frozen=True):
    """The contents of a slot.

    Attributes:
        generation: grows with every write; the newest valid slot counts.
        log_start: the first byte of the log.
        confirm_floor: everything below was confirmed, flushed and covered by range sums.
    """

    generation: int
    log_start: Offset
    confirm_floor: Offset


def encode(checkpoint: Checkpoint) -> bytes:
    """The bytes of one slot."""
    head = _SLOT.pack(
        _MAGIC,
        _VERSION,
        checkpoint.generation,
        checkpoint.log_start,
        checkpoint.confirm_floor,
    )
    return head + _CRC.pack(google_crc32c.value(head))


def create(path: Path, checkpoint: Checkpoint) -> None:
    """A new file with ``checkpoint`` in both slots, durable on return."""
    slot = encode(checkpoint).ljust(_STRIDE_BYTES, b"\0")
    atomic_write(path, slot + slot)


def load(path: Path) -> Checkpoint:
    """The newest valid slot.

    Raises:
        CorruptionError: neither slot is whole.
        DataDirError: a newer version of Gantry wrote it.
    """
    data = path.read_bytes()
    found = [
        checkpoint
        for at in (0, _STRIDE_BYTES)
        if (checkpoint := _decode(path, data[at : at + _SLOT.size + _CRC.size])) is not None
    ]
    if not found:
        raise CorruptionError(
            path, 0, "neither of its two slots matches its checksum; restore it from a copy"
        )
    return max(found, key=lambda checkpoint: checkpoint.generation)


def _decode(path: Path, slot: bytes) -> Checkpoint | None:
    if len(slot) < _SLOT.size + _CRC.size:
        return None
    head = slot[: _SLOT.size]
    if _CRC.unpack_from(slot, _SLOT.size)[0] != google_crc32c.value(head):
        return None
    magic, version, generation, log_start, confirm_floor = _SLOT.unpack(head)
    if magic != _MAGIC or version != _VERSION:
        raise DataDirError(
            f"{path} has format {magic!r} version {version}, this program reads version"
            f" {_VERSION} of {_MAGIC!r}: start the version that wrote it."
        )
    return Checkpoint(generation, Offset(log_start), Offset(confirm_floor))


class CheckpointFile:
    """An open checkpoint; used by one thread at a time."""

    def __init__(self, path: Path, current: Checkpoint) -> None:
        self._path = path
        self._current = current
        self._descriptor = os.open(path, os.O_RDWR)

    @property
    def current(self) -> Checkpoint:
        """The checkpoint that was written last."""
        return self._current

    def stage_floor(self, confirm_floor: Offset) -> None:
        """Write a higher floor; on the disk after ``sync``.

        It is current at once: nothing follows from it if that sync fails, since a log whose disk
        has failed writes no checkpoint any more.
        """
        self._stage(self._current.log_start, confirm_floor)

    def sync(self) -> None:
        """Make what was staged durable; blocks."""
        os.fdatasync(self._descriptor)

    def write(self, log_start: Offset, confirm_floor: Offset) -> None:
        """Make a later start and a higher floor durable, together; blocks for one sync."""
        self._stage(log_start, confirm_floor)
        self.sync()

    def _stage(self, log_start: Offset, confirm_floor: Offset) -> None:
        assert log_start >= self._current.log_start
        assert confirm_floor >= self._current.confirm_floor
        following = msgspec.structs.replace(
            self._current,
            generation=self._current.generation + 1,
            log_start=log_start,
            confirm_floor=confirm_floor,
        )
        at = _STRIDE_BYTES * (following.generation % 2)
        os.pwrite(self._descriptor, encode(following), at)
        self._current = following

    def reload(self) -> None:
        """Somebody replaced the file: read and keep the new one."""
        current, descriptor = load(self._path), os.open(self._path, os.O_RDWR)
        os.close(self._descriptor)
        self._current, self._descriptor = current, descriptor

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
