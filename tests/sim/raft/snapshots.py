"""Snapshots of one simulated node: a file on its disk, taken, loaded, installed, removed.

It keeps the order that ``gantry_controller.node.snapshots`` keeps: the log learns of a snapshot
when its file is durable, and older files go when the marker of a newer one is durable. The state is
the digest of everything applied, in a file of the real format. How files travel: ``shipments``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from gantry_controller.raft.snapshot import Marker, SnapshotMeta
from gantry_controller.wal.snapshot_file import Encoder, checksum_of, parse_meta, parse_slices
from gantry_protocol.types import Index

if TYPE_CHECKING:
    from gantry_controller.raft.shipment import Shipment
    from sim.kernel.disk import Disk
    from sim.raft.process import RaftProcess

SLICE_BYTES = 4  # so that a digest is several slices


class Stored(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        digest: the state machine's state: see ``process.chain``.
        data: all bytes of the file.
    """

    meta: SnapshotMeta
    digest: bytes
    data: bytes

    @property
    def checksum(self) -> int:
        """What names its content."""
        return checksum_of(self.data)


def write_file(meta: SnapshotMeta, digest: bytes) -> Stored:
    """The file of a state."""
    return Stored(meta, digest, b"".join(_parts(Encoder(meta), digest)))


def _parts(encoder: Encoder, digest: bytes) -> Iterator[bytes]:
    yield encoder.header()
    for place in range(0, len(digest), SLICE_BYTES):
        yield encoder.slice(digest[place : place + SLICE_BYTES])
    yield encoder.end()


def read_file(name: str, data: bytes) -> Stored:
    """The state in a file; raises CorruptionError."""
    path = Path(name)
    meta, offset, checksum = parse_meta(path, data)
    return Stored(meta, b"".join(parse_slices(path, data, offset, checksum)), data)


def _name(index: int) -> str:
    return f"snapshot-{index:020}"


def load(disk: Disk, marker: Marker | None, *, durable: bool = False) -> Stored | None:
    """The file that the log's newest ``marker`` names; as the medium has it, if ``durable``."""
    if marker is None:
        return None
    name = _name(marker.index)
    file = disk.files[name]
    stored = read_file(name, bytes(file.durable if durable else file.data))
    assert (stored.meta.index, stored.meta.term) == (marker.index, marker.term)
    return stored


class SimSnapshots:
    """One life's snapshots.

    Attributes:
        newest: the newest complete one; what a peer is sent.
    """

    def __init__(self, process: RaftProcess, newest: Stored | None) -> None:
        self.newest = newest
        self._process = process
        self._taking = False
        self._remove(lambda index: newest is None or index != newest.meta.index)

    # ---- taking

    def take_when_due(self) -> None:
        """Begin one at every so manieth entry, which on other nodes is the same one."""
        every = self._process.knobs.snapshot_entries
        covered = 0 if self.newest is None else self.newest.meta.index
        if not every or self._taking or self._process.applied_index // every <= covered // every:
            return
        self._taking = True
        stored = write_file(self._process.core.snapshot_meta(), self._process.digest)
        self._write(stored, lambda: self._taken(stored))

    def _taken(self, stored: Stored) -> None:
        self._taking = False
        core = self._process.core
        core.compact(stored.meta, self._process.knobs.snapshot_margin)
        if core.snapshot is stored.meta:
            self.newest = stored
            self._process.observer.snapshot_taken(self._process, stored)
        self._process.arm()

    def _write(self, stored: Stored, then: Callable[[], None]) -> None:
        file = self._process.host.disk.file(_name(stored.meta.index))
        file.write(0, stored.data)
        file.sync(then)

    # ---- receiving

    def install(self, data: bytes, shipment: Shipment, then: Callable[[], None]) -> None:
        """A peer's snapshot was received in full: verify it, make it durable, begin behind it.

        Raises:
            CorruptionError: its bytes are not what was announced.
        """
        stored = read_file(f"shipment {shipment.index}", data)
        announced = (shipment.index, shipment.term, shipment.checksum)
        assert (stored.meta.index, stored.meta.term, stored.checksum) == announced
        self._write(stored, lambda: self._received(stored, then))

    def _received(self, stored: Stored, then: Callable[[], None]) -> None:
        if self._process.core.install(stored.meta) is not None:
            self.newest = stored
            self._process.restored(stored)
        then()

    # ---- files

    def durable(self, marked: Index) -> None:
        """The marker of the snapshot ``marked`` is on the disk: older files may go."""
        self._remove(lambda index: index < marked)

    def _remove(self, condemned: Callable[[int], bool]) -> None:
        files = self._process.host.disk.files
        for name in [name for name in files if name.startswith("snapshot-")]:
            if condemned(int(name.removeprefix("snapshot-"))):
                del files[name]
