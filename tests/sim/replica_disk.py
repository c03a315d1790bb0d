"""What a simulated broker keeps on its disk: a log of small records, and the state beside it.

A record is 16 bytes: the epoch that wrote it, a number that no other record has, and a checksum
over both and the offset. The state is written to two slots in turn, so that a power cut leaves one
whole, as the real file does by renaming. Recovery cuts the log at the first record that is not
whole, as the real one does.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import msgspec
from gantry_broker.replica import Lineage, LogFacts, StoredState
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.kernel.disk import Disk, File

RECORD = struct.Struct(">IQI")
SIZE = RECORD.size
_HEAD = struct.Struct(">II")


class _State(msgspec.Struct):
    number: int
    epoch: int
    confirm: int
    lineage: list[tuple[int, int]]


class Identity(msgspec.Struct, frozen=True):
    """Who the volume belongs to; ``broker_id`` is 0 until the controller has given it one."""

    broker_id: int
    check_code: str


def record(epoch: int, number: int, offset: int) -> bytes:
    """The bytes of one record."""
    return RECORD.pack(epoch, number, zlib.crc32(struct.pack(">IQQ", epoch, number, offset)))


def epoch_at(log: bytes | bytearray, offset: int) -> int:
    """The epoch that wrote the record at ``offset``."""
    return int(RECORD.unpack_from(log, offset)[0])


def sound_size(log: bytes | bytearray) -> int:
    """Bytes of whole records from the start."""
    offset = 0
    while offset + SIZE <= len(log):
        epoch, number, _ = RECORD.unpack_from(log, offset)
        if log[offset : offset + SIZE] != record(epoch, number, offset):
            break
        offset += SIZE
    return offset


class ReplicaDisk:
    """The files of one broker."""

    def __init__(self, disk: Disk) -> None:
        self.log: File = disk.file("log")
        self._slots = [disk.file("state.0"), disk.file("state.1")]
        self._identity = disk.file("identity")
        self._number = 0

    def recover(self) -> LogFacts:
        """What a process that starts finds."""
        self.log.truncate(sound_size(self.log.data))
        stored = _newest([bytes(slot.data) for slot in self._slots])
        self._number = stored.number
        end = Offset(len(self.log.data))
        return LogFacts(log_start=Offset(0), end=end, flushed=end, stored=_stored_state(stored))

    def identity(self) -> Identity | None:
        """Who this volume belongs to; None on an empty one."""
        payload = _unseal(bytes(self._identity.data))
        return None if payload is None else msgspec.json.decode(payload, type=Identity)

    def save_identity(self, identity: Identity, done: Callable[[], None]) -> None:
        """Keep ``identity``; ``done`` when it is durable."""
        self._identity.write(0, _seal(msgspec.json.encode(identity)))
        self._identity.sync(done)

    def save(self, state: StoredState, done: Callable[[], None]) -> None:
        """Keep ``state``; ``done`` when it is durable."""
        self._number += 1
        slot = self._slots[self._number % 2]
        pairs = [(entry.epoch, entry.start_offset) for entry in state.lineage.entries]
        content = _State(self._number, state.epoch, state.confirm, pairs)
        slot.write(0, _seal(msgspec.json.encode(content)))
        slot.sync(done)


def durable_state(disk: Disk) -> StoredState:
    """What a power cut now would leave for certain."""
    slots = [bytes(disk.file(name).durable) for name in ("state.0", "state.1")]
    return _stored_state(_newest(slots))


def durable_log(disk: Disk) -> bytes:
    """The log as a power cut now would leave it for certain."""
    return bytes(disk.file("log").durable)


def _newest(slots: list[bytes]) -> _State:
    payloads = [payload for payload in map(_unseal, slots) if payload is not None]
    states = [msgspec.json.decode(payload, type=_State) for payload in payloads]
    return max(states, key=lambda state: state.number, default=_State(0, 0, 0, []))


def _stored_state(state: _State) -> StoredState:
    entries = [EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in state.lineage]
    return StoredState(Epoch(state.epoch), Lineage(entries), Offset(state.confirm))


def _seal(payload: bytes) -> bytes:
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def _unseal(data: bytes) -> bytes | None:
    if len(data) < _HEAD.size:
        return None
    size, checksum = _HEAD.unpack_from(data)
    payload = data[_HEAD.size : _HEAD.size + size]
    return payload if len(payload) == size and zlib.crc32(payload) == checksum else None


def broker_id_of(disk: Disk) -> BrokerId | None:
    """The id kept on this volume."""
    payload = _unseal(bytes(disk.file("identity").data))
    if payload is None:
        return None
    found = msgspec.json.decode(payload, type=Identity).broker_id
    return BrokerId(found) if found else None
