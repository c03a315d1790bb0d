"""What a simulated broker keeps on its disk: a log of small records, and what stands beside it.

A record is 16 bytes: the epoch that wrote it, a number that no other record has, and a checksum
over both and the offset. State and tables are written to two slots in turn, so that a power cut
leaves one whole, as a real file does by renaming. A cut of the log is decided by a durable marker
and ends when the shorter log is durable; recovery finishes it. Recovery cuts the log at the first
record that is not whole. All of that is what the real log does.

A log may begin later than at 0. What was below is kept as a shadow, so that everybody can say what
should be there; a log that begins anew gets the confirmed bytes for it. Nobody may read them.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

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


class _Cut(msgspec.Struct, omit_defaults=True):
    """The marker of a cut; -1 is none.

    Attributes:
        below: of a reset: what stands below the point from then on; None cuts the end off.
    """

    number: int
    point: int
    below: bytes | None = None


class _Start(msgspec.Struct):
    """Where the log begins."""

    number: int
    start: int


class _Tables(msgspec.Struct):
    number: int
    tables: bytes


Slot = TypeVar("Slot", _State, _Cut, _Start, _Tables)
_NO_STATE = _State(0, 0, 0, [])
_NO_CUT = _Cut(0, -1)
_FROM_ZERO = _Start(0, 0)
_NO_TABLES = _Tables(0, b"")


class _Slots(Generic[Slot]):
    """Two files that are written in turn, one write at a time, so that one of them is whole."""

    def __init__(self, disk: Disk, name: str, empty: Slot) -> None:
        self._files = [disk.file(f"{name}.{number}") for number in range(2)]
        self._empty: Slot = empty
        self._wanted: deque[tuple[Slot, Callable[[], None]]] = deque()

    def newest(self) -> Slot:
        """What was written last."""
        found: Slot = newest_of([bytes(file.data) for file in self._files], self._empty)
        return found

    def save(self, content: Slot, done: Callable[[], None]) -> None:
        """Keep ``content``, after every earlier one; ``done`` when it is durable."""
        self._wanted.append((content, done))
        if len(self._wanted) == 1:
            self._write()

    def _write(self) -> None:
        content, _ = self._wanted[0]
        content.number = self.newest().number + 1
        file = self._files[content.number % 2]
        file.write(0, _seal(msgspec.json.encode(content)))
        file.sync(self._written)

    def _written(self) -> None:
        _, done = self._wanted.popleft()
        if self._wanted:
            self._write()
        done()

    def set_at_once(self, content: Slot) -> None:
        """Keep ``content``, durably and at once; a recovery step."""
        content.number = self.newest().number + 1
        file = self._files[content.number % 2]
        file.write(0, _seal(msgspec.json.encode(content)))
        file.truncate(len(file.data))

    def clear(self) -> None:
        """Nothing was ever written; a recovery step."""
        for file in self._files:
            file.truncate(0)


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
        self._disk = disk
        self._state = _Slots(disk, "state", _NO_STATE)
        self._cut = _Slots(disk, "cut", _NO_CUT)
        self._tables = _Slots(disk, "tables", _NO_TABLES)
        self._identity = disk.file("identity")
        self._start: _Slots[_Start] | None = None

    def may_be_cut(self) -> None:
        """The log may begin later than at 0; to be said before anything else."""
        self._start = _Slots(self._disk, "start", _FROM_ZERO)

    @property
    def _starts(self) -> _Slots[_Start]:
        assert self._start is not None, "this log is not to be cut"
        return self._start

    @property
    def is_full(self) -> bool:
        """Whether the disk has no room."""
        return self._disk.is_full

    def recover(self) -> LogFacts:
        """What a process that starts finds; what it finds is durable from then on."""
        cut = self._cut.newest()
        start = 0 if self._start is None else self._start.newest().start
        if cut.below is not None:
            self.log.data[:] = cut.below
            start = cut.point
            self._starts.set_at_once(_Start(0, start))
        kept = sound_size(self.log.data)
        self.log.truncate(kept if cut.point < 0 else min(kept, cut.point))
        self._cut.clear()
        end = Offset(len(self.log.data))
        stored = _stored_state(self._state.newest())
        confirm = Offset(max(stored.confirm, start))  # nothing goes that is not confirmed
        stored = msgspec.structs.replace(stored, confirm=confirm)
        return LogFacts(log_start=Offset(start), end=end, flushed=end, stored=stored)

    def trim(self, start: int, done: Callable[[], None]) -> None:
        """Let the log begin at ``start``; ``done`` when that is durable."""
        self._starts.save(_Start(0, start), done)

    def reset(self, point: int, below: bytes, done: Callable[[], None]) -> None:
        """Throw the log away and begin an empty one at ``point``; ``below`` is its shadow."""

        def decided() -> None:
            self.log.cut(0)
            self.log.append(below)
            self.log.sync(replaced)

        def replaced() -> None:
            self._starts.save(_Start(0, point), finished)

        def finished() -> None:
            self._cut.save(_Cut(0, -1), done)

        self._cut.save(_Cut(0, point, below), decided)

    def append(self, data: bytes) -> int:
        """Append whole records; returns the bytes that there was room for."""
        if self.is_full:
            return 0
        self.log.append(data)
        return len(data)

    def cut(self, point: int, done: Callable[[], None]) -> None:
        """Cut the log; ``done`` when a power cut cannot bring anything of it back."""

        def decided() -> None:
            self.log.cut(point)
            self.log.sync(finished)

        def finished() -> None:
            self._cut.save(_Cut(0, -1), done)

        self._cut.save(_Cut(0, point), decided)

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
        pairs: list[tuple[int, int]] = [
            (entry.epoch, entry.start_offset) for entry in state.lineage.entries
        ]
        self._state.save(_State(0, state.epoch, state.confirm, pairs), done)

    def tables(self) -> bytes:
        """The newest checkpoint of the tables; none on an empty volume."""
        return self._tables.newest().tables

    def save_tables(self, tables: bytes) -> None:
        """Keep a checkpoint of the tables."""
        self._tables.save(_Tables(0, tables), _nothing)


def durable_state(disk: Disk) -> StoredState:
    """What a power cut now would leave for certain."""
    slots = [bytes(disk.file(name).durable) for name in ("state.0", "state.1")]
    return _stored_state(newest_of(slots, _NO_STATE))


def durable_log(disk: Disk) -> bytes:
    """The log as a power cut now would leave it for certain."""
    return bytes(disk.file("log").durable)


def newest_of(slots: list[bytes], empty: Slot) -> Slot:
    """The newest content of slots that are whole; ``empty`` when none is."""
    payloads = [payload for payload in map(_unseal, slots) if payload is not None]
    found = [msgspec.json.decode(payload, type=type(empty)) for payload in payloads]
    return max(found, key=lambda content: content.number, default=empty)


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
    if not payload:
        return None  # a sector of zeros would be a sound one of nothing
    return payload if len(payload) == size and zlib.crc32(payload) == checksum else None


def broker_id_of(disk: Disk) -> BrokerId | None:
    """The id kept on this volume."""
    payload = _unseal(bytes(disk.file("identity").data))
    if payload is None:
        return None
    found = msgspec.json.decode(payload, type=Identity).broker_id
    return BrokerId(found) if found else None


def _nothing() -> None:
    pass
