"""Many records at once: where units say they begin, NumPy takes their fields.

A Python loop over messages is the slowest thing a reader can do. So each field is taken from all
records in one step, through a view of the pack in which an element begins at every byte; bodies and
properties are cut out by Arrow. One loop is left, over the CRC-32 of the bodies, in one list
comprehension.

Every check of :func:`gantry_protocol.records.scan.scan` is made here, too, on all records together.
A record that fails one is only pointed at (:class:`Suspect`): the words are the protocol's, so that
every reader names one damage in one way. Nothing is used as a position before it was checked.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from gantry_protocol.records.layout import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    MAX_RECORD_BYTES,
    MAX_TOPIC_V1_BYTES,
    MIN_RECORD_BYTES,
    STORE_HOST_V6,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
_TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared_offset", ">i8"), ("body_size", ">i4")])
_HOST_BYTES = 8  # IPv4 address and port; IPv6 takes 12 more
_V6_MORE_BYTES = 12


class Suspect(Exception):  # noqa: N818 - not yet an error: the protocol's decoder says what it is
    """Record ``index`` of those looked at does not hold what it should."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Parts(msgspec.Struct, frozen=True):
    """Fields and places of records; arrays of one length, positions in the pack."""

    at: Any
    size: Any
    head: Any  # structured: _HEAD
    tail: Any  # structured: _TAIL
    stored_ms: Any
    body_at: Any
    topic_at: Any  # where its size stands, and so where the body ends
    topic_start: Any
    properties_at: Any  # where they begin, behind their size


def parts_of(data: Bytes, at: Longs, size: Longs) -> Parts:
    """Take apart the records at ``at`` with ``size``, which tile a part of ``data``.

    Raises:
        Suspect: at a record whose parts do not add up, as ``scan`` sees it.
    """
    refuse((size < MIN_RECORD_BYTES) | (size > MAX_RECORD_BYTES))
    ends = at + size
    assert at[0] >= 0, "positions come from a footer that was checked"
    assert ends[-1] <= data.size, "positions come from a footer that was checked"
    head: Any = _take(data, at, _HEAD)
    refuse(head["size"] != size)
    magic = head["magic"]
    wide = magic == MAGIC_V2
    refuse(~wide & (magic != MAGIC_V1))
    born_bytes = np.where(head["sys_flag"] & BORN_HOST_V6, _V6_MORE_BYTES, 0) + _HOST_BYTES
    store_bytes = np.where(head["sys_flag"] & STORE_HOST_V6, _V6_MORE_BYTES, 0) + _HOST_BYTES
    stored_at = at + _HEAD.itemsize + born_bytes
    tail_at = stored_at + 8 + store_bytes
    body_at = tail_at + _TAIL.itemsize
    refuse(body_at > ends)
    tail: Any = _take(data, tail_at, _TAIL)
    body_size = tail["body_size"].astype(np.int64)
    topic_at = body_at + body_size
    refuse((body_size < 0) | (topic_at + np.where(wide, 4, 3) > ends))
    first = data[topic_at].astype(np.int64)
    topic_size = np.where(wide, (first << 8) | data[topic_at + 1], first)
    refuse(~wide & (topic_size > MAX_TOPIC_V1_BYTES))
    topic_start = topic_at + np.where(wide, 2, 1)
    properties_at = topic_start + topic_size
    refuse(properties_at + 2 > ends)
    properties_size = _take(data, properties_at, np.dtype(">i2")).astype(np.int64)
    refuse(properties_at + 2 + properties_size != ends)  # nor may it be negative, then
    stored_ms = _take(data, stored_at, np.dtype(">i8")).astype(np.int64)
    return Parts(at, size, head, tail, stored_ms, body_at, topic_at, topic_start, properties_at + 2)


def check_bodies(data: Bytes, parts: Parts) -> None:
    """Compare the CRC-32 of every body with what its record says.

    Raises:
        Suspect: at the first that differs.
    """
    crc32, view = zlib.crc32, data.data
    got = np.fromiter(
        [
            crc32(view[start:end])
            for start, end in zip(parts.body_at.tolist(), parts.topic_at.tolist(), strict=True)
        ],
        np.uint32,
        len(parts.body_at),
    )
    differ = (got & 0x7FFFFFFF).astype(np.int64) != parts.head["crc"]
    refuse(differ & (parts.topic_at > parts.body_at))  # an empty body is not read against its sum


def check_topic(data: Bytes, parts: Parts, first: int, last: int, topic: bytes) -> None:
    """Compare the topic of the records first … last−1 with ``topic``.

    Raises:
        Suspect: at the first that differs.
    """
    starts = parts.topic_start[first:last]
    refuse(parts.properties_at[first:last] - 2 - starts != len(topic), first)
    names = _take(data, starts, np.dtype(f"V{len(topic)}")).view(np.uint8)
    same = names.reshape(len(starts), len(topic)) == np.frombuffer(topic, np.uint8)
    refuse(~same.all(axis=1), first)


def bodies_of(data: Bytes, parts: Parts) -> pa.Array:
    """The bodies, cut out by Arrow."""
    return _slices(data, parts.body_at, parts.topic_at)


def properties_of(data: Bytes, parts: Parts) -> pa.Array:
    """The encoded properties, likewise."""
    return _slices(data, parts.properties_at, parts.at + parts.size)


def refuse(wrong: Any, base: int = 0) -> None:
    """Point at the first record for which ``wrong`` holds."""
    if wrong.any():
        raise Suspect(base + int(wrong.argmax()))


def _slices(data: Bytes, starts: Longs, ends: Longs) -> pa.Array:
    """``data[start:end]`` for each pair; the pairs rise and do not overlap.

    The pack as it lies is already an Arrow array of twice as many pieces, every other of which is
    wanted; only those are copied, by Arrow.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)  # a pack has at most 256 MiB
    offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))


def _take(data: Bytes, at: Longs, kind: np.dtype[Any]) -> Any:
    """One ``kind`` from each position, copied; unaligned, as they lie."""
    every: Any = np.ndarray((data.size - kind.itemsize + 1,), kind, data.data, strides=(1,))
    return every[at]
