"""Frames between brokers: versioned, length-bounded, checksummed; whatever is in them.

A frame is a 16-byte head and a payload::

    4s magic "GNHA" | u8 version | u8 kind | u16 zero | u32 payload size | u32 crc32c

The checksum covers the first 12 bytes of the head and the payload, so a flipped bit anywhere ends
the link instead of reaching a log (TCP's own checksum misses one in 65,536).
"""

import struct
from typing import NamedTuple

import google_crc32c
from gantry_protocol.errors import WireError
from gantry_protocol.records import MAX_RECORD_BYTES

VERSION = 1
MAGIC = b"GNHA"
MAX_PAYLOAD_BYTES = MAX_RECORD_BYTES + 64 * 1024  # one record or blank of the largest size

_HEAD = struct.Struct(">4sBBHI")
_CRC = struct.Struct(">I")
_HEAD_BYTES = _HEAD.size + _CRC.size


class LinkError(WireError):
    """The peer sent what no broker of this version sends; its link ends."""


class Frame(NamedTuple):
    """One frame that was whole."""

    kind: int
    payload: bytes


def framed(kind: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    head = _HEAD.pack(MAGIC, VERSION, kind, 0, len(payload))
    return head + _CRC.pack(google_crc32c.value(head + payload)) + payload


def framed_in_two(kind: int, fixed: bytes, data: bytes) -> list[bytes]:
    """The same of a payload in two parts, of which the second, large one is not copied."""
    head = _HEAD.pack(MAGIC, VERSION, kind, 0, len(fixed) + len(data))
    crc = google_crc32c.extend(google_crc32c.value(head + fixed), data)
    return [head + _CRC.pack(crc) + fixed, data]


class Frames:
    """Puts frames together from whatever pieces arrive; holds at most one unfinished one."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        """Nothing has arrived."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes.

        Raises:
            LinkError: a malformed frame; nothing after it can be read.
        """
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while (size := self._next_size(position)) is not None:
            frames.append(self._cut(position, size))
            position += _HEAD_BYTES + size
        del self._buffer[:position]
        return frames

    def _next_size(self, position: int) -> int | None:
        """Payload size of the whole frame at ``position``; None until all of it is here."""
        if len(self._buffer) - position < _HEAD_BYTES:
            return None
        magic, version, _, zero, size = _HEAD.unpack_from(self._buffer, position)
        if magic != MAGIC or zero != 0:
            raise LinkError(f"no replication message begins with {bytes(magic)!r}")
        if version != VERSION:
            raise LinkError(f"replication version {version} came, version {VERSION} is spoken here")
        if size > MAX_PAYLOAD_BYTES:
            raise LinkError(f"a message of {size} bytes, {MAX_PAYLOAD_BYTES} are allowed")
        if len(self._buffer) - position < _HEAD_BYTES + size:
            return None
        return int(size)

    def _cut(self, position: int, size: int) -> Frame:
        with memoryview(self._buffer) as view:
            body_at = position + _HEAD_BYTES
            head = bytes(view[position : position + _HEAD.size])
            (expected,) = _CRC.unpack_from(view, position + _HEAD.size)
            payload = bytes(view[body_at : body_at + size])
        got = google_crc32c.extend(google_crc32c.value(head), payload)
        if got != expected:
            raise LinkError(f"checksum {got:08x} over a message that says {expected:08x}")
        return Frame(head[5], payload)
