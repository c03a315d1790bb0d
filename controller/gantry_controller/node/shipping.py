"""A snapshot to each peer that needs one, on a connection of its own.

``serve`` is told in every pass which peers wait (``RaftCore.awaiting_snapshot``) and keeps exactly
one task for each of them; so a transfer ends when leadership does, or when the peer got the entries
it lacked in another way. A task sends one file to its end, over as many connections as it takes;
the file may be replaced by a newer one meanwhile, it stays open. Heartbeats go on beside it.
"""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from gantry_protocol import hosts
from gantry_protocol.errors import GantryError, ResolveError, WireError
from gantry_protocol.key_gate import dial
from gantry_protocol.process import log
from gantry_protocol.quorum_key import KeyFile, Purpose
from gantry_protocol.types import Index, NodeId

from gantry_controller.node.framing import (
    HELLO_BYTES_MAX,
    PING,
    VERSION,
    Channel,
    Hello,
    encode_hello,
    frame,
)
from gantry_controller.node.options import NodeOptions
from gantry_controller.node.snapshots import Snapshots
from gantry_controller.raft.shipment import (
    InstallSnapshot,
    InstallSnapshotReply,
    Sending,
    Shipment,
    decode_reply,
    encode,
)
from gantry_controller.wal.snapshots import SnapshotInfo, snapshot_path

DIAL_TIMEOUT_S = 2.0
PING_EVERY_S = 0.5
SILENCE_MAX_S = 5.0
BACK_OFF_FIRST_S = 0.1
BACK_OFF_MAX_S = 2.0

_LENGTH = struct.Struct(">I")

_log = log.get("snapshot")


class ShippingStats(msgspec.Struct):
    """Plain counters since the start: snapshots and bytes sent, connections that broke amid one."""

    sent: int = 0
    sent_bytes: int = 0
    interrupted: int = 0


class SnapshotSender:
    """See the module.

    Args:
        options: this node.
        snapshots: whose newest file is sent.
        address_of: where a peer listens; None if nobody knows.
        delivered: told what a peer holds when it needs no more.
    """

    def __init__(
        self,
        options: NodeOptions,
        snapshots: Snapshots,
        *,
        address_of: Callable[[NodeId], str | None],
        delivered: Callable[[NodeId, Index], None],
    ) -> None:
        self.stats = ShippingStats()
        self._options = options
        self._snapshots = snapshots
        self._address_of = address_of
        self._delivered = delivered
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}

    @property
    def under_way(self) -> list[NodeId]:
        """Peers that are being sent one."""
        return sorted(self._tasks)

    def serve(self, waiting: list[NodeId]) -> None:
        """These peers wait for a snapshot, and no others."""
        if not waiting and not self._tasks:
            return
        for node in self._tasks.keys() - set(waiting):
            self._tasks.pop(node).cancel()
        for node in waiting:
            if node not in self._tasks and self._snapshots.info is not None:
                work = self._deliver(node, self._snapshots.info)
                self._tasks[node] = asyncio.get_running_loop().create_task(
                    work, name=f"snapshot-{node}"
                )

    async def stop(self) -> None:
        """End every transfer."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self, node: NodeId, info: SnapshotInfo) -> None:
        """Send one snapshot until ``node`` has it; begin anew with the next one then."""
        back_off_s = BACK_OFF_FIRST_S
        try:
            async with self._opened(info) as fd:
                while (holds := await self._attempt(node, info, fd)) is None:
                    self.stats.interrupted += 1
                    await asyncio.sleep(back_off_s)
                    back_off_s = min(2 * back_off_s, BACK_OFF_MAX_S)
            self.stats.sent += 1
            _log.info("snapshot delivered", peer=node, index=info.meta.index, holds=holds)
            self._delivered(node, holds)
        except FileNotFoundError:
            await asyncio.sleep(BACK_OFF_FIRST_S)  # a newer one has just replaced it
        finally:
            if self._tasks.get(node) is asyncio.current_task():
                del self._tasks[node]

    @asynccontextmanager
    async def _opened(self, info: SnapshotInfo) -> AsyncIterator[int]:
        path = snapshot_path(self._options.directory, info.meta.index)
        flags = os.O_RDONLY | os.O_CLOEXEC
        opening = asyncio.ensure_future(self._snapshots.run(os.open, path, flags))
        try:
            fd = await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread may be at it, and nobody would close the file
            opening.add_done_callback(_close_unused)
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    async def _attempt(self, node: NodeId, info: SnapshotInfo, fd: int) -> Index | None:
        """One connection; what the peer holds in the end, or None if it broke before."""
        shipment = Shipment(info.meta.index, info.meta.term, info.size, info.checksum)
        sending = Sending(shipment)
        try:
            async with self._connected(node) as (reader, writer):
                self._write(writer, node, shipment, 0, b"")
                while not sending.done:
                    while (piece := sending.take()) is not None:
                        offset, length = piece
                        data = await self._snapshots.run(os.pread, fd, length, offset)
                        self._write(writer, node, shipment, offset, data)
                        self.stats.sent_bytes += length
                        async with asyncio.timeout(SILENCE_MAX_S):
                            await writer.drain()
                    sending.on_reply(await _next_reply(reader))
        except (OSError, TimeoutError, EOFError, GantryError) as error:
            reason = error or type(error).__name__
            _log.warning("snapshot interrupted", peer=node, index=shipment.index, reason=reason)
            return None
        return sending.holds

    def _write(
        self,
        writer: asyncio.StreamWriter,
        node: NodeId,
        shipment: Shipment,
        offset: int,
        data: bytes,
    ) -> None:
        chunk = InstallSnapshot(self._options.node_id, node, shipment, offset, data)
        writer.write(frame(encode(chunk)))

    @asynccontextmanager
    async def _connected(
        self, node: NodeId
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection that was welcomed, pinged as long as it is in use."""
        stated = self._address_of(node)
        if stated is None:
            raise ResolveError(f"Nobody knows where node {node} listens.")
        host, port = hosts.split_address(stated)
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            address = await hosts.resolve(host)
            reader, writer = await _open(address, port, self._options.key)
        pings = asyncio.get_running_loop().create_task(_ping(writer), name=f"ping-{node}")
        try:
            hello = Hello(
                VERSION,
                self._options.node_id,
                node,
                self._options.cluster_uid,
                channel=Channel.SNAPSHOT,
            )
            writer.write(encode_hello(hello))
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                refusal = await _read_frame(reader)
            if refusal:
                raise WireError(f"the peer refused: {refusal.decode(errors='replace')}")
            yield reader, writer
        finally:
            pings.cancel()
            writer.transport.abort()
            with contextlib.suppress(asyncio.CancelledError):
                await pings


def _close_unused(opening: asyncio.Future[int]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())


async def _open(
    address: str, port: int, key: KeyFile
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """``asyncio.open_connection`` to a port behind a gate."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = await dial(lambda: protocol, address, port, key, Purpose.RAFT)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _ping(writer: asyncio.StreamWriter) -> None:
    while not writer.transport.is_closing():
        await asyncio.sleep(PING_EVERY_S)
        writer.write(PING)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > HELLO_BYTES_MAX:
        raise WireError(f"an answer of {length} bytes")
    return await reader.readexactly(length)


async def _next_reply(reader: asyncio.StreamReader) -> InstallSnapshotReply:
    """The next answer; pings come back as empty frames, so silence is a broken connection."""
    while True:
        async with asyncio.timeout(SILENCE_MAX_S):
            body = await _read_frame(reader)
        if body:
            return decode_reply(body)
