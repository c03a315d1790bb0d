"""One message record: encode, decode, patch what only the log knows.

The same bytes are stored in the commit log and handed to consumers. Encoding is one pass over
prebuilt structs. Decoding believes no length it has not checked, and refuses a record whose parts
do not add up to its size.
"""

import struct
import zlib
from functools import lru_cache
from typing import TypeAlias

import msgspec

from gantry_protocol.errors import RecordError
from gantry_protocol.records.layout import (
    BORN_HOST_V6,
    FIXED,
    HOST_FAMILIES,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_V1_BYTES,
    STORE_HOST_V6,
    SYS_FLAG_OFFSET,
    Host,
    pack_host,
    unpack_host,
)
from gantry_protocol.records.scan import ScanKind, scan

Buffer: TypeAlias = bytes | bytearray | memoryview

_INT32 = struct.Struct(">i")
_UINT16 = struct.Struct(">H")
_NO_HOST: Host = ("0.0.0.0", 0)  # noqa: S104 - the address a record has before it is stored


class MessageRecord(msgspec.Struct, array_like=True):
    """All fields of a record.

    ``properties`` is the encoded text (see :mod:`gantry_protocol.records.properties`). ``sys_flag``
    need not carry the host family bits: encoding sets them from the hosts. ``magic`` and ``size``
    are what was read; encoding chooses the version by the topic's length.
    """

    topic: str
    queue_id: int = 0
    body: bytes = b""
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_timestamp: int = 0
    born_host: Host = _NO_HOST
    store_timestamp: int = 0
    store_host: Host = _NO_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int = MAGIC_V1
    size: int = 0


def masked_crc(body: Buffer) -> int:
    """CRC-32 without its sign bit, as upstream's ``UtilAll.crc32``."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_record(record: MessageRecord) -> bytes:
    """The bytes of ``record``; version 1, unless the topic is too long for it.

    Raises:
        RecordError: a part does not fit its field.
    """
    magic, topic = topic_part(record.topic)
    properties = record.properties.encode()
    properties_size = len(properties)
    if properties_size > MAX_PROPERTIES_BYTES:
        raise RecordError(
            f"The properties take {properties_size} bytes; a record holds {MAX_PROPERTIES_BYTES}."
        )
    born, store = pack_host(record.born_host), pack_host(record.store_host)
    families = families_of(born, store)
    fixed = FIXED[families]
    body = record.body
    body_size = len(body)
    total = fixed.size + body_size + len(topic) + 2 + properties_size
    try:
        head = fixed.pack(
            total,
            magic,
            masked_crc(body),
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            (record.sys_flag & ~HOST_FAMILIES) | families,
            record.born_timestamp,
            born,
            record.store_timestamp,
            store,
            record.reconsume_times,
            record.prepared_transaction_offset,
            body_size,
        )
    except struct.error as error:
        raise RecordError(f"A number does not fit the record: {error}.") from error
    return b"".join((head, body, topic, _UINT16.pack(properties_size), properties))


def families_of(born: bytes, store: bytes) -> int:
    """The bits of the system flag that say which of two packed hosts is IPv6."""
    return (BORN_HOST_V6 if len(born) > 8 else 0) | (STORE_HOST_V6 if len(store) > 8 else 0)


@lru_cache(maxsize=4096)
def topic_part(name: str) -> tuple[int, bytes]:
    """The magic of a record of this topic, and the topic with its length before it.

    Raises:
        RecordError: no record has such a topic.
    """
    topic = name.encode()
    size = len(topic)
    if not 0 < size <= MAX_TOPIC_BYTES:
        raise RecordError(f"The topic takes {size} bytes; 1 to {MAX_TOPIC_BYTES} are allowed.")
    if size <= MAX_TOPIC_V1_BYTES:
        return MAGIC_V1, bytes((size,)) + topic
    return MAGIC_V2, _UINT16.pack(size) + topic


def decode_record(buffer: Buffer, position: int = 0, *, check_crc: bool = True) -> MessageRecord:
    """The record at ``position``.

    Raises:
        RecordError: there is no whole, sound record; says why.
    """
    found = scan(buffer, position, check_crc=check_crc)
    if found.kind is not ScanKind.RECORD:
        raise RecordError(f"There is no record at byte {position}: {found.reason}.")
    (sys_flag,) = _INT32.unpack_from(buffer, position + SYS_FLAG_OFFSET)
    fixed = FIXED[sys_flag & HOST_FAMILIES]
    (
        size, magic, _crc, queue_id, flag, queue_offset, physical_offset, _sys_flag, born_timestamp,
        born, store_timestamp, store, reconsume_times, prepared_offset, body_size,
    ) = fixed.unpack_from(buffer, position)  # fmt: skip
    body_end = position + fixed.size + body_size
    topic_start = body_end + (1 if magic == MAGIC_V1 else 2)
    topic_end = topic_start + found.topic_size
    try:
        topic = str(buffer[topic_start:topic_end], "utf-8")
        properties = str(buffer[topic_end + 2 : position + size], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"The record at byte {position} holds text that is not UTF-8.") from error
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=bytes(buffer[body_end - body_size : body_end]),
        properties=properties,
        flag=flag,
        sys_flag=sys_flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        born_timestamp=born_timestamp,
        born_host=unpack_host(born),
        store_timestamp=store_timestamp,
        store_host=unpack_host(store),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        magic=magic,
        size=size,
    )


def decode_records(buffer: Buffer) -> list[MessageRecord]:
    """All records of a pull answer, which has nothing between them.

    Raises:
        RecordError: one of them is no sound record. (Java's decoder would drop the rest silently.)
    """
    records = []
    position = 0
    while position < len(buffer):
        records.append(decode_record(buffer, position))
        position += records[-1].size
    return records
