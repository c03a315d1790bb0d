"""Bytes between peers: first one greeting each way, then frames with messages one way.

A greeting names the format, the quorum and both nodes, so that a node that finds itself connected
to a stranger (a recycled address, another quorum behind the same name) hangs up before a single
message is taken. A frame is length u32 and that many bytes of ``raft.codec``; its length is bounded
before anything is buffered for it.
"""

import struct

import msgspec
from gantry_protocol.errors import WireError
from gantry_protocol.types import NodeId

MAGIC = b"GANTRYRP"
VERSION = 1
FRAME_BYTES_MAX = 8 * 1024 * 1024  # one batch of appends, or one largest command, with room
GREETING_BYTES_MAX = 4096

_GREETING = struct.Struct(">8sHIIH")
_LENGTH = struct.Struct(">I")


class Greeting(msgspec.Struct, frozen=True):
    """Who speaks, to whom, of which quorum."""

    cluster_uid: str
    source: NodeId
    target: NodeId

    def encode(self) -> bytes:
        """The greeting's bytes."""
        uid = self.cluster_uid.encode()
        return _GREETING.pack(MAGIC, VERSION, self.source, self.target, len(uid)) + uid


class PeerStream:
    """Bytes of one connection, in: the greeting, then message bodies."""

    def __init__(self) -> None:
        self.greeting: Greeting | None = None
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; returns the complete message bodies.

        Raises:
            WireError: this is no peer of this version.
        """
        self._buffer += data
        if self.greeting is None and not self._take_greeting():
            return []
        bodies: list[bytes] = []
        position = 0
        while len(self._buffer) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, position)
            if not 0 < length <= FRAME_BYTES_MAX:
                raise WireError(f"a frame of {length} bytes (1 to {FRAME_BYTES_MAX} are allowed)")
            end = position + _LENGTH.size + length
            if end > len(self._buffer):
                break
            bodies.append(bytes(self._buffer[position + _LENGTH.size : end]))
            position = end
        del self._buffer[:position]
        return bodies

    def _take_greeting(self) -> bool:
        head = bytes(self._buffer[: len(MAGIC)])
        if head != MAGIC[: len(head)]:
            raise WireError("no peer of this kind: the greeting is missing")
        if len(self._buffer) < _GREETING.size:
            return False
        _, version, source, target, length = _GREETING.unpack_from(self._buffer)
        if version != VERSION:
            raise WireError(f"the peer speaks version {version}, this node version {VERSION}")
        if length > GREETING_BYTES_MAX:
            raise WireError(f"a greeting of {length} bytes")
        end = _GREETING.size + length
        if len(self._buffer) < end:
            return False
        try:
            uid = bytes(self._buffer[_GREETING.size : end]).decode()
        except UnicodeDecodeError:
            raise WireError("a greeting that is no text") from None
        del self._buffer[:end]
        self.greeting = Greeting(uid, NodeId(source), NodeId(target))
        return True


def frame(body: bytes) -> bytes:
    """``body`` as a frame."""
    return _LENGTH.pack(len(body)) + body
