"""The checkpoint of everything that is derived from the log.

It holds, as of one confirmed log offset: the extent and checksums of every consume queue, the topic
table, the consumer offsets and the newest store timestamp. Replay of the log from that offset gives
the state at any later one. The file is derived itself: when it, or a queue file it vouches for, is
damaged, all derived state is thrown away and made again from the start of the log.
"""

import struct
from pathlib import Path

import google_crc32c
import msgspec
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.process.files import atomic_write
from gantry_protocol.types import Offset

from gantry_broker.queues.consume_queue import QueueState
from gantry_broker.queues.state_records import Gathered
from gantry_broker.tables.offsets import OffsetRow

_HEAD = struct.Struct(">4sII")  # magic, version, CRC-32C of the rest
_MAGIC = b"GQST"
_VERSION = 1


class DerivedState(msgspec.Struct, frozen=True):
    """What the log below ``offset`` leads to.

    Attributes:
        offset: a boundary of units; everything below was confirmed.
        store_timestamp: of the newest record below ``offset``, ms; 0 without any.
        queues: the consume queues.
        topics_version: of the topic table.
        topics: the topic table.
        consumer_offsets: the consumer offsets.
        whole_from: where the newest whole state in the log begins; None before the first.
        gathered: pieces of a state that may become whole.
    """

    offset: Offset
    store_timestamp: int = 0
    queues: list[QueueState] = []
    topics_version: int = 0
    topics: list[TopicConfig] = []
    consumer_offsets: list[OffsetRow] = []
    whole_from: Offset | None = None
    gathered: Gathered | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DerivedState)


def encode(state: DerivedState) -> bytes:
    """The bytes of the file."""
    body = _encoder.encode(state)
    return _HEAD.pack(_MAGIC, _VERSION, google_crc32c.value(body)) + body


def save(path: Path, data: bytes) -> None:
    """Replace the file with encoded state, durably."""
    atomic_write(path, data)


def load(path: Path) -> DerivedState | None:
    """The checkpoint; None when there is none.

    Raises:
        CorruptionError: its checksum is wrong; the log still has everything.
        DataDirError: a newer version of Gantry wrote it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEAD.size:
        raise CorruptionError(path, len(data), "it is cut short")
    magic, version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or crc != google_crc32c.value(body):
        raise CorruptionError(path, 0, "it does not match its checksum")
    if version != _VERSION:
        raise DataDirError(
            f"{path} has version {version}, this program reads version {_VERSION}: start the"
            " version that wrote it, or delete the directory to have it made again."
        )
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise CorruptionError(path, _HEAD.size, f"it does not read: {error}") from error
