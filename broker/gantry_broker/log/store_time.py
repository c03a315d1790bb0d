"""The store time of a record, by two small reads at most, whatever the log holds."""

import struct
from typing import Protocol

from gantry_protocol.errors import RecordError
from gantry_protocol.records import BLANK_MAGIC
from gantry_protocol.records.layout import BORN_HOST_OFFSET, BORN_HOST_V6, SYS_FLAG_OFFSET
from gantry_protocol.types import Offset

from gantry_broker.log.units import unit_size

_HEAD_BYTES = BORN_HOST_OFFSET + 20 + 8  # up to the store timestamp, IPv6 host before it
_UNITS_MAX = 2  # a blank at the end of a file, and the record behind it
_INT32, _UINT32, _INT64 = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">q")


class LogBytes(Protocol):
    """The part of a commit log that is needed here."""

    @property
    def log_start(self) -> Offset:
        """Offset of the oldest byte."""
        ...

    @property
    def end(self) -> Offset:
        """Offset one past the newest byte."""
        ...

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Bytes from ``offset`` on, maybe fewer than asked."""
        ...


def store_time_at(log: LogBytes, offset: Offset) -> int | None:
    """The store timestamp of the first record from ``offset`` on; None if none is found at once.

    Args:
        log: where it stands.
        offset: where a record or a blank begins.
    """
    for _ in range(_UNITS_MAX):
        if not log.log_start <= offset < log.end:
            return None
        head = log.read(offset, _HEAD_BYTES)
        try:
            size = unit_size(head, 0)
        except RecordError:
            return None
        if not size:
            return None
        if _UINT32.unpack_from(head, 4)[0] != BLANK_MAGIC:
            return _store_timestamp(head)
        offset = Offset(offset + size)
    return None


def _store_timestamp(head: bytes) -> int | None:
    if len(head) < _HEAD_BYTES:
        return None
    (sys_flag,) = _INT32.unpack_from(head, SYS_FLAG_OFFSET)
    at = BORN_HOST_OFFSET + (20 if sys_flag & BORN_HOST_V6 else 8)
    return int(_INT64.unpack_from(head, at)[0])
