"""Frames of a stream by their heads alone: where each ends, its code, its opaque and its flags.

For whoever passes frames on without serving them. Bodies and custom headers are not looked at, and
the bytes of a frame are never changed. What can be no frame is refused as the decoder refuses it
(``gantry_protocol.frame``); a head that the quick way cannot read is read the tolerant way.
"""

import struct
from typing import NamedTuple

import msgspec

from gantry_protocol.errors import FrameError
from gantry_protocol.frame import MAX_FRAME_BYTES, decode_json_header

_PREFIX = struct.Struct(">iI")  # length; serialize type in the high byte, header length below
_unpack_prefix = _PREFIX.unpack_from
_PREFIX_BYTES = _PREFIX.size
_LENGTH_BYTES = 4
_MAX_LENGTH = MAX_FRAME_BYTES - _LENGTH_BYTES
_HEADER_LENGTH_MASK = 0xFFFFFF
_BINARY = struct.Struct(">hbhii")  # code, language, version, opaque, flag
_unpack_binary = _BINARY.unpack_from


class _Head(msgspec.Struct):
    code: int = 0
    opaque: int = 0
    flag: int = 0


_decode_head = msgspec.json.Decoder(_Head).decode


class Glimpse(NamedTuple):
    """A whole frame, and what its head says."""

    code: int
    opaque: int
    flag: int
    frame: bytes


def header_places(frame: bytes) -> tuple[int, int]:
    """From where to where the header of a whole frame reaches."""
    _, word = _unpack_prefix(frame)
    return _PREFIX_BYTES, _PREFIX_BYTES + (word & _HEADER_LENGTH_MASK)


class FrameCutter:
    """Cuts one direction of a connection, after any preamble, into whole frames."""

    __slots__ = ("_max_header_bytes", "_needed", "_pending")

    def __init__(self, max_header_bytes: int = MAX_FRAME_BYTES) -> None:
        """Nothing was fed; clients' headers are bounded, those of answers to batches are not."""
        self._max_header_bytes = max_header_bytes
        self._pending = bytearray()
        self._needed = _PREFIX_BYTES

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not whole."""
        return len(self._pending)

    def take_rest(self) -> bytes:
        """The bytes of a frame that is not whole; they are forgotten here."""
        rest = bytes(self._pending)
        self._pending.clear()
        self._needed = _PREFIX_BYTES
        return rest

    def feed(self, data: bytes) -> list[Glimpse]:
        """The frames that ``data`` completes.

        Raises:
            FrameError: this is no frame; the stream must not be fed again.
        """
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        found: list[Glimpse] = []
        end, position = len(data), 0
        self._needed = _PREFIX_BYTES
        while end - position >= _PREFIX_BYTES:
            length, word = _unpack_prefix(data, position)
            kind, header_size = word >> 24, word & _HEADER_LENGTH_MASK
            if (
                not header_size + _LENGTH_BYTES <= length <= _MAX_LENGTH
                or kind > 1
                or header_size > self._max_header_bytes
            ):
                raise FrameError(f"A frame claims {length} bytes with {header_size} of header.")
            frame_end = position + _LENGTH_BYTES + length
            if frame_end > end:
                self._needed = frame_end - position
                break
            head = _glance(data, position + _PREFIX_BYTES, header_size, kind)
            is_all = not position and frame_end == end
            found.append(Glimpse(*head, data if is_all else data[position:frame_end]))
            position = frame_end
        if position < end:
            self._pending += data[position:]
        return found


def _glance(data: bytes, start: int, size: int, kind: int) -> tuple[int, int, int]:
    """Code, opaque and flags of a header."""
    if kind:
        if size < _BINARY.size:
            raise FrameError(f"A frame's binary header has only {size} bytes.")
        code, _, _, opaque, flag = _unpack_binary(data, start)
        return code, opaque, flag
    try:
        head = _decode_head(data[start : start + size])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        command = decode_json_header(data[start : start + size])
        return command.code, command.opaque, command.flag
    return head.code, head.opaque, head.flag
