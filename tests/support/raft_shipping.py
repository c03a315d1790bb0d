"""Snapshots in the stories of ``raft_scenario``: taken, sent in chunks, lost, installed.

The bytes of a snapshot are made up from its index; only their way is real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.shipment import (
    InstallSnapshot,
    InstallSnapshotReply,
    Receiving,
    Sending,
    Shipment,
)
from gantry_protocol.types import Index, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_controller.raft.core import RaftCore
    from gantry_controller.raft.snapshot import SnapshotMeta

CHUNK_BYTES = 4
SIZE = 10


class Shipping:
    """All transfers of one story."""

    def __init__(self, core: Callable[[int], RaftCore], say: Callable[[str], None]) -> None:
        self.core = core
        self.say = say
        self.metas: dict[Index, SnapshotMeta] = {}
        self._sending: dict[tuple[int, int], Sending] = {}
        self._receiving: dict[int, Receiving] = {}

    def compact(self, node: int, margin: int) -> None:
        meta = self.core(node).snapshot_meta()
        self.metas[meta.index] = meta
        self.core(node).compact(meta, margin)

    def offer(self, source: int, target: int) -> InstallSnapshot:
        """A new connection, and the newest snapshot of ``source`` offered on it."""
        snapshot = self.core(source).snapshot
        assert snapshot is not None
        shipment = Shipment(snapshot.index, snapshot.term, SIZE, snapshot.index)
        self._sending[source, target] = Sending(shipment, chunk_bytes=CHUNK_BYTES)
        return InstallSnapshot(NodeId(source), NodeId(target), shipment, 0, b"")

    def receive(self, chunk: InstallSnapshot) -> InstallSnapshotReply | None:
        """What ``node.receiving`` does with a chunk; None for one that ends the connection."""
        node, core = int(chunk.target), self.core(chunk.target)
        receiving = self._receiving.setdefault(node, Receiving())
        shipment, holds, offset = chunk.shipment, Index(0), chunk.offset
        if not core.snapshot_offered(shipment.index, shipment.term):
            receiving.forget()
            holds = core.commit_index
        elif not chunk.data:
            receiving.offered(shipment)
            offset = receiving.offset
        else:
            try:
                receiving.take(chunk)
            except MessageError as error:
                self.say(f"{node}: MessageError: {error}")
                return None
            offset = receiving.offset
            if receiving.complete:
                receiving.forget()
                core.install(self.metas[shipment.index])
                holds = core.commit_index
        return InstallSnapshotReply(chunk.target, chunk.source, shipment.index, holds, offset)

    def reply(self, reply: InstallSnapshotReply) -> list[InstallSnapshot]:
        """The chunks that ``source`` sends on because of an answer."""
        source, target = int(reply.target), int(reply.source)
        sending = self._sending[source, target]
        sending.on_reply(reply)
        if sending.done:
            del self._sending[source, target]
            self.core(source).snapshot_delivered(reply.source, sending.holds)
            return []
        chunks: list[InstallSnapshot] = []
        while (piece := sending.take()) is not None:
            offset, length = piece
            data = bytes(length)
            chunks.append(
                InstallSnapshot(reply.target, reply.source, sending.shipment, offset, data)
            )
        return chunks

    def forget(self, node: int) -> None:
        """A crash: what was received so far is lost."""
        self._receiving.pop(node, None)


def show_part(message: InstallSnapshot | InstallSnapshotReply) -> str:
    """A part of a transfer in one line."""
    head = f"{message.source}→{message.target}"
    if isinstance(message, InstallSnapshotReply):
        wants = f"holds {message.holds}" if message.holds else f"wants byte {message.offset}"
        return f"{head} InstallSnapshotReply {message.index} {wants}"
    what = f"InstallSnapshot {message.shipment.index}/t{message.shipment.term}"
    if not message.data:
        return f"{head} {what} offered, {message.shipment.size} bytes"
    return f"{head} {what} bytes {message.offset}-{message.offset + len(message.data) - 1}"
