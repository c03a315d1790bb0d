"""The rows of the key-value store: every key and value, packed and unpacked.

=========================== ==========================================================
key                         value
=========================== ==========================================================
``h``                       ``Head``: how far the log is dispatched, and what has no row
``t`` topic                 a topic's configuration
``o`` group, topic, queue   a consumer offset, and the hour in which it was used last
``q`` topic, queue          a queue: first offset served, first one here, next one
``e`` topic, queue, offset  entries of the queue from this offset on, one after the other
``k``, ``b``, ``s``         the key index, see ``key_index``
=========================== ==========================================================

Topics hold no zero byte, so one ends them in a key, and the rows of a queue stand together in the
order of their offsets.
"""

import struct

import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.records.layout import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from gantry_protocol.types import Offset

from gantry_broker.store.contract import QueueKey
from gantry_broker.store.tables.offsets import OffsetKey
from gantry_broker.store.tables.state_records import Gathered

VERSION = 1  # of all of this; another one is thrown away and made again from the log
HEAD = b"h"
TOPICS = (b"t", b"u")  # the range of all keys of a kind
OFFSETS = (b"o", b"p")
QUEUES = (b"q", b"r")
EVERYTHING = (b"\0", b"\xff")

ENTRY = struct.Struct(">qiq")  # log offset, record size, tags code: RocketMQ's
ENTRY_BYTES = ENTRY.size
NO_ENTRY = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)  # steps whose records are in no queue
RUN_ENTRIES = 1024  # at most in one row, so that a reader of few entries does not copy many

_QUEUE = struct.Struct(">qqq")
_ID = struct.Struct(">I")
_FROM = struct.Struct(">Q")
_ID_SIGN = 1 << 31  # queue ids are signed on the wire; this keeps their order


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The row that stands once in the batch of every change.

    Attributes:
        version: of all rows.
        offset: a boundary of units in the log; the rows are what everything below leads to.
        store_timestamp: of the newest record below ``offset``, ms; 0 without any.
        topics_version: of the topic table.
        whole_from: where the newest whole state in the log begins; None before the first.
        gathered: pieces of a state that may become whole.
        trimmed_to: no queue points below this log offset.
    """

    version: int
    offset: Offset
    store_timestamp: int
    topics_version: int
    whole_from: Offset | None
    gathered: Gathered | None
    trimmed_to: Offset


class _Any(msgspec.Struct, frozen=True, array_like=True):
    """What every version of a head begins with."""

    version: int


_encoder = msgspec.msgpack.Encoder()
_version_decoder = msgspec.msgpack.Decoder(_Any)
_head_decoder = msgspec.msgpack.Decoder(Head)
_topic_decoder = msgspec.msgpack.Decoder(TopicConfig)
_offset_decoder: msgspec.msgpack.Decoder[OffsetKey] = msgspec.msgpack.Decoder(OffsetKey)
_used_decoder: msgspec.msgpack.Decoder[int | tuple[int, int]] = msgspec.msgpack.Decoder(
    int | tuple[int, int]
)
encode = _encoder.encode
decode_head = _head_decoder.decode
decode_topic = _topic_decoder.decode


def decode_version(head: bytes) -> int:
    """The version that wrote a head and all other rows."""
    return _version_decoder.decode(head).version


def topic_key(name: str) -> bytes:
    """Of a topic's configuration."""
    return b"t" + name.encode()


def offset_key(key: OffsetKey) -> bytes:
    """Of a consumer offset; groups may hold any character."""
    return b"o" + _encoder.encode(key)


def decode_offset_key(key: bytes) -> OffsetKey:
    """The reverse of ``offset_key``."""
    return _offset_decoder.decode(key[1:])


def decode_used(value: bytes) -> tuple[int, int]:
    """A consumer offset and its hour; 0 in rows from before there were hours."""
    found = _used_decoder.decode(value)
    return (found, 0) if isinstance(found, int) else found


def queue_key(key: QueueKey) -> bytes:
    """Of a queue."""
    return b"q" + _queue(key)


def queues_of(topic: str) -> tuple[bytes, bytes]:
    """The range of the queues of a topic."""
    name = b"q" + topic.encode()
    return name + b"\0", name + b"\1"


def decode_queue_key(key: bytes) -> QueueKey:
    """The reverse of ``queue_key``."""
    return key[1:-5].decode(), _ID.unpack(key[-4:])[0] - _ID_SIGN


def run_prefix(key: QueueKey) -> bytes:
    """The prefix of the keys of a queue's entries."""
    return b"e" + _queue(key)


def run_key(prefix: bytes, offset: int) -> bytes:
    """Of the entries from ``offset`` on."""
    return prefix + _FROM.pack(offset)


def run_start(key: bytes) -> int:
    """The offset in a key of entries."""
    return int(_FROM.unpack(key[-8:])[0])


def encode_queue(first: int, minimum: int, maximum: int) -> bytes:
    """The value of a queue."""
    return _QUEUE.pack(first, minimum, maximum)


def decode_queue(value: bytes) -> tuple[int, int, int]:
    """The reverse of ``encode_queue``."""
    return _QUEUE.unpack(value)


def _queue(key: QueueKey) -> bytes:
    return key[0].encode() + b"\0" + _ID.pack(key[1] + _ID_SIGN)
