"""Snapshots between simulated nodes, in chunks, over connections that a network can break.

The real ``Sending``, ``Receiving``, codec and file format, driven as ``node.shipping`` and
``node.receiving`` drive them: a sender serves exactly those peers that its core says wait, over as
many connections as that takes; a receiver takes the chunks of all connections one by one, whoever
sends them. The network is worse than TCP: it also loses, doubles and reorders within a connection.
What is not in order is refused, which breaks the connection, and the next one goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.shipment import (
    InstallSnapshot,
    InstallSnapshotReply,
    Receiving,
    Sending,
    Shipment,
    decode_chunk,
    decode_reply,
    encode,
)
from gantry_protocol.errors import CorruptionError
from gantry_protocol.types import Index, NodeId
from sim.kernel.world import MS, cancel

if TYPE_CHECKING:
    from sim.kernel.world import Timer
    from sim.raft.process import RaftProcess
    from sim.raft.snapshots import Stored

SILENCE_US = 400 * MS  # without an answer a connection is given up
BACK_OFF_US = 20 * MS
QUEUE_MAX = 8


class Part(msgspec.Struct, frozen=True):
    """Bytes on a connection.

    Attributes:
        source: whose message this is.
        connection: the connection's number, as the node that opened it counts.
        body: a chunk, or an answer to one; empty: the connection is broken.
        forth: from the node that opened it, hence a chunk.
    """

    source: NodeId
    connection: int
    body: bytes
    forth: bool


class _Delivery:
    """One snapshot on its way to one peer. The file stays open, whatever replaces it."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        meta = stored.meta
        self.shipment = Shipment(meta.index, meta.term, len(stored.data), stored.checksum)
        self.connection = 0
        self.sending: Sending | None = None  # of the present connection
        self.timer: Timer | None = None


class SimSender:
    """A leader's end of all its transfers."""

    def __init__(self, process: RaftProcess) -> None:
        self._process = process
        self._deliveries: dict[NodeId, _Delivery] = {}
        self._connections = 0

    def serve(self, waiting: list[NodeId]) -> None:
        """These peers wait for a snapshot, and no others."""
        newest = self._process.snapshots.newest
        for node in [node for node in self._deliveries if node not in waiting]:
            self._end(node)
        for node in waiting:
            if node not in self._deliveries and newest is not None:
                self._deliveries[node] = _Delivery(newest)
                self._connect(node)

    def receive(self, part: Part) -> None:
        """An answer; one on an earlier connection is nobody's."""
        delivery = self._deliveries.get(part.source)
        if delivery is None or delivery.connection != part.connection or delivery.sending is None:
            return
        try:
            delivery.sending.on_reply(decode_reply(part.body))
        except MessageError:
            self._interrupted(part.source, delivery)
            return
        if delivery.sending.done:
            self._process.host.world.count("shipment.delivered")
            self._end(part.source)
            self._process.core.snapshot_delivered(part.source, delivery.sending.holds)
            self._process.arm()
        else:
            self._send_more(part.source, delivery, delivery.sending)

    def _connect(self, node: NodeId) -> None:
        delivery = self._deliveries[node]
        self._connections += 1
        delivery.connection = self._connections
        delivery.sending = Sending(delivery.shipment, chunk_bytes=self._process.knobs.chunk_bytes)
        self._send(node, delivery, 0, b"")
        self._await_answer(node, delivery)

    def _send_more(self, node: NodeId, delivery: _Delivery, sending: Sending) -> None:
        while (piece := sending.take()) is not None:
            offset, length = piece
            self._send(node, delivery, offset, delivery.stored.data[offset : offset + length])
        self._await_answer(node, delivery)

    def _send(self, node: NodeId, delivery: _Delivery, offset: int, data: bytes) -> None:
        own = self._process.core.node_id
        body = encode(InstallSnapshot(own, node, delivery.shipment, offset, data))
        ends = (delivery.shipment.index, delivery.shipment.term)
        self._process.observer.shipped(node, *ends)
        self._process.host.send(f"n{node}", Part(own, delivery.connection, body, forth=True))

    def _await_answer(self, node: NodeId, delivery: _Delivery) -> None:
        if delivery.timer is not None:
            cancel(delivery.timer)
        host = self._process.host
        delivery.timer = host.after(SILENCE_US, lambda: self._interrupted(node, delivery))

    def _interrupted(self, node: NodeId, delivery: _Delivery) -> None:
        """The connection is gone; whatever comes on it now is not heard."""
        if self._deliveries.get(node) is not delivery:
            return
        self._process.host.world.count("shipment.interrupted")
        delivery.sending = None
        if delivery.timer is not None:
            cancel(delivery.timer)
        delivery.timer = self._process.host.after(BACK_OFF_US, lambda: self._again(node, delivery))

    def _again(self, node: NodeId, delivery: _Delivery) -> None:
        if self._deliveries.get(node) is delivery:
            self._connect(node)

    def _end(self, node: NodeId) -> None:
        delivery = self._deliveries.pop(node)
        if delivery.timer is not None:
            cancel(delivery.timer)


class SimReceiver:
    """A follower's end. What was received is lost with the process, and with nothing else."""

    def __init__(self, process: RaftProcess) -> None:
        self._process = process
        self._receiving = Receiving()
        self._data = b""
        self._sender: NodeId | None = None  # of the newest bytes
        self._installing = False
        self._queue: list[Part] = []

    def receive(self, part: Part) -> None:
        """Queue a chunk; more than any honest sender has under way are not taken."""
        if len(self._queue) >= QUEUE_MAX:
            self._break(part)
            return
        self._queue.append(part)
        self._work()

    def _work(self) -> None:
        while self._queue and not self._installing:
            part = self._queue.pop(0)
            try:
                self._handle(part, decode_chunk(part.body))
            except (MessageError, CorruptionError) as error:
                self._process.host.note("shipment", str(error))
                self._break(part)

    def _handle(self, part: Part, chunk: InstallSnapshot) -> None:
        shipment, core = chunk.shipment, self._process.core
        if not core.snapshot_offered(shipment.index, shipment.term):
            self._forget()
            self._answer(part, chunk, core.commit_index)
        elif chunk.data:
            self._take(part, chunk)
        else:
            if self._receiving.offered(shipment):
                self._data = b""
            elif self._receiving.offset:
                self._process.host.world.count("shipment.resumed")
            self._answer(part, chunk, Index(0))

    def _take(self, part: Part, chunk: InstallSnapshot) -> None:
        self._receiving.take(chunk)
        self._data += chunk.data
        if self._sender not in (None, part.source) and len(self._data) > len(chunk.data):
            self._process.host.world.count("shipment.resumed-by-another")
        self._sender = part.source
        if not self._receiving.complete:
            self._answer(part, chunk, Index(0))
            return
        data = self._data
        self._forget()
        self._installing = True
        try:
            self._process.snapshots.install(
                data, chunk.shipment, lambda: self._installed(part, chunk)
            )
        except CorruptionError:
            self._installing = False
            raise

    def _installed(self, part: Part, chunk: InstallSnapshot) -> None:
        self._installing = False
        self._answer(part, chunk, self._process.core.commit_index)
        self._work()

    def _forget(self) -> None:
        self._receiving.forget()
        self._data, self._sender = b"", None

    def _answer(self, part: Part, chunk: InstallSnapshot, holds: Index) -> None:
        own = self._process.core.node_id
        offset = self._receiving.offset if self._receiving.shipment else chunk.offset
        reply = InstallSnapshotReply(own, part.source, chunk.shipment.index, holds, offset)
        self._reply(part, encode(reply))

    def _break(self, part: Part) -> None:
        self._reply(part, b"")

    def _reply(self, part: Part, body: bytes) -> None:
        answer = Part(self._process.core.node_id, part.connection, body, forth=False)
        self._process.host.send(f"n{part.source}", answer)
