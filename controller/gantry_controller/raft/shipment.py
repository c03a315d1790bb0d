"""A snapshot's bytes on their way to a follower, and both ends of the way (thesis §5.3).

The leader offers a snapshot (a chunk without data). The follower answers with the offset it wants
next: 0, or where an earlier transfer of the same bytes was interrupted; or with what it holds, if
the snapshot would bring it nothing. Chunks follow in order, a few ahead of the answers. When all
bytes are there, verified and durable, the log begins behind them, and the last answer says so.

Which bytes are meant is said by ``Shipment``, not by who sends them: equal states have equal files,
so a new leader goes on where the old one stopped. Nothing of this counts for Raft; what a follower
holds counts when it answers an append.

The rules protected here: one snapshot is received at a time, in order, without a gap, never more
than was announced; an answer that no honest follower gives ends the transfer.
"""

import struct

import msgspec
from gantry_protocol.types import Index, NodeId, Term
from google_crc32c import value

from gantry_controller.raft.errors import MessageError

CHUNK_BYTES = 512 * 1024
INFLIGHT_MAX = 2

_CHUNK_TYPE = 64
_REPLY_TYPE = 65
_CHUNK = struct.Struct(">BIIQQQIQI")  # the fields before the data, and its crc32c
_REPLY = struct.Struct(">BIIQQQ")


class Shipment(msgspec.Struct, frozen=True):
    """Bytes of the snapshot (``index``, ``term``): ``size`` of them, by their checksum."""

    index: Index
    term: Term
    size: int
    checksum: int


class InstallSnapshot(msgspec.Struct, frozen=True):
    """A chunk that begins at ``offset``; without data it is an offer."""

    source: NodeId
    target: NodeId
    shipment: Shipment
    offset: int
    data: bytes


class InstallSnapshotReply(msgspec.Struct, frozen=True):
    """The follower's next wish.

    Attributes:
        index: of the snapshot this is about.
        holds: committed entries it holds; the snapshot's index or more: it wants nothing.
        offset: the next byte it wants.
    """

    source: NodeId
    target: NodeId
    index: Index
    holds: Index
    offset: int


def encode(message: InstallSnapshot | InstallSnapshotReply) -> bytes:
    """The bytes of ``message``."""
    if isinstance(message, InstallSnapshotReply):
        return _REPLY.pack(_REPLY_TYPE, *msgspec.structs.astuple(message))
    shipment = msgspec.structs.astuple(message.shipment)
    fixed = (message.source, message.target, *shipment, message.offset, value(message.data))
    return _CHUNK.pack(_CHUNK_TYPE, *fixed) + message.data


def decode_chunk(body: bytes) -> InstallSnapshot:
    """The chunk in ``body``.

    Raises:
        MessageError: it holds none, or its data changed on the way.
    """
    if len(body) < _CHUNK.size or body[0] != _CHUNK_TYPE:
        raise MessageError(f"{len(body)} bytes that are no part of a snapshot")
    _, source, target, index, term, size, checksum, offset, crc = _CHUNK.unpack_from(body)
    data = body[_CHUNK.size :]
    if value(data) != crc:
        raise MessageError(f"the part of snapshot {index} at byte {offset} was damaged on the way")
    if offset + len(data) > size:
        raise MessageError(f"snapshot {index} of {size} bytes goes on at byte {offset + len(data)}")
    shipment = Shipment(Index(index), Term(term), size, checksum)
    return InstallSnapshot(NodeId(source), NodeId(target), shipment, offset, data)


def decode_reply(body: bytes) -> InstallSnapshotReply:
    """The reply in ``body``.

    Raises:
        MessageError: it holds none.
    """
    if len(body) != _REPLY.size or body[0] != _REPLY_TYPE:
        raise MessageError(f"{len(body)} bytes that are no answer to a part of a snapshot")
    _, source, target, index, holds, offset = _REPLY.unpack(body)
    return InstallSnapshotReply(NodeId(source), NodeId(target), Index(index), Index(holds), offset)


class Sending:
    """The leader's end of one connection.

    Attributes:
        shipment: what is sent.
        holds: what the follower said it holds.
    """

    def __init__(self, shipment: Shipment, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        """The offer is out."""
        self.shipment = shipment
        self.holds = Index(0)
        self._chunk_bytes = chunk_bytes
        self._next: int | None = None  # where the next chunk begins; None before the first answer
        self._answered = 0

    @property
    def done(self) -> bool:
        """Whether the follower needs no more of it."""
        return self.holds >= self.shipment.index

    def take(self) -> tuple[int, int] | None:
        """Offset and length of the chunk to send now; None if answers must come first."""
        if self._next is None or self._next >= self.shipment.size:
            return None
        if self._next - self._answered >= INFLIGHT_MAX * self._chunk_bytes:
            return None
        offset = self._next
        length = min(self._chunk_bytes, self.shipment.size - offset)
        self._next += length
        return offset, length

    def on_reply(self, reply: InstallSnapshotReply) -> None:
        """Note an answer.

        Raises:
            MessageError: it is about another snapshot, or about bytes that were not sent.
        """
        limit = self.shipment.size if self._next is None else self._next
        if reply.index != self.shipment.index or not self._answered <= reply.offset <= limit:
            raise MessageError(
                f"node {reply.source} wants byte {reply.offset} of snapshot {reply.index}, but "
                f"was sent bytes {self._answered} to {limit} of snapshot {self.shipment.index}"
            )
        self.holds = reply.holds
        self._answered = reply.offset
        if self._next is None:
            self._next = reply.offset


class Receiving:
    """The follower's end, over any number of connections.

    Attributes:
        shipment: what is being received; None for nothing.
        offset: bytes of it that were taken.
    """

    def __init__(self) -> None:
        self.shipment: Shipment | None = None
        self.offset = 0

    @property
    def complete(self) -> bool:
        """Whether all bytes were taken."""
        return self.shipment is not None and self.offset == self.shipment.size

    def offered(self, shipment: Shipment) -> bool:
        """Go on with ``shipment``, or begin it. True if what was received before is void."""
        if shipment == self.shipment:
            return False
        self.shipment, self.offset = shipment, 0
        return True

    def take(self, chunk: InstallSnapshot) -> None:
        """The next bytes.

        Raises:
            MessageError: they are not the next ones of what was offered last.
        """
        if chunk.shipment != self.shipment or chunk.offset != self.offset or not chunk.data:
            raise MessageError(
                f"byte {chunk.offset} of snapshot {chunk.shipment.index} where byte {self.offset} "
                f"of {'none' if self.shipment is None else self.shipment.index} is due"
            )
        self.offset += len(chunk.data)

    def forget(self) -> None:
        """It was installed, or is of no use."""
        self.shipment, self.offset = None, 0
