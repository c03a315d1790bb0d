"""A snapshot from the leader, received over any number of connections.

Chunks of all connections go through one queue to one task, so a transfer goes on exactly where the
last byte was taken, whoever sends. A chunk is answered when it is written; the sender has at most a
few on the way, and more than ``QUEUE_MAX`` are no honest sender's.

A crash loses what was received so far, and nothing else: the file is not named before it is whole.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import Protocol

from gantry_protocol.process import log
from gantry_protocol.types import Index, NodeId

from gantry_controller.node.options import NodeOptions
from gantry_controller.node.snapshots import Snapshots
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.shipment import (
    InstallSnapshot,
    InstallSnapshotReply,
    Receiving,
    decode_chunk,
    encode,
)
from gantry_controller.wal.snapshots import SnapshotFile

QUEUE_MAX = 8  # an old connection's last chunks may still wait when the next one begins

_log = log.get("snapshot")


class Connection(Protocol):
    """The origin of a chunk."""

    def send(self, body: bytes) -> None:
        """Answer, unless the connection has ended."""

    def abort(self) -> None:
        """End it."""


class SnapshotReceiver:
    """See the module.

    Args:
        options: this node.
        snapshots: completes what was received.
        failed: called on the loop when the node must not go on.

    Attributes:
        received_bytes: taken since the start.
    """

    def __init__(
        self,
        options: NodeOptions,
        snapshots: Snapshots,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.received_bytes = 0
        self._options = options
        self._snapshots = snapshots
        self._core: RaftCore
        self._failed = failed
        self._receiving = Receiving()
        self._file: SnapshotFile | None = None
        self._queue: asyncio.Queue[tuple[Connection, InstallSnapshot]] = asyncio.Queue(QUEUE_MAX)
        self._task: asyncio.Task[None] | None = None

    def start(self, core: RaftCore) -> None:
        """Begin to take chunks for ``core``."""
        self._core = core
        self._task = asyncio.get_running_loop().create_task(self._run(), name="receive-snapshot")

    async def stop(self) -> None:
        """Take none any more; a half-received file is removed at the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_frames(self, peer: NodeId, bodies: list[bytes], connection: Connection) -> None:
        """Queue chunks.

        Raises:
            MessageError: they are none, in another's name, or too many: close the connection.
        """
        for body in bodies:
            chunk = decode_chunk(body)
            if (chunk.source, chunk.target) != (peer, self._options.node_id):
                raise MessageError(f"node {peer} sent a snapshot of {chunk.source}")
            try:
                self._queue.put_nowait((connection, chunk))
            except asyncio.QueueFull:
                raise MessageError(f"node {peer} does not wait for answers") from None

    async def _run(self) -> None:
        while True:
            connection, chunk = await self._queue.get()
            try:
                await self._handle(connection, chunk)
            except MessageError as error:
                _log.warning("snapshot interrupted", peer=chunk.source, reason=error)
                connection.abort()
            except OSError as error:
                await self._give_up()
                connection.abort()
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    self._failed(error)
                _log.error("snapshot not stored", peer=chunk.source, reason=error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the node must not go on
                self._failed(error)
                return

    async def _handle(self, connection: Connection, chunk: InstallSnapshot) -> None:
        shipment = chunk.shipment
        if not self._core.snapshot_offered(shipment.index, shipment.term):
            await self._give_up()
            self._answer(connection, chunk, self._core.commit_index)
        elif chunk.data:
            await self._take(connection, chunk)
        else:
            if self._receiving.offered(shipment):
                await self._begin(shipment.index)
            self._answer(connection, chunk, Index(0))

    async def _begin(self, index: Index) -> None:
        run = self._snapshots.run
        if self._file is not None:
            await run(self._file.drop)
            self._file = None
        self._file = await run(SnapshotFile, self._options.directory, index, "received")

    async def _take(self, connection: Connection, chunk: InstallSnapshot) -> None:
        self._receiving.take(chunk)
        assert self._file is not None
        await self._snapshots.run(self._file.append, chunk.data)
        self.received_bytes += len(chunk.data)
        if not self._receiving.complete:
            self._answer(connection, chunk, Index(0))
            return
        shipment, file = chunk.shipment, self._file
        self._receiving.forget()
        self._file = None
        if await self._snapshots.install(file, shipment.index, shipment.checksum):
            self._answer(connection, chunk, self._core.commit_index)
        else:
            connection.abort()

    async def _give_up(self) -> None:
        self._receiving.forget()
        if self._file is not None:
            file, self._file = self._file, None
            await self._snapshots.run(file.drop)

    def _answer(self, connection: Connection, chunk: InstallSnapshot, holds: Index) -> None:
        offset = self._receiving.offset if self._receiving.shipment else chunk.offset
        node = self._options.node_id
        reply = InstallSnapshotReply(node, chunk.source, chunk.shipment.index, holds, offset)
        connection.send(encode(reply))
