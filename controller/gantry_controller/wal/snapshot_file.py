"""Bytes of a snapshot file; pure.

    magic 8 | version u32 | length u32 | meta (msgpack, ``raft.snapshot``) | crc32c u32
    then per slice:   length u32 | crc32c u32 | bytes
    at the end:       0 u32 | crc32c u32 | number of slices u64

Each checksum continues the one before it, so slices cannot be lost, doubled or swapped; the last
one names the file's whole content (``checksum``). Equal states give equal files on every node, so a
transfer that one leader began another one can finish.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError, DataDirError
from google_crc32c import extend, value

from gantry_controller.raft.snapshot import SnapshotMeta
from gantry_controller.wal.format import WAY_OUT

VERSION = 1
MAGIC = b"GANTSNAP"
SLICE_BYTES_MAX = 1 << 30

_FIXED = struct.Struct(">8sII")
_CRC = struct.Struct(">I")
_meta_decoder = msgspec.msgpack.Decoder(SnapshotMeta)
_SLICE = struct.Struct(">II")
_COUNT = struct.Struct(">Q")
END_SIZE = _SLICE.size + _COUNT.size


class Encoder:
    """Produces the parts of one file in order.

    Attributes:
        checksum: of everything so far.
    """

    def __init__(self, meta: SnapshotMeta) -> None:
        self._meta = meta
        self._slices = 0
        self.checksum = 0

    def header(self) -> bytes:
        """The first bytes."""
        encoded = msgspec.msgpack.encode(self._meta)
        fixed = _FIXED.pack(MAGIC, VERSION, len(encoded)) + encoded
        self.checksum = value(fixed)
        return fixed + _CRC.pack(self.checksum)

    def slice(self, data: bytes) -> bytes:
        """One slice; it is not empty."""
        assert 0 < len(data) <= SLICE_BYTES_MAX
        self._slices += 1
        self.checksum = extend(self.checksum, data)
        return _SLICE.pack(len(data), self.checksum) + data

    def end(self) -> bytes:
        """The last bytes."""
        count = _COUNT.pack(self._slices)
        self.checksum = extend(self.checksum, count)
        return _SLICE.pack(0, self.checksum) + count


def parse_meta(path: Path, data: bytes) -> tuple[SnapshotMeta, int, int]:
    """The meta that ``data`` begins with, where the slices begin, and the checksum they continue.

    Raises:
        CorruptionError: these bytes are no header.
        DataDirError: a newer program wrote them.
    """
    if len(data) < _FIXED.size:
        raise CorruptionError(path, 0, f"the file ends within its header; {WAY_OUT}")
    magic, version, length = _FIXED.unpack_from(data)
    end = _FIXED.size + length
    if magic != MAGIC:
        raise CorruptionError(path, 0, f"the header is none of a snapshot; {WAY_OUT}")
    if version != VERSION:
        raise DataDirError(
            f"{path} has format {version}, this program knows {VERSION}: start a program at least "
            "as new as the one that wrote it."
        )
    checksum = value(data[:end])
    if data[end : end + _CRC.size] != _CRC.pack(checksum):
        raise CorruptionError(path, 0, f"the header's checksum is wrong; {WAY_OUT}")
    try:
        meta = _meta_decoder.decode(data[_FIXED.size : end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(path, _FIXED.size, f"{error}; {WAY_OUT}") from error
    return meta, end + _CRC.size, checksum


def parse_slices(path: Path, data: bytes, offset: int, checksum: int) -> Iterator[bytes]:
    """The slices of a file, each as soon as it is verified; returns the file's checksum.

    Raises:
        CorruptionError: at the first byte that is not what was written, the end included.
    """
    count = 0
    while True:
        if offset + _SLICE.size > len(data):
            raise CorruptionError(path, offset, f"the file ends within a slice; {WAY_OUT}")
        length, crc = _SLICE.unpack_from(data, offset)
        begin = offset + _SLICE.size
        body = data[begin : begin + (length or _COUNT.size)]
        checksum = extend(checksum, body)
        if checksum != crc or len(body) != (length or _COUNT.size):
            raise CorruptionError(path, offset, f"slice {count} has a wrong checksum; {WAY_OUT}")
        if length == 0:
            break
        yield body
        count += 1
        offset = begin + length
    if _COUNT.unpack(body) != (count,) or offset + END_SIZE != len(data):
        raise CorruptionError(path, offset, f"the file does not end with slice {count}; {WAY_OUT}")


def checksum_of(data: bytes) -> int:
    """The checksum that a verified file ends with."""
    return int(_SLICE.unpack_from(data, len(data) - END_SIZE)[1])
