"""The byte layout of a message record, and the limits every part keeps.

Upstream: ``MessageDecoder``, ``MessageVersion``, ``MessageSysFlag``, ``CommitLog``,
``MessageStoreConfig``. All integers are big-endian and signed.

====== ==== ===================================================================
offset size field (IPv4 hosts; each IPv6 host adds 12 bytes)
====== ==== ===================================================================
0      4    total size, this field included
4      4    magic
8      4    CRC-32 of the stored body & 0x7fffffff
12     4    queue id
16     4    flag of the user
20     8    queue offset
28     8    physical offset
36     4    system flag
40     8    born timestamp, ms
48     8    born host: address, port as int32
56     8    store timestamp, ms
64     8    store host
72     4    reconsume times
76     8    prepared transaction offset
84     4    body size, then the body
…      1/2  topic size (two bytes in version 2), then the topic
…      2    properties size, then the properties
====== ==== ===================================================================
"""

import ipaddress
import struct
from functools import lru_cache

from gantry_protocol.errors import RecordError

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
BLANK_HEADER_BYTES = 8  # a blank states its size and magic; a record leaves that much in its file

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_RECORD_BYTES = MAX_BODY_BYTES + 64 * 1024
MAX_PROPERTIES_BYTES = 32767  # the size is an int16
MAX_TOPIC_V1_BYTES = 127  # the size is an int8
MAX_TOPIC_BYTES = 255
MAX_GROUP_CHARS = 120
MIN_RECORD_BYTES = 91  # IPv4 hosts, version 1, nothing variable

QUEUE_OFFSET = 20
SYS_FLAG_OFFSET = 36
BORN_HOST_OFFSET = 48
RECONSUME_OFFSET = 72  # with IPv4 hosts

Host = tuple[str, int]

# total, magic, crc, queue id, flag, queue offset, physical offset, system flag, born timestamp,
# born host, store timestamp, store host, reconsume times, prepared offset, body size; by host
# families.
FIXED = {
    0: struct.Struct(">iIiiiqqiq8sq8siqi"),
    BORN_HOST_V6: struct.Struct(">iIiiiqqiq20sq8siqi"),
    STORE_HOST_V6: struct.Struct(">iIiiiqqiq8sq20siqi"),
    BORN_HOST_V6 | STORE_HOST_V6: struct.Struct(">iIiiiqqiq20sq20siqi"),
}
HOST_FAMILIES = BORN_HOST_V6 | STORE_HOST_V6

_PORT = struct.Struct(">i")


@lru_cache(maxsize=4096)
def pack_host(host: Host) -> bytes:
    """``(ip, port)`` as 8 or 20 bytes.

    Raises:
        RecordError: not an IP address, or no port.
    """
    ip, port = host
    try:
        return ipaddress.ip_address(ip).packed + _PORT.pack(port)
    except (ValueError, struct.error) as error:
        raise RecordError(f"{ip!r} port {port!r} is no host a record can hold.") from error


@lru_cache(maxsize=4096)
def unpack_host(data: bytes) -> Host:
    """The reverse of :func:`pack_host`."""
    return str(ipaddress.ip_address(data[:-4])), _PORT.unpack(data[-4:])[0]


def blank(size: int) -> bytes:
    """``size`` bytes that fill the end of a file; only the first eight mean anything."""
    assert size >= BLANK_HEADER_BYTES
    return struct.pack(">iI", size, BLANK_MAGIC) + bytes(size - BLANK_HEADER_BYTES)
