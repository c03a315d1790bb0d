"""Message ids: the offset id that names a place, and the unique key that names a message.

Upstream: ``MessageDecoder.createMessageId`` and ``MessageClientIDSetter``. Clients take offset ids
apart (view by id, transactions), so the host in it must be one where the record can be asked for.
"""

import ipaddress
import os
import secrets
import struct
import time
from collections.abc import Iterable

from gantry_protocol.errors import RecordError
from gantry_protocol.records.layout import Host, pack_host, unpack_host

_OFFSET = struct.Struct(">q")
_TAIL = struct.Struct(">HIIH")  # process id, loader hash, ms since the month began, counter
_START = struct.Struct(">HI")  # the part of the tail that one start of a process keeps


def offset_msg_id(host: str, port: int, physical_offset: int) -> str:
    """32 (IPv4) or 56 (IPv6) upper-case hex digits."""
    return (pack_host((host, port)) + _OFFSET.pack(physical_offset)).hex().upper()


def offset_msg_ids(host: str, port: int, physical_offsets: Iterable[int]) -> str:
    """The offset ids of several records, with commas between them."""
    packed = pack_host((host, port))
    ids = packed.join([b"", *map(_OFFSET.pack, physical_offsets)])
    return ids.hex(",", len(packed) + _OFFSET.size).upper()


def decode_offset_msg_id(message_id: str) -> tuple[Host, int]:
    """The store host and the physical offset in an offset id.

    Raises:
        RecordError: it is none.
    """
    try:
        raw = bytes.fromhex(message_id)
    except ValueError as error:
        raise RecordError(f"{message_id[:64]!r} is no offset id.") from error
    if len(message_id) != 2 * len(raw) or len(raw) not in (16, 28):
        raise RecordError(f"{message_id[:64]!r} is no offset id.")
    return unpack_host(raw[:-8]), _OFFSET.unpack(raw[-8:])[0]


class UniqueKeys:
    """Unique keys in upstream's form, for messages whose client set none.

    Args:
        ip: this broker's address.
        loader_hash: what tells two starts with one process id apart; None draws one.
    """

    def __init__(self, ip: str, loader_hash: int | None = None) -> None:
        packed = ipaddress.ip_address(ip).packed
        self._head = packed
        self._process = os.getpid() & 0xFFFF
        self._loader = secrets.randbits(32) if loader_hash is None else loader_hash
        self._counter = 0

    def made(self, key: str) -> bool:
        """Whether ``key`` is one of these: by address, process and loader hash."""
        start = self._head + _START.pack(self._process, self._loader)
        return key.startswith(start.hex().upper())

    def next(self, now_ms: int) -> str:
        """The key for a message that arrived at ``now_ms``; 65,536 per millisecond differ."""
        now = time.gmtime(now_ms / 1000)
        into_month_ms = (
            ((now.tm_mday - 1) * 24 + now.tm_hour) * 60 + now.tm_min
        ) * 60_000 + now.tm_sec * 1000
        self._counter = (self._counter + 1) & 0xFFFF
        tail = _TAIL.pack(self._process, self._loader, into_month_ms + now_ms % 1000, self._counter)
        return (self._head + tail).hex().upper()
