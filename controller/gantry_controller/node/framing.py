"""Bytes on a connection between peers.

Both sides show the quorum's key first (``gantry_protocol.key_gate``); the cluster uid in a hello is
given out to anybody and proves nothing.

The dialling side sends a hello; the listening side answers with an empty reason ("welcome"), or
with the reason for refusing, and closes. From then on frames flow from the dialler: length (4
bytes, big endian) and a message (``raft.codec``). An empty frame is a ping; the listener sends it
back, so that a dialler learns within seconds that the other machine is gone.

A connection carries messages one way only; each node dials every other. A snapshot travels on a
connection of its own, so that no heartbeat waits behind it; there frames are ``raft.shipment``'s,
and the listener answers.
"""

import struct
from enum import IntEnum

import msgspec
from gantry_protocol.errors import FrameError
from gantry_protocol.types import NodeId

from gantry_controller.node.options import FRAME_BYTES_MAX

MAGIC = b"GANTRAFT"
VERSION = 2
PING = b"\x00\x00\x00\x00"
HELLO_BYTES_MAX = 1024

_LENGTH = struct.Struct(">I")
# magic, version, source, target, channel, length of the cluster uid; that uid and the address
_HELLO = struct.Struct(">8sHIIBH")


class Channel(IntEnum):
    """The contents of a connection."""

    MESSAGES = 0
    SNAPSHOT = 1


class Hello(msgspec.Struct, frozen=True):
    """The introduction of a dialler: its node, the other's, the quorum and the version.

    ``address`` is where the dialler itself is reached (``contacts``): who is dialled by a member it
    does not know yet can answer.
    """

    version: int
    source: NodeId
    target: NodeId
    cluster_uid: str
    address: str = ""
    channel: Channel = Channel.MESSAGES


def encode_hello(hello: Hello) -> bytes:
    """The frame of a hello."""
    uid = hello.cluster_uid.encode()
    fixed = _HELLO.pack(MAGIC, hello.version, hello.source, hello.target, hello.channel, len(uid))
    return frame(fixed + uid + hello.address.encode())


def decode_hello(body: bytes) -> Hello:
    """The hello in ``body``.

    Raises:
        FrameError: it is none.
    """
    if len(body) < _HELLO.size or body[: len(MAGIC)] != MAGIC:
        raise FrameError("the other side is no Gantry controller: its first bytes are no hello")
    _, version, source, target, channel, length = _HELLO.unpack_from(body)
    end = _HELLO.size + length
    try:
        uid, address = body[_HELLO.size : end].decode(), body[end:].decode()
    except UnicodeDecodeError as error:
        raise FrameError("a hello whose cluster uid or address is no text") from error
    if version != VERSION:
        return Hello(version, NodeId(source), NodeId(target), uid, address)
    if channel not in list(Channel):
        raise FrameError(f"a hello for the unknown channel {channel}")
    return Hello(version, NodeId(source), NodeId(target), uid, address, Channel(channel))


def refusal_of(hello: Hello, node_id: NodeId, cluster_uid: str) -> str:
    """The reason why ``hello`` cannot be accepted by ``node_id``; empty if it can.

    A number that is not known as a member is no reason: it may have been taken in by a leader
    that this node has not heard yet.
    """
    if hello.version != VERSION:
        return f"it speaks version {hello.version} of the peer protocol, this node {VERSION}"
    if hello.cluster_uid != cluster_uid:
        return f"it belongs to the cluster {hello.cluster_uid!r}, this node to {cluster_uid!r}"
    if hello.target != node_id:
        return f"it looks for node {hello.target}, this is node {node_id}"
    if hello.source == node_id or hello.source < 1:
        return f"it says that it is node {hello.source}, this is node {node_id}"
    return ""


def frame(body: bytes) -> bytes:
    """``body`` with its length before it."""
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream into frames; holds at most one unfinished frame."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes; pings are empty ones.

        Raises:
            FrameError: a frame would be longer than allowed.
        """
        self._buffer += data
        frames: list[bytes] = []
        position = 0
        view = self._buffer
        while len(view) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(view, position)
            if length > self.bytes_max:
                raise FrameError(f"a frame of {length} bytes, more than {self.bytes_max}")
            end = position + _LENGTH.size + length
            if end > len(view):
                break
            frames.append(bytes(view[position + _LENGTH.size : end]))
            position = end
        del self._buffer[:position]
        return frames
