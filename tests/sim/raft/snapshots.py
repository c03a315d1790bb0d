"""Snapshots of one simulated node: a file on its disk, taken, loaded, sent and installed.

It keeps the order that ``gantry_controller.node.snapshots`` keeps: the log learns of a snapshot
when its file is durable, and older files go when the marker of a newer one is durable. The state is
the digest of everything applied, so one file is one write. How a file travels in chunks is not
simulated (``raft.shipment`` has tests of its own): here it arrives whole, twice, late or never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from gantry_controller.raft.snapshot import Marker, SnapshotMeta
from gantry_protocol.types import Index, NodeId
from sim.kernel.world import MS

if TYPE_CHECKING:
    from sim.kernel.disk import Disk
    from sim.raft.process import RaftProcess

SHIP_AGAIN_US = 400 * MS


class Stored(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        digest: the state machine's state: see ``process.chain``.
    """

    meta: SnapshotMeta
    digest: bytes


class Shipped(msgspec.Struct, frozen=True):
    """A leader sends its newest file."""

    source: NodeId
    stored: Stored


class Holds(msgspec.Struct, frozen=True):
    """What the receiver holds, committed, once it has dealt with the file."""

    source: NodeId
    index: Index


def load(disk: Disk, marker: Marker | None, *, durable: bool = False) -> Stored | None:
    """The file that the log's newest ``marker`` names; as the medium has it, if ``durable``."""
    if marker is None:
        return None
    file = disk.files[_name(marker.index)]
    stored = msgspec.msgpack.decode(file.durable if durable else file.data, type=Stored)
    assert (stored.meta.index, stored.meta.term) == (marker.index, marker.term)
    return stored


def _name(index: Index) -> str:
    return f"snapshot-{index}"


class SimSnapshots:
    """See the module."""

    def __init__(self, process: RaftProcess, newest: Stored | None) -> None:
        self.newest = newest
        self._process = process
        self._busy = False
        self._markers: list[tuple[int, Index]] = []  # (batch, snapshot) not yet durable
        self._shipped_us: dict[NodeId, int] = {}

    # ---- taking

    def take_when_due(self) -> None:
        """Begin one if enough was applied since the last."""
        every = self._process.knobs.snapshot_entries
        covered = 0 if self.newest is None else self.newest.meta.index
        if not every or self._busy or self._process.applied_index < covered + every:
            return
        stored = Stored(self._process.core.snapshot_meta(), self._process.digest)
        self._write(stored, lambda: self._taken(stored))

    def _taken(self, stored: Stored) -> None:
        core = self._process.core
        core.compact(stored.meta, self._process.knobs.snapshot_margin)
        if core.snapshot is stored.meta:
            self.newest = stored
        self._process.arm()

    def _write(self, stored: Stored, then: Callable[[], None]) -> None:
        self._busy = True
        file = self._process.host.disk.file(_name(stored.meta.index))
        file.write(0, msgspec.msgpack.encode(stored))
        file.sync(lambda: self._written(then))

    def _written(self, then: Callable[[], None]) -> None:
        self._busy = False
        then()

    # ---- files

    def submitted(self, batch: int, markers: list[Marker]) -> None:
        """``markers`` go to the disk with ``batch``."""
        self._markers += [(batch, marker.index) for marker in markers]

    def durable(self, batch: int) -> None:
        """Everything up to ``batch`` is on the disk: files older than a marker in it may go."""
        done = [index for number, index in self._markers if number <= batch]
        self._markers = [marker for marker in self._markers if marker[0] > batch]
        if done:
            files = self._process.host.disk.files
            for name in [n for n in files if n.startswith("snapshot-")]:
                if int(name.removeprefix("snapshot-")) < done[-1]:
                    del files[name]

    # ---- travelling

    def ship(self) -> None:
        """Send the newest file to whoever waits for one, again after a while."""
        now_us = self._process.host.clock_us
        for node in self._process.core.awaiting_snapshot:
            sent_us = self._shipped_us.get(node)
            if self.newest and (sent_us is None or now_us - sent_us > SHIP_AGAIN_US):
                self._shipped_us[node] = now_us
                shipped = Shipped(self._process.core.node_id, self.newest)
                self._process.host.send(f"n{node}", shipped)

    def receive(self, message: Shipped | Holds) -> None:
        """A file, or the answer to one."""
        core = self._process.core
        if isinstance(message, Holds):
            self._shipped_us.pop(message.source, None)
            core.snapshot_delivered(message.source, message.index)
            self._process.arm()
            return
        meta = message.stored.meta
        if not core.wants_snapshot(meta.index, meta.term):
            self._answer(message.source)
        elif not self._busy:
            self._write(message.stored, lambda: self._install(message))

    def _install(self, message: Shipped) -> None:
        if self._process.core.install(message.stored.meta) is not None:
            self.newest = message.stored
            self._process.restored(message.stored)
        self._answer(message.source)

    def _answer(self, source: NodeId) -> None:
        core = self._process.core
        self._process.host.send(f"n{source}", Holds(core.node_id, core.commit_index))
